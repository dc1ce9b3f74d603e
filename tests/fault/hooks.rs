//! Hooks outside the kernel that are cut off in the middle of a question.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use annie_core::{
    event::{Event, EventBody, HookAnswer, Mode},
    hooks::{OnFailure, OutsideHook},
    ports::FaultAction,
};
use annie_testkit::{
    faults::FaultPlan,
    hooks::FakeHook,
    scripted_model::{ScriptedModel, calls, says},
};
use serde_json::json;

use crate::world::{World, WorldParts, check_log, eventually, kill, last_text, two_agents};

/// A turn whose only agent sends once, and answers with the result.
fn sender(hook: OutsideHook) -> WorldParts {
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
    parts.hooks.outside.push(hook);
    parts
}

fn verdicts(log: &[Event]) -> usize {
    log.iter().filter(|event| matches!(event.body, EventBody::Decided { hook: Some(_), .. })).count()
}

fn ids(hook: &FakeHook) -> Vec<String> {
    hook.asked().into_iter().map(|question| question.id).collect()
}

async fn ends_with_one_run(world: World, parts: &WorldParts, sent: &annie_actors::Submitted) {
    world.answer(sent).await;
    let log = world.log(sent.conversation).await;
    check_log(&log);
    assert_eq!((verdicts(&log), parts.skills.count("test.send")), (1, 1), "{log:#?}");
    world.kernel.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_whose_engine_dies_at_each_step_of_a_question_is_asked_again_under_the_same_id() {
    for (point, asked) in [("asking", 1), ("decided", 2)] {
        let hook = FakeHook::continuing();
        let plan = Arc::new(FaultPlan::once_at("hook", point, 0, FaultAction::Panic));
        let parts = sender(hook.before_skill("guard", "test.send", OnFailure::Refuse)).faults(plan.clone());
        let world = parts.start().await;
        let sent = world.say("send it").await;
        ends_with_one_run(world, &parts, &sent).await;
        assert_eq!(plan.injected().len(), 1, "{point}");
        let ids = ids(&hook);
        assert!(ids.len() == asked && ids.iter().all(|id| *id == ids[0]), "{point}: {ids:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_whose_engine_is_killed_while_it_thinks_is_asked_again_and_the_turn_ends_once() {
    let answers = Arc::new(AtomicBool::new(false));
    let may_answer = answers.clone();
    let hook = FakeHook::new(move |_| may_answer.load(SeqCst).then_some(Ok(HookAnswer::Continue)));
    let slow = OutsideHook { ms_max: 60_000, ..hook.before_skill("guard", "test.send", OnFailure::Refuse) };
    let parts = sender(slow);
    let world = parts.start().await;
    let sent = world.say("send it").await;
    eventually("the hook is asked", async || (!hook.asked().is_empty()).then_some(())).await;
    assert_eq!(parts.skills.count("test.send"), 0, "the call waits for the verdict");
    answers.store(true, SeqCst);
    kill(&world, &format!("/conversations/engine:{}", sent.conversation)).await;
    ends_with_one_run(world, &parts, &sent).await;
    let ids = ids(&hook);
    assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_process_asks_the_hook_again_and_refuses_if_it_is_gone() {
    let hook = FakeHook::new(|_| None);
    let slow = OutsideHook { ms_max: 60_000, ..hook.before_skill("guard", "test.*", OnFailure::Continue) };
    let mut parts = sender(slow);
    parts.model = Arc::new(ScriptedModel::new(|request, _| Ok(two_agents(request))));
    parts.limits.mode = Mode::MultiAgent;
    let world = parts.start().await;
    let sent = world.say("do both").await;
    eventually("both agents' calls wait", async || (hook.asked().len() == 2).then_some(())).await;
    world.kernel.stop().await;
    parts.hooks.outside.clear();
    let next = parts.start().await;
    let answer = next.answer(&sent).await;
    assert!(answer.contains("A check of the operator failed with an error"), "{answer}");
    let log = next.log(sent.conversation).await;
    check_log(&log);
    assert_eq!((parts.skills.count("test.send"), parts.skills.count("test.put")), (0, 0), "{log:#?}");
    next.kernel.stop().await;
}
