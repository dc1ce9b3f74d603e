//! Steps of random scenarios: anything that may happen to a conversation, in any order.

use proptest::prelude::*;
use serde_json::json;

use super::{
    script::{agent, reply},
    world::World,
};
use crate::{
    event::{EventBody, Inbound, JobVerb, Priority, ReportStatus, ResumeCause, Retry},
    ids::{AgentId, TaskId},
    limits::{SubAgentInterface, TurnLimits},
    message::{Finish, ModelErrorKind, ModelReply, ToolCall},
    outcome::{Outcome, Status},
    turn::{Directive, Phase},
};

/// A step of a scenario. Numbers select among the possibilities at that moment.
#[derive(Debug, Clone)]
pub enum Step {
    Say(u8, Priority, Kind),
    /// A message is stored, and its Engine receives it later.
    Post(u8, Priority, Kind),
    Hear(u8),
    /// The following steps are about this turn.
    Turn(u8),
    Main(ModelReply),
    Agent(u8, ModelReply),
    MainFails(ModelErrorKind),
    AgentFails(u8, ModelErrorKind),
    SkillStarts(u8),
    SkillEnds(u8, u8, Status),
    AgentEnds(u8, bool),
    /// A person steers an agent, or stops it.
    AgentControl(u8, bool),
    Control(u8, Control),
    Deadline,
    JobCommand(u8),
    Restart(bool),
    Again(u16),
    Wait(u32),
    Idle,
}

/// The kind of a message.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Plain,
    Steers,
    SameAs(u8),
    JobCommand,
    DueIn(u32),
    Retry,
}

/// An operation on any task of the log, whether it applies or not.
#[derive(Debug, Clone, Copy)]
pub enum Control {
    Cancel,
    Suspend,
    Continue,
    Make(Priority),
    /// A deadline event that is late or belongs to no turn.
    DeadlinePassed(bool),
}

fn kind() -> impl Strategy<Value = ModelErrorKind> {
    prop_oneof![
        3 => Just(ModelErrorKind::Overflow),
        2 => Just(ModelErrorKind::RateLimited),
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

/// A call as models make it, valid or invalid.
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
        1 => (name(), any::<bool>()).prop_map(|(agent, steers)| {
            let tool = if steers { "steer_agent" } else { "stop_agent" };
            (tool, json!({"agent_id": agent, "text": "more"}).to_string())
        }),
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

fn class() -> impl Strategy<Value = Priority> {
    prop_oneof![
        1 => Just(Priority::Realtime),
        5 => Just(Priority::High),
        3 => Just(Priority::Normal),
        1 => Just(Priority::Low),
        1 => Just(Priority::Background),
    ]
}

fn message() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        4 => Just(Kind::Plain),
        2 => Just(Kind::Steers),
        1 => any::<u8>().prop_map(Kind::SameAs),
        1 => Just(Kind::JobCommand),
        1 => (0..100_000_u32).prop_map(Kind::DueIn),
        1 => Just(Kind::Retry),
    ];
    (any::<u8>(), class(), kind).prop_map(|(text, class, kind)| Step::Say(text, class, kind))
}

/// Any step, including messages that the Engine receives late and in any order.
pub fn step_with_delays() -> impl Strategy<Value = Step> {
    let post = message().prop_map(|step| match step {
        Step::Say(text, class, kind) => Step::Post(text, class, kind),
        other => other,
    });
    prop_oneof![12 => step(), 2 => post, 1 => any::<u8>().prop_map(Step::Hear)]
}

