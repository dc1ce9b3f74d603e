//! `annie agents`: lists the running sub-agents, and steers or stops one.

use serde_json::{Value, json};

use super::{
    args::{AgentOf, Agents},
    failure::Failure,
    listing::Listing,
    site::Site,
};

pub(super) const LIST: Listing = Listing {
    command: "agents list",
    rows: "agents",
    columns: &[
        ("conversation", "conversation_id"),
        ("agent", "agent"),
        ("label", "label"),
        ("status", "status"),
        ("round", "round"),
        ("calls", "calls_used"),
        ("started", "started_at"),
    ],
};

/// `annie agents`
///
/// # Errors
/// If no server runs, or the agent cannot be controlled in this way.
pub async fn run(site: &Site, command: Option<Agents>) -> Result<(), Failure> {
    let command = command.unwrap_or(Agents::List { conversation: None });
    let client = site.running().await?;
    let (of, task, verb, body) = match command {
        Agents::List { conversation } => {
            let query = match conversation {
                Some(named) => format!("?conversation_id={}", site.conversation(named).await?),
                None => String::new(),
            };
            let answer = client.get(&format!("{}{query}", LIST.path())).await?;
            return LIST.print(site, &answer, "no running sub-agents");
        }
        Agents::Steer { of, text, task } => (of, task, "steer", json!({"text": text.join(" ")})),
        Agents::Stop { of, reason, task } => (of, task, "stop", json!({"reason": reason.join(" ")})),
    };
    let AgentOf { conversation, agent } = of;
    let mut body: Value = body;
    body["agent"] = json!(agent);
    body["task_id"] = json!(task);
    let answer = client.post(&format!("/api/v1/agents/{conversation}/{verb}"), &body).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    site.console.line(&format!("{agent} is {}", answer["status"].as_str().unwrap_or_default()))
}
