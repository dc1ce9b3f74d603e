//! Merges the configuration layers, and records the origin of each value.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use toml::{
    Spanned, Table, Value,
    de::{DeTable, DeValue},
};

use super::{
    convenience,
    environment::Environment,
    error::{ConfigError, Location},
    settings::Config,
    typed::{KeyError, typed},
    values,
};

/// The system-wide configuration file.
const SYSTEM_FILE: &str = "/etc/annie/annie.toml";
/// The prefix of environment variables for settings.
const PREFIX: &str = "ANNIE__";
/// The keys whose values are lists of tables.
const LISTS: [&str; 5] = ["backend", "channel", "hook", "mcp", "route"];
/// The maximum size of a configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A setting from a command-line flag.
#[derive(Debug, Clone, PartialEq)]
pub struct Flag {
    /// The flag, such as `--data`.
    pub name: &'static str,
    /// The path of the setting.
    pub path: &'static [&'static str],
    /// The value.
    pub value: Value,
}

/// The sources of a configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sources {
    /// Optional files, in the order in which they are merged.
    pub files: Vec<PathBuf>,
    /// The file named with `--config`. It must exist.
    pub asked: Option<PathBuf>,
    /// The environment variables.
    pub environment: Environment,
    /// The command-line flags.
    pub flags: Vec<Flag>,
}

/// A configuration with the origins of its values.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// The origins of all values that are not defaults, by path.
    pub origins: BTreeMap<Vec<String>, Location>,
    /// The files that were found.
    pub files: Vec<PathBuf>,
    /// The environment that was used.
    pub environment: Environment,
}

impl Loaded {
    /// The origin of a setting.
    #[must_use]
    pub fn origin(&self, path: &[&str]) -> Location {
        let path: Vec<String> = path.iter().map(|s| (*s).to_owned()).collect();
        self.origins.get(&path).cloned().unwrap_or(Location::Default)
    }
}

impl Sources {
    /// The usual sources of the process.
    #[must_use]
    pub fn usual(environment: Environment, asked: Option<PathBuf>, flags: Vec<Flag>) -> Self {
        let files = [Some(PathBuf::from(SYSTEM_FILE)), environment.user_file()].into_iter().flatten().collect();
        Self { files, asked, environment, flags }
    }

    /// One file merged over the defaults, for `config check`. Settings from the environment are ignored.
    #[must_use]
    pub fn only(path: PathBuf) -> Self {
        Self { asked: Some(path), ..Self::default() }
    }

    /// Loads the configuration.
    ///
    /// # Errors
    /// If a file cannot be read, or with all errors found in the settings.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let mut layers = Layers::default();
        let mut found = Vec::new();
        for path in &self.files {
            if let Some(text) = read(path, false)? {
                layers.file(path, &text)?;
                found.push(path.clone());
            }
        }
        if let Some(path) = &self.asked
            && let Some(text) = read(path, true)?
        {
            layers.file(path, &text)?;
            found.push(path.clone());
        }
        if !layers.table.contains_key("backend") {
            for (path, value, variable) in convenience::backend(&self.environment)? {
                layers.set(&path, value, &Location::Environment(variable));
            }
        } else if let Some(model) = self.environment.get(convenience::MODEL) {
            let path = ["backend", &layers.first_model().to_string(), "model"].map(str::to_owned);
            layers.set(&path, model.into(), &Location::Environment(convenience::MODEL.to_owned()));
        }
        layers.environment(&self.environment)?;
        for Flag { name, path, value } in &self.flags {
            let path: Vec<String> = path.iter().map(|s| (*s).to_owned()).collect();
            layers.set(&path, value.clone(), &Location::Flag((*name).to_owned()));
        }
        let config = typed(layers.table.clone()).map_err(|e| layers.explain(e))?;
        let mut problems = values::problems(&layers.table);
        problems.extend(config.problems());
        if let Some(error) = ConfigError::all(problems.into_iter().map(|e| layers.explain(e)).collect()) {
            return Err(error);
        }
        Ok(Loaded { config, origins: layers.origins, files: found, environment: self.environment.clone() })
    }
}

