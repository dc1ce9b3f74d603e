//! `annie tasks`: messages and their results, from a server or from the data folder.

use annie_core::{
    event::Scope,
    ids::{ConversationId, Seq, TaskId},
    ports::{Log, TaskRow},
};
use serde_json::{Value, json};

use super::{
    args::{PageArgs, Tasks},
    failure::{Exit, Failure},
    listing::{Listing, print_object},
    page,
    site::Site,
};
use crate::{api::page::Page, boot, ops};

/// Number of events that are read at a time to find an answer.
const EVENTS: u32 = 500;

pub(super) const LIST: Listing = Listing {
    command: "tasks list",
    rows: "tasks",
    columns: &[("id", "id"), ("status", "status"), ("received", "received_at"), ("message", "title")],
};

/// `annie tasks`
///
/// # Errors
/// If there is no such task, or neither server nor data folder can be used.
pub async fn run(site: &Site, command: Tasks) -> Result<(), Failure> {
    match command {
        Tasks::List { open, page } => list(site, open, &page).await,
        Tasks::Show { id } => show(site, id).await,
        Tasks::Cancel { id } => cancel(site, id).await,
    }
}

async fn list(site: &Site, open: bool, page: &PageArgs) -> Result<(), Failure> {
    let answer = listed(site, open, page).await?;
    LIST.print(site, &answer, if open { "no open tasks" } else { "no tasks yet: annie ask \"...\"" })
}

/// A page of the tasks.
///
/// # Errors
/// If neither server nor data folder can be used.
pub(super) async fn listed(site: &Site, open: bool, page: &PageArgs) -> Result<Value, Failure> {
    Ok(match site.server().await? {
        Some(client) => client.get(&format!("{}?open={open}&{}", LIST.path(), page::query(page))).await?,
        None => {
            let store = site.store().await?;
            let rows = store.tasks(Scope::User(site.user()), open, page::before(page)?, page.limit).await;
            let rows = rows.map_err(crate::error::AppError::from)?;
            json!(ops::tasks::Tasks::from(Page::of(rows, page.limit, TaskRow::page_start)))
        }
    })
}

async fn show(site: &Site, id: TaskId) -> Result<(), Failure> {
    let (mut task, final_text) = match site.server().await? {
        Some(client) => {
            let task = client.get(&format!("/api/v1/tasks/{id}")).await?;
            let conversation = task["conversation_id"].as_str().unwrap_or_default().to_owned();
            let mut next = Some(String::new());
            let mut found = None;
            while let Some(from) = next {
                let page = client
                    .get(&format!("/api/v1/conversations/{conversation}/events?next={from}&limit={EVENTS}"))
                    .await?;
                let events = page["events"].as_array().cloned().unwrap_or_default();
                found = found.or_else(|| events.into_iter().find_map(|event| ending(&event, id)));
                next = page["next"].as_str().map(str::to_owned).filter(|_| found.is_none());
            }
            (task, found)
        }
        None => {
            let store = site.store().await?;
            let scope = Scope::User(site.user());
            let row = store.task(scope.clone(), id).await.map_err(crate::error::AppError::from)?;
            let row = row.ok_or_else(|| Failure::new(Exit::NotFound, format!("there is no task {id}")))?;
            let found = final_text_of(&*store, scope, row.conversation, id).await?;
            (json!(ops::tasks::Task::from(row)), found)
        }
    };
    if let Some(text) = final_text {
        task["answer"] = json!(text);
    }
    let keys = [
        "id",
        "status",
        "title",
        "conversation_id",
        "priority",
        "source",
        "received_at",
        "started_at",
        "ended_at",
        "error",
        "answer",
    ];
    print_object(site, &task, &keys)
}

async fn final_text_of(
    store: &dyn Log,
    scope: Scope,
    conversation: ConversationId,
    id: TaskId,
) -> Result<Option<String>, Failure> {
    let mut after = Seq(0);
    loop {
        let events =
            store.events(scope.clone(), conversation, after, EVENTS).await.map_err(crate::error::AppError::from)?;
        let Some(last) = events.last().map(|e| e.seq) else { return Ok(None) };
        if let Some(end) = events.iter().filter(|e| e.task == id).find_map(|e| e.body.as_final()) {
            return Ok(Some(end.text().to_owned()));
        }
        after = last;
    }
}

/// The text of a task's final event in its JSON form.
fn ending(event: &Value, id: TaskId) -> Option<String> {
    let is_final = matches!(event["kind"].as_str(), Some("answered" | "failed" | "cancelled"));
    let is_its = event["task_id"].as_str().is_some_and(|task| task == id.to_string());
    (is_final && is_its).then(|| event["text"].as_str().map(str::to_owned)).flatten()
}

async fn cancel(site: &Site, id: TaskId) -> Result<(), Failure> {
    let cancelled = match site.server().await? {
        Some(client) => {
            let answer = client.post(&format!("/api/v1/tasks/{id}/cancel"), &json!({})).await?;
            answer["cancelled"] == true
        }
        None => {
            // A kernel in this process resumes the open tasks, so that the task can be cancelled.
            let own = boot::assemble(&site.loaded, &site.folder).await?;
            let answer = own.kernel.cancel(Scope::User(site.user()), id, "the command line").await;
            own.stop().await;
            answer?
        }
    };
    if site.console.is_json() {
        return site.console.json(&json!({"cancelled": cancelled}));
    }
    site.console.line(if cancelled { "it is being cancelled" } else { "it had ended before" })
}
