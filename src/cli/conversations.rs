//! `annie conversations`: lists conversations, from a server or from the data folder, and resumes quarantined ones.

use annie_core::{event::Scope, ids::ConversationId, ports::ConversationRow};
use serde_json::json;

use super::{
    args::{Conversations, PageArgs},
    failure::{Exit, Failure},
    listing::Listing,
    page,
    site::Site,
};
use crate::{api::page::Page, ops};

pub(super) const LIST: Listing = Listing {
    command: "conversations list",
    rows: "conversations",
    columns: &[("id", "id"), ("updated", "updated_at"), ("first message", "title")],
};

/// `annie conversations`
///
/// # Errors
/// If there is no such conversation, or neither server nor data folder answers.
pub async fn run(site: &Site, command: Conversations) -> Result<(), Failure> {
    match command {
        Conversations::List { page, all } => list(site, &page, all).await,
        Conversations::Resume { id } => resume(site, id).await,
    }
}

async fn list(site: &Site, page: &PageArgs, all: bool) -> Result<(), Failure> {
    let answer = match site.server().await? {
        Some(client) => client.get(&format!("{}?{}&stateless={all}", LIST.path(), page::query(page))).await?,
        None => {
            let store = site.store().await?;
            let (scope, before, limit) = (Scope::User(site.user()), page::before(page)?, page.limit);
            let rows = match all {
                true => store.conversations(scope, before, limit).await,
                false => store.listed_conversations(scope, before, limit).await,
            };
            let rows = rows.map_err(crate::error::AppError::from)?;
            json!(ops::conversations::Conversations::from(Page::of(rows, limit, ConversationRow::page_start)))
        }
    };
    LIST.print(site, &answer, "no conversations yet: annie ask \"...\"")
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
