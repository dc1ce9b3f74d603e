//! Checks one conversation's log event by event: the order of its lanes, one end for each message, one report for each
//! agent.

use std::collections::{BTreeMap, BTreeSet};

use annie_core::{
    event::{Event, EventBody, Inbound, Priority, ReportStatus},
    ids::{AgentId, ConversationId, IntentId, Seq, TaskId},
    outcome::{Outcome, Status},
    time::Micros,
    turn::Lane,
};

/// A message that was received.
struct Message {
    seq: Seq,
    lane: Lane,
    is_voice: bool,
    /// The message was moved: it may be overtaken and may overtake others.
    is_moved: bool,
    is_begun: bool,
    is_ended: bool,
}

/// A run of a skill.
#[derive(Default)]
struct Run {
    /// The task and the agent of the run.
    by: Option<(TaskId, AgentId)>,
    receipts: u32,
}

/// The log so far.
#[derive(Default)]
pub struct Trace {
    messages: BTreeMap<TaskId, Message>,
    agents: BTreeMap<(TaskId, AgentId), u32>,
    started: BTreeSet<(TaskId, AgentId)>,
    runs: BTreeMap<IntentId, Run>,
    /// The task of the last event, if that was a reply of its main agent.
    replied: Option<TaskId>,
    rounds: BTreeMap<(TaskId, AgentId, u32), Micros>,
}

impl Trace {
    /// A round that did not begin on an agentic backend may begin on another backend.
    fn not_begun(&mut self, event: &Event, round: u32) {
        self.rounds.remove(&(event.task, event.agent.clone(), round));
    }

    /// Checks the next event. `effects` holds the intents that have taken effect by now.
    pub fn take(&mut self, event: &Event, effects: &BTreeSet<IntentId>, wrong: &mut Vec<String>) {
        let (id, task) = (event.conversation, event.task);
        let follows_own_reply = self.replied.take() == Some(task);
        let is_reply = matches!(event.body, EventBody::ModelReplied { .. }) && event.agent.is_orchestrator();
        self.replied = is_reply.then_some(task);
        if !matches!(event.body, EventBody::Received(_)) && !self.messages.contains_key(&task) {
            wrong.push(format!("{id}: {} of {task}, which was never received", event.body.kind()));
            return;
        }
        match &event.body {
            EventBody::Received(inbound) => self.received(event, inbound, wrong),
            EventBody::TurnStarted { .. } => self.begins(event, wrong),
            EventBody::Suspended { .. }
            | EventBody::Continued { .. }
            | EventBody::Reprioritised { .. }
            | EventBody::Deferred { .. }
            | EventBody::CancelRequested { .. } => self.message(task, |m| m.is_moved = true),
            EventBody::AgentSteered { .. } | EventBody::SteeringTaken { .. } | EventBody::AgentStopRequested { .. } => {
            }
            EventBody::AgentStarted { .. } => {
                self.started.insert((task, event.agent.clone()));
            }
            EventBody::AgentReported { report } => self.reported(event, report.status, wrong),
            EventBody::RoundBegan { round, .. } => {
                // The mark of a beginning may be written again if its commit had an unknown outcome.
                let begun = self.rounds.entry((task, event.agent.clone(), *round)).or_insert(event.at);
                if *begun != event.at {
                    wrong.push(format!("{id}: round {round} of {task} began twice on an agentic backend"));
                }
            }
            EventBody::RoundNotBegun { round, .. } => self.not_begun(event, *round),
            EventBody::SkillStarted { intent, .. } => {
                self.runs.entry(*intent).or_default().by = Some((task, event.agent.clone()));
            }
            EventBody::SkillFinished { intent, skill, outcome, .. } => {
                self.has_receipt(event, *intent, wrong);
                if let Some(find_untruth) = find_untruth(skill, outcome, effects.contains(intent)) {
                    wrong.push(format!("{id}: the receipt of {intent} ({skill}) says {find_untruth}"));
                }
            }
            EventBody::Answered { .. } | EventBody::Failed { .. } | EventBody::Cancelled { .. } => {
                let is_second = self.messages.get(&task).is_some_and(|m| m.is_ended);
                if is_second {
                    wrong.push(format!("{id}: {task} ends a second time, {}", event.body.kind()));
                }
                self.message(task, |m| m.is_ended = true);
                // The deadline of a turn interrupts its running skills.
                if follows_own_reply && matches!(event.body, EventBody::Answered { .. }) {
                    self.has_receipts(event, wrong);
                }
            }
            EventBody::Joined { .. }
            | EventBody::ModelReplied { .. }
            | EventBody::ModelFailed { .. }
            | EventBody::InterfaceChanged { .. }
            | EventBody::LoopDetected { .. }
            | EventBody::Decided { .. }
            | EventBody::ApprovalRequested { .. }
            | EventBody::ApprovalDecided { .. }
            | EventBody::ResultsGiven
            | EventBody::Resumed { .. }
            | EventBody::DeadlinePassed { .. }
            | EventBody::Retried { .. }
            | EventBody::Ordered { .. }
            | EventBody::DeadLetterDue { .. }
            | EventBody::DeadLetterMoved { .. }
            | EventBody::Copied(_)
            | EventBody::Compacted(_) => {}
        }
    }

