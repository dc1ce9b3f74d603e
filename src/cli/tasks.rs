//! `annie tasks`: messages and their results, from a server or from the data folder.

use annie_core::{
    event::Scope,
    ids::{ConversationId, Seq, TaskId},
    ports::{Log, TaskRow},
    time::Micros,
};
use serde_json::{Value, json};

use super::{
    args::{PageArgs, Tasks},
    console::{table, tame},
    failure::{Exit, Failure},
    page,
    site::Site,
};
use crate::{api::page::next_of, boot};

/// Number of events that are read at a time to find an answer.
const EVENTS: u32 = 500;

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

/// A row in the JSON form of the API.
fn value(row: &TaskRow) -> Value {
    let text = |at: Option<Micros>| at.map(|at| at.to_string());
    let mut value = json!({
        "id": row.id, "conversation_id": row.conversation, "status": row.state, "priority": row.priority,
        "source": row.source, "title": row.title, "received_at": row.received_at.to_string(),
    });
    for (key, text) in [
        ("started_at", text(row.started_at)),
        ("ended_at", text(row.ended_at)),
        ("error", row.failure()),
        ("outcome", row.outcome()),
    ] {
        if let Some(text) = text {
            value[key] = json!(text);
        }
    }
    value
}

async fn list(site: &Site, open: bool, page: &PageArgs) -> Result<(), Failure> {
    let answer = match site.server().await? {
        Some(client) => client.get(&format!("/api/v1/tasks?open={open}&{}", page::query(page))).await?,
        None => {
            let store = site.store().await?;
            let rows = store.tasks(Scope::User(site.user()), open, page::before(page)?, page.limit).await;
            let rows = rows.map_err(crate::error::AppError::from)?;
            let next = next_of(&rows, page.limit, TaskRow::page_start);
            json!({"tasks": rows.iter().map(value).collect::<Vec<_>>(), "next": next})
        }
    };
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let tasks: Vec<&Value> = answer["tasks"].as_array().into_iter().flatten().collect();
    if tasks.is_empty() {
        site.console.say(if open { "no open tasks" } else { "no tasks yet: annie ask \"...\"" });
        return Ok(());
    }
    let text = |task: &Value, key: &str| task[key].as_str().unwrap_or_default().to_owned();
    let rows = tasks.iter().map(|t| vec![text(t, "id"), text(t, "status"), text(t, "received_at"), text(t, "title")]);
    site.console.line(&table(&["id", "status", "received", "message"], rows.collect()))?;
    page::say_more(site, tasks.len(), &answer);
    Ok(())
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
            (value(&row), found)
        }
    };
    if let Some(text) = final_text {
        task["answer"] = json!(text);
    }
    if site.console.is_json() {
        return site.console.json(&task);
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
    let lines = keys.iter().filter_map(|key| task[*key].as_str().map(|text| format!("{key:<16} {}", tame(text))));
    site.console.line(&lines.collect::<Vec<_>>().join("\n"))
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