fn control() -> impl Strategy<Value = Step> {
    let control = prop_oneof![
        2 => Just(Control::Cancel),
        3 => Just(Control::Suspend),
        3 => Just(Control::Continue),
        2 => class().prop_map(Control::Make),
        1 => any::<bool>().prop_map(Control::DeadlinePassed),
    ];
    (any::<u8>(), control).prop_map(|(task, control)| Step::Control(task, control))
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => message(),
        6 => any::<u8>().prop_map(Step::Turn),
        4 => control(),
        2 => Just(Step::Deadline),
        2 => any::<u8>().prop_map(Step::JobCommand),
        10 => any_reply().prop_map(Step::Main),
        14 => (any::<u8>(), any_reply()).prop_map(|(n, reply)| Step::Agent(n, reply)),
        2 => kind().prop_map(Step::MainFails),
        1 => (any::<u8>(), kind()).prop_map(|(n, kind)| Step::AgentFails(n, kind)),
        3 => any::<u8>().prop_map(Step::SkillStarts),
        14 => (any::<u8>(), any::<u8>(), status()).prop_map(|(agent_index, n, status)| Step::SkillEnds(agent_index, n, status)),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(n, crash)| Step::AgentEnds(n, crash)),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(n, steers)| Step::AgentControl(n, steers)),
        2 => prop::bool::weighted(0.2).prop_map(Step::Restart),
        5 => any::<u16>().prop_map(Step::Again),
        1 => (0..200_000_u32).prop_map(Step::Wait),
        1 => Just(Step::Idle),
    ]
}

pub fn limits() -> impl Strategy<Value = TurnLimits> {
    (any::<bool>(), 1..10_u32, 0..40_u32, 1..8_u32, 0..60_u32, 1..6_u32).prop_map(
        |(json, agents_max, skill_calls_max, iterations_max, window_calls_max, incarnations)| TurnLimits {
            agents_max,
            skill_calls_max,
            iterations_max,
            window_calls_max,
            crashes_max: incarnations,
            restarts_max: incarnations * 2,
            agent_control: json,
            interface: if json { SubAgentInterface::Json } else { SubAgentInterface::Cmd },
            ..TurnLimits::default()
        },
    )
}

fn pick<T: Clone>(from: &[T], n: u8) -> Option<T> {
    from.get(usize::from(n) % from.len().max(1)).cloned()
}

/// The running agents of the scenario's turn.
fn own_agents(w: &World) -> Vec<String> {
    w.agents.keys().filter(|(task, _)| Some(*task) == w.current()).map(|(_, agent)| agent.to_string()).collect()
}

/// Those of them that wait for their model, or those that do not.
fn agents_that(w: &World, thinking: bool) -> Vec<String> {
    let fits = |turn: &crate::turn::SubTurn| turn.run.awaits(turn.run.round) == thinking;
    let own = own_agents(w).into_iter();
    own.filter(|name| fits(w.sub(name))).collect()
}

fn acting(w: &World) -> Vec<AgentId> {
    let mut all: Vec<AgentId> = own_agents(w).iter().map(|name| agent(name)).collect();
    all.push(AgentId::orchestrator());
    all.retain(|agent_index| !w.skill_calls(agent_index).is_empty());
    all
}

pub fn main_thinks(w: &World) -> bool {
    w.current().and_then(|task| w.conv.turn(task)).is_some_and(|t| t.main.phase == Phase::Thinking)
}

fn control_agent(w: &mut World, n: u8, steers: bool) {
    let Some(task) = w.current() else { return };
    let open = w.conv.turn(task).into_iter().flat_map(|turn| turn.agents.plan.unreported());
    let open: Vec<String> = open.map(|node| node.spec.agent.to_string()).collect();
    let stop = EventBody::AgentStopRequested { by: "ann".to_owned(), reason: String::new() };
    match pick(&open, n) {
        Some(name) if steers => w.steer(&name, "more"),
        Some(name) => w.record(task, agent(&name), stop),
        None => {}
    }
}

fn outcome(status: Status) -> Outcome {
    match status {
        Status::Success => Outcome::success("fine"),
        Status::Partial => Outcome::partial("some"),
        Status::Unknown => Outcome::unknown("?", json!({"at": 1})),
        other => Outcome::error(other, "why", "no"),
    }
}

