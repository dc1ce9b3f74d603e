//! What can be wrong with a backend before any call is made.

/// A backend that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// A setting does not fit.
    #[error("model `{name}`: {what}")]
    Config {
        /// The configured name of the backend.
        name: String,
        /// What is wrong, naming the setting.
        what: String,
    },
    /// The HTTP client could not be made: no certificates, no TLS.
    #[error("model `{name}`: cannot build the HTTP client")]
    Client {
        /// The configured name of the backend.
        name: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
}
