//! Workflows through the real binary: files in the data folder, HTTP, gRPC and the command line.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use annie::grpc::v1::{
    GetWorkflowRequest, GetWorkflowRunRequest, ListWorkflowsRequest, RunWorkflowRequest,
    workflows_client::WorkflowsClient,
};
use annie_actors::{RunWorkflow, Submission};
use annie_core::{event::Scope, workflow::WorkflowLimits};
use annie_skillkit::WorkflowFolder;
use annie_testkit::{
    model_server::{FakeModelServer, Reply},
    scripted_model::{ScriptedModel, says},
    skills::{FakeBehaviour, FakeSkills},
};
use serde_json::{Value, json};

use super::bad_models::{ask, server_with};
use crate::{
    server::Server,
    world::{WorldParts, ann, eventually},
};

/// Creates a to-do, looks it up, and answers with both.
pub(crate) const ERRAND: &str = "\
name: errand
description: Creates a to-do and shows it.
arguments:
  what: {type: text, required: true}
  count: {type: integer, default: 1}
steps:
  - id: add
    skill: tasks.create
    args: {title: \"{args.what} no {args.count}\"}
  - id: look
    skill: tasks.get
    args: {id: \"{steps.add.evidence.number}\"}
  - id: say
    answer: \"Created {args.what}: {steps.look.result}\"
";

/// A server with these workflows. Without a model, the offline planner answers messages.
pub(super) async fn server_of(config: &str, files: &[&str]) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    std::fs::write(&path, config).expect("written");
    put(folder.path(), files);
    let server = Server::start(folder.path(), &["--config", path.to_str().expect("a path")], &[]).await;
    (folder, server)
}

pub(crate) fn put(data: &Path, files: &[&str]) {
    std::fs::create_dir_all(data.join("workflows")).expect("made");
    for head in files {
        let name = head.lines().next().and_then(|line| line.strip_prefix("name: ")).expect("a name");
        std::fs::write(data.join(format!("workflows/{name}.md")), format!("---\n{head}---\nProse.\n"))
            .expect("written");
    }
}

/// Starts a run and returns its task and conversation.
pub(crate) async fn start(server: &Server, name: &str, arguments: Value) -> (String, String) {
    let body = json!({"arguments": arguments});
    let (status, sent) = server.post(&format!("/api/v1/workflows/{name}/run"), &body).await.expect("an answer");
    assert_eq!(status, 200, "{sent}");
    let id = |key: &str| sent[key].as_str().expect("an id").to_owned();
    (id("task_id"), id("conversation_id"))
}

pub(crate) async fn state(server: &Server, task: &str) -> Value {
    server.get(&format!("/api/v1/workflow-runs/{task}")).await.1
}

/// The state of a run that has ended.
pub(crate) async fn ended(server: &Server, task: &str) -> Value {
    eventually("the run ends", async || {
        let run = state(server, task).await;
        ["completed", "failed", "cancelled"].iter().any(|end| run["status"] == *end).then_some(run)
    })
    .await
}

/// The final event of a conversation, whose log also agrees with the decisions of the core.
pub(crate) async fn end_of(server: &Server, conversation: &str) -> Value {
    let (_, view) = server.get(&format!("/api/v1/conversations/{conversation}/replay?check=true")).await;
    assert_eq!(view["check"]["diverged"].as_u64().unwrap_or_default(), 0, "{view}");
    let events = events(server, conversation).await;
    events.iter().rfind(|e| e["kind"] == "answered" || e["kind"] == "failed").cloned().unwrap_or_default()
}

async fn events(server: &Server, conversation: &str) -> Vec<Value> {
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    log["events"].as_array().cloned().unwrap_or_default()
}

/// The steps of a run as `id state outcome`.
pub(super) fn steps(run: &Value) -> Vec<String> {
    let text = |step: &Value, key: &str| step[key].as_str().unwrap_or_default().to_owned();
    let line = |step: &Value| format!("{} {} {}", text(step, "id"), text(step, "state"), text(step, "outcome"));
    run["steps"].as_array().into_iter().flatten().map(|step| line(step).trim_end().to_owned()).collect()
}

/// Runs a skill on the user's own data.
pub(super) async fn run(server: &Server, command: &str) -> String {
    let body = json!({"command": command, "key": command});
    server.post("/api/v1/run", &body).await.expect("an answer").1["text"].as_str().unwrap_or_default().to_owned()
}

fn annie(server: &Server, data: &Path, arguments: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_annie"))
        .args(["--url", &server.url, "--data"])
        .arg(data)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", data)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap_or(-1), text(&out.stdout), text(&out.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflow_runs_its_steps_in_order_and_its_state_is_shown() {
    let (_folder, server) = server_of("", &[ERRAND]).await;
    let (task, conversation) = start(&server, "errand", json!({"what": "tea", "count": "7"})).await;
    let shown = ended(&server, &task).await;
    assert_eq!(steps(&shown), ["add done ok", "look done ok", "say done"], "{shown}");
    assert_eq!(
        (&shown["workflow"], &shown["status"], &shown["calls"]),
        (&json!("errand"), &json!("completed"), &json!(2))
    );
    let end = end_of(&server, &conversation).await;
    let text = end["text"].as_str().expect("a text");
    assert!(text.starts_with("Created tea:") && text.contains("tea no 7"), "{end}");
    assert_eq!(end["usage"]["output_tokens"].as_u64().unwrap_or_default(), 0, "no model was called: {end}");
    let events = events(&server, &conversation).await;
    let replies: Vec<&Value> = events.iter().filter(|event| event["kind"] == "model_replied").collect();
    assert_eq!(replies.len(), 3, "one reply for each step: {replies:?}");
    assert!(replies.iter().all(|reply| reply["backend"] == "workflow"), "{replies:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflow_is_called_by_name_and_its_result_is_a_notification() {
    let (_folder, server) = server_of("", &[ERRAND]).await;
    let sent = ask(&server, "/errand --what \"green tea\"").await;
    let answer = sent["answer"].as_str().expect("an answer");
    assert!(answer.starts_with("The workflow errand is started as background task"), "{sent}");
    eventually("the user is notified of the result", async || {
        let (_, list) = server.get("/api/v1/notifications").await;
        list.to_string().contains("Created green tea").then_some(())
    })
    .await;
    let sent = ask(&server, "/help").await;
    let line = "- /errand --what TEXT [--count N]: Creates a to-do and shows it.";
    assert!(sent["answer"].as_str().is_some_and(|text| text.contains(line)), "{sent}");
    let sent = ask(&server, "/errand").await;
    assert!(sent["answer"].as_str().is_some_and(|text| text.contains("missing required flag: --what")), "{sent}");
    let sent = ask(&server, "/errand --help").await;
    assert!(sent["answer"].as_str().is_some_and(|text| text.contains("Usage: errand --what TEXT")), "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_with_the_same_key_is_one_run_and_bad_requests_are_refused() {
    let broken = "name: broken\ndescription: x\nsteps:\n  - id: a\n    skill: x.y\n    next: nowhere\n  - id: b\n";
    let (_folder, server) = server_of("", &[ERRAND, broken]).await;
    let run_errand = async |body: Value| server.post("/api/v1/workflows/errand/run", &body).await.expect("an answer");
    let (_, first) = run_errand(json!({"arguments": {"what": "tea"}, "key": "k1"})).await;
    ended(&server, first["task_id"].as_str().expect("a task")).await;
    let (status, again) = run_errand(json!({"arguments": {"what": "tea"}, "key": "k1"})).await;
    assert_eq!((status, &again["task_id"], &again["repeated"]), (200, &first["task_id"], &json!(true)));
    assert_eq!(run(&server, "tasks.search --query tea").await.matches("tea no 1").count(), 1);
    for (body, wanted, text) in [
        (json!({"arguments": {"what": "coffee"}, "key": "k1"}), 409, "already used"),
        (json!({"arguments": {}}), 400, "missing required flag"),
        (json!({"arguments": {"what": "x", "colour": "red"}}), 400, "colour"),
        (json!({"arguments": {"what": "x"}, "key": "k".repeat(101)}), 400, "at most 100 bytes"),
        (json!({"arguments": ["x"]}), 400, ""),
        (json!({"what": "x"}), 400, "what"),
    ] {
        let (status, refused) = run_errand(body.clone()).await;
        assert_eq!(status, wanted, "{body}: {refused}");
        assert!(refused.to_string().contains(text), "{body}: {refused}");
    }
    let (status, refused) = server.post("/api/v1/workflows/broken/run", &json!({})).await.expect("an answer");
    assert_eq!(status, 400, "{refused}");
    assert!(
        refused.to_string().contains("step `nowhere`") && refused.to_string().contains("it does nothing"),
        "{refused}"
    );
    assert_eq!(server.post("/api/v1/workflows/nothing/run", &json!({})).await.expect("an answer").0, 404);
    assert_eq!(server.get("/api/v1/workflows/..%2Fannie").await.0, 404);
    let other = json!({"text": "hello", "conversation_key": "other"});
    let (_, sent) = server.post("/api/v1/messages?wait=20", &other).await.expect("an answer");
    let path = format!("/api/v1/workflow-runs/{}", sent["task_id"].as_str().expect("a task"));
    assert_eq!(server.get(&path).await.0, 404, "a task without a workflow has no run");
    let (_, list) = server.get("/api/v1/workflows").await;
    let broken = &list["workflows"][0];
    assert_eq!((&broken["name"], broken["problems"].as_array().map(Vec::len)), (&json!("broken"), Some(2)), "{list}");
    assert_eq!(list["workflows"][1]["synopsis"], "errand --what TEXT [--count N]", "{list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fan_out_runs_calls_at_once_and_gathers_them_and_loop_repeats_until_its_condition() {
    let fan = "\
name: fan
description: Two calls at once, and one for each line.
steps:
  - id: both
    parallel:
      - {id: one, skill: tasks.create, args: {title: red}}
      - {id: two, skill: tasks.create, args: {title: blue}}
  - id: more
    each: {of: '[\"green\", \"pink\"]', skill: tasks.create, args: {title: \"{item}\"}}
  - id: poll
    loop:
      max: 5
      until: '{steps.poll.passes} >= 3'
      steps:
        - {id: again, skill: tasks.create, args: {title: same}}
  - id: say
    answer: \"{steps.both.result} {steps.more.result} {steps.poll.passes}\"
";
    let (_folder, server) = server_of("", &[fan]).await;
    let (task, conversation) = start(&server, "fan", json!({})).await;
    let shown = ended(&server, &task).await;
    let expected =
        ["both done ok", "one done ok", "two done ok", "more done ok", "poll done ok", "again done ok", "say done"];
    assert_eq!(steps(&shown), expected, "{shown}");
    let end = end_of(&server, &conversation).await;
    let text = end["text"].as_str().unwrap_or_default();
    for part in ["red", "blue", "green", "pink", " 3"] {
        assert!(text.contains(part), "{part}: {end}");
    }
    let list = run(&server, "tasks.search --status open").await;
    assert_eq!(list.matches("same").count(), 3, "an equal call in a later pass is meant: {list}");
    let events = events(&server, &conversation).await;
    let replies: Vec<usize> = events
        .iter()
        .filter(|event| event["kind"] == "model_replied")
        .map(|event| event["calls"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(replies, [2, 2, 1, 1, 1, 0], "a fan-out is one reply: {events:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_step_is_chosen_by_outcome_and_a_failure_without_a_route_fails_the_run() {
    let routed = "\
name: routed
description: Finds a to-do or creates one.
arguments:
  id: {type: integer, required: true}
steps:
  - id: find
    skill: tasks.get
    args: {id: \"{args.id}\"}
    next:
      - {on: not_found, to: add}
      - {when: '{steps.find.result} contains \"tea\"', to: tea}
  - id: other
    answer: \"another one\"
  - id: tea
    answer: \"it is tea\"
  - id: add
    skill: tasks.create
    args: {title: tea}
    next: {to: made}
  - id: made
    answer: \"made {steps.add.evidence.number}\"
";
    let failing = "\
name: failing
description: Fails after an effect.
steps:
  - {id: add, skill: tasks.create, args: {title: kept}}
  - {id: gone, skill: tasks.get, args: {id: 999}}
  - {id: say, answer: never}
";
    let (_folder, server) = server_of("", &[routed, failing]).await;
    let answer = async |id: u32| {
        let (task, conversation) = start(&server, "routed", json!({"id": id})).await;
        ended(&server, &task).await;
        end_of(&server, &conversation).await["text"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(answer(1).await, "made 1");
    assert_eq!(answer(1).await, "it is tea");
    run(&server, "tasks.create --title coffee").await;
    assert_eq!(answer(2).await, "another one");
    let (task, conversation) = start(&server, "failing", json!({})).await;
    let shown = ended(&server, &task).await;
    assert_eq!(steps(&shown), ["add done ok", "gone failed failed", "say pending"], "{shown}");
    assert!(shown["failure"].as_str().is_some_and(|why| why.contains("Step `gone` failed (not_found)")), "{shown}");
    let end = end_of(&server, &conversation).await;
    assert_eq!((&end["kind"], &end["code"]), (&json!("failed"), &json!("workflow_failed")), "{end}");
    assert!(end["text"].as_str().is_some_and(|text| text.contains("kept")), "the report says what was done: {end}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_of_a_step_works_with_earlier_results_and_its_report_is_a_result() {
    let brief = "\
name: brief
description: Summarises.
steps:
  - {id: add, skill: tasks.create, args: {title: \"buy saffron\"}}
  - id: sum
    agent: \"Summarise this: {steps.add.result}\"
  - {id: say, answer: \"In short: {steps.sum.result}\"}
";
    let model = FakeModelServer::start(|seen| {
        let is_framed = seen.last_user_text().contains("step=\"add\"") && seen.last_user_text().contains("buy saffron");
        Reply::says(if is_framed { "Saffron is on the list." } else { "I have no text." })
    })
    .await;
    let (folder, server) = server_with(&model, "").await;
    put(folder.path(), &[brief]);
    let (task, conversation) = start(&server, "brief", json!({})).await;
    let shown = ended(&server, &task).await;
    assert_eq!(steps(&shown), ["add done ok", "sum done ok", "say done"], "{shown}");
    let end = end_of(&server, &conversation).await;
    assert_eq!(end["text"], "In short: Saffron is on the list.", "{end}");
    assert_eq!(model.requests().len(), 1, "only the agent calls the model");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_of_a_step_waits_for_a_person_and_its_refusal_is_an_outcome() {
    let asking = "\
name: asking
description: Asks first.
steps:
  - id: add
    skill: tasks.create
    args: {title: asked}
    next: [{on: denied, to: refused}]
  - {id: say, answer: \"allowed: {steps.add.result}\"}
  - {id: refused, answer: \"{steps.add.status}\"}
";
    let config = "[approval]\nrules = [{ mode = \"ask\", when = { skills = [\"tasks.create\"] } }]\n";
    let (_folder, server) = server_of(config, &[asking]).await;
    for (verdict, wanted, made) in [("deny", "denied", 0), ("approve", "allowed: Created task #1", 1)] {
        let (task, conversation) = start(&server, "asking", json!({})).await;
        let waiting = eventually("the call waits", async || {
            let run = state(&server, &task).await;
            (run["awaits_approval"] == true).then_some(run)
        })
        .await;
        assert_eq!((&waiting["present"], &waiting["status"]), (&json!("add"), &json!("running")), "{waiting}");
        let path = format!("/api/v1/approvals/{task}/{verdict}");
        let (status, decided) = server.post(&path, &json!({})).await.expect("an answer");
        assert_eq!(status, 200, "{decided}");
        ended(&server, &task).await;
        let end = end_of(&server, &conversation).await;
        assert!(end["text"].as_str().is_some_and(|text| text.starts_with(wanted)), "{end}");
        assert_eq!(run(&server, "tasks.search --status open").await.matches("asked").count(), made);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_that_waits_is_cancelled_and_a_message_does_not_steer_it() {
    let asking = "name: asking\ndescription: x\nsteps:\n  - {id: add, skill: tasks.create, args: {title: asked}}\n";
    let config = "[approval]\nrules = [{ mode = \"ask\", when = { skills = [\"tasks.create\"] } }]\n";
    let (_folder, server) = server_of(config, &[asking]).await;
    let (task, conversation) = start(&server, "asking", json!({})).await;
    eventually("the call waits", async || (state(&server, &task).await["awaits_approval"] == true).then_some(())).await;
    let body = json!({"text": "what is 2 plus 3?", "conversation_id": conversation, "steer": true});
    let (status, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("an answer");
    assert_eq!((status, &sent["status"]), (200, &json!("completed")), "it has a turn of its own: {sent}");
    let (status, _) = server.post(&format!("/api/v1/tasks/{task}/cancel"), &json!({})).await.expect("an answer");
    assert!(status < 300, "{status}");
    let shown = ended(&server, &task).await;
    assert_eq!(shown["status"], "cancelled", "{shown}");
    assert_eq!(run(&server, "tasks.search --status open").await.matches("asked").count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_run_begins_no_further_step_until_it_is_continued() {
    let two = "\
name: two
description: Two steps.
steps:
  - {id: add, skill: tasks.create, args: {title: first}}
  - {id: more, skill: tasks.search}
";
    let config = "[approval]\nrules = [{ mode = \"ask\", when = { skills = [\"tasks.create\"] } }]\n";
    let (_folder, server) = server_of(config, &[two]).await;
    let (task, conversation) = start(&server, "two", json!({})).await;
    eventually("the call waits", async || (state(&server, &task).await["awaits_approval"] == true).then_some(())).await;
    let post = async |path: String| server.post(&path, &json!({})).await.expect("an answer");
    assert!(post(format!("/api/v1/tasks/{task}/suspend")).await.0 < 300);
    assert_eq!(post(format!("/api/v1/approvals/{task}/approve")).await.0, 200);
    let is_begun = |run: &Value| run["steps"][1]["state"] == "running";
    let at_rest = eventually("the first step ends", async || {
        let run = state(&server, &task).await;
        (run["present"] == "more").then_some(run)
    })
    .await;
    assert_eq!(at_rest["status"], "suspended", "{at_rest}");
    // A whole turn of another conversation passes meanwhile.
    ask(&server, "hello").await;
    let log = events(&server, &conversation).await;
    assert_eq!(log.iter().filter(|event| event["kind"] == "model_replied").count(), 1, "no further step: {log:?}");
    assert!(is_begun(&at_rest), "the next step is known: {at_rest}");
    assert!(post(format!("/api/v1/tasks/{task}/continue")).await.0 < 300);
    assert_eq!(ended(&server, &task).await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steering_message_gets_a_turn_beside_the_step_that_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    put(folder.path(), &["name: slow\ndescription: x\nsteps:\n  - {id: look, skill: test.look}\n"]);
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::new(|_, _| Ok(says("Five.")))));
    parts.skills = Arc::new(FakeSkills::new(|_| FakeBehaviour::Hang));
    parts.workflows = Arc::new(WorkflowFolder::new(folder.path().join("workflows"), WorkflowLimits::default()));
    let world = parts.start().await;
    let asked = RunWorkflow { name: "slow".to_owned(), ..RunWorkflow::default() };
    let started = world.kernel.run_workflow(ann(), asked).await.expect("accepted");
    eventually("the step runs", async || (parts.skills.count("test.look") == 1).then_some(())).await;
    let mut message = Submission::new(ann(), "test", "what is 2 plus 3?").within(started.conversation);
    message.steer = true;
    let sent = world.kernel.submit(message).await.expect("accepted");
    assert_eq!(world.answer(&sent).await, "Five.");
    world.kernel.cancel(Scope::User(ann()), started.task, "ann").await.expect("cancelled");
    world.final_of(started.conversation, started.task).await;
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_the_configuration_hold_for_files_and_runs() {
    let small = "\
name: small
description: Three passes of one call.
steps:
  - id: l
    loop: {max: 3, steps: [{id: a, skill: tasks.search, args: {query: nothing}}]}
";
    let wide = "name: wide\ndescription: x\nsteps:\n  - id: p\n    parallel:\n      - {id: a, skill: tasks.search}\n      - {id: b, skill: tasks.search}\n";
    let problems = async |server: &Server, name: &str| {
        let (_, found) = server.get(&format!("/api/v1/workflows/{name}")).await;
        found["problems"].to_string()
    };
    let (folder, server) = server_of("[workflows]\ncalls_max = 2\nvalue_bytes_max = 100\n", &[small]).await;
    let (task, _) = start(&server, "small", json!({})).await;
    let shown = ended(&server, &task).await;
    assert!(shown["failure"].as_str().is_some_and(|why| why.contains("its limit of 2 calls")), "{shown}");
    let long = format!(
        "name: long\ndescription: x\nsteps:\n  - {{id: a, skill: tasks.create, args: {{title: \"{}\"}}}}\n",
        "y".repeat(150)
    );
    put(folder.path(), &[&long]);
    let (task, conversation) = start(&server, "long", json!({})).await;
    ended(&server, &task).await;
    let end = end_of(&server, &conversation).await;
    assert!(end["text"].as_str().is_some_and(|text| text.len() <= 100 && text.contains("[cut:")), "{end}");
    let config = "[workflows]\nsteps_max = 1\nparallel_max = 1\nloop_max = 2\n";
    let (_other, server) = server_of(config, &[small, wide]).await;
    let found = problems(&server, "small").await;
    assert!(found.contains("from 1 to 2") && found.contains("at most 1 are allowed"), "{found}");
    let found = problems(&server, "wide").await;
    assert!(found.contains("it makes 2 calls at once, and at most 1 are allowed"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_line_lists_runs_shows_and_validates_workflows() {
    let (folder, server) = server_of("", &[ERRAND]).await;
    let data = folder.path();
    let (code, out, err) = annie(&server, data, &["workflows", "list"]);
    assert!(code == 0 && out.contains("Creates a to-do and shows it."), "{out}{err}");
    let (code, out, err) = annie(&server, data, &["workflows", "run", "errand", "--arg", "what=tea", "--json"]);
    assert_eq!(code, 0, "{out}{err}");
    let started: Value = serde_json::from_str(&out).expect("JSON");
    let task = started["task_id"].as_str().expect("a task");
    ended(&server, task).await;
    let (code, out, err) = annie(&server, data, &["workflows", "show", task]);
    assert!(code == 0 && out.contains("skill tasks.create") && out.contains("completed"), "{out}{err}");
    let (code, out, _) = annie(&server, data, &["workflows", "show", "errand"]);
    assert!(code == 0 && out.contains("errand --what TEXT [--count N]"), "{out}");
    assert_eq!(annie(&server, data, &["workflows", "run", "nothing"]).0, 3);
    assert_eq!(annie(&server, data, &["workflows", "run", "errand", "--arg", "what"]).0, 2);
    let file = data.join("workflows/errand.md");
    let path = file.to_str().expect("a path");
    let (code, out, err) = annie(&server, data, &["workflows", "validate", path]);
    assert!(code == 0 && out.contains("is valid"), "{out}{err}");
    let text = std::fs::read_to_string(&file).expect("read");
    std::fs::write(&file, text.replace("tasks.get", "tasks.gett")).expect("written");
    let (code, out, _) = annie(&server, data, &["workflows", "validate", path]);
    assert!(code == 1 && out.contains("there is no skill `tasks.gett`") && out.contains("tasks.get"), "{out}");
    std::fs::write(&file, text.replace("{args.what}:", "{args.wat}:").replace("  - id: look", "  - id: add"))
        .expect("written");
    let (code, out, _) = annie(&server, data, &["workflows", "validate", path]);
    assert!(code == 1 && out.contains("`{args.wat}` is no argument") && out.contains("the name is taken"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_lists_runs_and_shows_workflows() {
    let (_folder, server) = server_of("", &[ERRAND]).await;
    let mut client = WorkflowsClient::connect(server.url.clone()).await.expect("connected");
    let list = client.list(ListWorkflowsRequest {}).await.expect("listed").into_inner();
    assert_eq!(list.workflows[0].steps, ["add", "look", "say"]);
    let name = || "errand".to_owned();
    let one = client.get(GetWorkflowRequest { name: name() }).await.expect("found").into_inner();
    assert_eq!(one, list.workflows[0]);
    let wrong = RunWorkflowRequest { name: name(), arguments_json: "[]".to_owned(), ..RunWorkflowRequest::default() };
    assert_eq!(client.run(wrong).await.expect_err("refused").code(), tonic::Code::InvalidArgument);
    let asked = RunWorkflowRequest {
        name: name(),
        arguments_json: r#"{"what": "tea"}"#.to_owned(),
        ..RunWorkflowRequest::default()
    };
    let started = client.run(asked).await.expect("started").into_inner();
    ended(&server, &started.task_id).await;
    let task_id = started.task_id;
    let run = client.show(GetWorkflowRunRequest { task_id }).await.expect("shown").into_inner();
    assert_eq!((run.steps.len(), run.calls, run.workflow.as_str()), (3, 2, "errand"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_not_found_by_another_user_and_needs_its_scopes() {
    let (_folder, server) = server_of("", &[ERRAND]).await;
    let (task, _) = start(&server, "errand", json!({"what": "tea"})).await;
    ended(&server, &task).await;
    let options = json!({"name": "root", "scopes": ["admin", "impersonate"]});
    let (status, root) = server.post("/api/v1/keys", &options).await.expect("an answer");
    assert_eq!(status, 201, "{root}");
    let send = async |method: &str, path: &str, key: &Value, body: &Value| {
        let method = method.parse().expect("a method");
        let request = server.http.request(method, format!("{}{path}", server.url)).json(body);
        let answer = request.bearer_auth(key.as_str().expect("a key")).send().await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap_or_default())
    };
    let key = async |user: &str, scopes: &[&str]| {
        let options = json!({"name": user, "user": user, "scopes": scopes});
        let (status, made) = send("POST", "/api/v1/keys", &root["secret"], &options).await;
        assert_eq!(status, 201, "{made}");
        made["secret"].clone()
    };
    let (reads, chats) = (key("bob", &["jobs:read"]).await, key("bob", &["chat"]).await);
    let (run, path) = ("/api/v1/workflows/errand/run", format!("/api/v1/workflow-runs/{task}"));
    assert_eq!(send("GET", &path, &reads, &Value::Null).await.0, 404, "it is another user's");
    assert_eq!(send("GET", &path, &chats, &Value::Null).await.0, 403);
    assert_eq!(send("GET", "/api/v1/workflows", &chats, &Value::Null).await.0, 403);
    assert_eq!(send("POST", run, &reads, &json!({"arguments": {"what": "x"}})).await.0, 403);
    assert_eq!(send("GET", "/api/v1/workflow-runs/x", &reads, &Value::Null).await.0, 400);
    let (status, started) = send("POST", run, &chats, &json!({"arguments": {"what": "coffee"}})).await;
    assert_eq!(status, 200, "{started}");
}
