//! Any interleaving of replies, outcomes, deaths, cancels, repeats and restarts: the checks of [`World::check`] hold after
//! every step, nothing panics, and in the end every message has its one final event.

use proptest::prelude::*;
use serde_json::json;

use super::{
    script::{reply, use_skill},
    world::{World, timeless},
};
use crate::{
    event::{EventBody, Mode, ReportStatus, ResumeCause},
    ids::{AgentId, TaskId},
    limits::{SubAgentInterface, TurnLimits},
    message::{Finish, ModelErrorKind, ModelReply, ToolCall},
    outcome::{Outcome, Status},
    turn::{Conversation, Phase},
};

/// Something that happens. Numbers pick among what is possible at that moment.
#[derive(Debug, Clone)]
enum Step {
    Say(u8),
    Main(ModelReply),
    Agent(u8, ModelReply),
    MainFails(ModelErrorKind),
    AgentFails(u8, ModelErrorKind),
    SkillStarts(u8),
    SkillEnds(u8, u8, Status),
    AgentEnds(u8, bool),
    Cancel(u8),
    Restart(bool),
    Again(u16),
    Wait(u32),
    Idle,
}

fn kind() -> impl Strategy<Value = ModelErrorKind> {
    prop_oneof![
        4 => Just(ModelErrorKind::Overflow),
        1 => Just(ModelErrorKind::RateLimited),
        1 => Just(ModelErrorKind::Protocol),
    ]
}

