//! Hooks of an extension: a policy that decides before a skill runs, and a hook outside the kernel, which is asked.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use annie_core::{
    event::{Action, Event, EventBody, HookAnswer, Inbound, Mode, NewEvent, Retry},
    hooks::{Hook, HookContext, HookPoint, HookQuestion, HookSubject, HookVerdict, Hooks, OnFailure},
    ids::{AgentId, ConversationId, TaskId},
    inbound::DEAD_LETTER,
    outcome::Outcome,
    ports::{Append, FaultAction, Fence},
};
use annie_testkit::{
    faults::FaultPlan,
    hooks::{FakeAnswer, FakeHook},
    scripted_model::{ScriptedModel, calls, says},
    skills::{FakeBehaviour, FakeSkills},
};
use serde_json::json;

use crate::world::{World, WorldParts, ann, check_log, eventually, last_text, metrics, two_agents};

/// Gives one verdict before each run of one skill, or panics.
struct Guard {
    name: &'static str,
    skill: &'static str,
    verdict: Option<HookVerdict>,
    on_failure: OnFailure,
    asked: AtomicU64,
}

fn guard(skill: &'static str, verdict: Option<HookVerdict>, on_failure: OnFailure) -> Arc<Guard> {
    Arc::new(Guard { name: "guard", skill, verdict, on_failure, asked: AtomicU64::new(0) })
}

fn refusal() -> HookVerdict {
    HookVerdict::Refuse { text: "Nothing is sent on Sundays.".to_owned() }
}

impl Hook for Guard {
    fn name(&self) -> &str {
        self.name
    }

    fn points(&self) -> &[HookPoint] {
        &[HookPoint::BeforeSkill]
    }

    fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    fn judge(&self, at: &HookContext<'_>) -> HookVerdict {
        match at.subject {
            HookSubject::Skill(skill) if skill.skill == self.skill => {
                self.asked.fetch_add(1, Relaxed);
                self.verdict.clone().expect("the hook panics")
            }
            HookSubject::Skill(_) | HookSubject::Turn(_) => HookVerdict::Continue,
        }
    }
}

fn decisions(log: &[Event]) -> Vec<(String, String)> {
    let of_hook = |event: &Event| {
        let EventBody::Decided { component, decision, reasoning, .. } = &event.body else { return None };
        (component == "hook guard").then(|| (decision.clone(), reasoning.clone()))
    };
    log.iter().filter_map(of_hook).collect()
}

async fn stops_and_replays(world: World, mut parts: WorldParts, log: &[Event]) {
    check_log(log);
    world.kernel.stop().await;
    // A replay needs no hook: the next process has none, and the conversation continues.
    parts.hooks = Hooks::default();
    let next = parts.start().await;
    let conversation = log[0].conversation;
    let sent = next.say_in(conversation, "and now").await;
    next.answer(&sent).await;
    check_log(&next.log(conversation).await);
    next.kernel.stop().await;
}

#[tokio::test]
async fn hook_of_extension_refuses_a_skill_within_a_sub_agent_and_the_other_agent_continues() {
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::new(|request, _| Ok(two_agents(request)))));
    let hook = guard("test.send", Some(refusal()), OnFailure::Refuse);
    parts.hooks.inside.push(hook.clone());
    let world = parts.start().await;
    let sent = world.say("do both").await;
    let answer = world.answer(&sent).await;
    assert!(answer.contains("Nothing is sent on Sundays."), "{answer}");
    assert_eq!((parts.skills.count("test.send"), parts.skills.count("test.put")), (0, 1));
    assert!(hook.asked.load(Relaxed) > 0);
    let log = world.log(sent.conversation).await;
    let decided = decisions(&log);
    assert_eq!(decided[0], ("refuse test.send".to_owned(), "Nothing is sent on Sundays.".to_owned()));
    let is_refused = |event: &Event| {
        let EventBody::ModelReplied { calls, .. } = &event.body else { return false };
        calls.iter().any(|call| matches!(&call.action, Action::Answer { text, .. } if text.starts_with("[refused]")))
    };
    let at = log.iter().position(is_refused).expect("the refusal is stored with the reply");
    assert!(matches!(log[at - 1].body, EventBody::Decided { .. }), "the verdict stands before the reply");
    stops_and_replays(world, parts, &log).await;
}