/// The text of a file; nothing if the file is optional and missing.
fn read(path: &Path, must: bool) -> Result<Option<String>, ConfigError> {
    use std::io::{ErrorKind, Read};
    let failed =
        |e: std::io::Error, fix: &str| ConfigError::new(Location::file(path), format!("cannot be read: {e}"), fix);
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if !must && matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => {
            return Err(failed(e, "check the path and its permissions; `annie config init FILE` writes a new one"));
        }
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| failed(e, "it must be text in UTF-8"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let what = format!("is longer than {FILE_BYTES_MAX} bytes");
        return Err(ConfigError::new(Location::file(path), what, "this is hardly a configuration: check the path"));
    }
    Ok(Some(text))
}

#[derive(Default)]
struct Layers {
    table: Table,
    origins: BTreeMap<Vec<String>, Location>,
}

impl Layers {
    /// Merges a file. Its structure is checked separately, so that errors name the right file.
    fn file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let at = |offset: usize| Location::File { path: path.to_owned(), at: Some(line_and_column(text, offset)) };
        let spanned = DeTable::parse(text).map_err(|e| {
            let location = e.span().map_or_else(|| Location::file(path), |span| at(span.start));
            let what = format!("not TOML: {}", e.message().trim());
            ConfigError::new(location, what, "see https://toml.io, or `annie config sample` for an example")
        })?;
        if let Some(offset) = too_large(spanned.get_ref()) {
            let what = format!("a whole number is not between {} and {}", i64::MIN, i64::MAX);
            return Err(ConfigError::new(at(offset), what, "give a smaller one, or leave the key out"));
        }
        let table: Table = text.parse().map_err(|e: toml::de::Error| {
            ConfigError::new(Location::file(path), format!("not TOML: {}", e.message().trim()), "see https://toml.io")
        })?;
        let wrong = misshapen(table.clone()).into_iter().map(|e| {
            let location = at(offset_of(&spanned, &e.path, e.is_key));
            ConfigError::new(location, e.what, e.fix)
        });
        if let Some(error) = ConfigError::all(wrong.collect()) {
            return Err(error);
        }
        for leaf in leaves(&table) {
            let location = at(offset_of(&spanned, &leaf, true));
            self.origins.insert(leaf, location);
        }
        for list in LISTS.into_iter().filter(|list| table.contains_key(*list)) {
            // The backends, channels, rules and hooks of a later file replace those of an earlier file.
            self.origins.retain(|leaf, location| {
                leaf[0] != list || matches!(location, Location::File { path: of, .. } if of == path)
            });
        }
        merge(&mut self.table, table);
        Ok(())
    }

    /// Merges the `ANNIE__SECTION__KEY` variables.
    fn environment(&mut self, environment: &Environment) -> Result<(), ConfigError> {
        if let Some(name) = environment.garbled(PREFIX).next() {
            let location = Location::Environment(name.to_owned());
            return Err(ConfigError::new(location, "its value is not UTF-8", "write it as UTF-8"));
        }
        for (name, text) in environment.beginning(PREFIX) {
            let path: Vec<String> = name[PREFIX.len()..].split("__").map(str::to_ascii_lowercase).collect();
            // Compose files and unit files may pass on an empty variable; an empty one counts as not set.
            if path == ["store", "url"] && text.trim().is_empty() {
                continue;
            }
            let value = fitting(&path, text).map_err(|e| {
                let fix = match e.fix.strip_prefix("did you mean `").and_then(|rest| rest.strip_suffix("`?")) {
                    Some(key) => {
                        let mut right: Vec<String> = path.iter().map(|s| s.to_ascii_uppercase()).collect();
                        let last = e.path.len().clamp(1, right.len()) - 1;
                        right[last] = key.to_ascii_uppercase();
                        format!("did you mean {PREFIX}{}?", right.join("__"))
                    }
                    None => e.fix,
                };
                ConfigError::new(Location::Environment(name.to_owned()), e.what, fix)
            })?;
            self.set(&path, value, &Location::Environment(name.to_owned()));
        }
        Ok(())
    }

    /// The index of the first backend that is a model server.
    fn first_model(&self) -> usize {
        let is_model = |b: &Value| b.get("kind").and_then(Value::as_str).is_none_or(|kind| kind == "model");
        let backends = self.table.get("backend").and_then(Value::as_array);
        backends.and_then(|list| list.iter().position(is_model)).unwrap_or(0)
    }

    fn set(&mut self, path: &[String], value: Value, location: &Location) {
        put(&mut self.table, path, value);
        self.origins.insert(self.landed(path), location.clone());
    }

    /// The path at which a value was stored: an index beyond the end of the backend list appends to it.
    fn landed(&self, path: &[String]) -> Vec<String> {
        let mut path = path.to_vec();
        if let [list, at, ..] = path.as_mut_slice()
            && list == "backend"
            && let Ok(wanted) = at.parse::<usize>()
            && let Some(Value::Array(backends)) = self.table.get("backend")
        {
            *at = wanted.min(backends.len().saturating_sub(1)).to_string();
        }
        path
    }

    /// The first location within the nearest enclosing table of a path.
    fn beside(&self, path: &[String]) -> Option<&Location> {
        let line = |location: &&Location| match location {
            Location::File { at, .. } => *at,
            _ => None,
        };
        (1..path.len()).rev().find_map(|depth| {
            let within = self.origins.iter().filter(|(leaf, _)| leaf.starts_with(&path[..depth]));
            within.map(|(_, location)| location).min_by_key(line)
        })
    }

    /// Adds to an error the location that its value comes from.
    fn explain(&self, error: KeyError) -> ConfigError {
        let below = |leaf: &&Vec<String>| leaf.starts_with(&error.path);
        let around = || (1..error.path.len()).rev().find_map(|depth| self.origins.get(&error.path[..depth]));
        let inside = || self.origins.get(self.origins.keys().find(below)?);
        // The key is missing: the error is located at its table.
        let beside = || self.beside(&error.path);
        let origin = self.origins.get(&error.path).or_else(inside).or_else(around).or_else(beside);
        ConfigError::new(origin.cloned().unwrap_or(Location::Default), error.what, error.fix)
    }
}

