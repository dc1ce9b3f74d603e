//! Hooks that depend on the channel of a turn. The messages of the kernel itself have the channel of the message whose work
//! they continue.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use annie_actors::{OperationResult, Submission, Submitted};
use annie_core::{
    event::{EventBody, Mode, Priority, Scope},
    hooks::{Conditions, Hook, HookPoint, Hooks, RefuseRule},
    message::{Message, ModelError, ModelErrorKind, ModelReply},
    outcome::{Operation, Outcome},
    time::Micros,
};
use annie_testkit::{
    scripted_model::{ScriptedModel, calls, says},
    skills::{FakeBehaviour, FakeSkills},
};
use serde_json::json;

use super::scheduling::{Gated, one_slot, rounds_begun};
use crate::world::{World, WorldParts, ann, check_log, eventually};

const DAY_MS: i64 = 24 * 3_600_000;
/// Channels, and how often the skill runs in a turn on each of them.
const RUNS: [(&str, u32); 2] = [("cli", 0), ("http", 1)];

/// A rule under which no turn on the channel `cli` calls `test.send`.
fn no_send_on_cli() -> Arc<dyn Hook> {
    let when =
        Conditions { skills: vec!["test.send".to_owned()], channels: vec!["cli".to_owned()], ..Conditions::default() };
    let (name, text) = ("no-send".to_owned(), "Nothing is sent from here.".to_owned());
    Arc::new(RefuseRule { name, point: HookPoint::BeforeSkill, text, when })
}

fn uses(skill: &str) -> ModelReply {
    calls([("use_skill", json!({"skill": skill, "arguments": {"what": "it"}}))])
}

async fn submit(world: &World, message: Submission) -> Submitted {
    world.kernel.submit(message).await.expect("the message is accepted")
}

#[tokio::test]
async fn rule_about_a_channel_holds_for_a_turn_that_a_message_on_it_steered() {
    for (channel, runs) in RUNS {
        let (parts, order, gate) = one_slot();
        let begun = order.clone();
        let model = ScriptedModel::new(move |_, call| {
            begun.lock().expect("not poisoned").push(call.to_string());
            Ok(match call {
                0 => calls([("get_skill", json!({"search": "x"}))]),
                1 => uses("test.send"),
                _ => says("Done."),
            })
        });
        let model = Arc::new(Gated { model, gate: gate.clone() });
        let parts = WorldParts { model, hooks: Hooks { inside: vec![no_send_on_cli()], ..Hooks::default() }, ..parts };
        let world = parts.start().await;
        let long = world.say("choose a colour").await;
        rounds_begun(&order, 1).await;
        let mut steering = Submission::new(ann(), channel, "I prefer blue").within(long.conversation);
        steering.steer = true;
        let steering = submit(&world, steering).await;
        eventually("the message has joined the turn", async || {
            let log = world.log(long.conversation).await;
            log.iter().any(|e| e.task == steering.task && matches!(e.body, EventBody::Joined { .. })).then_some(())
        })
        .await;
        gate.add_permits(10);
        world.answer(&long).await;
        assert_eq!(parts.skills.count("test.send"), runs, "steered from {channel}");
        check_log(&world.log(long.conversation).await);
        world.kernel.stop().await;
    }
}