/// A model that sends once and then answers with the last result.
fn sends() -> ScriptedModel {
    ScriptedModel::new(|request, _| {
        let last = request.messages.last().map(|message| serde_json::to_string(message).unwrap()).unwrap_or_default();
        let is_new = last.contains("send it");
        Ok(if is_new {
            calls([("use_skill", json!({"skill": "test.send", "arguments": {"what": "secret"}}))])
        } else {
            says(last)
        })
    })
}

fn inside(hook: Arc<Guard>) -> Hooks {
    Hooks { inside: vec![hook], ..Hooks::default() }
}

async fn sent_with(hooks: Hooks) -> (String, Vec<serde_json::Value>, Vec<(String, String)>) {
    let arguments = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = arguments.clone();
    let mut parts = WorldParts::with_model(Arc::new(sends()));
    parts.limits.mode = Mode::SingleLoop;
    parts.skills = Arc::new(FakeSkills::new(move |call| {
        seen.lock().unwrap().push(call.arguments.clone());
        FakeBehaviour::Answer(Outcome::success("Sent."))
    }));
    parts.hooks = hooks;
    let world = parts.start().await;
    let sent = world.say("send it").await;
    let answer = world.answer(&sent).await;
    let log = world.log(sent.conversation).await;
    let decided = decisions(&log);
    stops_and_replays(world, parts, &log).await;
    let arguments = arguments.lock().unwrap().clone();
    (answer, arguments, decided)
}

#[tokio::test]
async fn hook_of_extension_that_panics_refuses_or_lets_through_as_it_declares() {
    metrics();
    let (answer, ran, refused) = sent_with(inside(guard("test.send", None, OnFailure::Refuse))).await;
    assert!(ran.is_empty() && answer.contains("[refused]"), "{answer}");
    assert!(refused[0].1.contains("it panicked: the hook panics"), "{refused:?}");
    let (_, ran, let_through) = sent_with(inside(guard("test.send", None, OnFailure::Continue))).await;
    assert_eq!(ran, [json!({"what": "secret"})]);
    assert_eq!(let_through[0].0, "continue with test.send");
    let counted = metrics();
    for line in [
        format!("annie_hook_failures_total{{hook=\"guard\"}} {}", refused.len() + let_through.len()),
        format!(
            "annie_hook_verdicts_total{{hook=\"guard\",point=\"before_skill\",verdict=\"continue\"}} {}",
            let_through.len()
        ),
    ] {
        assert!(counted.contains(&line), "{line} is not in {counted}");
    }
}

#[tokio::test]
async fn hook_is_not_asked_about_a_call_whose_effect_has_a_receipt() {
    let mut parts = WorldParts::new(|request, _| {
        let is_answered = last_text(request).contains("[done already]");
        let send = || calls([("use_skill", json!({"skill": "test.send", "arguments": {"what": "letter"}}))]);
        Ok(if is_answered { says("I sent the letter.") } else { send() })
    });
    parts.limits.mode = Mode::SingleLoop;
    let hook = guard("test.send", Some(HookVerdict::Continue), OnFailure::Refuse);
    parts.hooks.inside.push(hook.clone());
    let world = parts.start().await;
    let sent = world.say("send the letter").await;
    let answer = world.answer(&sent).await;
    assert_eq!((parts.skills.count("test.send"), hook.asked.load(Relaxed)), (1, 1), "{answer}");
    let log = world.log(sent.conversation).await;
    stops_and_replays(world, parts, &log).await;
}

