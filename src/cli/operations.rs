//! `annie operations`: lists long-running work of skills, and delivers its results.

use annie_core::ids::OperationId;
use annie_llm::Secret;
use serde_json::{Value, json};

use super::{
    args::{Operations, PageArgs},
    client::Client,
    console::{table, tame},
    failure::{Exit, Failure},
    page,
    site::Site,
};

/// `annie operations`
///
/// # Errors
/// If no server runs, or there is no such operation.
pub async fn run(site: &Site, command: Operations) -> Result<(), Failure> {
    let client = site.running().await?;
    match command {
        Operations::List { open, page } => list(site, &client, open, &page).await,
        Operations::Show { id } => {
            let keys =
                ["id", "skill", "task_id", "conversation_id", "opened_at", "expires_at", "closed_at", "closed_by"];
            print(site, &client.get(&format!("/api/v1/operations/{id}")).await?, &keys)
        }
        Operations::Key { id } => {
            print(site, &client.get(&format!("/api/v1/operations/{id}/key")).await?, &["id", "path", "key"])
        }
        Operations::Finish { id, text, failed, result_data, operation_key_file } => {
            let key = match operation_key_file {
                Some(file) => crate::config::read_key(&file, "--operation-key-file")?,
                None => own_key(&client, id).await?,
            };
            let data: Value = match result_data {
                None => Value::Null,
                Some(data) => serde_json::from_str(&data)
                    .map_err(|e| Failure::new(Exit::Usage, format!("--result-data is no JSON: {e}")))?,
            };
            let body = json!({"ok": !failed, "text": text.join(" "), "data": data});
            let answer = client.post_with(&format!("/api/v1/resume/{id}"), &body, "x-operation-key", &key).await?;
            if site.console.is_json() {
                return site.console.json(&answer);
            }
            let how =
                if answer["repeated"] == true { "the result was delivered before" } else { "the result is delivered" };
            site.console.line(&format!("{how}, as {}", answer["task_id"].as_str().unwrap_or_default()))
        }
    }
}

async fn own_key(client: &Client, id: OperationId) -> Result<Secret, Failure> {
    let answer = client.get(&format!("/api/v1/operations/{id}/key")).await?;
    Ok(Secret::new(answer["key"].as_str().unwrap_or_default()))
}

fn print(site: &Site, answer: &Value, keys: &[&str]) -> Result<(), Failure> {
    if site.console.is_json() {
        return site.console.json(answer);
    }
    let lines = keys.iter().filter_map(|key| answer[*key].as_str().map(|text| format!("{key:<16} {}", tame(text))));
    site.console.line(&lines.collect::<Vec<_>>().join("\n"))
}

async fn list(site: &Site, client: &Client, open: bool, page: &PageArgs) -> Result<(), Failure> {
    let answer = client.get(&format!("/api/v1/operations?open={open}&{}", page::query(page))).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let all: Vec<&Value> = answer["operations"].as_array().into_iter().flatten().collect();
    if all.is_empty() {
        site.console.say(if open { "no open operations" } else { "no operations" });
        return Ok(());
    }
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let rows = all.iter().map(|one| {
        let state = if one["open"] == true { "awaited" } else { "ended" };
        vec![text(one, "id"), text(one, "skill"), state.to_owned(), text(one, "opened_at"), text(one, "expires_at")]
    });
    site.console.line(&table(&["id", "skill", "state", "started", "awaited until"], rows.collect()))?;
    page::say_more(site, all.len(), &answer);
    Ok(())
}
