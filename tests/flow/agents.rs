//! Options of dispatches and control of running sub-agents, against the real binary.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use annie::grpc::v1::{ListAgentsRequest, SteerAgentRequest, agents_client::AgentsClient};
use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use crate::{server::Server, world::eventually};

/// How long a reply that a test never needs is held back.
const NEVER: Duration = Duration::from_secs(600);

/// A reply that does not come.
fn silence() -> Reply {
    Reply::says("too late").first_after(NEVER)
}

/// The mission, if the request is one of a sub-agent.
fn mission(seen: &Seen) -> Option<String> {
    let first = seen.texts_of("user").into_iter().next()?;
    first.contains("MISSION: ").then_some(first)
}

/// An orchestrator that dispatches the agents of the message, a JSON list, waits for them and answers with all results. Its
/// sub-agents reply as `sub` says, which gets the mission and the request.
async fn boss(sub: impl Fn(&str, &Seen) -> Reply + Send + Sync + 'static) -> FakeModelServer {
    FakeModelServer::start(move |seen| {
        if let Some(mission) = mission(seen) {
            return sub(&mission, seen);
        }
        let results = seen.texts_of("tool");
        if results.iter().any(|text| text.contains("\"agents\"") || text.starts_with("Error")) {
            return Reply::says(format!("This came of it: {}", results.join("\n")));
        }
        if !results.is_empty() {
            return Reply::calls([("get_agent_results", json!({}))]);
        }
        let text = seen.last_user_text();
        let Some(list) = text.find("[{").and_then(|from| text.rfind("}]").map(|to| &text[from..to + 2])) else {
            return Reply::says("Hello.");
        };
        let agents: Vec<Value> = serde_json::from_str(list).expect("a list of dispatches");
        Reply::calls(agents.into_iter().map(|agent| ("dispatch_agent", agent)))
    })
    .await
}

fn backend(name: &str, model: &FakeModelServer, more: &str) -> String {
    format!(
        "[[backend]]\nname = \"{name}\"\nprofile = \"generic\"\nbase_url = \"{}\"\nmodel = \"m\"\nretries_max = 0\n\
         first_token_ms_max = 600000\nidle_ms_max = 600000\n{more}\n",
        model.base_url()
    )
}

async fn serve(config: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    std::fs::write(&path, config).expect("the configuration is written");
    let path = path.to_str().expect("a path").to_owned();
    let server = Server::start(folder.path(), &["--config", &path], &[]).await;
    (folder, server)
}

/// Sends the dispatches and does not wait for the answer.
async fn dispatch(server: &Server, agents: &Value) -> (String, String) {
    let body = json!({"text": agents.to_string()});
    let (status, sent) = server.post("/api/v1/messages", &body).await.expect("the server answers");
    assert_eq!(status, 202, "{sent}");
    let id = |name: &str| sent[name].as_str().expect("an id").to_owned();
    (id("task_id"), id("conversation_id"))
}

async fn answer(server: &Server, agents: &Value) -> String {
    let (task, conversation) = dispatch(server, agents).await;
    ended(server, &task, &conversation).await
}

/// The answer of a task.
async fn ended(server: &Server, task: &str, conversation: &str) -> String {
    eventually("the task ends", async || {
        let end = events(server, conversation, "answered").await.into_iter().find(|event| event["task_id"] == task)?;
        end["text"].as_str().map(str::to_owned)
    })
    .await
}

async fn events(server: &Server, conversation: &str, kind: &str) -> Vec<Value> {
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    let events = log["events"].as_array().cloned().unwrap_or_default();
    events.into_iter().filter(|event| event["kind"] == kind).collect()
}

/// The report of an agent.
async fn report(server: &Server, conversation: &str, agent: &str) -> Value {
    eventually("the agent reports", async || {
        let all = events(server, conversation, "agent_reported").await;
        all.into_iter().find(|event| event["agent"] == agent).map(|event| event["report"].clone())
    })
    .await
}

