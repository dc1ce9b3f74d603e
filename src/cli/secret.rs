//! `annie secret`: stores, lists and deletes secrets of users and of the installation. Values are read from stdin or a file and
//! never shown.

use std::{io::Read, path::Path, sync::Arc};

use annie_core::{
    ids::UserId,
    ports::{Storage, Store},
};
use annie_llm::Secret;
use serde_json::{Value, json};

use super::{
    args::SecretCommand,
    failure::{Exit, Failure},
    site::Site,
    tables::fitted,
};
use crate::{
    error::AppError,
    secrets::{SealingKey, valid_secret_name},
    system,
};

/// The shortest value, in bytes. A shorter one would be masked inside ordinary words.
const VALUE_BYTES_MIN: usize = 8;
/// The longest value, in bytes.
const VALUE_BYTES_MAX: u64 = 16 * 1024;

/// `annie secret`
///
/// # Errors
/// If there is no key, the name or the value is not valid, the secret does not exist, or the database cannot be used.
pub async fn run(site: &Site, command: SecretCommand) -> Result<(), Failure> {
    match command {
        SecretCommand::Set { name, user, file } => set(site, &name, owner(user)?, file.as_deref()).await,
        SecretCommand::List => list(site).await,
        SecretCommand::Delete { name, user } => delete(site, name, owner(user)?).await,
    }
}

/// The user of `--user`; `None` stands for the installation.
fn owner(user: Option<String>) -> Result<Option<UserId>, Failure> {
    user.map(UserId::new).transpose().map_err(|e| Failure::new(Exit::Usage, e.to_string()))
}

async fn set(site: &Site, name: &str, user: Option<UserId>, file: Option<&Path>) -> Result<(), Failure> {
    if !valid_secret_name(name) {
        let what = format!("{name:?} cannot be the name of a secret");
        return Err(
            Failure::new(Exit::Usage, what).fix("use 1 to 64 small letters, digits, dashes, underscores and dots")
        );
    }
    let Some(key) = site.loaded.config.secrets.key(&site.loaded.environment)? else {
        let what = "no key is configured that seals secrets";
        let fix =
            "write the output of `openssl rand -hex 32` into a file of mode 0600, and name it as secrets.key_file";
        return Err(Failure::new(Exit::Usage, what).fix(fix));
    };
    let value = value(file)?;
    let env = system::env();
    let sealed = key.seal((user, name), &value, env.entropy.as_ref(), env.now());
    let sealed = sealed.map_err(|what| Failure::new(Exit::Failure, what))?;
    let store = store(site).await?;
    let stored = store.put_sealed_secret(sealed).await;
    store.close().await;
    stored.map_err(AppError::from)?;
    site.console.say(&format!("stored {name}"));
    Ok(())
}

/// The store, which a running server with SQLite holds.
async fn store(site: &Site) -> Result<Arc<dyn Storage>, Failure> {
    site.store().await.map_err(|failure| match failure.exit {
        Exit::Unavailable if failure.what.contains("in use by another process") => {
            failure.fix("a running server holds the secrets: stop it, then do this again (--url does not help here)")
        }
        _ => failure,
    })
}

/// The value in a file, or on stdin, without surrounding white space.
fn value(file: Option<&Path>) -> Result<Secret, Failure> {
    let mut text = String::new();
    let read = match file {
        Some(path) => {
            std::fs::File::open(path).and_then(|file| file.take(VALUE_BYTES_MAX + 1).read_to_string(&mut text))
        }
        None => std::io::stdin().take(VALUE_BYTES_MAX + 1).read_to_string(&mut text),
    };
    read.map_err(|e| Failure::io("cannot read the secret", &e))?;
    let text = text.trim();
    if text.len() < VALUE_BYTES_MIN || text.len() as u64 > VALUE_BYTES_MAX {
        let what = format!("the secret must have {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX} bytes");
        return Err(Failure::new(Exit::Usage, what).fix("write it to stdin, or name a file with --file"));
    }
    Ok(Secret::new(text))
}

async fn list(site: &Site) -> Result<(), Failure> {
    let key = site.loaded.config.secrets.key(&site.loaded.environment)?;
    let store = store(site).await?;
    let secrets = store.sealed_secrets().await;
    store.close().await;
    let rows: Vec<Value> = secrets
        .map_err(AppError::from)?
        .iter()
        .map(|secret| {
            let user = secret.user.as_ref().map(UserId::as_str);
            let state = match &key {
                None => "no key",
                Some(key) if key.open(secret).is_some() => "opens",
                Some(_) => "another key",
            };
            json!({"name": secret.name, "user": user, "updated_at": secret.updated_at.to_string(), "state": state})
        })
        .collect();
    if site.console.is_json() {
        return site.console.json(&json!({"secrets": rows}));
    }
    if rows.is_empty() {
        site.console.say("no secrets are stored");
        return Ok(());
    }
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or("(installation)").to_owned();
    let cells = rows.iter().map(|row| ["name", "user", "updated_at", "state"].map(|key| text(row, key)).to_vec());
    site.console.line(&fitted(site.console.columns(), &["name", "user", "changed", "state"], cells.collect()))
}

async fn delete(site: &Site, name: String, user: Option<UserId>) -> Result<(), Failure> {
    let store = store(site).await?;
    let deleted = store.delete_sealed_secret(user, name.clone()).await;
    store.close().await;
    if !deleted.map_err(AppError::from)? {
        let what = format!("there is no secret {name:?} of this owner");
        return Err(Failure::new(Exit::NotFound, what).fix("`annie secret list` shows all"));
    }
    site.console.say(&format!("deleted {name}"));
    Ok(())
}

/// What is wrong with the stored secrets, and how to fix it; nothing if all of them open.
pub async fn problem(store: &dyn Store, key: Option<&SealingKey>) -> Option<(String, &'static str)> {
    let secrets = store.sealed_secrets().await.ok().filter(|secrets| !secrets.is_empty())?;
    let Some(key) = key else {
        let what = format!("{} stored, and no key is configured that opens them", secrets.len());
        return Some((what, "set secrets.key_file to the file with their key"));
    };
    let closed: Vec<&str> =
        secrets.iter().filter(|secret| key.open(secret).is_none()).map(|secret| secret.name.as_str()).collect();
    let what = format!("the configured key does not open {}", closed.join(", "));
    (!closed.is_empty()).then_some((what, "configure the former key, or store them again with `annie secret set`"))
}
