//! `annie operations`: lists long-running work of skills, and delivers its results.

use annie_core::ids::OperationId;
use annie_llm::Secret;
use serde_json::{Value, json};

use super::{
    args::Operations,
    client::Client,
    failure::{Exit, Failure},
    listing::{Listing, print_object},
    page,
    site::Site,
};

pub(super) const LIST: Listing = Listing {
    command: "operations list",
    rows: "operations",
    columns: &[
        ("id", "id"),
        ("skill", "skill"),
        ("state", "open"),
        ("started", "opened_at"),
        ("awaited until", "expires_at"),
    ],
};

/// `annie operations`
///
/// # Errors
/// If no server runs, or there is no such operation.
pub async fn run(site: &Site, command: Operations) -> Result<(), Failure> {
    let client = site.running().await?;
    match command {
        Operations::List { open, page } => {
            let answer = client.get(&format!("{}?open={open}&{}", LIST.path(), page::query(&page))).await?;
            let empty = if open { "no open operations" } else { "no operations" };
            LIST.print_with(site, &answer, empty, |one, key| {
                (key == "open").then(|| if one[key] == true { "awaited" } else { "ended" }.to_owned())
            })
        }
        Operations::Show { id } => {
            let keys =
                ["id", "skill", "task_id", "conversation_id", "opened_at", "expires_at", "closed_at", "closed_by"];
            print_object(site, &client.get(&format!("/api/v1/operations/{id}")).await?, &keys)
        }
        Operations::Key { id } => {
            print_object(site, &client.get(&format!("/api/v1/operations/{id}/key")).await?, &["id", "path", "key"])
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
