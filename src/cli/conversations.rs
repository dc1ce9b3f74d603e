//! `annie conversations`: lists conversations, from a server or from the data folder, and resumes quarantined ones.

use annie_core::{event::Scope, ids::ConversationId, ports::ConversationRow};
use serde_json::{Value, json};

use super::{
    args::{Conversations, PageArgs},
    console::table,
    failure::{Exit, Failure},
    page,
    site::Site,
};
use crate::api::page::next_of;

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

/// A row in the JSON form of the API.
fn value(row: &ConversationRow) -> Value {
    json!({
        "id": row.id, "title": row.title, "last_seq": row.last_seq, "created_at": row.created_at.to_string(),
        "updated_at": row.updated_at.to_string(),
    })
}

async fn list(site: &Site, page: &PageArgs, all: bool) -> Result<(), Failure> {
    let answer = match site.server().await? {
        Some(client) => client.get(&format!("/api/v1/conversations?{}&stateless={all}", page::query(page))).await?,
        None => {
            let store = site.store().await?;
            let (scope, before, limit) = (Scope::User(site.user()), page::before(page)?, page.limit);
            let rows = match all {
                true => store.conversations(scope, before, limit).await,
                false => store.listed_conversations(scope, before, limit).await,
            };
            let rows = rows.map_err(crate::error::AppError::from)?;
            let next = next_of(&rows, limit, ConversationRow::page_start);
            json!({"conversations": rows.iter().map(value).collect::<Vec<_>>(), "next": next})
        }
    };
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let all: Vec<&Value> = answer["conversations"].as_array().into_iter().flatten().collect();
    if all.is_empty() {
        site.console.say("no conversations yet: annie ask \"...\"");
        return Ok(());
    }
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let rows = all.iter().map(|c| vec![text(c, "id"), text(c, "updated_at"), text(c, "title")]);
    site.console.line(&table(&["id", "updated", "first message"], rows.collect()))?;
    page::say_more(site, all.len(), &answer);
    Ok(())
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