fn status() -> impl Strategy<Value = Status> {
    prop_oneof![
        6 => Just(Status::Success),
        1 => Just(Status::Partial),
        1 => Just(Status::ErrorTransient),
        1 => Just(Status::ErrorPermanent),
        1 => Just(Status::ErrorBlocked),
        1 => Just(Status::Unknown),
        1 => Just(Status::Pending),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![9 => "[a-e]", 1 => ".{0,3}"]
}

/// A call as models make them, and as they should not.
fn call() -> impl Strategy<Value = ToolCall> {
    let id = prop_oneof!["[0-3]?", ".{0,2}"];
    let arguments = prop_oneof![
        6 => (name(), prop::collection::vec(name(), 0..3), prop::option::of(0..20_i64)).prop_map(|(agent, deps, max)| {
            ("dispatch_agent", json!({
                "agent_id": agent, "mission": "m", "skills": ["tasks.search", "tasks.create"],
                "depends_on": deps, "max_tool_calls": max
            }).to_string())
        }),
        3 => prop::collection::vec(name(), 0..3)
            .prop_map(|names| ("get_agent_results", json!({"agent_ids": names}).to_string())),
        2 => prop_oneof![Just("{}"), Just("{\"domain\":\"tasks\"}"), Just("{\"search\":\"x\"}")]
            .prop_map(|arguments| ("get_skill", arguments.to_owned())),
        4 => (0..4_u8).prop_map(|n| {
            ("use_skill", json!({"skill": "tasks.create", "arguments": {"title": n.to_string()}}).to_string())
        }),
        2 => Just(("use_skill", json!({"skill": "email.send", "arguments": {"to": "b", "body": "c"}}).to_string())),
        2 => (0..4_u8).prop_map(|n| ("tasks__search", json!({"query": n.to_string()}).to_string())),
        1 => ".{0,20}".prop_map(|raw| ("dispatch_agent", raw)),
        1 => ".{0,20}".prop_map(|raw| ("use_skill", raw)),
        1 => ".{0,20}".prop_map(|raw| ("get_agent_results", raw)),
    ];
    (id, arguments, prop::option::weighted(0.05, ".{0,8}")).prop_map(|(id, (name, arguments), invented)| ToolCall {
        id,
        name: invented.unwrap_or_else(|| name.to_owned()),
        arguments,
    })
}

fn any_reply() -> impl Strategy<Value = ModelReply> {
    let text = prop_oneof![
        4 => Just(String::new()),
        3 => "[a-z ]{1,12}",
        1 => "(?s).{0,40}",
        4 => prop::collection::vec(
            prop_oneof![
                "tasks.create --title [a-d]", Just("tasks.search".to_owned()), Just("tasks --help".to_owned()),
                "tasks.create --titel x", "[a-z.]{1,8} --[a-z]{1,3} \"?[a-z]{0,3}", ".{0,20}"
            ],
            0..5
        ).prop_map(|commands| format!("```cmd\n{}\n```", commands.join("\n"))),
        1 => Just("```cmd\ntasks.create --title \"open".to_owned()),
    ];
    let finish = prop_oneof![5 => Just(Finish::Stop), 1 => Just(Finish::Length), 1 => Just(Finish::ContentFilter)];
    let calls = prop_oneof![3 => prop::collection::vec(call(), 0..6), 1 => prop::collection::vec(call(), 30..40)];
    (text, calls, finish, prop::bool::weighted(0.3)).prop_map(|(text, calls, finish, plain)| ModelReply {
        finish,
        ..reply(&text, if plain { &[] } else { &calls })
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<u8>().prop_map(Step::Say),
        10 => any_reply().prop_map(Step::Main),
        14 => (any::<u8>(), any_reply()).prop_map(|(n, reply)| Step::Agent(n, reply)),
        1 => kind().prop_map(Step::MainFails),
        1 => (any::<u8>(), kind()).prop_map(|(n, kind)| Step::AgentFails(n, kind)),
        3 => any::<u8>().prop_map(Step::SkillStarts),
        14 => (any::<u8>(), any::<u8>(), status()).prop_map(|(who, n, status)| Step::SkillEnds(who, n, status)),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(n, crash)| Step::AgentEnds(n, crash)),
        1 => any::<u8>().prop_map(Step::Cancel),
        2 => prop::bool::weighted(0.2).prop_map(Step::Restart),
        5 => any::<u16>().prop_map(Step::Again),
        1 => (0..200_000_u32).prop_map(Step::Wait),
        1 => Just(Step::Idle),
    ]
}

fn limits() -> impl Strategy<Value = TurnLimits> {
    (any::<bool>(), 1..10_u32, 0..40_u32, 1..8_u32, 0..60_u32, 1..6_u32).prop_map(
        |(json, agents_max, skill_calls_max, iterations_max, window_calls_max, lives)| TurnLimits {
            agents_max,
            skill_calls_max,
            iterations_max,
            window_calls_max,
            crashes_max: lives,
            restarts_max: lives * 2,
            interface: if json { SubAgentInterface::Json } else { SubAgentInterface::Cmd },
            ..TurnLimits::default()
        },
    )
}

fn pick<T: Clone>(from: &[T], n: u8) -> Option<T> {
    from.get(usize::from(n) % from.len().max(1)).cloned()
}

/// The agents (with `main` the main one too) that satisfy something.
fn agents_that(w: &World, thinking: bool) -> Vec<String> {
    let fits = |turn: &crate::turn::SubTurn| turn.run.awaits(turn.run.round) == thinking;
    w.agents.iter().filter(|(_, turn)| fits(turn)).map(|(agent, _)| agent.to_string()).collect()
}

fn acting(w: &World) -> Vec<AgentId> {
    let mut all: Vec<AgentId> = w.agents.keys().cloned().collect();
    all.push(AgentId::orchestrator());
    all.retain(|who| !w.skill_calls(who).is_empty());
    all
}

fn main_thinks(w: &World) -> bool {
    w.conv.turns.first().is_some_and(|t| t.main.phase == Phase::Thinking)
}

fn outcome(status: Status) -> Outcome {
    match status {
        Status::Success => Outcome::success("fine"),
        Status::Partial => Outcome::partial("some"),
        Status::Unknown => Outcome::unknown("?", json!({"at": 1})),
        other => Outcome::error(other, "why", "no"),
    }
}

fn take(w: &mut World, step: Step) {
    match step {
        Step::Say(n) => {
            let texts = ["continue", "yes", "Do it", "/week", ""];
            w.say(texts[usize::from(n) % texts.len()]);
        }
        Step::Main(reply) if main_thinks(w) => w.replies_with(&reply),
        Step::Agent(n, reply) => {
            if let Some(name) = pick(&agents_that(w, true), n) {
                w.agent_replies_with(&name, &reply);
            }
        }
        Step::MainFails(kind) if main_thinks(w) => w.model_fails(kind),
        Step::AgentFails(n, kind) => {
            if let Some(name) = pick(&agents_that(w, true), n) {
                w.agent_model_fails(&name, kind);
            }
        }
        Step::SkillStarts(n) => {
            if let Some(who) = pick(&acting(w), n) {
                w.skill_starts(&who);
            }
        }
        Step::SkillEnds(who, n, status) => {
            if let Some(who) = pick(&acting(w), who) {
                let n = usize::from(n) % w.skill_calls(&who).len();
                w.skill_ends(&who, n, outcome(status));
            }
        }
        Step::AgentEnds(n, crash) => {
            let all: Vec<String> = w.agents.keys().map(ToString::to_string).collect();
            if let Some(name) = pick(&all, n) {
                w.agent_ends(&name, if crash { ReportStatus::Crashed } else { ReportStatus::Timeout });
            }
        }
        Step::Cancel(n) => {
            let tasks: Vec<TaskId> = w.log.iter().map(|e| e.task).collect();
            if let Some(task) = pick(&tasks, n) {
                w.cancel(task);
            }
        }
        Step::Restart(crash) => w.restart(if crash { ResumeCause::Crash } else { ResumeCause::Restart }),
        Step::Again(n) => again(w, usize::from(n)),
        Step::Wait(ms) => w.wait_ms(ms.into()),
        Step::Main(_) | Step::MainFails(_) | Step::Idle => {}
    }
}

/// An event of the log comes once more, to the Engine only.
fn again(w: &mut World, n: usize) {
    let Some(event) = w.log.get(n % w.log.len().max(1)).cloned() else { return };
    let orders_anew = matches!(event.body, EventBody::Resumed { .. } | EventBody::CancelRequested { .. });
    // What a running sub-agent stored is known to the log and not to a live Engine.
    let is_an_agents = !event.agent.is_orchestrator() && !matches!(event.body, EventBody::AgentReported { .. });
    // A skill that runs for the log may not have begun for a live Engine.
    let is_a_start = matches!(event.body, EventBody::SkillStarted { .. });
    if orders_anew || is_an_agents || is_a_start {
        return;
    }
    let before = w.conv.clone();
    w.conv.fold(event.at, event.task, &event.agent, &event.body);
    assert_eq!(w.conv, before, "{event:?}");
}

/// Everything that is still open comes to its end.
fn wind_up(w: &mut World) {
    for _ in 0..2_000 {
        if w.conv.is_idle() {
            break;
        }
        if let Some(who) = acting(w).first() {
            w.skill_ends(&who.clone(), 0, Outcome::success("fine"));
        } else if let Some(name) = agents_that(w, true).first() {
            w.agent_replies(&name.clone(), "done", &[]);
        } else if main_thinks(w) {
            w.replies("done", &[]);
        } else {
            panic!("nothing moves: {:?}", w.conv);
        }
    }
    assert!(w.conv.is_idle(), "it does not end");
}

/// Each agent that was dispatched reported once, before the final event of its turn.
fn assert_reported(w: &World) {
    let mut open = std::collections::BTreeMap::new();
    for event in &w.log {
        let key = (event.task, event.agent.clone());
        match &event.body {
            EventBody::AgentStarted { .. } => assert!(open.insert(key, 0).is_none(), "started twice: {event:?}"),
            EventBody::AgentReported { .. } => *open.entry(key).or_insert(0) += 1,
            body if body.is_final() => {
                assert!(open.iter().filter(|((task, _), _)| *task == event.task).all(|(_, n)| *n == 1), "{event:?}");
            }
            _ => {}
        }
    }
    let accepted = accepted_dispatches(w);
    for (task, agent) in accepted {
        assert_eq!(open.get(&(task, agent.clone())), Some(&1), "{agent} was accepted and reported once");
    }
}

fn accepted_dispatches(w: &World) -> Vec<(TaskId, AgentId)> {
    let mut accepted = Vec::new();
    let mut conv = Conversation::new(w.conv.id, w.conv.user.clone());
    for event in &w.log {
        conv.apply(event);
        let Some(turn) = conv.turns.first() else { continue };
        for node in turn.plan.nodes() {
            // Those of a continued turn belong to the turn before.
            let is_new = turn.plan.before() <= turn.plan.nodes().iter().position(|n| n == node).unwrap_or(0);
            if is_new && !accepted.contains(&(turn.task, node.spec.agent.clone())) {
                accepted.push((turn.task, node.spec.agent.clone()));
            }
        }
    }
    accepted
}

/// Skill runs per turn stay within the budget, by the log alone.
fn assert_budgets(w: &World) {
    let mut used = std::collections::BTreeMap::<TaskId, u32>::new();
    for event in &w.log {
        if let EventBody::SkillFinished { .. } = event.body {
            *used.entry(event.task).or_default() += 1;
        }
    }
    let most = match w.mode {
        Mode::MultiAgent => w.limits.skill_calls_max,
        Mode::SingleLoop | Mode::Direct => w.limits.single_loop_calls_max,
    };
    assert!(used.values().all(|n| *n <= most), "{used:?} of {most}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_every_message_ends_once_and_the_log_tells_the_whole_story(
        mode in prop_oneof![3 => Just(Mode::MultiAgent), 1 => Just(Mode::SingleLoop), 1 => Just(Mode::Direct)],
        limits in limits(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut w = World::with(mode, limits);
        w.say("Do it");
        for step in steps {
            take(&mut w, step);
        }
        wind_up(&mut w);
        let received: Vec<TaskId> =
            w.log.iter().filter(|e| matches!(e.body, EventBody::Received(_))).map(|e| e.task).collect();
        for task in received {
            prop_assert_eq!(w.finals(task).len(), 1);
        }
        assert_reported(&w);
        assert_budgets(&w);
        prop_assert_eq!(timeless(&w.conv), timeless(&w.refolded()));
        let json = serde_json::to_string(&w.conv).unwrap();
        prop_assert_eq!(serde_json::from_str::<Conversation>(&json).unwrap(), w.conv);
    }

    #[test]
    fn the_log_folds_the_same_from_a_snapshot_at_any_place(
        steps in prop::collection::vec(step(), 1..40),
        place in any::<prop::sample::Index>(),
    ) {
        let mut w = World::new();
        w.say("Do it");
        for step in steps {
            take(&mut w, step);
        }
        let at = place.index(w.log.len());
        let mut conv = Conversation::new(w.conv.id, w.conv.user.clone());
        for (n, event) in w.log.iter().enumerate() {
            if n == at {
                conv = serde_json::from_str(&serde_json::to_string(&conv).unwrap()).unwrap();
            }
            conv.apply(event);
        }
        prop_assert_eq!(conv, w.refolded());
    }

    #[test]
    fn no_reply_makes_the_machine_panic_or_stand_still(
        mode in prop_oneof![Just(Mode::MultiAgent), Just(Mode::SingleLoop), Just(Mode::Direct)],
        text in "(?s).{0,200}",
        names in prop::collection::vec((".{0,30}", ".{0,30}", "(?s).{0,80}"), 0..4),
    ) {
        let calls: Vec<ToolCall> =
            names.into_iter().map(|(id, name, arguments)| ToolCall { id, name, arguments }).collect();
        let mut w = World::in_mode(mode);
        w.say(&text);
        w.replies(&text, &calls);
        if main_thinks(&w) {
            w.replies(&format!("```cmd\n{text}\n```"), &[use_skill("1", &text, &json!({"x": text}))]);
        }
        wind_up(&mut w);
    }
}
