//! What a turn waits for, in a line below the output of a terminal: a free slot and why there is none, the model, a skill, an
//! approval, or a time. It follows from the events of the turn and from the queue of the scheduler.

#![deny(clippy::wildcard_enum_match_arm)]

use std::{collections::BTreeMap, time::Duration};

use annie_core::{
    event::{Event, EventBody},
    ids::{AgentId, TaskId},
};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::Value;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::{
    ask::under_way,
    console::{Console, clipped},
    talk::{Partner, Seen},
};

/// How often the line is written, in milliseconds. Shorter turns show nothing.
const BEAT_MS: u64 = 1_000;
/// Maximum length of a reason, in characters.
const REASON_CHARS_MAX: usize = 120;
/// Maximum number of sub-agents that are named.
const AGENTS_NAMED_MAX: usize = 3;

/// What an agent waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// Its next round.
    Round,
    /// The model on this backend.
    Model(String),
    /// This skill.
    Skill(String),
}

/// What stops a whole turn.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Halt {
    Approval(String),
    Suspended,
    Deferred { until: String, reason: String },
}

/// What a turn waits for.
#[derive(Debug, Clone)]
pub struct Activity {
    agents: BTreeMap<AgentId, (Step, Instant)>,
    halt: Option<Halt>,
    begun: Instant,
    /// What the scheduler says about the next round: its place and the reason of the wait, or that the model runs it.
    place: Option<String>,
    /// The answer is being written, which shows by itself that the turn proceeds.
    is_writing: bool,
}

impl Activity {
    /// A turn that begins.
    #[must_use]
    pub fn begin() -> Self {
        let begun = Instant::now();
        let agents = BTreeMap::from([(AgentId::orchestrator(), (Step::Round, begun))]);
        Self { agents, halt: None, begun, place: None, is_writing: false }
    }

    /// Notes an event or a draft of the turn.
    pub fn see(&mut self, seen: &Seen) {
        match seen {
            Seen::Draft { .. } => self.is_writing = true,
            Seen::Event(event) => self.event(event),
        }
    }

    fn event(&mut self, event: &Event) {
        self.is_writing = false;
        let agent = &event.agent;
        match &event.body {
            EventBody::RoundBegan { backend, .. } => self.step(agent, Step::Model(backend.clone())),
            EventBody::SkillStarted { skill, .. } => self.step(agent, Step::Skill(skill.clone())),
            EventBody::TurnStarted { .. }
            | EventBody::RoundNotBegun { .. }
            | EventBody::ModelReplied { .. }
            | EventBody::ModelFailed { .. }
            | EventBody::SkillFinished { .. }
            | EventBody::AgentStarted { .. }
            | EventBody::ResultsGiven
            | EventBody::Resumed { .. }
            | EventBody::Retried { .. } => self.step(agent, Step::Round),
            EventBody::AgentReported { .. } => drop(self.agents.remove(agent)),
            EventBody::ApprovalRequested { skill, .. } => self.halt = Some(Halt::Approval(skill.to_string())),
            EventBody::Suspended { .. } => self.halt = Some(Halt::Suspended),
            EventBody::ApprovalDecided { .. } | EventBody::Continued { .. } => self.halt = None,
            EventBody::Deferred { until, reason, .. } => {
                self.halt = Some(Halt::Deferred { until: until.to_string(), reason: reason.clone() });
            }
            EventBody::Received(_)
            | EventBody::Joined { .. }
            | EventBody::InterfaceChanged { .. }
            | EventBody::LoopDetected { .. }
            | EventBody::AgentSteered { .. }
            | EventBody::SteeringTaken { .. }
            | EventBody::AgentStopRequested { .. }
            | EventBody::CancelRequested { .. }
            | EventBody::Decided { .. }
            | EventBody::Reprioritised { .. }
            | EventBody::DeadlinePassed { .. }
            | EventBody::Ordered { .. }
            | EventBody::DeadLetterDue { .. }
            | EventBody::DeadLetterMoved { .. }
            | EventBody::Answered { .. }
            | EventBody::Failed { .. }
            | EventBody::Cancelled { .. }
            | EventBody::Compacted(_)
            | EventBody::Copied(_) => {}
        }
    }

