//! The effective configuration, one line per value, for `annie config show`. Secrets are masked.

use toml::{Table, Value};

use super::{
    backend::ClientConfig,
    error::Location,
    layers::{Loaded, leaves},
    settings::Config,
    typed::{TURN_ELSEWHERE, dotted},
};

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The path of the setting, such as `server.bind` or `backend.0.model`.
    pub key: String,
    /// The value as it would be written in TOML.
    pub value: Value,
    /// The origin of the value.
    pub origin: Location,
}

/// Every value that is set, sorted by key.
///
/// # Errors
/// If a value cannot be expressed in TOML (a number beyond 2^63).
pub fn lines(loaded: &Loaded) -> Result<Vec<Line>, toml::ser::Error> {
    let table = table(&loaded.config)?;
    let lines = leaves(&table).into_iter().map(|path| {
        let value = path.iter().try_fold(Value::Table(table.clone()), down).unwrap_or(Value::Boolean(false));
        let origin = loaded.origins.get(&path).cloned().unwrap_or(Location::Default);
        Line { key: dotted(&path), value, origin }
    });
    Ok(lines.collect())
}

/// The value in a table or a list.
pub(super) fn down(value: Value, part: &String) -> Option<Value> {
    match value {
        Value::Table(mut table) => table.remove(part),
        Value::Array(mut list) => part.parse().ok().filter(|at| *at < list.len()).map(|at: usize| list.swap_remove(at)),
        _ => None,
    }
}

/// The configuration as one table, including the backends.
pub(super) fn table(config: &Config) -> Result<Table, toml::ser::Error> {
    let mut table = Table::try_from(config)?;
    if let Some(Value::Table(turn)) = table.get_mut("turn") {
        for (key, _) in TURN_ELSEWHERE {
            turn.remove(key);
        }
    }
    // Empty tables are left out.
    table.retain(|_, value| value.as_table().is_none_or(|t| !t.is_empty()));
    let mut list = Vec::new();
    for backend in &config.backend {
        let mut one = match &backend.client {
            ClientConfig::Model(model) => Table::try_from(model)?,
            ClientConfig::Command(command) => Table::try_from(command)?,
        };
        one.extend(Table::try_from(&backend.pool)?);
        // Values that follow from other keys are shown like written ones.
        let facts = backend.facts();
        one.insert("privacy".to_owned(), facts.privacy.as_str().into());
        one.insert("called".to_owned(), facts.called.into());
        one.insert("slots".to_owned(), facts.slots.into());
        one.retain(|_, value| value.as_table().is_none_or(|t| !t.is_empty()));
        list.push(Value::Table(one));
    }
    if !list.is_empty() {
        table.insert("backend".to_owned(), Value::Array(list));
    }
    Ok(table)
}
