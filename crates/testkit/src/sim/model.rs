//! A simulated model: it plans by the seed and by its request, takes time, and fails like real ones.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use annie_core::{
    faults::{FaultKind, Target},
    message::{Finish, Message, ModelError, ModelErrorKind, ModelReply, ModelRequest, Usage},
    ports::{Draft, DraftSink, Fut, Model},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Dice, Fault, Schedule};
use crate::scripted_model::{calls_as, commands, says};

/// A round that begins on a backend.
#[derive(Debug)]
pub struct RoundBegins<'a> {
    /// Its backend.
    pub backend: &'a str,
    /// Number of the run of the process.
    pub run: u32,
    /// The request to the model.
    pub request: &'a ModelRequest,
    /// Number of rounds that run on the backend now, including this one.
    pub running: u32,
}

type Watcher = dyn Fn(&RoundBegins<'_>) + Send + Sync;

/// State that all backends of a run share.
pub struct ModelWorld {
    dice: Dice,
    schedule: Arc<Schedule>,
    began: Box<Watcher>,
    asked: Mutex<BTreeMap<u64, u64>>,
    pace_ms: (u64, u64),
}

/// Durations of rounds in milliseconds, from and to: a run uses one of these.
const PACES_MS: [(u64, u64); 4] = [(0, 3), (1, 60), (50, 900), (500, 9_000)];
/// A kind that is named twice is twice as likely.
const TROUBLES: [FaultKind; 12] = [
    FaultKind::RateLimited,
    FaultKind::RateLimited,
    FaultKind::Unavailable,
    FaultKind::Unavailable,
    FaultKind::Timeout,
    FaultKind::Cut,
    FaultKind::Cut,
    FaultKind::Hang,
    FaultKind::Overflow,
    FaultKind::Garbage,
    FaultKind::Auth,
    FaultKind::Panic,
];
/// What a wrong reply contains.
const NONSENSE: [&str; 9] = [
    "nothing",
    "unknown tool",
    "broken arguments",
    "unknown skill",
    "circle of agents",
    "same ids",
    "too many calls",
    "cut",
    "the same again",
];

impl ModelWorld {
    /// `began` is called for every round that begins.
    pub fn new(dice: Dice, schedule: Arc<Schedule>, began: impl Fn(&RoundBegins<'_>) + Send + Sync + 'static) -> Self {
        let dice = dice.of("model");
        let pace_ms = dice.of("pace").pick(&PACES_MS);
        Self { dice, schedule, began: Box::new(began), asked: Mutex::default(), pace_ms }
    }

    /// The dice of a request: every repetition of the same words in the same conversation is another question.
    fn dice_of(&self, request: &ModelRequest) -> Dice {
        let mut dice = self.dice.of(&request.session_id).of(user_text(request).unwrap_or_default());
        dice = dice.nth(request.messages.len() as u64).nth(request.tools.len() as u64);
        let mut asked = self.asked.lock();
        let times = asked.entry(dice.roll()).or_default();
        *times += 1;
        dice.nth(*times)
    }
}

/// One backend in one run of the process.
pub struct SimModel {
    name: String,
    world: Arc<ModelWorld>,
    run: u32,
    running: Arc<AtomicU32>,
}

impl SimModel {
    /// The backend of this name.
    #[must_use]
    pub fn new(name: &str, world: Arc<ModelWorld>, run: u32) -> Self {
        Self { name: name.to_owned(), world, run, running: Arc::default() }
    }
}

struct Running(Arc<AtomicU32>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Model for SimModel {
    fn id(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        "a model in a simulation".to_owned()
    }

    fn call<'a>(&'a self, request: &'a ModelRequest, drafts: DraftSink) -> Fut<'a, Result<ModelReply, ModelError>> {
        Box::pin(async move {
            let running = self.running.fetch_add(1, SeqCst) + 1;
            let _running = Running(self.running.clone());
            (self.world.began)(&RoundBegins { backend: &self.name, run: self.run, request, running });
            let dice = self.world.dice_of(request);
            let trouble = self.world.schedule.pass(Target::Model, &self.name, "call", &TROUBLES);
            let (low, high) = self.world.pace_ms;
            tokio::time::sleep(Duration::from_millis(dice.of("pace").between(low, high))).await;
            if let Some(fault) = trouble {
                return Err(self.fails(fault, &drafts).await);
            }
            let nonsense = self.world.schedule.pass(Target::Model, "*", "nonsense", &[FaultKind::WrongTool]);
            let reply = match nonsense {
                Some(Fault { dice, .. }) => nonsensical(dice.of("kind").pick(&NONSENSE), dice, request),
                None => sensible(dice, self.world.dice, request),
            };
            drafts(Draft::Text(reply.text.clone()));
            let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
            Ok(ModelReply { usage, model: self.name.clone(), ..reply })
        })
    }

    fn check(&self) -> Fut<'_, Result<(), ModelError>> {
        let trouble = self.world.schedule.pass(Target::Model, &self.name, "check", &[FaultKind::Unavailable]);
        let up = match trouble {
            Some(_) => Err(ModelError::new(ModelErrorKind::Unavailable, "simulated: not there")),
            None => Ok(()),
        };
        Box::pin(std::future::ready(up))
    }
}

impl SimModel {
    async fn fails(&self, fault: Fault, drafts: &DraftSink) -> ModelError {
        let error = |kind| ModelError::new(kind, "simulated");
        let dice = fault.dice;
        match fault.kind {
            FaultKind::RateLimited => ModelError {
                retry_after_ms: Some(dice.of("retry").between(1, 20_000)).filter(|_| dice.of("hint").chance(700)),
                ..error(ModelErrorKind::RateLimited)
            },
            FaultKind::Unavailable => error(ModelErrorKind::Unavailable),
            FaultKind::Timeout => {
                tokio::time::sleep(Duration::from_secs(5)).await;
                error(ModelErrorKind::Timeout)
            }
            FaultKind::Cut => {
                drafts(Draft::Text("half a wo".to_owned()));
                ModelError { after_first_token: true, ..error(ModelErrorKind::Truncated) }
            }
            FaultKind::Overflow => error(ModelErrorKind::Overflow),
            FaultKind::Garbage => error(ModelErrorKind::Protocol),
            FaultKind::Auth => error(ModelErrorKind::Auth),
            #[expect(clippy::panic, reason = "the fault that the schedule asks for")]
            FaultKind::Panic => panic!("injected panic in model {}", self.name),
            _ => std::future::pending().await,
        }
    }
}

/// The last text of the user of this turn.
fn user_text(request: &ModelRequest) -> Option<&str> {
    request.messages.iter().rev().find_map(|m| match m {
        Message::User { text, .. } => Some(text.as_str()),
        Message::Assistant { .. } | Message::Tool { .. } | Message::Note { .. } => None,
    })
}

/// The last message of the request.
fn last(request: &ModelRequest) -> &str {
    match request.messages.last() {
        Some(
            Message::User { text, .. }
            | Message::Tool { text, .. }
            | Message::Assistant { text, .. }
            | Message::Note { text },
        ) => text,
        None => "",
    }
}

/// Rounds of this turn so far.
fn rounds(request: &ModelRequest) -> u64 {
    let spoken = request.messages.iter().rev().take_while(|m| !matches!(m, Message::User { .. }));
    spoken.filter(|m| matches!(m, Message::Assistant { .. })).count() as u64
}

const SKILLS: [&str; 7] = ["sim.look", "sim.fetch", "sim.put", "sim.save", "sim.send", "sim.ring", "sim.order"];

fn has_tool(request: &ModelRequest, name: &str) -> bool {
    request.tools.iter().any(|t| t.name == name)
}

/// The reply of a model that understands its work. `world` is the same for all rounds of a turn.
fn sensible(dice: Dice, world: Dice, request: &ModelRequest) -> ModelReply {
    let plan = world.of("plan").of(&request.session_id).of(user_text(request).unwrap_or_default());
    let answer =
        || says(format!("re: {}", user_text(request).unwrap_or_default().chars().take(200).collect::<String>()));
    if request.tools.is_empty() {
        return sub_agent(dice, request);
    }
    let left = plan.of("rounds").below(4).saturating_sub(rounds(request));
    if left == 0 {
        return answer();
    }
    let prefix = format!("r{}_{}", rounds(request), dice.of("prefix").below(1_000_000));
    if has_tool(request, "dispatch_agent") {
        if last(request).contains("\"agents\"") {
            return answer();
        }
        return calls_as(&prefix, dispatches(dice));
    }
    let skill = |n: u64| dice.of("skill").nth(n).pick(&SKILLS);
    let count = dice.of("calls").between(1, 3);
    if has_tool(request, "use_skill") {
        let arguments = |n| json!({"skill": skill(n), "arguments": {"what": format!("thing{n}")}});
        return calls_as(&prefix, (0..count).map(|n| ("use_skill", arguments(n))));
    }
    calls_as(
        &prefix,
        (0..count).map(|n| {
            let tool =
                &request.tools[usize::try_from(dice.of("tool").nth(n).below(request.tools.len() as u64)).unwrap_or(0)];
            (tool.name.as_str(), json!({"what": format!("thing{n}")}))
        }),
    )
}

fn dispatches(dice: Dice) -> Vec<(&'static str, Value)> {
    let agents = dice.of("agents").between(1, 4);
    let name = |n: u64| format!("a{}_{n}", dice.of("name").below(1_000));
    let mut calls: Vec<_> = (0..agents)
        .map(|n| {
            let skills: Vec<&str> = (0..2).map(|s| dice.of("grant").nth(n).nth(s).pick(&SKILLS)).collect();
            let after: Vec<String> = (0..n).filter(|m| dice.of("after").nth(n).nth(*m).chance(400)).map(name).collect();
            let arguments = json!({
                "agent_id": name(n), "mission": format!("part {n}: {}", skills.join(" ")), "skills": skills,
                "depends_on": after, "max_tool_calls": dice.of("max").nth(n).between(1, 4),
            });
            ("dispatch_agent", arguments)
        })
        .collect();
    if dice.of("collect").chance(800) {
        calls.push(("get_agent_results", json!({})));
    }
    calls
}

/// A sub-agent reads its skills from its mission and runs them, one reply at a time.
fn sub_agent(dice: Dice, request: &ModelRequest) -> ModelReply {
    let mission = request.messages.iter().find_map(|m| match m {
        Message::User { text, .. } => Some(text.as_str()),
        Message::Assistant { .. } | Message::Tool { .. } | Message::Note { .. } => None,
    });
    let mission = mission.unwrap_or_default();
    let granted: Vec<&str> = SKILLS.into_iter().filter(|s| mission.contains(s)).collect();
    let spoken = request.messages.iter().filter(|m| matches!(m, Message::Assistant { .. })).count() as u64;
    if granted.is_empty() || spoken > dice.of("rounds").below(3) || last(request).contains("tool calls are used") {
        return says(format!("Done: {}", last(request).chars().take(300).collect::<String>()));
    }
    let lines: Vec<String> = (0..dice.of("lines").between(1, 3))
        .map(|n| format!("{} --what thing{n}", dice.of("line").nth(n).pick(&granted)))
        .collect();
    commands(lines.iter().map(String::as_str))
}

fn nonsensical(kind: &str, dice: Dice, request: &ModelRequest) -> ModelReply {
    let skill = |n: u64| dice.nth(n).pick(&SKILLS);
    match kind {
        "nothing" => says(""),
        "unknown tool" => calls_as("x", [("fly_to_the_moon", json!({"speed": "fast"}))]),
        "broken arguments" => {
            let mut reply = calls_as("x", [("dispatch_agent", json!({})), ("use_skill", json!({}))]);
            for call in &mut reply.tool_calls {
                call.arguments = "{\"agent_id\": \"a".to_owned();
            }
            reply
        }
        "unknown skill" => calls_as("x", [("use_skill", json!({"skill": "sim.nothing", "arguments": {}}))]),
        "circle of agents" => {
            let one = |me: &str, other: &str| {
                let arguments =
                    json!({"agent_id": me, "mission": "circle", "skills": ["sim.look"], "depends_on": [other]});
                ("dispatch_agent", arguments)
            };
            calls_as("x", [one("c1", "c2"), one("c2", "c1"), ("get_agent_results", json!({}))])
        }
        "same ids" => {
            let arguments = |n| json!({"skill": skill(n), "arguments": {"what": "twin"}});
            let mut reply = calls_as("same", (0..3).map(|n| ("use_skill", arguments(n))));
            for call in &mut reply.tool_calls {
                call.id = "same".to_owned();
            }
            reply
        }
        "too many calls" => {
            let arguments = |n| json!({"skill": skill(n), "arguments": {"what": format!("many{n}")}});
            calls_as("many", (0..40).map(|n| ("use_skill", arguments(n))))
        }
        "cut" => ModelReply { finish: Finish::Length, ..commands(["sim.send --what ha"]) },
        _ if request.tools.is_empty() => commands(["sim.look --what again"]),
        _ => calls_as("again", [("use_skill", json!({"skill": "sim.look", "arguments": {"what": "again"}}))]),
    }
}
