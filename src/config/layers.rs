//! Lays the layers over one another, and remembers of each value where it comes from.

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
    error::{ConfigError, Place},
    settings::Config,
    typed::{KeyError, typed},
    values,
};

/// The system's configuration file.
const SYSTEM_FILE: &str = "/etc/annie/annie.toml";
/// What the names of environment variables for settings begin with.
const PREFIX: &str = "ANNIE__";
/// The tables that are lists.
const LISTS: [&str; 2] = ["backend", "route"];
/// The largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A setting that a flag makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Flag {
    /// The flag as it is written: `--data`.
    pub name: &'static str,
    /// Which setting.
    pub path: &'static [&'static str],
    /// Its value.
    pub value: Value,
}

/// Where to look.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sources {
    /// Files that may be missing, in the order in which they are laid over one another.
    pub files: Vec<PathBuf>,
    /// The file that was asked for and must be there.
    pub asked: Option<PathBuf>,
    /// The environment.
    pub environment: Environment,
    /// The flags.
    pub flags: Vec<Flag>,
}

/// A configuration and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Where each value comes from that is not a default, by path.
    pub origins: BTreeMap<Vec<String>, Place>,
    /// The files that were there.
    pub files: Vec<PathBuf>,
    /// The environment that it was read in.
    pub environment: Environment,
}

impl Loaded {
    /// Where a setting comes from.
    #[must_use]
    pub fn origin(&self, path: &[&str]) -> Place {
        let path: Vec<String> = path.iter().map(|s| (*s).to_owned()).collect();
        self.origins.get(&path).cloned().unwrap_or(Place::Default)
    }
}

impl Sources {
    /// The process's usual ones.
    #[must_use]
    pub fn usual(environment: Environment, asked: Option<PathBuf>, flags: Vec<Flag>) -> Self {
        let files = [Some(PathBuf::from(SYSTEM_FILE)), environment.user_file()].into_iter().flatten().collect();
        Self { files, asked, environment, flags }
    }

    /// One file alone over the defaults, for `config check`: the environment's settings do not count.
    #[must_use]
    pub fn only(path: PathBuf) -> Self {
        Self { asked: Some(path), ..Self::default() }
    }