/// The value of an environment variable for a path: parsed as TOML (a number, a list and so on) if such a value is valid there,
/// otherwise the text itself.
fn fitting(path: &[String], text: &str) -> Result<Value, KeyError> {
    let fits = |value: &Value| {
        let mut alone = Table::new();
        // In the check the table has one backend, with the index 0.
        let path: Vec<String> = match path {
            [list, at, rest @ ..] if list == "backend" && at.parse::<usize>().is_ok() => {
                [vec![list.clone(), "0".to_owned()], rest.to_vec()].concat()
            }
            other => other.to_vec(),
        };
        put(&mut alone, &path, value.clone());
        let as_command = path.first().is_some_and(|list| list == "backend").then(|| {
            let mut command = alone.clone();
            put(&mut command, &["backend", "0", "kind"].map(str::to_owned), "command".into());
            command
        });
        // Whether the key belongs to a model server or to a program is known only after all layers are merged.
        typed(alone).or_else(|e| as_command.map_or(Err(()), |c| typed(c).map_err(drop)).map_err(|()| e)).map(drop)
    };
    let plain = Value::String(text.to_owned());
    let parsed = format!("v = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("v"));
    match parsed {
        Some(value) if !value.is_str() => match fits(&value) {
            Ok(()) => Ok(value),
            Err(error) if fits(&plain).is_err() => Err(error),
            Err(_) => Ok(plain),
        },
        _ => fits(&plain).map(|()| plain),
    }
}

/// The maximum number of errors of one file that are reported together.
const MISTAKES_MAX: usize = 20;

/// All structural errors of a table. After each error the wrong entry is removed and the rest is checked again. Of one
/// backend, channel, rule, hook or MCP server only the first error is reported, because others may follow from it.
fn misshapen(mut table: Table) -> Vec<KeyError> {
    let mut found = Vec::new();
    while found.len() < MISTAKES_MAX
        && let Err(error) = typed(table.clone())
    {
        let taken = take_out(&mut table, &error.path);
        found.push(error);
        if !taken {
            break;
        }
    }
    found
}

fn take_out(table: &mut Table, path: &[String]) -> bool {
    match path {
        [] => false,
        [key] => table.remove(key).is_some(),
        [list, at, ..] if LISTS.contains(&list.as_str()) => {
            let items = table.get_mut(list).and_then(Value::as_array_mut);
            let Some(item) = items.and_then(|items| items.get_mut(at.parse::<usize>().ok()?)) else { return false };
            // A valid entry replaces the wrong one, so that the indices of the others do not change.
            let right = match list.as_str() {
                "route" => "name = \"x\"\nwhen = {}\nto = {}\n",
                "channel" => "name = \"x\"\nkind = \"webhook\"\nurl = \"http://x\"\n",
                "mcp" => "name = \"x\"\ncommand = [\"/x\"]\n",
                "hook" => "name = \"x\"\npoint = \"before_skill\"\nkind = \"refuse\"\n",
                _ => "",
            };
            let right = Value::Table(right.parse().unwrap_or_default());
            let before = std::mem::replace(item, right);
            before != *item
        }
        [key, rest @ ..] => match table.get_mut(key) {
            Some(Value::Table(inner)) => take_out(inner, rest),
            _ => table.remove(key).is_some(),
        },
    }
}

/// The offset of an integer that is valid TOML but does not fit into an `i64`.
fn too_large(table: &DeTable<'_>) -> Option<usize> {
    fn within(value: &Spanned<DeValue<'_>>) -> Option<usize> {
        match value.get_ref() {
            DeValue::Integer(number) => {
                let digits = number.as_str().replace('_', "");
                i64::from_str_radix(&digits, number.radix()).is_err().then(|| value.span().start)
            }
            DeValue::Array(items) => items.iter().find_map(within),
            DeValue::Table(inner) => too_large(inner),
            _ => None,
        }
    }
    table.iter().find_map(|(_, value)| within(value))
}

fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => drop(base.insert(key, value)),
        }
    }
}

