//! Calls that wait for a person, and whose Engine, agent or process dies meanwhile.

use std::sync::Arc;

use annie_actors::{KernelError, Submitted};
use annie_core::{
    approval::{ApprovalMode, ApprovalPolicy, ApprovalRule, ApprovalVerdict},
    event::{Event, EventBody, Mode, Scope},
    hooks::Conditions,
    ids::UserId,
};
use annie_testkit::{
    model_server::{FakeModelServer, Reply},
    scripted_model::{ScriptedModel, calls, says},
};
use serde_json::{Value, json};

use crate::{
    server::{Server, Sse},
    world::{World, WorldParts, ann, check_log, eventually, kill, last_text, two_agents},
};

/// Calls of these skills wait for an approval.
fn asking(parts: &mut WorldParts, pattern: &str) {
    let when = Conditions { skills: vec![pattern.to_owned()], ..Conditions::default() };
    let rules = vec![ApprovalRule { mode: ApprovalMode::Ask, when, ..ApprovalRule::default() }];
    parts.hooks.approval = ApprovalPolicy { rules, ..ApprovalPolicy::default() };
}

/// A turn whose only agent sends once, and answers with the result.
fn sender() -> WorldParts {
    let model = ScriptedModel::new(|request, _| {
        let last = last_text(request);
        Ok(if last.contains("send it") {
            calls([("use_skill", json!({"skill": "test.send", "arguments": {"what": "x"}}))])
        } else {
            says(last)
        })
    });
    let mut parts = WorldParts::with_model(Arc::new(model));
    parts.limits.mode = Mode::SingleLoop;
    asking(&mut parts, "test.send");
    parts
}

async fn waits(world: &World, count: usize) {
    let scope = || Scope::User(ann());
    eventually("the calls wait", async || {
        world.kernel.approvals(scope()).await.ok().filter(|open| open.len() == count).map(|_| ())
    })
    .await;
}

async fn approve(world: &World, sent: &Submitted, number: u32) {
    let scope = || Scope::User(ann());
    eventually("the call is approved", async || {
        let decided =
            world.kernel.decide_approval(scope(), sent.task, Some(number), ApprovalVerdict::once(), "ann").await;
        match decided {
            Ok(_) => Some(()),
            // An Engine that died after it stored the decision could not answer.
            Err(KernelError::Stale(why)) => {
                assert!(why.contains("approved by ann"), "{why}");
                Some(())
            }
            Err(_) => None,
        }
    })
    .await;
}