    /// Reads everything.
    ///
    /// # Errors
    /// If a file cannot be read, or the first key that does not fit.
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
                layers.set(&path, value, &Place::Environment(variable));
            }
        } else if let Some(model) = self.environment.get(convenience::MODEL) {
            let path = ["backend", &layers.first_model().to_string(), "model"].map(str::to_owned);
            layers.set(&path, model.into(), &Place::Environment(convenience::MODEL.to_owned()));
        }
        layers.environment(&self.environment)?;
        for Flag { name, path, value } in &self.flags {
            let path: Vec<String> = path.iter().map(|s| (*s).to_owned()).collect();
            layers.set(&path, value.clone(), &Place::Flag((*name).to_owned()));
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

/// A file's text; nothing if it may be missing and is.
fn read(path: &Path, must: bool) -> Result<Option<String>, ConfigError> {
    use std::io::{ErrorKind, Read};
    let failed =
        |e: std::io::Error, fix: &str| ConfigError::new(Place::file(path), format!("cannot be read: {e}"), fix);
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if !must && matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => {
            return Err(failed(e, "check the path and who may read it; `annie config init FILE` writes a new one"));
        }
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| failed(e, "it must be text in UTF-8"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let what = format!("is longer than {FILE_BYTES_MAX} bytes");
        return Err(ConfigError::new(Place::file(path), what, "this is hardly a configuration: check the path"));
    }
    Ok(Some(text))
}

#[derive(Default)]
struct Layers {
    table: Table,
    origins: BTreeMap<Vec<String>, Place>,
}

impl Layers {
    /// Lays a file over what is there. Its shape is checked alone, so that errors name the right file.
    fn file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let at = |offset: usize| Place::File { path: path.to_owned(), at: Some(line_and_column(text, offset)) };
        let spanned = DeTable::parse(text).map_err(|e| {
            let place = e.span().map_or_else(|| Place::file(path), |span| at(span.start));
            let what = format!("not TOML: {}", e.message().trim());
            ConfigError::new(place, what, "see https://toml.io, or `annie config init` for an example")
        })?;
        if let Some(offset) = too_large(spanned.get_ref()) {
            let what = format!("a whole number is not between {} and {}", i64::MIN, i64::MAX);
            return Err(ConfigError::new(at(offset), what, "give a smaller one, or leave the key out"));
        }
        let table: Table = text.parse().map_err(|e: toml::de::Error| {
            ConfigError::new(Place::file(path), format!("not TOML: {}", e.message().trim()), "see https://toml.io")
        })?;
        let wrong = misshapen(table.clone()).into_iter().map(|e| {
            let place = at(offset_of(&spanned, &e.path, e.is_key));
            ConfigError::new(place, e.what, e.fix)
        });
        if let Some(error) = ConfigError::all(wrong.collect()) {
            return Err(error);
        }
        for leaf in leaves(&table) {
            let place = at(offset_of(&spanned, &leaf, true));
            self.origins.insert(leaf, place);
        }
        for list in LISTS.into_iter().filter(|list| table.contains_key(*list)) {
            // A later file's backends stand in place of an earlier one's, not beside them.
            self.origins
                .retain(|leaf, place| leaf[0] != list || matches!(place, Place::File { path: of, .. } if of == path));
        }
        merge(&mut self.table, table);
        Ok(())
    }

    /// Lays `ANNIE__SECTION__KEY` over what is there.
    fn environment(&mut self, environment: &Environment) -> Result<(), ConfigError> {
        if let Some(name) = environment.garbled(PREFIX).next() {
            let place = Place::Environment(name.to_owned());
            return Err(ConfigError::new(place, "its value is not UTF-8", "write it as UTF-8"));
        }
        for (name, text) in environment.beginning(PREFIX) {
            let path: Vec<String> = name[PREFIX.len()..].split("__").map(str::to_ascii_lowercase).collect();
            // Compose files and unit files pass a variable on that may be empty: an empty one is not set.
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
                ConfigError::new(Place::Environment(name.to_owned()), e.what, fix)
            })?;
            self.set(&path, value, &Place::Environment(name.to_owned()));
        }
        Ok(())
    }

    /// The first backend that is a model and no program.
    fn first_model(&self) -> usize {
        let is_model = |b: &Value| b.get("kind").and_then(Value::as_str).is_none_or(|kind| kind == "model");
        let backends = self.table.get("backend").and_then(Value::as_array);
        backends.and_then(|list| list.iter().position(is_model)).unwrap_or(0)
    }

    fn set(&mut self, path: &[String], value: Value, place: &Place) {
        put(&mut self.table, path, value);
        self.origins.insert(self.landed(path), place.clone());
    }

    /// Where a value that was put at a path stands: a backend beyond the end of the list is its last one.
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

    /// The first place of the nearest table around a path.
    fn beside(&self, path: &[String]) -> Option<&Place> {
        let line = |place: &&Place| match place {
            Place::File { at, .. } => *at,
            _ => None,
        };
        (1..path.len()).rev().find_map(|depth| {
            let within = self.origins.iter().filter(|(leaf, _)| leaf.starts_with(&path[..depth]));
            within.map(|(_, place)| place).min_by_key(line)
        })
    }

    /// An error of the whole, at the place where its value comes from.
    fn explain(&self, error: KeyError) -> ConfigError {
        let below = |leaf: &&Vec<String>| leaf.starts_with(&error.path);
        let around = || (1..error.path.len()).rev().find_map(|depth| self.origins.get(&error.path[..depth]));
        let inside = || self.origins.get(self.origins.keys().find(below)?);
        // A key that is not there: its table is where it should be.
        let beside = || self.beside(&error.path);
        let origin = self.origins.get(&error.path).or_else(inside).or_else(around).or_else(beside);
        ConfigError::new(origin.cloned().unwrap_or(Place::Default), error.what, error.fix)
    }
}

/// The value that a variable's text means at a path: a number, a list or the like if that fits there, otherwise the text.
fn fitting(path: &[String], text: &str) -> Result<Value, KeyError> {
    let fits = |value: &Value| {
        let mut alone = Table::new();
        // Alone, the only backend is the first.
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
        // Whether it is a model's key or a program's is known when all is there.
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

/// Mistakes of one file that are told together, at most.
const MISTAKES_MAX: usize = 20;

/// Every key and value of a table whose shape is wrong: what was found is taken out, and the rest looked at again. Of a backend
/// or a rule the first is told: what else it says may follow from that.
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
            // In its place stays one whose shape is right, so that the places of the others stay theirs.
            let right = if list == "route" { "name = \"x\"\nwhen = {}\nto = {}\n" } else { "" };
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

/// Where a whole number stands that TOML allows and nothing here can hold.
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

/// Sets one value; tables on the way are made, and in a list of tables the next place may be taken.
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

/// The paths of all values. Lists are values, except those of backends and rules.
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

/// Where a path stands in a file: its key, or its value; the nearest table around it if it is not there.
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