pub fn perform(w: &mut World, step: Step) {
    match step {
        Step::Post(text, class, kind) | Step::Say(text, class, kind) => {
            let task = w.post(inbound(w, text, class, kind));
            if matches!(step, Step::Say(..)) {
                w.deliver(task);
            }
        }
        Step::Hear(n) => {
            let undelivered: Vec<TaskId> = w.undelivered.iter().map(|e| e.task).collect();
            if let Some(task) = pick(&undelivered, n) {
                w.deliver(task);
            }
        }
        Step::Turn(n) => {
            let turns: Vec<TaskId> = w.conv.turns.iter().map(|t| t.task).collect();
            if let Some(task) = pick(&turns, n) {
                w.on(task);
            }
        }
        Step::Main(reply) if main_thinks(w) => w.replies_with(&reply),
        Step::Agent(n, reply) => {
            if let Some(name) = pick(&agents_that(w, true), n) {
                // A waiting reply is repeated later or never.
                w.agent_tries(&name, &reply);
            }
        }
        Step::MainFails(kind) if main_thinks(w) => w.model_fails(kind),
        Step::AgentFails(n, kind) => {
            if let Some(name) = pick(&agents_that(w, true), n) {
                w.agent_model_fails(&name, kind);
            }
        }
        Step::SkillStarts(n) => pick(&acting(w), n).iter().for_each(|agent_index| w.skill_starts(agent_index)),
        Step::SkillEnds(agent_index, n, status) => {
            if let Some(agent_index) = pick(&acting(w), agent_index) {
                let n = usize::from(n) % w.skill_calls(&agent_index).len();
                w.skill_ends(&agent_index, n, outcome(status));
            }
        }
        Step::AgentEnds(n, crash) => {
            if let Some(name) = pick(&own_agents(w), n) {
                w.agent_ends(&name, if crash { ReportStatus::Crashed } else { ReportStatus::Timeout });
            }
        }
        Step::AgentControl(n, steers) => control_agent(w, n, steers),
        Step::Control(n, control) => {
            // The Engine ignores events of a task that it has not received.
            let known: Vec<TaskId> = tasks(w).into_iter().filter(|task| !is_undelivered(w, *task)).collect();
            if let Some(task) = pick(&known, n) {
                do_with(w, task, control);
            }
        }
        Step::Deadline => {
            w.deadline();
        }
        Step::JobCommand(n) => {
            // The agents begin one after another.
            let job_commands: Vec<TaskId> = w.conv.job_commands.iter().map(|o| o.task).take(1).collect();
            if let Some(task) = pick(&job_commands, n) {
                advance_job_command(w, task);
            }
        }
        Step::Restart(crash) => w.restart(if crash { ResumeCause::Crash } else { ResumeCause::Restart }),
        Step::Again(n) => again(w, usize::from(n)),
        Step::Wait(ms) => {
            w.wait_ms(ms.into());
            w.advance();
        }
        Step::Main(_) | Step::MainFails(_) | Step::Idle => {}
    }
}

fn tasks(w: &World) -> Vec<TaskId> {
    w.log.iter().filter(|e| matches!(e.body, EventBody::Received(_))).map(|e| e.task).collect()
}

fn is_undelivered(w: &World, task: TaskId) -> bool {
    w.undelivered.iter().any(|e| e.task == task)
}

fn inbound(w: &World, text: u8, priority: Priority, kind: Kind) -> Inbound {
    let texts = ["continue", "yes", "Do it", "/week", ""];
    let mut inbound = Inbound { priority, ..World::inbound(texts[usize::from(text) % texts.len()]) };
    match kind {
        Kind::Plain => {}
        Kind::Steers => inbound.steer = true,
        Kind::SameAs(n) => inbound.same_as = pick(&tasks(w), n),
        Kind::JobCommand => inbound.order = true,
        Kind::DueIn(ms) => inbound.not_before = Some(w.now.plus_ms(ms.into())),
        Kind::Retry => {
            let of = tasks(w)[0];
            inbound.retry = Some(Retry { tried: vec!["once".to_owned()], ..Retry::of(of, w.now) });
        }
    }
    inbound
}

