//! `annie replay`: shows the state of a conversation at an event, differences, and whether log and replay agree. Also the copies of
//! `annie conversations`: fork, export of the log, import.

use std::path::Path;

use annie_core::ids::ConversationId;
use serde_json::{Value, json};

use super::{
    args::{Fork, Replay},
    client::{Client, encoded},
    console::tame,
    failure::{Exit, Failure},
    site::Site,
};

/// Events that are exported at a time.
const EVENTS_AT_ONCE: u32 = 500;
/// The most bytes of lines that one request of an import contains. The server's default limit of a body is 1 MiB, and the lines are
/// escaped in the request.
const PART_BYTES: usize = 256 * 1024;
/// The most bytes of a file that is imported.
const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// `annie replay`
///
/// # Errors
/// If there is no such conversation or event, no server runs, or log and replay differ.
pub async fn run(site: &Site, options: &Replay) -> Result<(), Failure> {
    let Replay { conversation, until, from, check } = options;
    if let (Some(from), Some(until)) = (from, until)
        && from > until
    {
        let what = format!("--from {from} comes after --until {until}");
        return Err(Failure::new(Exit::Usage, what).fix("--from names the earlier of the two events"));
    }
    let conversation = site.conversation(conversation.clone()).await?;
    let client = site.running().await?;
    let mut query = vec![format!("check={check}")];
    query.extend(until.map(|seq| format!("until={seq}")));
    query.extend(from.map(|seq| format!("from={seq}")));
    let answer = client.get(&format!("/api/v1/conversations/{conversation}/replay?{}", query.join("&"))).await?;
    if site.console.is_json() {
        site.console.json(&answer)?;
    } else {
        site.console.line(&tame_lines(&described(&answer)))?;
    }
    match answer["check"]["diverged"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        diverged => {
            let what = format!("log and replay of {conversation} differ at {diverged} events");
            let fix =
                "the log was changed, or another version of Annie wrote it; `annie doctor --check` examines the tables";
            Err(Failure::new(Exit::Failure, what).fix(fix))
        }
    }
}

fn tame_lines(text: &str) -> String {
    text.lines().map(tame).collect::<Vec<_>>().join("\n")
}

/// The reply in words.
fn described(answer: &Value) -> String {
    let (state, event) = (&answer["state"], &answer["event"]);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut lines = vec![format!(
        "{} event {} of {}: {} of {} at {}",
        text(&answer["conversation_id"]),
        answer["seq"],
        answer["last_seq"],
        text(&event["kind"]),
        text(&event["agent"]),
        text(&event["at"])
    )];
    for turn in state["turns"].as_array().into_iter().flatten() {
        lines.push(format!(
            "turn {} {} {} {:?}: {}",
            text(&turn["task"]),
            text(&turn["priority"]),
            text(&turn["mode"]),
            text(&turn["title"]),
            flags(
                turn,
                &["is_cancelled", "is_suspended", "is_detached", "is_past_soft_deadline", "is_past_hard_deadline"]
            )
        ));
        lines.extend(of_run("  main", &turn["main"]));
        for agent in turn["agents"].as_array().into_iter().flatten() {
            let needs: Vec<String> = agent["depends_on"].as_array().into_iter().flatten().map(text).collect();
            let needs = if needs.is_empty() { String::new() } else { format!(", after {}", needs.join(", ")) };
            lines.push(format!(
                "  agent {} {}{needs}: {}",
                text(&agent["agent"]),
                text(&agent["status"]),
                text(&agent["mission"])
            ));
            if agent["run"].is_object() {
                lines.extend(of_run("    loop", &agent["run"]));
            }
        }
    }
    for waiting in state["waiting"].as_array().into_iter().flatten() {
        lines.push(format!(
            "waiting {} {} {} {:?}: {}",
            waiting["place"],
            text(&waiting["task"]),
            text(&waiting["priority"]),
            text(&waiting["title"]),
            flags(waiting, &["is_suspended", "is_steer", "is_front"])
        ));
    }
    let list = |key: &str, what: &str| {
        state[key].as_array().into_iter().flatten().map(|line| format!("{what} {}", text(line))).collect::<Vec<_>>()
    };
    lines.extend(list("outstanding", "outstanding:"));
    if let Some(kind) = state["decides"].as_str() {
        lines.push(format!("decides next: {kind}"));
    }
    for one in answer["differences"].as_array().into_iter().flatten() {
        let side = |key: &str| one.get(key).map_or_else(|| "absent".to_owned(), ToString::to_string);
        lines.push(format!("{}: {} -> {}", text(&one["path"]), side("before"), side("after")));
    }
    lines.extend(of_check(&answer["check"]));
    lines.join("\n")
}

fn of_run(name: &str, run: &Value) -> Vec<String> {
    let ending = run["ending"].as_str().map(|ending| format!(" ({ending})")).unwrap_or_default();
    let phase = run["phase"].as_str().unwrap_or_default();
    let mut lines = vec![format!(
        "{name} {phase}{ending}, round {} of {}, calls {} of {}",
        run["round"], run["rounds_max"], run["calls_used"], run["calls_max"]
    )];
    for call in run["calls"].as_array().into_iter().flatten() {
        let effect = call["effect"].as_str().map(|effect| format!(" ({effect})")).unwrap_or_default();
        lines.push(format!(
            "    call {}{effect}: {}",
            call["name"].as_str().unwrap_or_default(),
            flags(call, &["is_started", "has_result"])
        ));
    }
    lines
}