/// The core decides again what the log contains, as `annie replay --check` shows it.
fn replay_agrees(server: &Server, home: &Path, conversation: &str) {
    let (code, out, err) = annie(server, home, &["replay", conversation, "--check"]);
    assert_eq!(code, 0, "{out}{err}");
}

fn annie(server: &Server, home: &Path, arguments: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_annie"))
        .args(["--url", &server.url])
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap_or(-1), text(&out.stdout), text(&out.stderr))
}

fn one(more: Value) -> Value {
    let mut agent = json!({"agent_id": "one", "mission": "do the first", "skills": ["tasks.search"]});
    agent.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    agent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dispatch_with_wrong_options_is_refused_with_what_is_allowed() {
    let model = boss(|_, _| Reply::says("Done.")).await;
    let (_folder, server) = serve(&backend("big", &model, "capabilities = [\"strong\"]")).await;
    for (option, wanted) in [
        (json!({"label": "x".repeat(61)}), "label must be one line of at most 60 characters"),
        (json!({"label": 7}), "label must be a text"),
        (json!({"timeout_s": 0}), "timeout_s must be a whole number of seconds, from 1 to 600"),
        (json!({"timeout_s": "soon"}), "timeout_s must be a whole number of seconds, from 1 to 600"),
        (json!({"model": "gpt-9"}), "no model \"gpt-9\" may run this. Leave model out, or name one of: big (strong)."),
        (json!({"output_key": "a b"}), "output_key \"a b\" must be 1 to 32 letters, digits or _"),
        (json!({"output_schema": [1]}), "output_schema must be a JSON Schema, as an object"),
        (json!({"output_schema": {"type": "thing"}}), "output_schema cannot be used: "),
        (json!({"output_schema": {"description": "x".repeat(5_000)}}), "bytes and at most 4096 are allowed"),
    ] {
        let text = answer(&server, &json!([one(option.clone())])).await;
        assert!(text.contains(wanted), "{option}: {text}");
    }
    assert_eq!(
        answer(
            &server,
            &json!([one(json!({"output_key": "k"})), {
                "agent_id": "two", "mission": "do the second", "skills": ["tasks.search"], "output_key": "k"
            }])
        )
        .await
        .matches("output_key \"k\" was already used in this turn, by one")
        .count(),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dispatch_names_the_model_of_its_agent_and_the_configuration_the_one_of_all_others() {
    let big = boss(|_, _| Reply::says("The big one did it.")).await;
    let quick = boss(|_, _| Reply::says("The quick one did it.")).await;
    let pool = format!("{}{}", backend("big", &big, ""), backend("quick", &quick, "capabilities = [\"small\"]"));
    let (folder, server) = serve(&pool).await;
    assert!(answer(&server, &json!([one(json!({}))])).await.contains("The big one did it."));
    for model in ["quick", "small"] {
        let (task, conversation) =
            dispatch(&server, &json!([one(json!({"model": model, "label": "Look it up"}))])).await;
        let text = ended(&server, &task, &conversation).await;
        assert!(text.contains("The quick one did it."), "{model}: {text}");
        let replies = events(&server, &conversation, "model_replied").await;
        let call = replies
            .iter()
            .rev()
            .find_map(|event| Some(event["calls"][0].clone()).filter(|c| c["action"]["action"] == "dispatch"));
        let options = call.expect("a dispatch")["action"]["options"].clone();
        assert_eq!(options, json!({"label": "Look it up", "backends": ["quick", "big"]}));
        replay_agrees(&server, folder.path(), &conversation);
    }

    let (_folder, server) = serve(&format!("[sub_agent]\nmodel = \"small\"\n{pool}")).await;
    assert!(answer(&server, &json!([one(json!({}))])).await.contains("The quick one did it."));
    assert!(answer(&server, &json!([one(json!({"model": "big"}))])).await.contains("The big one did it."));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dispatch_with_a_time_limit_ends_its_agent_alone_with_a_truthful_report() {
    let model =
        boss(|mission, _| if mission.contains("first") { silence() } else { Reply::says("Second done.") }).await;
    let (folder, server) =
        serve(&format!("[sub_agent]\ntimeout_ms_max = 1000\n{}", backend("big", &model, "slots = 4"))).await;
    let agents = json!([one(json!({"timeout_s": 90})), {"agent_id": "two", "mission": "do the second", "skills": ["tasks.search"]}]);
    let (task, conversation) = dispatch(&server, &agents).await;
    let text = ended(&server, &task, &conversation).await;
    assert!(text.contains("Ran out of time after 1 s.") && text.contains("Second done."), "{text}");
    assert_eq!(report(&server, &conversation, "one").await["status"], "timeout");
    replay_agrees(&server, folder.path(), &conversation);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_is_validated_corrected_once_and_otherwise_called_unfit() {
    let model = boss(|mission, seen| {
        let corrects = seen.last_user_text().contains("does not have the form");
        match corrects {
            true if mission.contains("first") => Reply::says("```json\n{\"count\": 3}\n```"),
            true => Reply::says("I still think it is three."),
            false => Reply::says("It is three."),
        }
    })
    .await;
    let (folder, server) = serve(&backend("big", &model, "slots = 4")).await;
    let schema = json!({"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]});
    let agents = json!([one(json!({"output_schema": schema})), {
        "agent_id": "two", "mission": "do the second", "skills": ["tasks.search"], "output_schema": schema.to_string()
    }]);
    let (task, conversation) = dispatch(&server, &agents).await;
    ended(&server, &task, &conversation).await;
    let (fits, unfit) = (report(&server, &conversation, "one").await, report(&server, &conversation, "two").await);
    assert_eq!((&fits["status"], &fits["result"]), (&json!("completed"), &json!("{\"count\": 3}")));
    assert_eq!(unfit["status"], "failed");
    let text = unfit["result"].as_str().unwrap_or_default();
    assert!(text.contains("does not fit output_schema, also after a correction") && text.contains("three"), "{text}");
    replay_agrees(&server, folder.path(), &conversation);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mission_with_an_output_key_waits_for_the_report_and_contains_it() {
    let model = boss(|mission, _| match mission {
        text if text.contains("double") => Reply::says(format!("Seen: {text}")),
        _ => Reply::says("The number is 21."),
    })
    .await;
    let (folder, server) = serve(&backend("big", &model, "slots = 4")).await;
    let agents = json!([
        {"agent_id": "two", "mission": "double {number}, and leave {this} alone", "skills": ["tasks.search"]},
        one(json!({"output_key": "number"})),
    ]);
    let (task, conversation) = dispatch(&server, &agents).await;
    ended(&server, &task, &conversation).await;
    let seen = report(&server, &conversation, "two").await["result"].as_str().unwrap_or_default().to_owned();
    assert_eq!(seen.matches("The number is 21.").count(), 1, "once, in the mission: {seen}");
    assert!(seen.contains("double <report") && seen.contains("leave {this} alone"), "{seen}");
    replay_agrees(&server, folder.path(), &conversation);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_keeps_its_options_after_the_process_was_killed() {
    let big = boss(|_, _| Reply::says("The big one did it.")).await;
    let held = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_held = held.clone();
    let quick = boss(move |mission, seen| {
        let is_json = seen.last_user_text().contains("does not have the form");
        match is_held.load(std::sync::atomic::Ordering::SeqCst) {
            true => silence(),
            false if mission.contains("JSON Schema") && is_json => Reply::says("{\"ok\": true}"),
            false => Reply::says("no JSON"),
        }
    })
    .await;
    let pool = format!("{}{}", backend("big", &big, ""), backend("quick", &quick, "capabilities = [\"small\"]"));
    let (folder, mut server) = serve(&pool).await;
    let schema = json!({"type": "object", "required": ["ok"]});
    let options =
        json!({"model": "small", "label": "Check", "timeout_s": 300, "output_schema": schema, "output_key": "k"});
    let (task, conversation) = dispatch(&server, &json!([one(options)])).await;
    quick.arrived(1).await;
    server.kill();
    held.store(false, std::sync::atomic::Ordering::SeqCst);
    let config = folder.path().join("annie.toml");
    let server = server.again(folder.path(), &["--config", config.to_str().expect("a path")], &[]).await;
    let text = ended(&server, &task, &conversation).await;
    assert!(text.contains("{\\\"ok\\\": true}"), "the quick model reported, and its report was corrected: {text}");
    assert_eq!(quick.request_count(), 3, "one round before the kill, two after it");
    replay_agrees(&server, folder.path(), &conversation);
}

const ASK: &str = "[[guard.topic]]\nname = \"money\"\nwords = [\"stock tip\"]\naction = \"refuse\"\nreply = \"No advice.\"\n[approval]\nrules = [{ mode = \"ask\", when = { skills = [\"tasks.create\"] } }]\n";

/// The number of calls that wait for a person.
async fn waiting(server: &Server, count: usize) {
    eventually("the call waits", async || {
        let (_, list) = server.get("/api/v1/approvals").await;
        list["approvals"].as_array().filter(|rows| rows.len() == count).map(|_| ())
    })
    .await;
}

/// The agents that have not reported.
async fn agents(server: &Server, conversation: &str) -> Vec<Value> {
    let (status, list) = server.get(&format!("/api/v1/agents?conversation_id={conversation}")).await;
    assert_eq!(status, 200, "{list}");
    list["agents"].as_array().cloned().unwrap_or_default()
}

async fn control(server: &Server, conversation: &str, verb: &str, body: &Value) -> (u16, Value) {
    server.post(&format!("/api/v1/agents/{conversation}/{verb}"), body).await.expect("the server answers")
}

/// An agent that creates a task, which waits for a person, and then reports what it sees.
fn creator(_: &str, seen: &Seen) -> Reply {
    let last = seen.last_user_text();
    if last.contains("<result") {
        Reply::says(format!("Created it. Seen: {last}"))
    } else {
        Reply::says("```cmd\ntasks.create --title milk\n```")
    }
}

async fn refuses_wrong_texts(server: &Server, conversation: &str) {
    for (body, wanted, text) in [
        (json!({"agent": "one", "text": " "}), 400, "the text is empty"),
        (json!({"agent": "one", "text": "x".repeat(5_000)}), 400, "at most 4096"),
        (json!({"agent": "one", "text": "and a stock tip"}), 400, "the guard topic money refuses the text"),
        (json!({"agent": "one"}), 400, "text"),
        (json!({"agent": "two", "text": "x"}), 404, "no such agent"),
        (json!({"agent": "one", "text": "x", "why": "x"}), 400, "why"),
        (
            json!({"agent": "one", "text": "x", "task_id": "task_01980000000070008000000000000000"}),
            404,
            "no such agent",
        ),
    ] {
        let (status, problem) = control(server, conversation, "steer", &body).await;
        assert_eq!(status, wanted, "{body}: {problem}");
        assert!(problem.to_string().contains(text), "{body}: {problem}");
    }
    let elsewhere = "conv_01980000000070008000000000000000";
    assert_eq!(control(server, elsewhere, "steer", &json!({"agent": "one", "text": "x"})).await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_is_steered_over_all_front_ends_and_sees_the_texts_after_the_process_was_killed() {
    let model = boss(creator).await;
    let (folder, mut server) = serve(&format!("{ASK}{}", backend("big", &model, ""))).await;
    let creates = json!([one(json!({"skills": ["tasks.create"], "label": "Shopping"}))]);
    let (task, conversation) = dispatch(&server, &creates).await;
    waiting(&server, 1).await;
    let listed = agents(&server, &conversation).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    let row = &listed[0];
    assert_eq!(
        (&row["agent"], &row["label"], &row["status"], &row["round"], &row["task_id"]),
        (&json!("one"), &json!("Shopping"), &json!("running"), &json!(1), &json!(task)),
    );
    refuses_wrong_texts(&server, &conversation).await;
    let (status, done) =
        control(&server, &conversation, "steer", &json!({"agent": "one", "text": "Only oat milk."})).await;
    assert_eq!((status, &done["status"], &done["task_id"]), (200, &json!("steered"), &json!(task)), "{done}");
    server.kill();
    let config = folder.path().join("annie.toml");
    let server = server.again(folder.path(), &["--config", config.to_str().expect("a path")], &[]).await;
    waiting(&server, 1).await;
    let mut client = AgentsClient::connect(server.url.clone()).await.expect("the server listens");
    let list = client.list(ListAgentsRequest::default()).await.expect("a list").into_inner().agents;
    assert_eq!((list.len(), list[0].agent.as_str(), list[0].steered), (1, "one", 1));
    let steer = |text: &str| SteerAgentRequest {
        conversation_id: conversation.clone(),
        agent: "one".to_owned(),
        text: text.to_owned(),
        ..SteerAgentRequest::default()
    };
    assert_eq!(client.steer(steer("Be brief.")).await.expect("steered").into_inner().status, "steered");
    assert_eq!(client.steer(steer("")).await.expect_err("empty").code(), tonic::Code::InvalidArgument);
    let of = format!("{conversation}/one");
    let (code, out, err) = annie(&server, folder.path(), &["agents", "steer", &of, "And", "hurry."]);
    assert!(code == 0 && out.contains("one is steered"), "{out} {err}");
    let (code, out, err) = annie(&server, folder.path(), &["agents", "list"]);
    assert!(code == 0 && out.contains("one") && out.contains("Shopping"), "{out} {err}");
    assert_eq!(annie(&server, folder.path(), &["agents", "steer", "one", "x"]).0, 2, "without a conversation");
    for n in 4..=10 {
        let (status, problem) =
            control(&server, &conversation, "steer", &json!({"agent": "one", "text": format!("{n}.")})).await;
        assert_eq!(status, 200, "text {n}: {problem}");
    }
    let (status, problem) = control(&server, &conversation, "steer", &json!({"agent": "one", "text": "x"})).await;
    assert!(status == 400 && problem.to_string().contains("steered 10 times already"), "{problem}");
    let approve = format!("/api/v1/approvals/{task}/approve");
    assert_eq!(server.post(&approve, &json!({})).await.expect("the server answers").0, 200);
    let text = ended(&server, &task, &conversation).await;
    for wanted in ["Only oat milk.", "Be brief.", "And hurry."] {
        assert_eq!(text.matches(wanted).count(), 1, "{wanted}: {text}");
    }
    assert_eq!(events(&server, &conversation, "agent_steered").await.len(), 10);
    assert!(agents(&server, &conversation).await.is_empty());
    replay_agrees(&server, folder.path(), &conversation);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_that_is_stopped_reports_by_whom_and_its_siblings_continue() {
    let model = boss(|mission, _| if mission.contains("third") { Reply::says("Third done.") } else { silence() }).await;
    let (folder, mut server) = serve(&backend("big", &model, "slots = 4")).await;
    let all = json!([
        one(json!({})),
        {"agent_id": "two", "mission": "do the second", "skills": ["tasks.search"]},
        {"agent_id": "three", "mission": "do the third", "skills": ["tasks.search"]},
        {"agent_id": "four", "mission": "do the fourth", "skills": ["tasks.search"], "depends_on": ["two"]},
    ]);
    let (task, conversation) = dispatch(&server, &all).await;
    report(&server, &conversation, "three").await;
    let (status, problem) =
        control(&server, &conversation, "stop", &json!({"agent": "one", "reason": "x".repeat(501)})).await;
    assert_eq!(status, 400, "{problem}");
    let (status, done) =
        control(&server, &conversation, "stop", &json!({"agent": "one", "reason": "it is not needed."})).await;
    assert_eq!((status, &done["status"]), (200, &json!("stopped")), "{done}");
    for verb in ["stop", "steer"] {
        let (status, problem) = control(&server, &conversation, verb, &json!({"agent": "one", "text": "x"})).await;
        let wanted = if verb == "stop" { 400 } else { 409 };
        assert_eq!(status, wanted, "{verb}: {problem}");
    }
    let (status, problem) = control(&server, &conversation, "stop", &json!({"agent": "one"})).await;
    assert!(status == 409 && problem.to_string().contains("agent one has ended already"), "{problem}");
    server.kill();
    let config = folder.path().join("annie.toml");
    let server = server.again(folder.path(), &["--config", config.to_str().expect("a path")], &[]).await;
    eventually("the agent runs again", async || {
        let open: Vec<String> = agents(&server, &conversation)
            .await
            .iter()
            .map(|row| format!("{} {}", row["agent"], row["status"]))
            .collect();
        (open == ["\"two\" \"running\"", "\"four\" \"waiting\""]).then_some(())
    })
    .await;
    let (code, out, err) = annie(&server, folder.path(), &["agents", "stop", &format!("{conversation}/two")]);
    assert!(code == 0 && out.contains("two is stopped"), "{out} {err}");
    let text = ended(&server, &task, &conversation).await;
    assert!(text.contains("Cancelled by me (local): it is not needed.") && text.contains("Third done."), "{text}");
    assert!(text.contains("Skipped because dependency 'two' was cancelled"), "{text}");
    for agent in ["one", "two"] {
        assert_eq!(report(&server, &conversation, agent).await["status"], "cancelled");
    }
    replay_agrees(&server, folder.path(), &conversation);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orchestrator_with_control_tools_steers_and_stops_its_agents_and_without_them_cannot() {
    let orchestrate = |seen: &Seen| {
        let results = seen.texts_of("tool");
        match results.len() {
            0 => Reply::calls([
                ("dispatch_agent", json!({"agent_id": "one", "mission": "do the first", "skills": ["tasks.search"]})),
                ("dispatch_agent", json!({"agent_id": "two", "mission": "do the second", "skills": ["tasks.search"]})),
                ("get_agent_results", json!({"agent_ids": ["two"]})),
            ]),
            3 => Reply::calls([
                ("steer_agent", json!({"agent_id": "one", "text": "Stop soon."})),
                ("steer_agent", json!({"agent_id": "nine", "text": "x"})),
                ("steer_agent", json!({"agent_id": "one"})),
                ("stop_agent", json!({"agent_id": "one"})),
                ("get_agent_results", json!({"agent_ids": ["two"]})),
            ]),
            _ => Reply::says(format!("This came of it: {}", results.join("\n"))),
        }
    };
    for (config, has_tools) in [("[sub_agent]\ncontrol = true\n", true), ("", false)] {
        let model = FakeModelServer::start(move |seen| match mission(seen) {
            Some(mission) if mission.contains("first") => silence(),
            Some(_) => Reply::says("Second done."),
            None => orchestrate(seen),
        })
        .await;
        let (folder, server) = serve(&format!("{config}{}", backend("big", &model, "slots = 4"))).await;
        let (task, conversation) = dispatch(&server, &json!([])).await;
        model.arrived(1).await;
        let tools = model.requests()[0].tool_names();
        assert_eq!(tools.contains(&"stop_agent".to_owned()), has_tools, "{tools:?}");
        if !has_tools {
            eventually("the calls are refused", async || {
                let replies = events(&server, &conversation, "model_replied").await;
                let refused = |event: &Value| event["calls"].to_string().contains("there is no tool \\\"stop_agent");
                replies.iter().any(refused).then_some(())
            })
            .await;
            continue;
        }
        let text = ended(&server, &task, &conversation).await;
        for wanted in [
            "\"status\":\"steered\"",
            "no agent nine was dispatched",
            "steer_agent needs text",
            "\"status\":\"stopped\"",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        let stopped = report(&server, &conversation, "one").await;
        assert!(
            stopped["result"].as_str().is_some_and(|text| text.starts_with("Cancelled by the orchestrator.")),
            "{stopped}"
        );
        replay_agrees(&server, folder.path(), &conversation);
    }
}