/// Sets one value. Missing tables are created, and in the backend list the next index appends a table.
fn put(table: &mut Table, path: &[String], value: Value) {
    match path {
        [] => {}
        [key] => drop(table.insert(key.clone(), value)),
        [key, at, rest @ ..] if key == "backend" && at.parse::<usize>().is_ok() && !rest.is_empty() => {
            let list = table.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = list {
                let at = at.parse::<usize>().unwrap_or(0).min(list.len());
                if at == list.len() {
                    list.push(Value::Table(Table::new()));
                }
                if let Value::Table(inner) = &mut list[at] {
                    put(inner, rest, value);
                }
            }
        }
        [key, rest @ ..] => {
            let inner = table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()));
            if !inner.is_table() {
                *inner = Value::Table(Table::new());
            }
            if let Value::Table(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// The paths of all values. A list is a value, except the lists of backends, channels, rules and hooks.
pub(super) fn leaves(table: &Table) -> Vec<Vec<String>> {
    fn walk(path: &[String], value: &Value, found: &mut Vec<Vec<String>>) {
        let mut down = |key: String, value: &Value| walk(&[path, &[key]].concat(), value, found);
        match value {
            Value::Table(table) if !table.is_empty() => table.iter().for_each(|(key, v)| down(key.clone(), v)),
            Value::Array(list)
                if path.len() == 1 && LISTS.contains(&path[0].as_str()) && list.iter().all(Value::is_table) =>
            {
                list.iter().enumerate().for_each(|(at, v)| down(at.to_string(), v));
            }
            _ => found.push(path.to_vec()),
        }
    }
    let mut found = Vec::new();
    table.iter().for_each(|(key, value)| walk(std::slice::from_ref(key), value, &mut found));
    found
}

/// The offset of a path in a file: of its key, or of its value. If the path is missing, the nearest enclosing table.
fn offset_of(document: &Spanned<DeTable<'_>>, path: &[String], key: bool) -> usize {
    let mut offset = 0;
    let mut table = Some(document.get_ref());
    let mut list = None;
    for (depth, part) in path.iter().enumerate() {
        let found = match (table, list) {
            (Some(inner), _) => inner.iter().find(|(k, _)| k.get_ref() == part).map(|(k, v)| (k.span().start, v)),
            (None, Some(items)) => {
                let items: &toml::de::DeArray<'_> = items;
                part.parse().ok().and_then(|at: usize| items.get(at)).map(|v| (v.span().start, v))
            }
            (None, None) => None,
        };
        let Some((key_at, value)) = found else { break };
        offset = if key || depth + 1 < path.len() { key_at } else { value.span().start };
        (table, list) = match value.get_ref() {
            DeValue::Table(inner) => (Some(inner), None),
            DeValue::Array(items) => (None, Some(items)),
            _ => (None, None),
        };
    }
    offset
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}
