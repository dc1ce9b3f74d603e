//! The model server of a soak: a word in the message names the work, and the token of the message comes back in the
//! answer. Rounds take a little time, so that there is always work under way when a fault is injected.

use std::time::Duration;

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::history::{Kind, tokens_in};

/// The note that a client's messages append to.
pub fn note_of(token: &str) -> String {
    let client: String = token.chars().skip(2).take_while(char::is_ascii_digit).collect();
    format!("soak-{client}")
}

pub async fn start() -> FakeModelServer {
    FakeModelServer::start(reply).await.without_recording()
}

fn reply(seen: &Seen) -> Reply {
    let tools = seen.tool_names();
    let has = |name: &str| tools.iter().any(|t| t == name);
    // The last message of this turn, or the mission of this agent.
    let asked = seen.texts_of("user").into_iter().rev().find(|t| !t.contains("<result") && !tokens_in(t).is_empty());
    let asked = asked.unwrap_or_default();
    let Some(token) = tokens_in(&asked).pop() else { return Reply::says("I have not understood.") };
    // A result since then, even if another message follows it, such as the one about the soft deadline.
    let messages = seen.messages();
    let at = messages.iter().rposition(|m| m["role"] == "user" && m.to_string().contains(&token) && !is_result(m));
    let has_result = messages.iter().skip(at.unwrap_or(0)).any(is_result);
    let done = Reply::says(format!("It is done: {token}."));
    let reply = match Kind::of(&asked) {
        _ if has_result => done,
        Some(Kind::Slow) => return done.first_after(Duration::from_millis(400)),
        _ if asked.contains("znew") && has("use_skill") => {
            let title = note_of(&token);
            Reply::calls([(
                "use_skill",
                json!({"skill": "notes.create", "arguments": {"title": title, "content": "begun"}}),
            )])
        }
        Some(Kind::Note) if has("use_skill") => {
            let title = note_of(&token);
            Reply::calls([(
                "use_skill",
                json!({"skill": "notes.edit", "arguments": {"title": title, "append": token}}),
            )])
        }
        Some(Kind::Agents) if has("dispatch_agent") => Reply::calls([
            (
                "dispatch_agent",
                json!({"agent_id": "keeper", "mission": format!("zkeep {token}"), "skills": ["tasks.create"]}),
            ),
            (
                "dispatch_agent",
                json!({"agent_id": "clock", "mission": format!("zclock {token}"), "skills": ["system.time"]}),
            ),
            ("get_agent_results", json!({})),
        ]),
        _ if asked.contains("zkeep") => Reply::says(format!("```cmd\ntasks.create --title \"{token}\"\n```")),
        _ if asked.contains("zclock") => Reply::says("```cmd\nsystem.time\n```"),
        _ => done,
    };
    // A delay of 3 to 34 ms that depends on the token, so that the same seed has the same delays.
    let spread = token.bytes().fold(seen.number, |n, b| n.wrapping_mul(31).wrapping_add(u64::from(b))) % 32;
    reply.first_after(Duration::from_millis(3 + spread))
}

/// Results of commands have the role "user", too.
fn is_result(message: &Value) -> bool {
    message["role"] == "tool" || message["content"].to_string().contains("<result")
}