fn of_check(check: &Value) -> Vec<String> {
    if check.is_null() {
        return Vec::new();
    }
    let mut lines = vec![match check["diverged"].as_u64() {
        Some(0) => {
            format!("log and replay agree: {} events, {} decisions taken again", check["events"], check["decisions"])
        }
        _ => format!("log and replay differ at {} of {} events", check["diverged"], check["events"]),
    }];
    if check["is_redacted"] == true {
        lines.push("the texts are redacted, so decisions were not compared after the first redacted event".to_owned());
    }
    for one in check["divergences"].as_array().into_iter().flatten() {
        let side = |key: &str| one[key].as_str().unwrap_or_default();
        lines.push(format!(
            "event {} ({}): stored {}; replayed {}",
            one["seq"],
            side("kind"),
            side("stored"),
            side("replayed")
        ));
    }
    lines
}

/// The names of the fields that are true.
fn flags(object: &Value, keys: &[&str]) -> String {
    let set = keys.iter().filter(|key| object[**key] == true);
    let set: Vec<&str> = set.map(|key| key.trim_start_matches("is_")).collect();
    if set.is_empty() { "-".to_owned() } else { set.join(", ").replace('_', " ") }
}

/// `annie conversations fork`
///
/// # Errors
/// If there is no such conversation or event, or no server runs.
pub async fn fork(site: &Site, fork: &Fork) -> Result<(), Failure> {
    let id = site.conversation(fork.id.clone()).await?;
    let client = site.running().await?;
    let answer = client.post(&format!("/api/v1/conversations/{id}/fork"), &json!({"at": fork.at})).await?;
    copied(site, &answer, &format!("copy of {id}"))
}

fn copied(site: &Site, answer: &Value, what: &str) -> Result<(), Failure> {
    if site.console.is_json() {
        return site.console.json(answer);
    }
    let id = answer["conversation_id"].as_str().unwrap_or_default();
    site.console.line(id)?;
    site.console.say(&format!("{what}; go on with: annie chat --conversation {id}"));
    Ok(())
}

/// `annie conversations export --events`: the log as stored, a line of JSON for each event.
///
/// # Errors
/// If there is no such conversation, or no server runs.
pub async fn export(site: &Site, id: ConversationId, redact: bool) -> Result<(), Failure> {
    let client = site.running().await?;
    let mut next: Option<String> = None;
    loop {
        let cursor = next.map(|next| format!("&next={}", encoded(&next))).unwrap_or_default();
        let path = format!("/api/v1/conversations/{id}/export?limit={EVENTS_AT_ONCE}&redact={redact}{cursor}");
        let page = client.get(&path).await?;
        for line in page["lines"].as_array().into_iter().flatten() {
            site.console.json(line)?;
        }
        next = page["next"].as_str().map(str::to_owned);
        if next.is_none() {
            return Ok(());
        }
    }
}

/// `annie conversations import`
///
/// # Errors
/// If the file cannot be read or is no export, or no server runs.
pub async fn import(site: &Site, file: &Path) -> Result<(), Failure> {
    let cannot = |e: &std::io::Error| Failure::io(&format!("cannot read {}", file.display()), e);
    let bytes = std::fs::metadata(file).map_err(|e| cannot(&e))?.len();
    if bytes > FILE_BYTES_MAX {
        let what = format!("{} has {bytes} bytes, at most {FILE_BYTES_MAX} are imported", file.display());
        return Err(Failure::new(Exit::Usage, what));
    }
    let text = std::fs::read_to_string(file).map_err(|e| cannot(&e))?;
    let client = site.running().await?;
    let mut id = Value::Null;
    let mut part = String::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if !part.is_empty() && part.len() + line.len() > PART_BYTES {
            id = send(&client, &part, &id, true).await?["conversation_id"].clone();
            part.clear();
        }
        part.push_str(line);
        part.push('\n');
    }
    let answer = send(&client, &part, &id, false).await?;
    copied(site, &answer, &format!("import of {}", file.display()))
}

async fn send(client: &Client, lines: &str, id: &Value, is_partial: bool) -> Result<Value, Failure> {
    let body = json!({"lines": lines, "conversation_id": id, "is_partial": is_partial});
    client.post("/api/v1/conversations/import", &body).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_text_shows_turns_plan_calls_and_divergences() {
        let text = described(&json!({
            "conversation_id": "conv_1", "seq": 4, "last_seq": 9,
            "event": {"kind": "model_replied", "agent": "orchestrator", "at": "2026-02-18T10:00:00Z"},
            "state": {
                "turns": [{
                    "task": "task_1", "title": "find it", "priority": "high", "mode": "multi_agent", "is_suspended": true,
                    "main": {
                        "phase": "acting", "round": 2, "rounds_max": 8, "calls_used": 1, "calls_max": 30,
                        "calls": [{"name": "tasks.create", "effect": "once", "is_started": true, "has_result": false}],
                    },
                    "agents": [{"agent": "one", "status": "pending", "depends_on": ["two"], "mission": "search"}],
                }],
                "waiting": [{"place": 1, "task": "task_2", "priority": "low", "title": "later", "is_suspended": false}],
                "outstanding": ["begin task_2"], "decides": "answered",
            },
            "differences": [{"path": "turns/task_1/main/round", "before": 1, "after": 2}],
            "check": {"events": 9, "diverged": 1, "divergences": [
                {"seq": 4, "kind": "decision", "stored": "a", "replayed": "b"},
            ]},
        }));
        for line in [
            "conv_1 event 4 of 9: model_replied of orchestrator",
            "\"find it\": suspended",
            "  main acting, round 2 of 8, calls 1 of 30",
            "    call tasks.create (once): started",
            "  agent one pending, after two: search",
            "waiting 1 task_2 low \"later\": -",
            "outstanding: begin task_2",
            "decides next: answered",
            "turns/task_1/main/round: 1 -> 2",
            "differ at 1 of 9 events",
            "event 4 (decision): stored a; replayed b",
        ] {
            assert!(text.contains(line), "no {line:?} in:\n{text}");
        }
    }
}
