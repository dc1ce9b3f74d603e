//! The environment of the process, read once and passed as a value, so that tests can use their own. Also what follows from it:
//! folders, the time zone, and whether colours are used.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Environment variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    /// Names of variables whose values are not UTF-8.
    garbled: Vec<String>,
}

impl Environment {
    /// The environment of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::new(std::env::vars_os())
    }

    /// An environment of these variables.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Self::default();
        for (name, value) in variables {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => drop(environment.variables.insert(name, value)),
                Err(_) => environment.garbled.push(name),
            }
        }
        environment
    }

    /// A variable that is set and not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// Whether a variable is set, even to nothing.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    /// The variables with this prefix, sorted by name.
    pub fn beginning<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.variables.iter().filter(move |(n, _)| n.starts_with(prefix)).map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// The variables with this prefix whose values are not UTF-8.
    pub fn garbled<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.garbled.iter().map(String::as_str).filter(move |n| n.starts_with(prefix))
    }

    /// The user's own configuration file.
    #[must_use]
    pub fn user_file(&self) -> Option<PathBuf> {
        Some(self.xdg("XDG_CONFIG_HOME", ".config")?.join("annie/annie.toml"))
    }

    /// The default data folder.
    #[must_use]
    pub fn data_folder(&self) -> Option<PathBuf> {
        Some(self.xdg("XDG_DATA_HOME", ".local/share")?.join("annie"))
    }

    /// An XDG folder: an absolute path in the variable, or the default below the home folder.
    fn xdg(&self, name: &str, below_home: &str) -> Option<PathBuf> {
        let absolute = |name: &str| self.get(name).map(PathBuf::from).filter(|p| p.is_absolute());
        absolute(name).or_else(|| Some(absolute("HOME")?.join(below_home)))
    }

    /// The IANA name of the system's time zone: from `TZ`, `/etc/timezone` or the target of `/etc/localtime`; else UTC.
    #[must_use]
    pub fn timezone(&self) -> String {
        let named = self.get("TZ").map(|tz| tz.trim_start_matches(':').to_owned());
        let written = || std::fs::read_to_string("/etc/timezone").ok().map(|t| t.trim().to_owned());
        let linked = || zone_of_link(&std::fs::canonicalize("/etc/localtime").ok()?);
        let known = |zone: &String| zone.parse::<chrono_tz::Tz>().is_ok();
        let found = named.filter(known).or_else(|| written().filter(known)).or_else(|| linked().filter(known));
        found.unwrap_or_else(|| "UTC".to_owned())
    }

    /// Whether colours are disabled: by `NO_COLOR`, or by a terminal without colours.
    #[must_use]
    pub fn no_color(&self) -> bool {
        self.get("NO_COLOR").is_some() || self.is_dumb_terminal()
    }

    /// Whether the terminal cannot move its cursor.
    #[must_use]
    pub fn is_dumb_terminal(&self) -> bool {
        self.get("TERM") == Some("dumb")
    }
}

fn zone_of_link(path: &Path) -> Option<String> {
    let path = path.to_str()?;
    Some(path.split_once("/zoneinfo/")?.1.to_owned())
}

#[cfg(test)]
impl Environment {
    /// An environment of these variables.
    pub fn of(variables: &[(&str, &str)]) -> Self {
        Self::new(variables.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))))
    }
}