#[tokio::test]
async fn hooks_with_equal_or_invalid_names_are_refused() {
    for (names, reason) in [(["a", "a"], "two hooks are named a"), (["a", "A b"], "needs a name of 1 to 64")] {
        let mut parts = WorldParts::with_model(Arc::new(sends()));
        for name in names {
            let (skill, verdict, on_failure) = ("test.send", None, OnFailure::Refuse);
            parts.hooks.inside.push(Arc::new(Guard { name, skill, verdict, on_failure, asked: AtomicU64::new(0) }));
        }
        let refused = parts.try_start().await.err().expect("it is refused").to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[tokio::test]
async fn outside_hook_of_extension_refuses_the_skill_of_one_sub_agent_and_changes_that_of_the_other() {
    let ran = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = ran.clone();
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::new(|request, _| Ok(two_agents(request)))));
    parts.skills = Arc::new(FakeSkills::new(move |call| {
        seen.lock().unwrap().push((call.skill.clone(), call.arguments.clone()));
        FakeBehaviour::Answer(Outcome::success("Done."))
    }));
    let hook = FakeHook::new(|question| {
        Some(Ok(match question.skill.as_deref() {
            Some("test.send") => HookAnswer::Refuse { text: "Nothing is sent on Sundays.".to_owned() },
            _ => HookAnswer::Replace { arguments: json!({"what": "y"}) },
        }))
    });
    parts.hooks.outside.push(hook.before_skill("guard", "test.*", OnFailure::Refuse));
    let world = parts.start().await;
    let sent = world.say("do both").await;
    let answer = world.answer(&sent).await;
    assert!(answer.contains("Nothing is sent on Sundays."), "{answer}");
    assert_eq!(*ran.lock().unwrap(), [("test.put".to_owned(), json!({"what": "y"}))]);
    let log = world.log(sent.conversation).await;
    let mut decided = decisions(&log);
    decided.sort();
    let refused = ("refuse test.send".to_owned(), "Nothing is sent on Sundays.".to_owned());
    assert_eq!(decided, [refused, ("replace the arguments of test.put".to_owned(), String::new())]);
    let put =
        hook.asked().into_iter().find(|question| question.skill.as_deref() == Some("test.put")).expect("a question");
    assert_eq!((put.agent.as_str(), put.arguments), ("one", Some(json!({"what": "x"}))));
    stops_and_replays(world, parts, &log).await;
}

#[tokio::test]
async fn outside_hook_of_extension_whose_arguments_repeat_an_effect_is_recorded_as_a_refusal() {
    let mut parts = WorldParts::new(|request, _| {
        let last = last_text(request);
        let send = |what: &str| calls([("use_skill", json!({"skill": "test.send", "arguments": {"what": what}}))]);
        Ok(if last.contains("[done already]") {
            says("I sent the letter.")
        } else if last.contains("Sent.") {
            send("card")
        } else {
            send("letter")
        })
    });
    parts.limits.mode = Mode::SingleLoop;
    parts.skills = Arc::new(FakeSkills::new(|_| FakeBehaviour::Answer(Outcome::success("Sent."))));
    let hook = FakeHook::new(|_| Some(Ok(HookAnswer::Replace { arguments: json!({"what": "letter"}) })));
    parts.hooks.outside.push(hook.before_skill("guard", "test.send", OnFailure::Refuse));
    let world = parts.start().await;
    let sent = world.say("send the letter").await;
    let answer = world.answer(&sent).await;
    assert_eq!(parts.skills.count("test.send"), 1, "{answer}");
    let log = world.log(sent.conversation).await;
    let decided = decisions(&log);
    assert_eq!(decided[0], ("continue with test.send".to_owned(), String::new()));
    let (decision, reason) = &decided[1];
    assert_eq!(decision, "refuse test.send");
    assert!(reason.starts_with("its new arguments: [done already]"), "{reason}");
    stops_and_replays(world, parts, &log).await;
}