fn count(log: &[Event], is_counted: impl Fn(&EventBody) -> bool) -> usize {
    log.iter().filter(|event| is_counted(&event.body)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_survives_the_death_of_the_engine_while_waiting_and_right_after_the_decision() {
    let parts = sender();
    let world = parts.start().await;
    let sent = world.say("send it").await;
    waits(&world, 1).await;
    let engine = format!("/conversations/engine:{}", sent.conversation);
    kill(&world, &engine).await;
    waits(&world, 1).await;
    assert_eq!(parts.skills.count("test.send"), 0, "the call waits for the person");
    approve(&world, &sent, 1).await;
    kill(&world, &engine).await;
    world.answer(&sent).await;
    let log = world.log(sent.conversation).await;
    check_log(&log);
    assert_eq!(count(&log, |body| matches!(body, EventBody::ApprovalRequested { .. })), 1, "{log:#?}");
    assert_eq!(count(&log, |body| matches!(body, EventBody::ApprovalDecided { .. })), 1, "{log:#?}");
    // The Engine may have died while the skill ran. Then its outcome is unknown, and it is not run again.
    assert_eq!(parts.skills.count("test.send"), 1, "{log:#?}");
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_of_sub_agents_calls_survives_the_next_process() {
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::new(|request, _| Ok(two_agents(request)))));
    asking(&mut parts, "test.*");
    let world = parts.start().await;
    let sent = world.say("do both").await;
    waits(&world, 2).await;
    world.kernel.stop().await;
    let next = parts.start().await;
    waits(&next, 2).await;
    approve(&next, &sent, 1).await;
    approve(&next, &sent, 2).await;
    next.answer(&sent).await;
    let log = next.log(sent.conversation).await;
    check_log(&log);
    assert_eq!((parts.skills.count("test.send"), parts.skills.count("test.put")), (1, 1), "{log:#?}");
    next.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_is_not_found_by_another_user_and_withdrawn_with_its_turn() {
    let parts = sender();
    let world = parts.start().await;
    let sent = world.say("send it").await;
    waits(&world, 1).await;
    let bob = Scope::User(UserId::new("bob").expect("a user id"));
    let once = ApprovalVerdict::once;
    let refused = world.kernel.decide_approval(bob.clone(), sent.task, None, once(), "bob").await;
    assert_eq!(refused, Err(KernelError::NotFound("task")));
    assert_eq!(world.kernel.approvals(bob).await, Ok(Vec::new()));
    assert!(world.kernel.cancel(Scope::Operator, sent.task, "an operator").await.expect("cancelled"));
    world.final_of(sent.conversation, sent.task).await;
    let late = world.kernel.decide_approval(Scope::Operator, sent.task, None, once(), "an operator").await;
    assert!(matches!(late, Err(KernelError::Stale(_))), "{late:?}");
    let log = world.log(sent.conversation).await;
    let is_withdrawn =
        |body: &EventBody| matches!(body, EventBody::ApprovalDecided { verdict: ApprovalVerdict::Withdraw, .. });
    assert_eq!((count(&log, is_withdrawn), parts.skills.count("test.send")), (1, 0), "{log:#?}");
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_that_awaits_approval_leaves_memory_if_its_capacity_is_wanted_and_continues_when_approved() {
    let mut parts = sender();
    parts.limits.engines_max = 1;
    let world = parts.start().await;
    let sent = world.say("send it").await;
    waits(&world, 1).await;
    let other = world.say("hello").await;
    world.answer(&other).await;
    approve(&world, &sent, 1).await;
    world.answer(&sent).await;
    assert_eq!(parts.skills.count("test.send"), 1);
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_survives_sigkill_while_waiting_and_right_after_the_decision() {
    let model = FakeModelServer::start(|seen| {
        let last = seen.messages().last().cloned().unwrap_or_default();
        if last["role"] == "tool" {
            Reply::says("So be it.")
        } else {
            Reply::calls([("use_skill", json!({"skill": "tasks.create", "arguments": {"title": "milk"}}))])
        }
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("annie.toml");
    let text = format!(
        "mode = \"single_loop\"\n[approval]\ndefault = \"ask\"\n[[backend]]\nname = \"fake\"\nprofile = \"generic\"\n\
         base_url = \"{}\"\nmodel = \"m\"\n",
        model.base_url()
    );
    std::fs::write(&config, text).expect("written");
    let arguments = ["--config", config.to_str().expect("a path")];
    let mut first = Server::start(folder.path(), &arguments, &[]).await;
    let body = json!({"text": "Remind me to buy milk", "conversation_key": "k"});
    let (_, sent) = first.post("/api/v1/messages", &body).await.expect("the server answers");
    let id = |name: &str| sent[name].as_str().expect("an id").to_owned();
    let (task, conversation) = (id("task_id"), id("conversation_id"));
    listed(&first).await;
    first.kill();
    let mut second = first.again(folder.path(), &arguments, &[]).await;
    listed(&second).await;
    let decided = second.post(&format!("/api/v1/approvals/{task}/approve"), &json!({})).await;
    assert_eq!(decided.expect("the server answers").0, 200);
    second.kill();
    let third = second.again(folder.path(), &arguments, &[]).await;
    let seen = third.stream(&conversation, 0, |seen| seen.last().is_some_and(Sse::is_final)).await;
    let kinds = |kind: &str| seen.iter().filter(|event| event.event == kind).count();
    assert_eq!(
        (kinds("approval_requested"), kinds("approval_decided"), kinds("skill_finished")),
        (1, 1, 1),
        "{seen:?}"
    );
    let (_, log) = third.get(&format!("/api/v1/conversations/{conversation}/messages")).await;
    assert!(log.to_string().contains("Request 1 was approved by me (local)."), "{log}");
}

/// Waits until one request is listed.
async fn listed(server: &Server) -> Value {
    eventually("the request is listed", async || {
        let (_, list) = server.get("/api/v1/approvals").await;
        list["approvals"].as_array().filter(|rows| rows.len() == 1).map(|rows| rows[0].clone())
    })
    .await
}
