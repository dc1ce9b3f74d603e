//! `annie key`: API keys, at a running server or in the data folder.

use std::{io::Write, path::Path};

use annie_core::ids::UserId;
use serde_json::{Value, json};

use super::{
    args::Key,
    client::encoded,
    dlq::confirmed,
    failure::{Exit, Failure},
    site::Site,
    tables::fitted,
};
use crate::{
    auth::{KeyScope, MadeKey, NewKey, create_key, list_keys, revoke_key},
    boot::Mark,
    http::keys,
    system,
};

/// `annie key`
///
/// # Errors
/// If the key is not valid or does not exist, or neither server nor data folder can be used.
pub async fn run(site: &Site, command: Key) -> Result<(), Failure> {
    match command {
        Key::Create { name, user, scopes, days, out, yes } => {
            let user = user.map_or_else(|| Ok(site.user()), UserId::new);
            let user = user.map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
            if !yes {
                keeps_an_operator(site, &scopes).await?;
            }
            create(site, Options { name, user, scopes, days }, out.as_deref()).await
        }
        Key::List => list(site).await,
        Key::Own => own(site).await,
        Key::Revoke { id } => revoke(site, &id).await,
    }
}

/// Asks before the first key of a running server if it lets nothing make another one: from then on every request needs a key.
async fn keeps_an_operator(site: &Site, scopes: &[String]) -> Result<(), Failure> {
    if scopes.iter().any(|scope| scope == KeyScope::Admin.as_str()) {
        return Ok(());
    }
    let Some(client) = site.server().await? else { return Ok(()) };
    // A caller that may not list the keys has a key.
    let Ok(listed) = client.get("/api/v1/keys").await else { return Ok(()) };
    let is_usable = |key: &Value| key["revoked_at"].is_null();
    if listed["keys"].as_array().into_iter().flatten().any(is_usable) {
        return Ok(());
    }
    let question = "this is the first key and has not the scope admin: from then on every request needs a key, and none can make \
                    keys or operate the server. Create it?";
    confirmed(site, question).await.map_err(|failure| match failure.exit {
        Exit::Usage => failure.fix("add --scope admin (and the others that it needs), or --yes to create it as it is"),
        _ => failure,
    })
}

struct Options {
    name: String,
    user: UserId,
    scopes: Vec<String>,
    days: Option<u32>,
}

async fn create(site: &Site, options: Options, out: Option<&Path>) -> Result<(), Failure> {
    let scopes = options.scopes.iter().map(|s| s.parse::<KeyScope>().map_err(|e| Failure::new(Exit::Usage, e)));
    let scopes = scopes.collect::<Result<Vec<_>, _>>()?;
    // The file is created first, so that no key is created that cannot be written.
    let file = out.map(new_file).transpose()?;
    let made = match make(site, options, scopes).await {
        Ok(made) => made,
        Err(failure) => {
            // An empty file would make the next attempt fail.
            out.map(std::fs::remove_file);
            return Err(failure);
        }
    };
    hand_over(site, made, file.zip(out))
}

async fn make(site: &Site, options: Options, scopes: Vec<KeyScope>) -> Result<Value, Failure> {
    match site.server().await? {
        Some(client) => {
            let mut body = json!({"name": options.name, "user": options.user, "scopes": options.scopes});
            if let Some(days) = options.days {
                body["expires_in_days"] = json!(days);
            }
            client.post("/api/v1/keys", &body).await
        }
        None => {
            let (store, env) = (site.store().await?, system::env());
            let expires_at = options.days.map(|days| env.now().plus_ms(i64::from(days) * 86_400_000));
            let new = NewKey { name: options.name, user: options.user, scopes, expires_at };
            let made = create_key(&*store, new, &env).await;
            store.close().await;
            let MadeKey { key, secret, warning } = made?;
            Mark::note_keys(&site.folder);
            let mut made = json!(keys::Key::from(key));
            made["secret"] = json!(secret);
            if let Some(warning) = warning {
                made["warning"] = json!(warning);
            }
            Ok(made)
        }
    }
}

fn hand_over(site: &Site, mut made: Value, file: Option<(std::fs::File, &Path)>) -> Result<(), Failure> {
    let secret = made["secret"].as_str().unwrap_or_default().to_owned();
    if let Some(warning) = made["warning"].as_str() {
        site.console.say_always(&format!("warning: {warning}"));
    }
    if let Some((mut file, path)) = file {
        writeln!(file, "{secret}").map_err(|e| Failure::io(&format!("cannot write {}", path.display()), &e))?;
        if let Some(made) = made.as_object_mut() {
            made.remove("secret");
        }
        site.console.say(&format!("the key is in {}; use it with --key-file", path.display()));
        return if site.console.is_json() { site.console.json(&made) } else { Ok(()) };
    }
    if site.console.is_json() {
        return site.console.json(&made);
    }
    site.console.say(
        "this key is shown this once; send it as `Authorization: Bearer KEY`, or put it into a file for --key-file:",
    );
    site.console.line(&secret)
}

fn new_file(path: &Path) -> Result<std::fs::File, Failure> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|e| Failure::io(&format!("cannot make {}", path.display()), &e))
}

async fn list(site: &Site) -> Result<(), Failure> {
    let answer = match site.server().await? {
        Some(client) => client.get("/api/v1/keys").await?,
        None => {
            let keys = list_keys(&*site.store().await?).await?;
            json!({"keys": keys.into_iter().map(keys::Key::from).collect::<Vec<_>>()})
        }
    };
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let keys: Vec<&Value> = answer["keys"].as_array().into_iter().flatten().collect();
    if keys.is_empty() {
        site.console.say("no keys: only this machine has access");
        return Ok(());
    }
    let rows = keys.iter().map(|key| {
        let text = |name: &str| key[name].as_str().unwrap_or_default().to_owned();
        let scopes: Vec<&str> = key["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let state = match (key["revoked_at"].as_str(), key["expires_at"].as_str()) {
            (Some(at), _) => format!("revoked {at}"),
            (None, Some(at)) => format!("until {at}"),
            (None, None) => "valid".to_owned(),
        };
        vec![text("id"), text("name"), text("user"), scopes.join(","), text("last_used_at"), state]
    });
    site.console.line(&fitted(
        site.console.columns(),
        &["id", "name", "user", "scopes", "last used", "state"],
        rows.collect(),
    ))
}

async fn own(site: &Site) -> Result<(), Failure> {
    let key = site.running().await?.get("/api/v1/keys/self").await?;
    if site.console.is_json() {
        return site.console.json(&key);
    }
    let scopes: Vec<&str> = key["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let id = key["id"].as_str().unwrap_or("no key: a caller on this machine");
    site.console.line(&format!(
        "{id}\nuser   {}\nscopes {}",
        key["user"].as_str().unwrap_or_default(),
        scopes.join(", ")
    ))
}

async fn revoke(site: &Site, id: &str) -> Result<(), Failure> {
    let key = match site.server().await? {
        Some(client) => client.post(&format!("/api/v1/keys/{}/revoke", encoded(id)), &json!({})).await?,
        None => json!(keys::Key::from(revoke_key(&*site.store().await?, id, &system::env()).await?)),
    };
    if site.console.is_json() {
        return site.console.json(&key);
    }
    site.console.line(&format!("revoked {id}: the key is not valid any more"))
}
