//! `annie approvals`: lists the calls of skills that wait for a person, and decides them.

use annie_core::ids::TaskId;
use serde_json::{Value, json};

use super::{
    args::Approvals,
    client::{Client, encoded},
    console::tame,
    failure::{Exit, Failure},
    listing::Listing,
    site::Site,
};

pub(super) const LIST: Listing = Listing {
    command: "approvals list",
    rows: "approvals",
    columns: &[
        ("task", "task_id"),
        ("#", "number"),
        ("skill", "skill"),
        ("arguments", "arguments"),
        ("agent", "agent"),
        ("expires", "expires_at"),
    ],
};

/// `annie approvals`
///
/// # Errors
/// If no server runs, or the request cannot be decided in this way.
pub async fn run(site: &Site, command: Approvals) -> Result<(), Failure> {
    let client = site.running().await?;
    match command {
        Approvals::List => list(site, &client).await,
        Approvals::Approve { task, number, for_conversation, arguments } => {
            let arguments: Value = match arguments {
                None => Value::Null,
                Some(text) => serde_json::from_str(&text)
                    .map_err(|e| Failure::new(Exit::Usage, format!("--arguments is no JSON: {e}")))?,
            };
            let body = json!({"number": number, "for_conversation": for_conversation, "arguments": arguments});
            decide(site, &client, task, "approve", &body).await
        }
        Approvals::Deny { task, number, reason } => {
            decide(site, &client, task, "deny", &json!({"number": number, "reason": reason.join(" ")})).await
        }
    }
}

/// The requests as a table, and the message of each: numbers in arguments say nothing to a person.
async fn list(site: &Site, client: &Client) -> Result<(), Failure> {
    let answer = client.get(LIST.path()).await?;
    LIST.print(site, &answer, "no calls wait for an approval")?;
    if site.console.is_json() {
        return Ok(());
    }
    for task in answer[LIST.rows].as_array().into_iter().flatten().filter_map(|row| row["task_id"].as_str()) {
        // The task may have ended meanwhile.
        let Ok(found) = client.get(&format!("/api/v1/tasks/{}", encoded(task))).await else { continue };
        site.console.say(&tame(&format!("{task}: for your message {}", found["title"])));
    }
    Ok(())
}

async fn decide(site: &Site, client: &Client, task: TaskId, what: &str, body: &Value) -> Result<(), Failure> {
    let answer = client.post(&format!("/api/v1/approvals/{task}/{what}"), body).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    site.console.line(&format!("{} is {}", text("skill"), text("status")))
}
