//! Prompt skills from a file in the data folder to a running turn: their place in the prompt, `/name`, their tools, their end.

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::bad_models::{ask, server_with};
use crate::{server::Server, world::eventually};

const SINGLE_LOOP: &str = "mode = \"single_loop\"";

/// A server with these skills: a name, lines of front matter, and the instructions.
async fn server_of(model: &FakeModelServer, skills: &[(&str, &str, &str)]) -> (tempfile::TempDir, Server) {
    let (folder, server) = server_with(model, SINGLE_LOOP).await;
    put(&folder, &server, skills).await;
    (folder, server)
}

/// Writes skills, and waits until the server knows them.
pub(super) async fn put(folder: &tempfile::TempDir, server: &Server, skills: &[(&str, &str, &str)]) {
    for (name, head, body) in skills {
        let own = folder.path().join("skills").join(name);
        std::fs::create_dir_all(&own).expect("made");
        let text = format!("---\nname: {name}\ndescription: Does {name} well.\n{head}\n---\n{body}\n");
        std::fs::write(own.join("SKILL.md"), text).expect("written");
    }
    let are_known = async || {
        let (_, list) = server.get("/api/v1/skills").await;
        let list = list.to_string();
        skills.iter().all(|(name, ..)| list.contains(&format!("\"name\":\"{name}\""))).then_some(())
    };
    eventually("the skills are known", are_known).await;
}

fn system_of(seen: &Seen) -> String {
    seen.texts_of("system").join("\n")
}

fn last_message(seen: &Seen) -> String {
    seen.messages().last().map(ToString::to_string).unwrap_or_default()
}

