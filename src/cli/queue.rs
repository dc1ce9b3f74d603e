//! `annie queue`: the tasks that wait for a model round at a server, where and why.

use serde_json::Value;

use super::{
    args::Watch, console::clipped, failure::Failure, jobs::seconds, repeated::repeated, site::Site, tables::fitted,
};

/// `annie queue`
///
/// # Errors
/// If no server runs, or it refuses.
pub async fn run(site: &Site, watch: Watch) -> Result<(), Failure> {
    let client = site.running().await?;
    repeated(site, watch, async || {
        let queue = client.get("/api/v1/queue").await?;
        if site.console.is_json() {
            return site.console.json(&queue);
        }
        site.console.line(&rendered(&queue, site.console.columns()))
    })
    .await
}

/// The queue in words.
pub(super) fn rendered(queue: &Value, columns: Option<usize>) -> String {
    let list = |key: &str| queue[key].as_array().cloned().unwrap_or_default();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let mut parts: Vec<String> = list("backends").iter().map(backend).collect();
    let running = list("running");
    if !running.is_empty() {
        let rows = running.iter().map(|round| vec![text(round, "backend"), text(round, "task_id")]);
        parts.push(fitted(columns, &["runs on", "task"], rows.collect()));
    }
    let waiting = list("waiting");
    if waiting.is_empty() {
        parts.push("no task waits".to_owned());
    } else {
        let rows = waiting.iter().map(|one| {
            let number = |key: &str| one[key].as_u64().map_or(String::new(), |n| n.to_string());
            let span = |key: &str| one[key].as_u64().map_or(String::new(), seconds);
            vec![
                number("position"),
                text(one, "priority"),
                text(one, "backend"),
                span("waited_ms"),
                span("start_in_ms"),
                text(one, "why"),
                text(one, "task_id"),
            ]
        });
        parts.push(fitted(
            columns,
            &["position", "class", "backend", "waited", "starts in", "why", "task"],
            rows.collect(),
        ));
    }
    parts.join("\n")
}

fn backend(one: &Value) -> String {
    let number = |key: &str| one[key].as_u64().unwrap_or(0);
    let name = one["backend"].as_str().unwrap_or("?");
    let health = one["state"].as_str().unwrap_or(if one["up"] == true { "up" } else { "down" });
    let error = &one["outcomes"]["last_error"];
    let why = match (health, error["kind"].as_str(), error["detail"].as_str()) {
        ("up", ..) | (_, None, _) | (_, _, None) => String::new(),
        (_, Some(kind), Some(detail)) => format!(" ({kind}: {})", clipped(detail, 200)),
    };
    let gate = if one["gate"]["closed"] == true { ", voice gate closed" } else { "" };
    let commands = if one["by_commands"].is_object() { ", by commands: its model cannot use tools" } else { "" };
    let from = |key: &str| one[key].as_str().filter(|from| *from != "default");
    let slots_from = from("slots_from").map_or(String::new(), |from| format!(" ({from})"));
    let window = one["context_tokens_max"].as_u64().zip(from("context_tokens_from"));
    let window = window.map_or(String::new(), |(tokens, from)| format!(", window {tokens} ({from})"));
    format!(
        "{name}: {health}{why}, {} of {} slots{slots_from} taken{window}{gate}{commands}",
        number("running"),
        number("slots")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_shown_with_its_backends_and_reasons() {
        let queue = serde_json::json!({
            "backends": [{"backend": "main", "up": true, "running": 1, "slots": 1, "gate": {"closed": true}}],
            "running": [{"backend": "main", "task_id": "task_1"}],
            "waiting": [{"position": 1, "priority": "normal", "backend": "main", "waited_ms": 1, "start_in_ms": 5_000,
                "why": "voice gate closed", "task_id": "task_2"}],
        });
        let known = serde_json::json!({"backends": [{"backend": "gpu", "up": true, "running": 0, "slots": 1,
            "slots_from": "server", "context_tokens_max": 4096, "context_tokens_from": "configured"}]});
        let known = rendered(&known, None);
        assert!(known.contains("gpu: up, 0 of 1 slots (server) taken, window 4096 (configured)"), "{known}");
        let text = rendered(&queue, None);
        for word in ["main: up, 1 of 1 slots taken, voice gate closed", "task_1", "normal", "5 s", "task_2"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
