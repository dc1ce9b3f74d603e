//! `annie conversations`: lists conversations, from a server or from the data folder, shows and exports their messages, and
//! resumes quarantined ones. The copies are in `src/cli/replay.rs`.

use annie_core::{event::Scope, ids::ConversationId, ports::ConversationRow};
use serde_json::{Value, json};

use super::{
    args::{Conversations, PageArgs},
    client::{Client, encoded},
    console::tame,
    dlq::confirmed,
    failure::{Exit, Failure},
    listing::{Listing, print_object},
    orders, page, replay,
    site::Site,
};
use crate::{api::page::Page, ops};

/// The most messages that the server gives at a time.
const MESSAGES_AT_ONCE: u32 = 200;
/// The most pages of an export, which is held in memory.
const PAGES_MAX: usize = 1_000;

pub(super) const LIST: Listing = Listing {
    command: "conversations list",
    rows: "conversations",
    columns: &[("id", "id"), ("updated", "updated_at"), ("first message", "title")],
};

pub(super) const FOUND: Listing = Listing {
    command: "conversations search",
    rows: "conversations",
    columns: &[("id", "id"), ("title", "title"), ("text", "excerpt")],
};

pub(super) const TRASH: Listing = Listing {
    command: "conversations trash",
    rows: "conversations",
    columns: &[("id", "id"), ("deleted", "deleted_at"), ("erased from", "erase_at"), ("first message", "title")],
};

/// `annie conversations`
///
/// # Errors
/// If there is no such conversation, or neither server nor data folder answers.
pub async fn run(site: &Site, command: Conversations) -> Result<(), Failure> {
    match command {
        Conversations::List { page, all } => list(site, &page, all).await,
        Conversations::Show { id, page } => show(site, site.conversation(id).await?, &page).await,
        Conversations::Export { id, events: true, redact } => {
            replay::export(site, site.conversation(id).await?, redact).await
        }
        Conversations::Export { id, .. } => export(site, site.conversation(id).await?).await,
        Conversations::Fork(options) => replay::fork(site, &options).await,
        Conversations::Import { file } => replay::import(site, &file).await,
        Conversations::Search { words } => search(site, &words.join(" ")).await,
        Conversations::Rename { id, title } => rename(site, site.conversation(id).await?, &title.join(" ")).await,
        Conversations::Delete { id, force, reason, yes } => {
            delete(site, site.conversation(id).await?, force, &reason, yes).await
        }
        Conversations::Trash => {
            let answer = site.running().await?.get(TRASH.path()).await?;
            TRASH.print(site, &answer, "the trash is empty")
        }
        Conversations::Restore { id } => {
            let id = site.conversation(id).await?;
            let restored =
                site.running().await?.post(&format!("/api/v1/conversations/{id}/restore"), &json!({})).await?;
            print_object(site, &restored, &["id", "title"])
        }
        Conversations::Resume { id } => resume(site, site.conversation(id).await?).await,
        Conversations::Suspend { id, because } => orders::suspend(site, site.conversation(id).await?, &because).await,
        Conversations::Continue { id, reason } => {
            orders::continue_conversation(site, site.conversation(id).await?, reason.as_deref()).await
        }
        Conversations::Quarantine { id, because, force } => {
            orders::quarantine(site, site.conversation(id).await?, &because, force).await
        }
    }
}

async fn list(site: &Site, page: &PageArgs, all: bool) -> Result<(), Failure> {
    LIST.print(site, &listed(site, page, all).await?, "no conversations yet: annie ask \"...\"")
}

/// A page of the conversations.
///
/// # Errors
/// If neither server nor data folder can be used.
pub(super) async fn listed(site: &Site, page: &PageArgs, all: bool) -> Result<Value, Failure> {
    Ok(match site.server().await? {
        Some(client) => client.get(&format!("{}?{}&stateless={all}", LIST.path(), page::query(page))).await?,
        None => {
            let store = site.store().await?;
            let (scope, before, limit) = (Scope::User(site.user()), page::before(page)?, page.limit);
            let rows = match all {
                true => store.conversations(scope, before, limit).await,
                false => store.listed_conversations(scope, before, limit).await,
            };
            let rows = rows.map_err(crate::error::AppError::from)?;
            let rows = annie_actors::with_titles(&*store, &site.user(), rows).await;
            let rows = rows.map_err(crate::error::AppError::from)?;
            json!(ops::conversations::Conversations::from(Page::of(rows, limit, ConversationRow::page_start)))
        }
    })
}