    fn step(&mut self, agent: &AgentId, step: Step) {
        // Work proves that nothing halts the turn any more, such as a deferral that ended early.
        if matches!(step, Step::Model(_)) {
            (self.halt, self.place) = (None, None);
        }
        if self.agents.get(agent).is_none_or(|(now, _)| *now != step) {
            self.agents.insert(agent.clone(), (step, Instant::now()));
        }
    }

    /// Whether the scheduler knows what an agent waits for. The log has the beginning of a round for some backends only.
    #[must_use]
    pub fn is_scheduled(&self) -> bool {
        self.halt.is_none() && self.agents.values().any(|(step, _)| *step == Step::Round)
    }

    /// Notes the place of a task in the queue, as the scheduler lists it.
    pub fn note_queue(&mut self, queue: &Value, task: TaskId) {
        let task = task.to_string();
        let row_in = |list: &str| {
            let rows = queue[list].as_array().into_iter().flatten();
            rows.into_iter().find(|row| row["task_id"].as_str() == Some(&task))
        };
        let running = row_in("running").and_then(|row| row["backend"].as_str());
        let waiting = row_in("waiting").map(|row| {
            let place = row["position"].as_u64().map_or(String::new(), |n| format!(" at position {n}"));
            let why = row["why"].as_str().filter(|why| !why.is_empty());
            format!("queued{place}{}", why.map_or(String::new(), |why| format!(": {}", clipped(why, REASON_CHARS_MAX))))
        });
        self.place = running.map(|backend| format!("waiting for the model on {backend}")).or(waiting);
    }

    /// The line; nothing while the answer is being written.
    #[must_use]
    pub fn line(&self, now: Instant) -> Option<String> {
        // A line that is shown for a moment only would flicker.
        let is_short = now.saturating_duration_since(self.begun) < Duration::from_millis(BEAT_MS);
        if self.is_writing || is_short {
            return None;
        }
        match &self.halt {
            Some(Halt::Approval(skill)) => return Some(format!("waiting for your approval of {skill}")),
            Some(Halt::Suspended) => return Some("suspended; `annie jobs resume` continues it".to_owned()),
            Some(Halt::Deferred { until, reason }) => {
                return Some(format!("deferred until {until}: {}", clipped(reason, REASON_CHARS_MAX)));
            }
            None => {}
        }
        // While sub-agents are at work, the orchestrator waits for them.
        let sub_agents: Vec<_> = self.agents.iter().filter(|(agent, _)| !agent.is_orchestrator()).collect();
        if sub_agents.is_empty() {
            let (step, since) = self.agents.get(&AgentId::orchestrator())?;
            let what = match step {
                Step::Round => self.place.clone().unwrap_or_else(|| "waiting for the next round".to_owned()),
                Step::Model(backend) => format!("waiting for the model on {backend}"),
                Step::Skill(skill) => format!("waiting for the skill {skill}"),
            };
            return Some(format!("{what}, {}", seconds(now, *since)));
        }
        let named = sub_agents.iter().take(AGENTS_NAMED_MAX).map(|(agent, (step, since))| {
            let what = match step {
                Step::Round => self.place.as_deref().unwrap_or("waiting for the next round").to_owned(),
                Step::Model(backend) => format!("model on {backend}"),
                Step::Skill(skill) => skill.clone(),
            };
            format!("agent {agent}: {what}, {}", seconds(now, *since))
        });
        let named: Vec<String> = named.collect();
        let others = sub_agents.len() - named.len();
        let others = if others > 0 { format!("; {others} more agents") } else { String::new() };
        Some(format!("{}{others}", named.join("; ")))
    }
}

fn seconds(now: Instant, since: Instant) -> String {
    format!("{} s", now.saturating_duration_since(since).as_secs())
}

/// The clock of the line, which also asks the scheduler for the queue.
pub struct Pulse<'a> {
    console: &'a Console,
    partner: &'a Partner,
    beat: Interval,
    asked: Option<BoxFuture<'a, Option<Value>>>,
    may_ask: bool,
}

impl<'a> Pulse<'a> {
    /// A clock for the turns of this partner.
    #[must_use]
    pub fn of(console: &'a Console, partner: &'a Partner) -> Self {
        let every = Duration::from_millis(BEAT_MS);
        let mut beat = interval_at(Instant::now() + every, every);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { console, partner, beat, asked: None, may_ask: true }
    }

