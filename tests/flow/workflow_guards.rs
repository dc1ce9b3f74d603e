//! Workflows through the real binary, where something is refused, fails or is repeated: no effect happens twice, no result is lost.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use annie_actors::RunWorkflow;
use annie_core::{
    event::EventBody,
    outcome::{Operation, Outcome},
    ports::{Fut, WorkflowFile, Workflows},
    workflow::WorkflowLimits,
};
use annie_skillkit::WorkflowFolder;
use annie_testkit::{
    model_server::{FakeModelServer, Reply},
    scripted_model::{ScriptedModel, says},
    skills::{FakeBehaviour, FakeSkills},
};
use serde_json::json;

use super::{
    bad_models::{ask, server_with},
    prompt_skills,
    workflows::{ERRAND, end_of, ended, events, put, run, server_of, start, state, steps as steps_of},
};
use crate::{
    server::Server,
    world::{WorldParts, ann, eventually},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_beside_a_refused_one_runs_once_and_its_report_reaches_its_step() {
    let steps = "
  - id: both
    parallel:
      - {id: a, agent: \"Report A.\"}
      - {id: b, agent: \"Report B.\", skills: [tasks.create]}
    next: {on: failed, to: say}
  - {id: say, answer: \"{steps.a.status} {steps.a.result} {steps.b.status} {steps.b.error}\"}
";
    let confined = format!(
        "name: confined\ndescription: One agent has a forbidden skill.\nsteps:\n  - {{id: keep, skill: keep}}{steps}"
    );
    let model = FakeModelServer::start(|seen| {
        Reply::says(if seen.last_user_text().contains("Report A.") { "The report of A." } else { "Nothing." })
    })
    .await;
    let (folder, server) = server_with(&model, "").await;
    prompt_skills::put(&folder, &server, &[("keep", "allowed-tools: tasks.search", "Keep to it.")]).await;
    put(folder.path(), &[&confined]);
    let (task, conversation) = start(&server, "confined", json!({})).await;
    ended(&server, &task).await;
    let end = end_of(&server, &conversation).await;
    assert_eq!(end["text"], "ok The report of A. denied denied", "{end}");
    assert_eq!(model.requests().len(), 1, "agent A runs once: {:?}", model.requests());
}

/// Waits until a call of the run waits for a person.
async fn awaits_approval(server: &Server, task: &str) {
    eventually("the call waits", async || (state(server, task).await["awaits_approval"] == true).then_some(())).await;
}

async fn approve(server: &Server, task: &str) {
    let path = format!("/api/v1/approvals/{task}/approve");
    let (status, decided) = server.post(&path, &json!({})).await.expect("an answer");
    assert_eq!(status, 200, "{decided}");
}

/// Retries a dead letter, and returns the task of the retry.
async fn retry(server: &Server, task: &str) -> String {
    let path = format!("/api/v1/dead-letters/{task}/retry");
    let (status, sent) = server.post(&path, &json!({})).await.expect("an answer");
    assert_eq!(status, 200, "{sent}");
    sent["task_id"].as_str().expect("an id").to_owned()
}

async fn conversation_of(server: &Server, task: &str) -> String {
    let (_, row) = server.get(&format!("/api/v1/tasks/{task}")).await;
    row["conversation_id"].as_str().expect("an id").to_owned()
}

async fn rounds(server: &Server, task: &str) -> usize {
    let events = events(server, &conversation_of(server, task).await).await;
    events.iter().filter(|event| event["kind"] == "model_replied").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_and_forked_skill_begin_after_the_tasks_that_their_message_names() {
    let asking = "name: asking\ndescription: x\nsteps:\n  - {id: add, skill: tasks.create, args: {title: asked}}\n";
    let look = "name: look\ndescription: x\nsteps:\n  - {id: look, skill: tasks.search, args: {query: asked}}\n";
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let config = "[approval]\nrules = [{ mode = \"ask\", when = { skills = [\"tasks.create\"] } }]\n";
    let (folder, mut server) = server_with(&model, config).await;
    prompt_skills::put(&folder, &server, &[("survey", "context: fork", "Look at everything.")]).await;
    put(folder.path(), &[asking, look]);
    let (first, _) = start(&server, "asking", json!({})).await;
    awaits_approval(&server, &first).await;
    let mut forked = Vec::new();
    for text in ["/look", "/survey"] {
        let body = json!({"text": text, "conversation_key": text, "after": [first]});
        let (_, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("an answer");
        let answer = sent["answer"].as_str().unwrap_or_default();
        let task = answer.split("background task ").nth(1).expect("a task").split(['.', ';']).next().expect("a task");
        forked.push(task.to_owned());
    }
    for is_restarted in [false, true] {
        if is_restarted {
            server.kill();
            let config = folder.path().join("annie.toml");
            let config = config.to_str().expect("a path");
            server = server.again(folder.path(), &["--config", config], &[]).await;
            awaits_approval(&server, &first).await;
        }
        // A whole turn of another conversation passes meanwhile.
        ask(&server, if is_restarted { "hello again" } else { "hello" }).await;
        for task in &forked {
            assert_eq!(rounds(&server, task).await, 0, "it waits, restarted: {is_restarted}");
        }
    }
    approve(&server, &first).await;
    assert_eq!(ended(&server, &forked[0]).await["status"], "completed");
    let end = end_of(&server, &conversation_of(&server, &forked[0]).await).await;
    assert!(end["text"].as_str().is_some_and(|text| text.contains("asked")), "it sees what the first task did: {end}");
    eventually("the forked skill runs", async || (rounds(&server, &forked[1]).await == 1).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_makes_only_the_calls_of_a_loop_that_were_not_made_and_has_the_results_of_the_others() {
    let thrice = "\
name: thrice
description: Three equal effects.
steps:
  - id: l
    loop:
      max: 3
      steps:
        - {id: add, skill: tasks.create, args: {title: same}}
        - {id: note, skill: tasks.create, args: {title: \"note of {steps.add.evidence.number} at {now}\"}}
        - {id: check, skill: tasks.get, args: {id: \"{steps.l.passes}0\"}}
  - {id: say, answer: \"{steps.add.evidence.number} {steps.note.result}\"}
";
    let (_folder, server) = server_of("", &[thrice]).await;
    let fill = async |from: usize, to: usize| {
        for n in from..=to {
            run(&server, &format!("tasks.create --title filler{n}")).await;
        }
    };
    fill(1, 10).await;
    let (first, _) = start(&server, "thrice", json!({})).await;
    let failed = ended(&server, &first).await;
    assert!(failed["failure"].as_str().is_some_and(|why| why.contains("Step `check` failed (not_found)")), "{failed}");
    fill(15, 30).await;
    let second = retry(&server, &first).await;
    let shown = ended(&server, &second).await;
    assert_eq!(shown["status"], "completed", "{shown}");
    let end = end_of(&server, &conversation_of(&server, &second).await).await;
    let text = end["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("31 Created task #32"), "the third pass was not made before: {end}");
    let same = run(&server, "tasks.search --query same").await;
    assert_eq!(same.matches(" same,").count(), 3, "{same}");
    let notes = run(&server, "tasks.search --query note").await;
    for number in [11, 13, 31] {
        assert_eq!(notes.matches(&format!("note of {number} at")).count(), 1, "the evidence of {number}: {notes}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_calls_of_a_fan_out_and_texts_are_answered_in_their_order_by_a_retry() {
    let fan = "\
name: fan
description: Equal calls at once.
steps:
  - {id: more, each: {of: '[\"x\", \"x\"]', skill: tasks.create, args: {title: \"{item}\"}}}
  - {id: gate, skill: tasks.get, args: {id: 3}}
  - {id: again, each: {of: '[\"x\", \"x\", \"x\"]', skill: tasks.create, args: {title: \"{item}\"}}}
  - {id: say, answer: \"{steps.more.result} {steps.again.status}\"}
";
    let (_folder, server) = server_of("", &[fan]).await;
    let (first, _) = start(&server, "fan", json!({})).await;
    assert_eq!(ended(&server, &first).await["status"], "failed");
    run(&server, "tasks.create --title three").await;
    let second = retry(&server, &first).await;
    ended(&server, &second).await;
    let end = end_of(&server, &conversation_of(&server, &second).await).await;
    let text = end["text"].as_str().unwrap_or_default();
    assert!(text.contains("Created task #1") && text.contains("Created task #2") && text.ends_with("ok"), "{end}");
    assert!(!text.contains("done already"), "{end}");
    let list = run(&server, "tasks.search --status open").await;
    assert!(list.contains("#6") && !list.contains("#7"), "two, three and the one between: {list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retried_run_past_its_hard_deadline_fails_and_no_model_continues_it() {
    let steps = "\
name: brief
description: Needs a task.
steps:
  - {id: get, skill: tasks.get, args: {id: 1}}
  - {id: sum, agent: \"Summarise this: {steps.get.result}\"}
  - {id: say, answer: \"{steps.sum.result}\"}
";
    let model = FakeModelServer::start(|_| Reply::says("x").stall_after_events(1)).await;
    let config = "[deadline.high]\nsoft_ms = 100\nhard_ms = 200\n";
    let (folder, server) = server_with(&model, config).await;
    put(folder.path(), &[steps]);
    let (first, _) = start(&server, "brief", json!({})).await;
    assert_eq!(ended(&server, &first).await["status"], "failed");
    run(&server, "tasks.create --title one").await;
    let second = retry(&server, &first).await;
    let shown = ended(&server, &second).await;
    assert_eq!((&shown["status"], &shown["present"]), (&json!("failed"), &json!("")), "{shown}");
    assert!(!steps_of(&shown).iter().any(|step| step.contains("running")), "{shown}");
    let end = end_of(&server, &conversation_of(&server, &second).await).await;
    assert_eq!((&end["kind"], &end["code"]), (&json!("failed"), &json!("deadline")), "{end}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_of_a_run_whose_file_is_gone_or_broken_fails_without_a_model() {
    let needs = "name: needs\ndescription: x\nsteps:\n  - {id: get, skill: tasks.get, args: {id: 1}}\n";
    let model = FakeModelServer::start(|_| Reply::says("I guess what it meant.")).await;
    let (folder, server) = server_with(&model, "").await;
    put(folder.path(), &[needs]);
    let (mut task, _) = start(&server, "needs", json!({})).await;
    assert_eq!(ended(&server, &task).await["status"], "failed");
    let file = folder.path().join("workflows/needs.md");
    for (text, why) in [
        (None, "There is no workflow or skill needs any more"),
        (Some("---\nname: needs\ndescription: x\nsteps: []\n---\n"), "has problems, so the workflow was not started"),
        (
            Some(
                "---\nname: needs\ndescription: x\narguments:\n  day: {type: text, required: true}\nsteps:\n  - {id: a, answer: \"{args.day}\"}\n---\n",
            ),
            "missing required flag: --day",
        ),
    ] {
        match text {
            Some(text) => std::fs::write(&file, text).expect("written"),
            None => std::fs::remove_file(&file).expect("removed"),
        }
        task = retry(&server, &task).await;
        let shown = ended(&server, &task).await;
        assert_eq!((&shown["status"], &shown["workflow"]), (&json!("failed"), &json!("needs")), "{shown}");
        let end = end_of(&server, &conversation_of(&server, &task).await).await;
        assert_eq!((&end["kind"], &end["code"]), (&json!("failed"), &json!("workflow_not_started")), "{end}");
        assert!(end["text"].as_str().is_some_and(|text| text.contains(why)), "{end}");
        assert_eq!(model.request_count(), 0, "no model is asked: {end}");
    }
    put(folder.path(), &[needs]);
    run(&server, "tasks.create --title one").await;
    task = retry(&server, &task).await;
    assert_eq!(ended(&server, &task).await["status"], "completed", "the file is as it was");
}

/// A folder whose only file can be read once.
struct ReadOnce(WorkflowFolder, AtomicBool);

impl Workflows for ReadOnce {
    fn all(&self) -> Fut<'_, Result<Vec<WorkflowFile>, String>> {
        self.0.all()
    }

    fn find<'a>(&'a self, name: &'a str) -> Fut<'a, Option<WorkflowFile>> {
        if self.1.swap(true, Ordering::SeqCst) { Box::pin(async { None }) } else { self.0.find(name) }
    }
}

#[tokio::test]
async fn run_whose_file_is_gone_before_it_begins_fails_without_a_model() {
    let folder = tempfile::tempdir().expect("a folder");
    put(folder.path(), &["name: short\ndescription: x\nsteps:\n  - {id: look, skill: test.look}\n"]);
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("I guess what it meant."))));
    let mut parts = WorldParts::with_model(model.clone());
    let files = WorkflowFolder::new(folder.path().join("workflows"), WorkflowLimits::default());
    parts.workflows = Arc::new(ReadOnce(files, AtomicBool::new(false)));
    let world = parts.start().await;
    let asked = RunWorkflow { name: "short".to_owned(), ..RunWorkflow::default() };
    let started = world.kernel.run_workflow(ann(), asked).await.expect("accepted");
    let end = world.final_of(started.conversation, started.task).await;
    let EventBody::Failed { code, dead_letter, .. } = &end else { panic!("wanted a failure, got {end:?}") };
    assert_eq!((code.as_str(), dead_letter.is_some(), model.call_count()), ("workflow_not_started", true, 0));
    world.kernel.stop().await;
}

#[tokio::test]
async fn step_whose_operation_is_accepted_is_pending_and_neither_ok_nor_failed() {
    let folder = tempfile::tempdir().expect("a folder");
    let order = "  - {id: order, skill: test.put, args: {what: coffee}";
    let end = "  - {id: bad, answer: failed}\n  - {id: later, answer: \"{steps.order.status}\"}\n";
    let head = |name: &str| format!("name: {name}\ndescription: x\nsteps:\n");
    let routed = format!(
        "{}{order}, next: [{{on: failed, to: bad}}, {{on: pending, to: later}}]}}\n  - {{id: ok, answer: ok}}\n{end}",
        head("routed")
    );
    let plain = format!("{}{order}}}\n  - {{id: ok, answer: ok}}\n", head("plain"));
    put(folder.path(), &[&routed, &plain]);
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::new(|_, _| Ok(says("News.")))));
    parts.skills = Arc::new(FakeSkills::new(|call| {
        let operation = Operation { id: call.operation.id, expires_at: call.now.plus_ms(60_000) };
        FakeBehaviour::Answer(Outcome::pending(operation, "The coffee is ordered."))
    }));
    parts.workflows = Arc::new(WorkflowFolder::new(folder.path().join("workflows"), WorkflowLimits::default()));
    let world = parts.start().await;
    let ends = async |name: &str| {
        let asked = RunWorkflow { name: name.to_owned(), ..RunWorkflow::default() };
        let started = world.kernel.run_workflow(ann(), asked).await.expect("accepted");
        world.final_of(started.conversation, started.task).await
    };
    let end = ends("routed").await;
    assert!(matches!(&end, EventBody::Answered { text, .. } if text.starts_with("pending")), "{end:?}");
    let end = ends("plain").await;
    let EventBody::Failed { code, text, .. } = &end else { panic!("wanted a failure, got {end:?}") };
    assert!(code == "workflow_failed" && text.contains("began an operation whose result comes later"), "{text}");
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_run_shows_its_step_as_stopped() {
    let asking = "name: asking\ndescription: x\nsteps:\n  - {id: add, skill: tasks.create, args: {title: asked}}\n";
    let config = "[approval]\nrules = [{ mode = \"ask\", when = { skills = [\"tasks.create\"] } }]\n";
    let (_folder, server) = server_of(config, &[asking]).await;
    let (task, _) = start(&server, "asking", json!({})).await;
    awaits_approval(&server, &task).await;
    server.post(&format!("/api/v1/tasks/{task}/cancel"), &json!({})).await.expect("an answer");
    let shown = ended(&server, &task).await;
    assert_eq!((&shown["status"], &shown["present"]), (&json!("cancelled"), &json!("")), "{shown}");
    assert_eq!(steps_of(&shown), ["add stopped"], "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn condition_tells_large_ids_apart_and_takes_nan_for_a_word() {
    let compare = "\
name: compare
description: Compares two values.
arguments:
  a: {type: text, required: true}
  b: {type: text, required: true}
steps:
  - id: look
    skill: tasks.search
    next:
      - {when: '{args.a} == {args.b}', to: same}
      - {when: '{args.a} < {args.b}', to: less}
      - {to: more}
  - {id: same, answer: same}
  - {id: less, answer: less}
  - {id: more, answer: more}
";
    let (_folder, server) = server_of("", &[compare]).await;
    for (a, b, wanted) in [
        ("9007199254740993", "9007199254740992", "more"),
        ("nan", "nan", "same"),
        ("inf", "infinity", "less"),
        ("2", "10", "less"),
        ("1.0", "1", "same"),
    ] {
        let (task, conversation) = start(&server, "compare", json!({"a": a, "b": b})).await;
        ended(&server, &task).await;
        let end = end_of(&server, &conversation).await;
        assert_eq!(end["text"], wanted, "{a} and {b}: {end}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_with_a_placeholder_that_is_not_closed_is_a_problem_and_hides_no_other_workflow() {
    let letters = format!("x{}", "ü".repeat(30));
    let open = format!(
        "name: open\ndescription: Not closed.\nsteps:\n  - {{id: a, skill: tasks.search, args: {{query: '{{args.{letters}'}}}}\n"
    );
    let (_folder, server) = server_of("", &[ERRAND, &open]).await;
    let (status, list) = server.get("/api/v1/workflows").await;
    let found = list["workflows"].as_array().cloned().unwrap_or_default();
    let problems: Vec<usize> = found.iter().map(|row| row["problems"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!((status, problems), (200, vec![0, 1]), "{list}");
    assert!(list.to_string().contains("has no closing brace"), "{list}");
    let (status, refused) = server.post("/api/v1/workflows/open/run", &json!({})).await.expect("an answer");
    assert!(status == 400 && refused.to_string().contains("has problems"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn condition_and_argument_with_a_result_that_was_cut_fail_and_long_arguments_are_refused() {
    let head = |name: &str| {
        format!("name: {name}\ndescription: Looks.\narguments:\n  text: {{type: text, default: x}}\nsteps:\n")
    };
    let list = "  - {id: list, skill: tasks.search, args: {query: tea}";
    let judge = format!(
        "{}{list}, next: [{{when: '{{steps.list.result}} lacks zebra', to: none}}]}}\n  - {{id: some, answer: found}}\n  - {{id: none, answer: nothing}}\n",
        head("judge")
    );
    let copy = format!(
        "{}{list}}}\n  - {{id: keep, skill: notes.create, args: {{title: Copy, content: '{{steps.list.result}}'}}}}\n",
        head("copy")
    );
    let long = format!(
        "{}  - {{id: make, skill: tasks.create, args: {{title: tea, description: '{{args.text}}'}}}}\n",
        head("long")
    );
    let (_folder, server) = server_of("[workflows]\nvalue_bytes_max = 200\n", &[&judge, &copy, &long]).await;
    for n in 0..8 {
        run(&server, &format!("tasks.create --title \"tea number {n}\"")).await;
    }
    run(&server, "tasks.create --title \"tea of the zebra\"").await;
    for (name, step) in [("judge", "behind step `list` cannot be judged"), ("copy", "`keep` failed (missing_value)")] {
        let (task, _) = start(&server, name, json!({})).await;
        let shown = ended(&server, &task).await;
        let why = shown["failure"].as_str().unwrap_or_default();
        assert!(why.contains(step) && why.contains("not whole") && why.contains("value_bytes_max"), "{name}: {shown}");
    }
    assert!(run(&server, "notes.list").await.contains("no notes"), "no part of the list was kept");
    let (task, _) = start(&server, "long", json!({"text": "y".repeat(700)})).await;
    assert_eq!(ended(&server, &task).await["status"], "completed", "an argument of the user is no result");
    assert!(run(&server, "tasks.get --recent").await.contains(&"y".repeat(700)), "it is stored as a whole");
    let (task, _) = start(&server, "long", json!({"text": "y".repeat(900)})).await;
    let shown = ended(&server, &task).await;
    assert!(shown["failure"].as_str().is_some_and(|why| why.contains("more than 800 bytes together")), "{shown}");
}