    /// Counts a report of an agent, which reports once.
    fn reported(&mut self, event: &Event, status: ReportStatus, wrong: &mut Vec<String>) {
        if status == ReportStatus::Completed {
            self.has_receipts(event, wrong);
        }
        let (id, task) = (event.conversation, event.task);
        let reports = self.agents.entry((task, event.agent.clone())).or_default();
        *reports += 1;
        if *reports > 1 {
            wrong.push(format!("{id}: agent {} of {task} reports {reports} times", event.agent));
        }
    }

    /// Counts a message, which is received once.
    fn received(&mut self, event: &Event, inbound: &Inbound, wrong: &mut Vec<String>) {
        let is_moved = inbound.order
            || inbound.steer
            || inbound.same_as.is_some()
            || !inbound.after.is_empty()
            || inbound.not_before.is_some();
        let lane = Lane::of(inbound.priority);
        let is_voice = inbound.priority == Priority::Realtime;
        let message = Message { seq: event.seq, lane, is_voice, is_moved, is_begun: false, is_ended: false };
        if self.messages.insert(event.task, message).is_some() {
            wrong.push(format!("{}: {} was received twice", event.conversation, event.task));
        }
    }

    /// Counts a receipt of a run. A run has one receipt.
    fn has_receipt(&mut self, event: &Event, intent: IntentId, wrong: &mut Vec<String>) {
        let run = self.runs.entry(intent).or_default();
        run.receipts += 1;
        if run.receipts > 1 {
            let (id, task, times) = (event.conversation, event.task, run.receipts);
            wrong.push(format!("{id}: {intent} of {task} has {times} receipts"));
        }
    }

    /// Checks that an agent or turn that ends well has a receipt of every run that it started.
    fn has_receipts(&self, event: &Event, wrong: &mut Vec<String>) {
        let id = event.conversation;
        let is_mine = |run: &Run| run.by.as_ref().is_some_and(|(task, a)| *task == event.task && *a == event.agent);
        for (intent, _) in self.runs.iter().filter(|(_, run)| run.receipts == 0 && is_mine(run)) {
            wrong.push(format!("{id}: {} of {} ends well, and {intent} has no receipt", event.agent, event.task));
        }
    }

    /// Whether a voice message waits for its answer.
    pub fn has_open_voice(&self) -> bool {
        self.messages.values().any(|m| m.is_voice && !m.is_ended)
    }

    fn message(&mut self, task: TaskId, change: impl FnOnce(&mut Message)) {
        if let Some(message) = self.messages.get_mut(&task) {
            change(message);
        }
    }

    /// Checks that messages of a lane begin in order, one at a time.
    fn begins(&mut self, event: &Event, wrong: &mut Vec<String>) {
        let (id, task) = (event.conversation, event.task);
        let Some(me) = self.messages.get(&task) else { return };
        if me.is_ended || me.is_begun {
            wrong.push(format!("{id}: {task} begins again"));
        }
        if !me.is_moved {
            for (other, message) in self.messages.iter().filter(|(t, m)| **t != task && !m.is_moved && !m.is_ended) {
                if message.lane == me.lane && message.is_begun {
                    wrong.push(format!("{id}: {task} begins while {other} of its lane is under way"));
                } else if message.lane == me.lane && message.seq < me.seq {
                    wrong.push(format!("{id}: {task} begins before {other}, which came first"));
                }
            }
        }
        self.message(task, |m| m.is_begun = true);
    }

    /// Checks what must hold at the end.
    pub fn finish(&self, id: ConversationId, wrong: &mut Vec<String>) {
        for (task, _) in self.messages.iter().filter(|(_, m)| !m.is_ended) {
            wrong.push(format!("{id}: {task} was accepted and never ended"));
        }
        for (task, agent) in self.started.iter().filter(|key| !self.agents.contains_key(key)) {
            wrong.push(format!("{id}: agent {agent} of {task} never reported"));
        }
    }
}

/// A statement of a receipt that is not true.
fn find_untruth(skill: &str, outcome: &Outcome, has_effect: bool) -> Option<String> {
    let is_read = matches!(skill, "sim.look" | "sim.fetch");
    let is_once = matches!(skill, "sim.send" | "sim.ring" | "sim.order");
    let status = outcome.status.as_str();
    match outcome.status {
        Status::Success | Status::Partial | Status::Pending if !is_read && !has_effect => {
            Some(format!("{status}, and nothing has happened"))
        }
        Status::ErrorTransient | Status::ErrorPermanent | Status::ErrorBlocked if is_once && has_effect => {
            Some(format!("{status} ({:?}), and it has happened", outcome.error_type))
        }
        _ => None,
    }
}
