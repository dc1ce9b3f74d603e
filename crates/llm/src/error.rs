//! Configuration errors of a backend, found before any call is made.

/// A backend that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// A setting is invalid.
    #[error("model `{name}`: {what}")]
    Config {
        /// The configured name of the backend.
        name: String,
        /// The problem, including the name of the setting.
        what: String,
    },
    /// The HTTP client could not be built: no certificates, no TLS.
    #[error("model `{name}`: cannot build the HTTP client")]
    Client {
        /// The configured name of the backend.
        name: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
}