    /// Whether the terminal shows the line.
    #[must_use]
    pub const fn is_shown(&self) -> bool {
        self.console.has_status()
    }

    /// Waits until the line is to be written; with the queue, if the scheduler gave it. Cancel-safe.
    pub async fn next(&mut self) -> Option<Value> {
        tokio::select! {
            queue = under_way(self.asked.as_mut()) => {
                self.asked = None;
                // The key may not read the queue: then the line is without it.
                self.may_ask = queue.is_some();
                queue
            }
            _ = self.beat.tick() => None,
        }
    }

    /// Writes the line of the turn for which the user waits, or removes it.
    pub fn show(&mut self, turn: Option<(TaskId, &mut Activity)>, queue: Option<&Value>) {
        let line = turn.and_then(|(task, activity)| {
            if let Some(queue) = queue {
                activity.note_queue(queue, task);
            } else if activity.is_scheduled() && self.may_ask && self.asked.is_none() {
                self.asked = Some(queue_of(self.partner).boxed());
            }
            activity.line(Instant::now())
        });
        self.console.show_status(line);
    }
}

async fn queue_of(partner: &Partner) -> Option<Value> {
    match partner {
        Partner::Here { kernel, .. } => kernel.queue().await.ok(),
        Partner::Server(client) => client.get("/api/v1/queue").await.ok(),
    }
}

#[cfg(test)]
mod tests {
    use annie_core::{
        ids::{ConversationId, Seq},
        time::Micros,
    };
    use serde_json::json;

    use super::*;

    fn seen(agent: &str, body: EventBody) -> Seen {
        let agent = match agent {
            "" => AgentId::orchestrator(),
            name => AgentId::sub(name).unwrap(),
        };
        let task = TaskId::from_uuid(uuid::Uuid::nil());
        let conversation = ConversationId::from_uuid(uuid::Uuid::nil());
        Seen::Event(Box::new(Event { conversation, seq: Seq(1), at: Micros(0), task, agent, body }))
    }

    fn began(backend: &str) -> EventBody {
        EventBody::RoundBegan { round: 1, backend: backend.to_owned() }
    }

    fn line(activity: &Activity) -> String {
        activity.line(Instant::now()).unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn line_names_the_queue_then_the_model_and_nothing_while_the_answer_is_written() {
        let task = TaskId::from_uuid(uuid::Uuid::nil());
        let mut activity = Activity::begin();
        assert!(activity.is_scheduled());
        assert_eq!(activity.line(Instant::now()), None, "a short wait");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(line(&activity), "waiting for the next round, 1 s");
        activity.note_queue(
            &json!({"waiting": [{"task_id": task.to_string(), "position": 2, "why": "voice gate closed"}]}),
            task,
        );
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(line(&activity), "queued at position 2: voice gate closed, 3 s");
        activity.note_queue(&json!({"running": [{"task_id": task.to_string(), "backend": "gpu"}]}), task);
        assert_eq!(line(&activity), "waiting for the model on gpu, 3 s");
        activity.see(&seen("", began("gpu")));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(!activity.is_scheduled());
        assert_eq!(line(&activity), "waiting for the model on gpu, 5 s");
        activity.see(&Seen::Draft { task, round: 1, text: "x".to_owned() });
        assert_eq!(activity.line(Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn line_names_sub_agents_and_what_halts_the_turn() {
        let mut activity = Activity::begin();
        tokio::time::advance(Duration::from_secs(1)).await;
        activity.see(&seen("mail", EventBody::AgentStarted { calls_granted: 1 }));
        activity.see(&seen("mail", began("gpu")));
        assert_eq!(line(&activity), "agent mail: model on gpu, 0 s");
        let deferred =
            EventBody::Deferred { until: Micros(0), reason: "its model failed".to_owned(), after_failure: true };
        activity.see(&seen("", deferred));
        assert!(line(&activity).starts_with("deferred until 1970-01-01"), "{}", line(&activity));
        activity.see(&seen("", began("gpu")));
        activity.see(&seen("", EventBody::Suspended { by: "a user".to_owned() }));
        assert!(line(&activity).starts_with("suspended"), "{}", line(&activity));
        activity.see(&seen("", EventBody::Continued { by: "a user".to_owned() }));
        assert_eq!(line(&activity), "agent mail: model on gpu, 0 s");
    }
}
