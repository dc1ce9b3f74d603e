//! `annie data`: lists what skills store of the user, and exports or deletes the documents and conversations of a user, in the data folder or in
//! the PostgreSQL database.

use std::{collections::BTreeMap, sync::Arc};

use annie_actors::ErasedUser;
use annie_core::{
    event::Scope,
    ids::{ConversationId, Seq, UserId},
    ports::{Before, Documents, ExportedDocument, Storage, StoreErrorKind},
    time::Micros,
};
use serde_json::{Value, json};

use super::{
    args::{Data, DataKind},
    client::encoded,
    failure::{Exit, Failure},
    listing::{Listing, plain},
    site::Site,
    tables::fitted,
};
use crate::boot::{self, BootError};

pub(super) const LIST: Listing = Listing {
    command: "data list",
    rows: "documents",
    columns: &[("#", "number"), ("changed", "updated_at"), ("deleted", "deleted_at"), ("text", "body")],
};

/// Documents per read.
const PAGE_ROWS: u32 = 500;

/// `annie data`
///
/// # Errors
/// If the name of the user is not valid, there is no database, or a server uses it alone.
pub async fn run(site: &Site, command: Data) -> Result<(), Failure> {
    match command {
        Data::List { kind, words, deleted } => list(site, kind, &words.join(" "), deleted).await,
        Data::Export { user } => {
            let (user, store) = opened(site, &user).await?;
            let done = async {
                export(site, &*store, &user).await?;
                export_conversations(site, &*store, &user).await
            }
            .await;
            store.close().await;
            done
        }
        Data::Delete { user, yes } => {
            let (user, store) = opened(site, &user).await?;
            let done = delete(site, &*store, &user, yes).await;
            store.close().await;
            done
        }
        Data::Compact => {
            let store = open(site).await?;
            let done = store.compact().await;
            store.close().await;
            done?;
            site.console.say_always("the database has no space of deleted rows any more");
            Ok(())
        }
    }
}

/// All conversations of a user, also the deleted ones that are not erased yet: each event a line.
async fn export_conversations(site: &Site, store: &dyn Storage, user: &UserId) -> Result<(), Failure> {
    for id in conversations(store, user).await? {
        let mut after = Seq(0);
        loop {
            let page = store.events(Scope::User(user.clone()), id, after, PAGE_ROWS).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            page.iter().try_for_each(|event| site.console.json(&json!({"conversation": id, "event": event})))?;
        }
    }
    Ok(())
}

/// The conversations of a user, with those in the trash and those whose erasure was interrupted.
async fn conversations(store: &dyn Storage, user: &UserId) -> Result<Vec<ConversationId>, Failure> {
    let (scope, mut before, mut all) = (Scope::User(user.clone()), Before::NEWEST, Vec::new());
    loop {
        let page = store.conversations(scope.clone(), before, PAGE_ROWS).await?;
        let Some(last) = page.last() else { break };
        before = last.page_start();
        all.extend(page.iter().map(|row| row.id));
    }
    let deleted = store.due_erasures(scope, Micros(i64::MAX), i32::MAX as u32).await?;
    all.extend(deleted.into_iter().map(|deletion| deletion.conversation));
    Ok(all)
}

async fn list(site: &Site, kind: DataKind, words: &str, deleted: bool) -> Result<(), Failure> {
    let (path, kind) = (LIST.path(), kind.as_str());
    let query = if words.is_empty() { String::new() } else { format!("&query={}", encoded(words)) };
    let route = format!("{path}?kind={kind}&deleted={deleted}{query}");
    let answer = site.running().await?.get(&route).await?;
    LIST.print_with(site, &answer, "there is nothing", |row, key| {
        let body = &row["body"];
        (key == "body").then(|| plain(body.get("title").or_else(|| body.get("content")).unwrap_or(body)))
    })
}

/// The user, and the store.
async fn opened(site: &Site, user: &str) -> Result<(UserId, Arc<dyn Storage>), Failure> {
    let user = UserId::new(user).map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
    Ok((user, open(site).await?))
}

