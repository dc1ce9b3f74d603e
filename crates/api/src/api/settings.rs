//! A setting as operators see it.

use serde_json::Value;

/// One value of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The path of the setting, such as `server.bind`.
    pub key: String,
    /// The value, with secrets masked.
    pub value: Value,
    /// The default, the file with its line, the variable or the flag that the value comes from.
    pub origin: String,
}
