//! What the prompts of agents say about the user's mood and about the origin of a result.

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::{
    bad_models::server_with,
    egress::{Site, page},
};
use crate::server::Server;

const MISSION: &str = "MISSION: ";

fn messages(seen: &Seen) -> String {
    Value::from(seen.messages()).to_string()
}

/// An orchestrator that dispatches one agent with these skills, which calls each of them once.
async fn boss(calls: Vec<(&'static str, Value)>) -> FakeModelServer {
    FakeModelServer::start(move |seen| {
        let shown = messages(seen);
        if !shown.contains(MISSION) {
            let skills: Vec<&str> = calls.iter().map(|(skill, _)| *skill).collect();
            let agent = json!({"agent_id": "a", "mission": "Look it up.", "skills": skills});
            return match shown.contains("Looked it up") || seen.texts_of("tool").len() > 1 {
                true => Reply::says("That is all."),
                false => Reply::calls([("dispatch_agent", agent), ("get_agent_results", json!({}))]),
            };
        }
        let Some((skill, arguments)) = calls.iter().find(|(skill, _)| !own(seen).contains(*skill)) else {
            return Reply::says("Looked it up.");
        };
        match seen.tool_names().iter().any(|name| name == "use_skill") {
            true => Reply::calls([("use_skill", json!({"skill": skill, "arguments": arguments}))]),
            false => Reply::says(format!("```cmd\n{skill} {arguments}\n```")),
        }
    })
    .await
}

/// The calls so far: results of commands name them.
fn own(seen: &Seen) -> String {
    let messages = seen.messages();
    let calls: String =
        messages.iter().filter(|message| message["role"] == "assistant").map(Value::to_string).collect();
    let shown = Value::from(messages).to_string();
    shown.split("command=").skip(1).fold(calls, |calls, rest| calls + &rest.chars().take(40).collect::<String>())
}

async fn say(server: &Server, body: &Value) {
    let (status, sent) = server.post("/api/v1/messages?wait=20", body).await.expect("the server answers");
    assert_eq!((status, &sent["status"]), (200, &json!("completed")), "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mood_of_the_user_reaches_the_prompts_of_sub_agents() {
    let tone = "Answer in as few words as possible";
    let model = boss(vec![("tasks.search", json!({"query": "tea"}))]).await;
    let (_folder, server) = server_with(&model, "").await;
    for (feeling, is_set) in [(json!(null), false), (json!({"name": "tired", "intensity": 0.9}), true)] {
        let before = model.requests().len();
        say(&server, &json!({"text": "Find the tea", "emotion": feeling, "conversation_key": feeling.to_string()}))
            .await;
        let requests = model.requests();
        let mut of_agent = requests[before..].iter().map(messages).filter(|shown| shown.contains(MISSION)).peekable();
        assert!(of_agent.peek().is_some(), "an agent was dispatched");
        assert!(of_agent.all(|shown| shown.contains(tone) == is_set), "{feeling}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_of_an_untrusted_skill_is_shown_with_its_origin_in_each_interface() {
    let site = Site::start(|_| page("<p>Nice weather.</p>")).await;
    let calls = || vec![("tasks.search", json!({"query": "tea"})), ("web.fetch", json!({"url": site.url("/weather")}))];
    for (interface, label) in [("cmd", "untrusted=\\\"web.fetch\\\""), ("json", "[untrusted: from web.fetch]")] {
        let model = boss(calls()).await;
        let more = format!(
            "[sub_agent]\ninterface = \"{interface}\"\n[egress]\nenabled = true\nallow_private = [\"{}\"]\n",
            site.address
        );
        let (_folder, server) = server_with(&model, &more).await;
        say(&server, &json!({"text": "How is the weather?"})).await;
        let requests = model.requests();
        let of_agent: Vec<String> = requests.iter().map(messages).filter(|shown| shown.contains(MISSION)).collect();
        assert!(of_agent.iter().any(|shown| shown.contains("No open tasks found")), "{interface}: {of_agent:?}");
        let (last, before) = of_agent.split_last().expect("an agent");
        assert!(last.contains("Nice weather") && last.matches(label).count() == 1, "{interface}: {last}");
        assert!(before.iter().all(|shown| !shown.contains("untrusted")), "to-dos of the user are trusted: {before:?}");
    }
}