#[tokio::test]
async fn outside_hook_of_extension_that_fails_refuses_or_lets_through_as_it_declares() {
    type Answers = fn(&HookQuestion) -> FakeAnswer;
    let failures: [(Answers, &str); 4] = [
        (|_| None, "it failed: it did not answer within 200 ms"),
        (|_| Some(Err("it is broken".to_owned())), "it failed: it is broken"),
        (|_| panic!("the hook panics"), "it failed: it panicked: the hook panics"),
        (|_| Some(Ok(HookAnswer::Replace { arguments: json!({"what": 1}) })), "it failed: its arguments do not fit: "),
    ];
    for (answers, reason) in failures {
        let hooks = |on_failure| {
            let hook = FakeHook::new(answers).before_skill("guard", "test.send", on_failure);
            Hooks { outside: vec![hook], ..Hooks::default() }
        };
        let (answer, ran, decided) = sent_with(hooks(OnFailure::Refuse)).await;
        assert!(ran.is_empty() && answer.contains("[refused]"), "{reason}: {answer}");
        assert!(decided[0].0 == "refuse test.send" && decided[0].1.starts_with(reason), "{reason}: {decided:?}");
        let (_, ran, decided) = sent_with(hooks(OnFailure::Continue)).await;
        assert_eq!(ran, [json!({"what": "secret"})], "{reason}");
        assert!(decided[0].0 == "continue with test.send" && decided[0].1.starts_with(reason), "{reason}: {decided:?}");
    }
}

/// Refuses every turn.
struct Closed;

impl Hook for Closed {
    fn name(&self) -> &str {
        "closed"
    }

    fn points(&self) -> &[HookPoint] {
        &[HookPoint::BeforeTurn]
    }

    fn judge(&self, _at: &HookContext<'_>) -> HookVerdict {
        HookVerdict::Refuse { text: "Not now.".to_owned() }
    }
}

#[tokio::test]
async fn hook_of_extension_that_refuses_every_turn_lets_the_retry_of_an_operation_result_begin() {
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::saying("It is here.")));
    parts.hooks.inside.push(Arc::new(Closed));
    let (task, conversation) = (TaskId::from_uuid(parts.env.uuid()), ConversationId::from_uuid(parts.env.uuid()));
    let retry = Retry { is_outside: true, ..Retry::of(TaskId::from_uuid(parts.env.uuid()), parts.env.now()) };
    let inbound = Inbound {
        client_id: "retry".to_owned(),
        text: "[The operation has ended.]\nThe parcel is here.".to_owned(),
        source: DEAD_LETTER.to_owned(),
        retry: Some(retry),
        ..Inbound::default()
    };
    let body = EventBody::Received(inbound);
    let event = NewEvent { at: parts.env.now(), task, agent: AgentId::orchestrator(), body };
    let append = Append { conversation, user: ann(), fence: Fence::Inbox, events: vec![event] };
    parts.store.commit(vec![append]).await.remove(0).expect("stored");
    let world = parts.start().await;
    let last = world.final_of(conversation, task).await;
    assert!(matches!(&last, EventBody::Answered { text, .. } if text == "It is here."), "{last:?}");
    let refused = world.say("hello").await;
    assert_eq!(world.answer(&refused).await, "Not now.");
    world.kernel.stop().await;
}

#[tokio::test]
async fn hook_refusal_is_recorded_once_although_the_engine_dies_before_or_after_the_append() {
    for point in ["deciding", "stored"] {
        for action in [FaultAction::Panic, FaultAction::Kill] {
            let plan = Arc::new(FaultPlan::once_at("engine", point, 0, action));
            let model = Arc::new(ScriptedModel::saying("here"));
            let mut parts = WorldParts::with_model(model.clone()).faults(plan.clone());
            parts.hooks.inside.push(Arc::new(Closed));
            let world = parts.start().await;
            let sent = world.say("hello").await;
            assert_eq!(world.answer(&sent).await, "Not now.");
            eventually("the fault is injected", async || (!plan.injected().is_empty()).then_some(())).await;
            let next = world.say_in(sent.conversation, "and now").await;
            assert_eq!(world.answer(&next).await, "Not now.");
            let log = world.log(sent.conversation).await;
            check_log(&log);
            let is_verdict =
                |e: &&Event| matches!(&e.body, EventBody::Decided { component, .. } if component == "hook closed");
            let kinds = world.kinds(sent.conversation).await;
            assert_eq!(log.iter().filter(is_verdict).count(), 2, "{action:?} at {point}: {kinds:?}");
            assert_eq!(model.call_count(), 0, "no round began");
            world.kernel.stop().await;
        }
    }
}
