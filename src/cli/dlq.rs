//! `annie dlq`: the dead letters of a server.

use annie_core::{ids::TaskId, letter::LetterState, time::Micros};
use serde_json::{Value, json};

use super::{
    args::{DeadLetters, LetterStateArg},
    client::Client,
    console::{clipped, table, tame},
    failure::Failure,
    site::Site,
};

/// `annie dlq`
///
/// # Errors
/// If no server runs, or there is no such letter.
pub async fn run(site: &Site, command: DeadLetters) -> Result<(), Failure> {
    let client = site.running().await?;
    match command {
        DeadLetters::List { state, limit } => list(site, &client, state, limit).await,
        DeadLetters::Show { task } => show(site, &client, task).await,
        DeadLetters::Retry { task } => {
            let answer = client.post(&format!("/api/v1/dead-letters/{task}/retry"), &json!({})).await?;
            let by = text(&answer, "task_id");
            let how = if answer["repeated"] == true { "it is being tried again already" } else { "it is tried again" };
            said(site, &answer, &format!("{how}, as {by}"))
        }
        DeadLetters::Discard { task } => {
            let answer = client.post(&format!("/api/v1/dead-letters/{task}/discard"), &json!({})).await?;
            let is_done = answer["discarded"] == true;
            said(site, &answer, if is_done { "it is put aside" } else { "it did not wait any more" })
        }
    }
}

fn said(site: &Site, answer: &Value, told: &str) -> Result<(), Failure> {
    if site.console.is_json() { site.console.json(answer) } else { site.console.line(told) }
}

async fn list(site: &Site, client: &Client, state: Option<LetterStateArg>, limit: u32) -> Result<(), Failure> {
    let only = state.map_or(String::new(), |state| format!("&state={}", LetterState::from(state).as_str()));
    let answer = client.get(&format!("/api/v1/dead-letters?limit={limit}{only}")).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let letters: Vec<&Value> = answer["dead_letters"].as_array().into_iter().flatten().collect();
    if letters.is_empty() {
        site.console.say("there are no dead letters");
        return Ok(());
    }
    let rows = letters.iter().map(|letter| {
        let keys = ["task_id", "state", "failed_at", "retry_at", "error", "title"];
        keys.iter().map(|key| text(letter, key)).collect()
    });
    site.console.line(&table(&["task", "state", "failed", "tried again", "why", "message"], rows.collect()))
}

async fn show(site: &Site, client: &Client, task: TaskId) -> Result<(), Failure> {
    let letter = client.get(&format!("/api/v1/dead-letters/{task}")).await?;
    if site.console.is_json() {
        return site.console.json(&letter);
    }
    site.console.line(&tame(&told(&letter)))
}

fn told(letter: &Value) -> String {
    let keys = [
        "task_id",
        "state",
        "text",
        "conversation_id",
        "priority",
        "error",
        "answer",
        "detail",
        "since",
        "failed_at",
        "retry_at",
        "retried_by",
    ];
    let mut lines: Vec<String> =
        keys.iter().filter_map(|key| letter[*key].as_str().map(|text| format!("{key:<16} {text}"))).collect();
    let items = |key: &str| letter[key].as_array().cloned().unwrap_or_default();
    lines.extend(items("before").iter().filter_map(|task| Some(format!("{:<16} {}", "before", task.as_str()?))));
    lines.extend(items("tried").iter().filter_map(|tried| Some(format!("{:<16} {}", "tried", tried.as_str()?))));
    lines.extend(items("events").iter().map(|event| {
        let at = Micros(event["at"].as_i64().unwrap_or(0));
        format!("{:<16} {at} {} {}", "event", text(event, "agent"), text(event, "kind"))
    }));
    lines.join("\n")
}

fn text(value: &Value, key: &str) -> String {
    clipped(value[key].as_str().unwrap_or_default(), 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_told_with_what_was_tried_and_what_happened() {
        let letter = json!({
            "task_id": "task_1", "state": "waiting", "error": "model_unavailable", "tried": ["main: no answer"],
            "before": ["task_0"], "events": [{"at": 0, "agent": "orchestrator", "kind": "received"}],
        });
        let told = told(&letter);
        for word in ["state            waiting", "before           task_0", "tried            main: no answer"] {
            assert!(told.contains(word), "{word}: {told}");
        }
        assert!(told.ends_with("orchestrator received"), "{told}");
    }
}