fn do_with(w: &mut World, task: TaskId, control: Control) {
    match control {
        Control::Cancel => w.cancel(task),
        Control::Suspend => w.suspend(task),
        Control::Continue => w.resume(task),
        Control::Make(class) => w.make(task, class),
        Control::DeadlinePassed(hard) => w.happens(task, EventBody::DeadlinePassed { hard, dead_letters: None }),
    }
}

/// A job command is interpreted, or its effect is applied.
fn advance_job_command(w: &mut World, task: TaskId) {
    let wanted = w.conv.outstanding(w.now);
    let text = "Done.".to_owned();
    if wanted.iter().any(|d| matches!(d, Directive::Understand { task: of, .. } if *of == task)) {
        let targets = tasks(w);
        w.happens(task, EventBody::Ordered { verb: JobVerb::Tell, targets, text });
    } else {
        assert!(wanted.iter().any(|d| matches!(d, Directive::CarryOut { task: of, .. } if *of == task)));
        w.happens(task, EventBody::answered(text));
    }
}

/// Delivers an event of the log again, to the Engine only.
fn again(w: &mut World, n: usize) {
    let Some(event) = w.log.get(n % w.log.len().max(1)).cloned() else { return };
    let orders_anew = matches!(
        event.body,
        EventBody::Resumed { .. }
            | EventBody::CancelRequested { .. }
            | EventBody::Suspended { .. }
            | EventBody::Continued { .. }
            | EventBody::Reprioritised { .. }
            | EventBody::Deferred { .. }
            | EventBody::DeadlinePassed { .. }
    );
    // An event stored by a running sub-agent is in the log, but a live Engine does not know it.
    let is_an_agents = !event.agent.is_orchestrator() && !matches!(event.body, EventBody::AgentReported { .. });
    // A run that has begun in the log may not have begun for a live Engine.
    let is_a_start = matches!(event.body, EventBody::SkillStarted { .. });
    if orders_anew || is_an_agents || is_a_start || is_undelivered(w, event.task) {
        return;
    }
    let before = w.conv.clone();
    w.conv.fold(event.at, event.task, &event.agent, &event.body);
    assert_eq!(w.conv, before, "{event:?}");
}

/// Ends everything that is still open.
pub fn finish_all(w: &mut World) {
    while let Some(task) = w.undelivered.first().map(|e| e.task) {
        w.deliver(task);
    }
    for _ in 0..4_000 {
        for task in tasks(w) {
            w.resume(task);
        }
        let turns: Vec<TaskId> = w.conv.turns.iter().map(|t| t.task).collect();
        let moved = turns.into_iter().any(|task| step_turn(w.on(task)));
        if moved {
            continue;
        }
        if let Some(task) = w.conv.job_commands.first().map(|o| o.task) {
            advance_job_command(w, task);
        } else if let Some(due) = w.conv.next_due(w.now) {
            w.now = due;
            w.advance();
        } else {
            break;
        }
    }
    assert!(
        w.conv.is_idle() && w.conv.turns.is_empty() && w.conv.inbox.is_empty(),
        "the conversation does not become idle: {:?}",
        w.conv
    );
}

/// Makes one step of the scenario's turn, if it can make one.
fn step_turn(w: &mut World) -> bool {
    if let Some(agent_index) = acting(w).first() {
        w.skill_ends(&agent_index.clone(), 0, Outcome::success("fine"));
    } else if let Some(name) = agents_that(w, true).first() {
        w.agent_replies(&name.clone(), "done", &[]);
    } else if main_thinks(w) {
        w.replies("done", &[]);
    } else {
        return false;
    }
    true
}