/// A model that makes one call of a skill in each turn, and then answers with what it read.
fn calling(skill: &'static str, arguments: Value) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    move |seen| {
        let last = seen.messages().last().cloned().unwrap_or_default();
        if last["role"] == "tool" {
            Reply::says("That is all.")
        } else if seen.last_user_text().contains("[Skill: audit]") {
            Reply::says("Two findings.")
        } else {
            Reply::calls([("use_skill", json!({"skill": skill, "arguments": arguments}))])
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_skill_called_by_name_stays_active_in_later_turns_until_done() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (_folder, server) = server_of(&model, &[("minutes", "", "Write down every decision of $ARGUMENTS.")]).await;
    ask(&server, "/minutes the board").await;
    let seen = |n: usize| model.requests()[n].clone();
    assert!(seen(0).last_user_text().contains("Write down every decision of the board."), "{}", last_message(&seen(0)));
    assert!(system_of(&seen(0)).contains("  minutes [args TEXT]\n    Does minutes well."), "{}", system_of(&seen(0)));
    ask(&server, "Ann said yes").await;
    let system = system_of(&seen(1));
    assert!(system.contains("Active skill: minutes.") && system.contains("every decision of the board."), "{system}");
    ask(&server, "/done").await;
    assert!(seen(2).last_user_text().contains("has ended the active skill"), "{}", last_message(&seen(2)));
    ask(&server, "hello").await;
    assert!(!system_of(&seen(3)).contains("Active skill"), "{}", system_of(&seen(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn active_skill_keeps_the_model_from_tools_that_it_does_not_allow() {
    let model = FakeModelServer::start(calling("tasks.create", json!({"title": "milk"}))).await;
    let skills = [("minutes", "allowed-tools: notes.* memory.search", "Keep minutes.")];
    let (_folder, server) = server_of(&model, &skills).await;
    let sent = ask(&server, "/minutes buy milk").await;
    let refused = "The skill minutes is active and allows only: notes.*, memory.search.";
    let shown = last_message(&model.requests()[1]);
    assert!(shown.contains(refused), "{shown}");
    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    let events = log["events"].as_array().expect("events");
    assert!(events.iter().all(|event| event["kind"] != "skill_finished"), "nothing ran: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_skill_is_visible_to_models_and_users_as_its_file_says() {
    let model = FakeModelServer::start(calling("guarded", json!({}))).await;
    let skills = [
        ("guarded", "disable-model-invocation: true", "For users only."),
        ("hidden", "user-invocable: false", "For models only."),
    ];
    let (_folder, server) = server_of(&model, &skills).await;
    ask(&server, "do it").await;
    let requests = model.requests();
    let system = system_of(&requests[0]);
    assert!(system.contains("Does hidden well.") && !system.contains("Does guarded well."), "{system}");
    assert!(last_message(&requests[1]).contains("unknown skill"), "{}", last_message(&requests[1]));
    ask(&server, "/guarded").await;
    ask(&server, "/hidden").await;
    let said: Vec<String> = model.requests().iter().map(Seen::last_user_text).collect();
    assert!(said.iter().any(|text| text.contains("For users only.")), "{said:?}");
    assert!(said.iter().any(|text| text.contains("/hidden")), "an unknown command is a message: {said:?}");
    assert!(said.iter().all(|text| !text.contains("For models only.")), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forked_skill_is_carried_out_by_a_background_task_whose_result_is_a_notification() {
    let model = FakeModelServer::start(calling("audit", json!({"args": "the attic"}))).await;
    let skills =
        [("audit", "context: fork\nuser-invocable: false", "Audit $ARGUMENTS."), ("check", "context: fork", "x")];
    let (_folder, server) = server_of(&model, &skills).await;
    let sent = ask(&server, "audit it").await;
    assert_eq!(sent["answer"], "That is all.", "{sent}");
    let requests = model.requests();
    let shown =
        requests.iter().map(last_message).find(|text| text.contains("spawned")).expect("the result of the call");
    assert!(shown.contains("task_id"), "{shown}");
    let is_notified = async || {
        let (_, list) = server.get("/api/v1/notifications").await;
        list.to_string().contains("Two findings.").then_some(())
    };
    eventually("the user is notified of the result", is_notified).await;
    let forked = model.requests().into_iter().find(|seen| seen.last_user_text().contains("[Skill: audit]"));
    let forked = forked.expect("the task reads the instructions");
    assert!(forked.last_user_text().contains("Audit the attic."), "{}", last_message(&forked));
    assert!(
        !forked.messages().iter().any(|message| message.to_string().contains("audit it")),
        "it sees no other context"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forked_skill_called_by_name_answers_at_once_with_its_task() {
    let model = FakeModelServer::start(|_| Reply::says("Two findings.")).await;
    let (_folder, server) = server_of(&model, &[("audit", "context: fork", "Audit $ARGUMENTS.")]).await;
    let sent = ask(&server, "/audit the attic").await;
    let answer = sent["answer"].as_str().unwrap_or_default();
    assert!(answer.starts_with("audit is spawned as background task task_"), "{sent}");
    let task = answer.split("background task ").nth(1).and_then(|rest| rest.split('.').next()).expect("its id");
    let has_ended = async || {
        let (_, found) = server.get(&format!("/api/v1/tasks/{task}")).await;
        (found["status"] == "completed").then_some(())
    };
    eventually("the task has ended", has_ended).await;
    assert_eq!(model.request_count(), 1, "only the task asked the model");
    assert!(
        model.requests()[0].last_user_text().contains("Audit the attic."),
        "{}",
        last_message(&model.requests()[0])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_messages_are_listed_for_completion_and_by_help() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let skills = [("minutes", "argument-hint: \"[meeting]\"", "x"), ("hidden", "user-invocable: false", "x")];
    let (_folder, server) = server_of(&model, &skills).await;
    let (status, list) = server.get("/api/v1/commands").await;
    assert_eq!(status, 200, "{list}");
    let commands = list["commands"].as_array().expect("a list");
    let own = json!({"name": "/minutes", "description": "Does minutes well.", "argument_hint": "[meeting]"});
    assert!(commands.contains(&own) && commands.iter().any(|command| command["name"] == "/commit"), "{list}");
    assert!(commands.iter().all(|command| command["name"] != "/hidden"), "{list}");
    let sent = ask(&server, "/help").await;
    let answer = sent["answer"].as_str().unwrap_or_default();
    assert!(answer.contains("- /minutes [meeting]: Does minutes well.") && answer.contains("- /done: "), "{sent}");
    assert_eq!(model.request_count(), 0, "no model was asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_skill_prefers_the_backend_that_it_requests() {
    let main = FakeModelServer::start(|_| Reply::says("From main.")).await;
    let special = FakeModelServer::start(|_| Reply::says("From special.")).await;
    let first = format!(
        "{SINGLE_LOOP}\n[[backend]]\nname = \"main\"\nprofile = \"generic\"\nbase_url = \"{}\"\nmodel = \"m\"\n",
        main.base_url()
    );
    let (folder, server) = server_with(&special, &first).await;
    put(&folder, &server, &[("minutes", "model: fake", "x")]).await;
    assert_eq!(ask(&server, "hello").await["answer"], "From main.");
    assert_eq!(ask(&server, "/minutes").await["answer"], "From special.");
}