async fn show(site: &Site, id: ConversationId, page: &PageArgs) -> Result<(), Failure> {
    let limit = page.limit.min(MESSAGES_AT_ONCE);
    let answer = messages(&site.running().await?, id, limit, page.next.as_deref()).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let rows: Vec<&Value> = answer["messages"].as_array().into_iter().flatten().collect();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    for row in &rows {
        let line = format!("{} {}: {}", text(row, "at"), text(row, "role"), text(row, "text"));
        site.console.line(&tame(&line))?;
    }
    page::say_more(site, rows.len(), &answer);
    Ok(())
}

/// All messages, which the server gives in pages from the newest to the oldest.
async fn export(site: &Site, id: ConversationId) -> Result<(), Failure> {
    let client = site.running().await?;
    let (mut pages, mut next) = (Vec::new(), None);
    loop {
        let answer = messages(&client, id, MESSAGES_AT_ONCE, next.as_deref()).await?;
        pages.push(answer["messages"].as_array().cloned().unwrap_or_default());
        next = answer["next"].as_str().map(str::to_owned);
        if next.is_none() {
            break;
        }
        if pages.len() == PAGES_MAX {
            let what = format!("{id} has more than {} messages", PAGES_MAX * MESSAGES_AT_ONCE as usize);
            return Err(Failure::new(Exit::Failure, what).fix("read it in pages: `annie conversations show --json`"));
        }
    }
    pages.into_iter().rev().flatten().try_for_each(|message| site.console.json(&message))
}

async fn messages(client: &Client, id: ConversationId, limit: u32, next: Option<&str>) -> Result<Value, Failure> {
    client.get(&format!("/api/v1/conversations/{id}/messages?{}", page::parameters(limit, next))).await
}

async fn search(site: &Site, query: &str) -> Result<(), Failure> {
    let client = site.running().await?;
    let answer = client.get(&format!("{}?query={}", FOUND.path(), encoded(query))).await?;
    FOUND.print(site, &answer, "no conversation has all of these words")
}

async fn rename(site: &Site, id: ConversationId, title: &str) -> Result<(), Failure> {
    let client = site.running().await?;
    let renamed = client.post(&format!("/api/v1/conversations/{id}/rename"), &json!({"title": title})).await;
    let renamed = renamed.map_err(|failure| match failure.exit {
        Exit::NotFound => failure.fix("`annie conversations list` shows the conversations and their ids"),
        _ => failure,
    })?;
    print_object(site, &renamed, &["id", "title"])
}

async fn delete(site: &Site, id: ConversationId, force: bool, reason: &str, is_confirmed: bool) -> Result<(), Failure> {
    if !is_confirmed {
        confirmed(site, &format!("delete {id}?")).await?;
    }
    let path = format!("/api/v1/conversations/{id}?force={force}&reason={}", encoded(reason));
    let deleted = site.running().await?.delete(&path).await.map_err(|failure| match failure.exit {
        Exit::NotFound => failure.fix("`annie conversations list` shows the conversations and their ids"),
        _ => failure,
    })?;
    if site.console.is_json() {
        return site.console.json(&deleted);
    }
    let until = deleted["erase_at"].as_str().unwrap_or_default();
    site.console.line(&format!("{id} is deleted; until {until} `annie conversations restore {id}` brings it back"))
}

async fn resume(site: &Site, id: ConversationId) -> Result<(), Failure> {
    // Quarantine is a state of a running kernel: a start continues all open work.
    let client = site.running().await?;
    let done = client.post(&format!("/api/v1/conversations/{id}/resume"), &json!({})).await;
    done.map_err(|failure| match failure.exit {
        Exit::NotFound => failure.fix("`annie actors show /conversations` lists the quarantined conversations"),
        _ => failure,
    })?;
    if site.console.is_json() {
        return site.console.json(&json!({"conversation_id": id, "resumed": true}));
    }
    site.console.line(&format!("{id} is resumed"))
}
