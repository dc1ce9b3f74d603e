//! `annie config`: writes a first file, checks a file, shows the effective configuration.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{
    console::Console,
    failure::{Exit, Failure},
    listing::Listing,
    site::Site,
};
use crate::{
    api::Setting,
    config::{Environment, Loaded, SAMPLE, Sources, lines, write_sample},
};

/// `annie config init`
///
/// # Errors
/// If the file exists or cannot be written.
pub fn init(console: &Console, environment: &Environment, file: Option<PathBuf>) -> Result<(), Failure> {
    // As in `annie ask -`, a dash is a stream and no file.
    if file.as_deref().is_some_and(|file| file.as_os_str() == "-") {
        return sample(console);
    }
    let path = file.or_else(|| environment.user_file()).ok_or_else(|| {
        Failure::new(Exit::Usage, "there is no home folder to put it into").fix("name a file: annie config init FILE")
    })?;
    write_sample(&path).map_err(|e| {
        let failure = Failure::io(&format!("cannot write {}", path.display()), &e);
        match e.kind() {
            std::io::ErrorKind::AlreadyExists => failure.fix("edit it, or name another file: annie config init FILE"),
            _ => failure,
        }
    })?;
    if console.is_json() {
        return console.json(&json!({"file": path}));
    }
    console.line(&path.display().to_string())?;
    console.say("edit it, then: annie config check");
    Ok(())
}

/// `annie config sample`
///
/// # Errors
/// If stdout cannot be written.
pub fn sample(console: &Console) -> Result<(), Failure> {
    if console.is_json() { console.json(&json!({"sample": SAMPLE})) } else { console.data(SAMPLE) }
}

/// `annie config check FILE`
///
/// # Errors
/// If the file is not valid.
pub fn check_file(console: &Console, path: PathBuf) -> Result<(), Failure> {
    let shown = path.display().to_string();
    Sources::only(path).load()?;
    if console.is_json() {
        return console.json(&json!({"file": shown, "valid": true}));
    }
    console.line(&format!("{shown} is valid"))
}

/// `annie config check`: checks the effective configuration, including the secrets.
///
/// # Errors
/// If the configuration is not valid.
pub fn check_all(console: &Console, loaded: &Loaded) -> Result<(), Failure> {
    for backend in &loaded.config.backend {
        backend.ready(&loaded.environment)?;
    }
    loaded.config.secrets.key(&loaded.environment)?;
    if console.is_json() {
        return console.json(&json!({"files": loaded.files, "valid": true}));
    }
    let files: Vec<String> = loaded.files.iter().map(|f| f.display().to_string()).collect();
    let from = if files.is_empty() { "no file, only defaults".to_owned() } else { files.join(", ") };
    console.line(&format!("the configuration is valid ({from})"))
}

/// `annie config show`
///
/// # Errors
/// If a value cannot be shown.
pub fn show(console: &Console, loaded: &Loaded, origin: bool) -> Result<(), Failure> {
    let lines = lines(loaded).map_err(|e| Failure::new(Exit::Failure, format!("it cannot be shown: {e}")))?;
    if console.is_json() {
        let value = |line: &crate::config::Line| {
            let mut value = json!({"key": line.key, "value": line.value});
            if origin {
                value["origin"] = Value::from(line.origin.to_string());
            }
            value
        };
        return console.json(&lines.iter().map(value).collect::<Vec<_>>());
    }
    let width = lines.iter().map(|l| l.key.len() + l.value.to_string().len() + 3).max().unwrap_or(0).min(60);
    for line in &lines {
        let text = format!("{} = {}", line.key, line.value);
        if origin { console.line(&format!("{text:<width$}  # {}", line.origin))? } else { console.line(&text)? }
    }
    Ok(())
}

pub(super) const LIST: Listing = Listing {
    command: "config running",
    rows: "settings",
    columns: &[("setting", "key"), ("value", "value"), ("origin", "origin")],
};

/// `annie config running`
///
/// # Errors
/// If no server runs.
pub async fn running(site: &Site) -> Result<(), Failure> {
    LIST.print(site, &site.running().await?.get(LIST.path()).await?, "the server reports no settings")
}

/// The settings of a server, as its front ends show them.
pub(super) fn settings(loaded: &Loaded) -> Vec<Setting> {
    let shown = lines(loaded).unwrap_or_else(|error| {
        tracing::warn!(%error, "the settings cannot be shown");
        Vec::new()
    });
    let setting = |line: crate::config::Line| Setting {
        value: serde_json::to_value(&line.value).unwrap_or(Value::Null),
        key: line.key,
        origin: line.origin.to_string(),
    };
    shown.into_iter().map(setting).collect()
}