async fn open(site: &Site) -> Result<Arc<dyn Storage>, Failure> {
    let (config, environment) = (&site.loaded.config, &site.loaded.environment);
    if config.store.address(environment)?.is_none() && !site.has_database() {
        let what = format!("there is no database in {}", site.folder.display());
        return Err(Failure::new(Exit::NotFound, what).fix("name the data folder with --data"));
    }
    match boot::open_store(config, environment, &site.folder).await {
        Err(BootError::Store { source, folder }) if source.kind == StoreErrorKind::Locked => {
            let what = format!("a server uses the data folder {} alone", folder.display());
            Err(Failure::new(Exit::Unavailable, what).fix("stop it, run this command again, and start it"))
        }
        opened => Ok(opened?),
    }
}

async fn export(site: &Site, documents: &dyn Documents, user: &UserId) -> Result<(), Failure> {
    let mut after = None;
    loop {
        let page = documents.export_documents(user.clone(), after, PAGE_ROWS).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some((last.namespace.clone(), last.document.number));
        for one in &page {
            site.console.json(&line(one))?;
        }
    }
}

/// A document in the JSON form of the export.
fn line(exported: &ExportedDocument) -> Value {
    let ExportedDocument { namespace, document, archived_at } = exported;
    let mut line = json!({
        "namespace": namespace, "number": document.number, "body": document.body,
        "created_at": document.created_at.to_string(), "updated_at": document.updated_at.to_string(),
    });
    for (name, at) in [("accessed_at", document.accessed_at), ("archived_at", *archived_at)] {
        if let Some(at) = at {
            line[name] = at.to_string().into();
        }
    }
    line
}

async fn delete(site: &Site, store: &dyn Storage, user: &UserId, is_confirmed: bool) -> Result<(), Failure> {
    let counts = counts(store, user).await?;
    let total: u64 = counts.values().sum();
    let talks = conversations(store, user).await?.len();
    let (mut deleted, mut done) = (0, ErasedUser::default());
    if is_confirmed {
        let now = crate::system::env().now();
        done = annie_actors::erase_user(store, store, user, &format!("{user} (data delete)"), now).await?;
        deleted = store.delete_documents(user.clone()).await?;
        store.compact().await?;
    }
    let erased = done.conversations;
    if site.console.is_json() {
        site.console.json(&json!({
            "user": user, "documents": counts, "deleted": deleted, "conversations": talks, "erased_conversations": erased,
        }))?;
        return all_erased(&done);
    }
    if total > 0 {
        let rows = counts.iter().map(|(namespace, count)| vec![namespace.clone(), count.to_string()]);
        site.console.line(&fitted(site.console.columns(), &["namespace", "documents"], rows.collect()))?;
    }
    site.console.say_always(&match (is_confirmed, total + talks as u64) {
        (_, 0) => format!("user {user} has no documents and no conversations"),
        (true, _) => format!("documents of user {user} deleted: {deleted}; conversations erased: {erased}"),
        (false, _) => format!(
            "nothing was deleted; to delete all of them for good, {total} documents and {talks} conversations, add --yes"
        ),
    });
    all_erased(&done)
}

/// The failure of a deletion that left content.
fn all_erased(done: &ErasedUser) -> Result<(), Failure> {
    let Some((conversation, error)) = done.failed.first() else { return Ok(()) };
    let what = format!("conversations that could not be erased: {}; {conversation}: {error}", done.failed.len());
    Err(Failure::new(Exit::Failure, what).fix("run this command again; `annie doctor` examines the database"))
}

/// The number of a user's documents by namespace.
async fn counts(documents: &dyn Documents, user: &UserId) -> Result<BTreeMap<String, u64>, Failure> {
    let (mut counts, mut after) = (BTreeMap::new(), None);
    loop {
        let page = documents.export_documents(user.clone(), after, PAGE_ROWS).await?;
        let Some(last) = page.last() else { return Ok(counts) };
        after = Some((last.namespace.clone(), last.document.number));
        for one in page {
            *counts.entry(one.namespace).or_default() += 1;
        }
    }
}