#[tokio::test]
async fn rule_about_a_channel_holds_for_the_retry_of_a_message_on_it_only() {
    for (channel, runs) in RUNS {
        let is_broken = Arc::new(AtomicBool::new(true));
        let fails = is_broken.clone();
        let mut parts = WorldParts::new(move |request, _| match request.messages.last() {
            _ if fails.load(Relaxed) => Err(ModelError::new(ModelErrorKind::Unavailable, "the model is away")),
            Some(Message::Tool { .. }) => Ok(says("Done.")),
            _ => Ok(uses("test.send")),
        });
        parts.limits.mode = Mode::SingleLoop;
        parts.limits.turn.defer_ms = 5;
        parts.limits.breaker.failures_max = u32::MAX;
        parts.hooks.inside.push(no_send_on_cli());
        let world = parts.start().await;
        let mut message = Submission::new(ann(), channel, "send the letter");
        message.priority = Some(Priority::Normal);
        let sent = submit(&world, message).await;
        let failed = world.final_of(sent.conversation, sent.task).await;
        assert!(matches!(failed, EventBody::Failed { dead_letter: Some(_), .. }), "{failed:?}");
        is_broken.store(false, Relaxed);
        let retry = world.kernel.retry_dead_letter(Scope::User(ann()), sent.task, "ann").await.expect("accepted");
        world.answer(&retry).await;
        assert_eq!(parts.skills.count("test.send"), runs, "retry of a message on {channel}");
        check_log(&world.log(sent.conversation).await);
        world.kernel.stop().await;
    }
}

/// A kernel whose model starts an operation for a message, and sends what the result says.
fn operating() -> WorldParts {
    let mut parts = WorldParts::new(|request, _| {
        Ok(match request.messages.last() {
            Some(Message::Tool { .. }) => says("Done."),
            Some(Message::User { text, .. }) if text.starts_with('[') => uses("test.send"),
            _ => uses("test.put"),
        })
    });
    parts.limits.mode = Mode::SingleLoop;
    parts.skills = Arc::new(FakeSkills::new(|call| {
        let operation = Operation { id: call.operation.id, expires_at: call.now.plus_ms(DAY_MS) };
        FakeBehaviour::Answer(match call.skill.as_str() {
            "test.put" => Outcome::pending(operation, "It is ordered."),
            _ => Outcome::success("Sent."),
        })
    }));
    parts
}

/// Delivers the result of the only operation.
async fn finish_operation(world: &World) -> Submitted {
    let all = world.kernel.operations(Scope::User(ann()), false, Micros(i64::MAX).into(), 10).await;
    let row = all.expect("readable").pop().expect("the operation is stored");
    let key = world.kernel.operation_key(&ann(), row.id).await.expect("its owner's").key;
    let result = OperationResult { ok: true, text: "It has arrived.".to_owned(), data: json!({}) };
    world.kernel.finish_operation(row.id, &key, result).await.expect("accepted")
}

#[tokio::test]
async fn rule_about_a_channel_holds_for_the_result_of_an_operation_started_on_it_only() {
    for (channel, runs) in RUNS {
        let mut parts = operating();
        parts.hooks.inside.push(no_send_on_cli());
        let world = parts.start().await;
        let sent = submit(&world, Submission::new(ann(), channel, "order coffee")).await;
        world.answer(&sent).await;
        let result = finish_operation(&world).await;
        world.answer(&result).await;
        assert_eq!(parts.skills.count("test.send"), runs, "result of an operation started on {channel}");
        check_log(&world.log(sent.conversation).await);
        world.kernel.stop().await;
    }
}

#[tokio::test]
async fn rule_that_refuses_all_turns_does_not_refuse_the_result_of_an_operation() {
    let mut parts = operating();
    let world = parts.start().await;
    let sent = world.say("order coffee").await;
    world.answer(&sent).await;
    world.kernel.stop().await;
    let (name, text) = ("closed".to_owned(), "We are closed.".to_owned());
    let rule = RefuseRule { name, point: HookPoint::BeforeTurn, text, when: Conditions::default() };
    parts.hooks.inside.push(Arc::new(rule));
    let world = parts.start().await;
    let result = finish_operation(&world).await;
    let answer = world.answer(&result).await;
    assert_eq!(parts.skills.count("test.send"), 1, "the turn of the result has run: {answer}");
    let refused = world.say("order tea").await;
    assert_eq!(world.answer(&refused).await, "We are closed.");
    check_log(&world.log(sent.conversation).await);
    world.kernel.stop().await;
}
