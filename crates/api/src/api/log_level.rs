//! The level of the process's log, which the process hands in: the front ends only show and set it.

/// The level of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLevel {
    /// The level in force, or a list of levels by module.
    pub level: String,
    /// The level of the configuration.
    pub configured: String,
}

/// The log of a process.
pub trait LogControl: Send + Sync {
    /// The level now.
    fn level(&self) -> LogLevel;

    /// Sets the level until the process ends; an empty text restores the configured one. Returns the level in force.
    ///
    /// # Errors
    /// If the text is no level, or the log does not take it: a text for people.
    fn set(&self, level: &str) -> Result<LogLevel, String>;
}
