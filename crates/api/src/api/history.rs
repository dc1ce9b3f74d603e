//! The messages of a conversation, folded from its log: the user's messages and Annie's answers, each answer with the agents
//! and skills that worked on it. The log is read backwards in windows, so that a page of a long conversation costs only the
//! events that it needs.

#![deny(clippy::wildcard_enum_match_arm)]

use std::collections::BTreeMap;

use annie_core::{
    approval,
    event::{Action, Event, EventBody, FinalEvent, ReportStatus},
    ids::{AgentId, ConversationId, Seq, TaskId},
    outcome::Status,
    ports::TaskState,
    time::Micros,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::AppState;
use crate::{auth::Caller, error::ApiError};

/// Events per read.
const WINDOW: u32 = 500;
/// The maximum number of events read for one page.
const EVENTS_MAX: usize = 10_000;

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    /// The kernel, about the conversation itself.
    System,
}

impl Role {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

/// How a sub-agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    Completed,
    NoAction,
    Failed,
    Timeout,
    Crashed,
    Skipped,
    Cancelled,
    /// Its dispatch was never accepted into the plan.
    Refused,
}

impl AgentStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::NoAction => "no_action",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Crashed => "crashed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
        }
    }
}

impl From<ReportStatus> for AgentStatus {
    fn from(status: ReportStatus) -> Self {
        match status {
            ReportStatus::Completed => Self::Completed,
            ReportStatus::NoAction => Self::NoAction,
            ReportStatus::Failed => Self::Failed,
            ReportStatus::Timeout => Self::Timeout,
            ReportStatus::Crashed => Self::Crashed,
            ReportStatus::Skipped => Self::Skipped,
            ReportStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// A sub-agent that worked on an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLine {
    pub agent: String,
    pub mission: String,
    /// Absent while the agent works.
    pub status: Option<AgentStatus>,
    pub duration_ms: u64,
}

/// A skill that ran for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillLine {
    pub agent: String,
    pub skill: String,
    pub status: Status,
    pub duration_ms: u64,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryMessage {
    pub seq: Seq,
    pub task: TaskId,
    pub role: Role,
    pub text: String,
    pub at: Micros,
    /// Of an answer: the final state of its task.
    pub state: Option<TaskState>,
    pub agents: Vec<AgentLine>,
    pub skills: Vec<SkillLine>,
}

/// One page of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Oldest first.
    pub messages: Vec<HistoryMessage>,
    /// The sequence number before which the next older page starts; absent at the beginning of the conversation.
    pub next_before: Option<Seq>,
}

/// The last `limit` messages before a sequence number.
///
/// # Errors
/// If the conversation does not exist or the caller may not see it.
pub async fn history(
    state: &AppState,
    caller: &Caller,
    conversation: ConversationId,
    before: Option<Seq>,
    limit: usize,
) -> Result<History, ApiError> {
    let row = state.kernel.conversation(caller.scope(), conversation).await?;
    let end = before.map_or(row.last_seq.0, |b| b.0.saturating_sub(1).min(row.last_seq.0));
    let mut events: Vec<Event> = Vec::new();
    let mut from = end;
    loop {
        let start = from.saturating_sub(u64::from(WINDOW));
        let count = u32::try_from(from - start).unwrap_or(WINDOW);
        if count > 0 {
            let mut older = state.kernel.events(caller.scope(), conversation, Seq(start), count).await?;
            older.append(&mut events);
            events = older;
        }
        from = start;
        let whole = from == 0 || events.len() >= EVENTS_MAX;
        let (mut messages, left_out) = fold(&events, whole);
        let skipped = messages.len().saturating_sub(limit);
        messages.drain(..skipped);
        let first = messages.first().map(|m| m.seq);
        // A left-out answer must not lie within the page: otherwise no page would contain it.
        if whole || (messages.len() == limit && left_out < first) {
            let more = skipped > 0 || from > 0;
            let next_before = more.then(|| first.unwrap_or(Seq(from + 1)));
            return Ok(History { messages, next_before });
        }
    }
}

/// The agents and skills that worked on one message.
#[derive(Default)]
struct Work {
    agents: Vec<AgentLine>,
    skills: Vec<SkillLine>,
    /// The lines in `agents` of the agents that started, by name: a dispatch can be refused and corrected under the same name.
    started: BTreeMap<String, usize>,
    /// For each line in `agents`, the number of the reply that dispatched the agent.
    reply_of: Vec<usize>,
    replies: usize,
}

impl Work {
    /// The line of an agent that has no report yet: the first one of the newest reply that dispatched it, because the plan
    /// refuses a name that the same reply has used before.
    fn unreported(&self, agent: &AgentId) -> Option<usize> {
        let lines = self.agents.iter().zip(&self.reply_of).enumerate();
        let open = lines.filter(|(_, (line, _))| line.agent == agent.as_str() && line.status.is_none());
        let open: Vec<(usize, usize)> = open.map(|(at, (_, reply))| (at, *reply)).collect();
        let (_, newest) = open.last()?;
        open.iter().find(|(_, reply)| reply == newest).map(|(at, _)| *at)
    }

    fn take(&mut self, agent: &AgentId, body: &EventBody) {
        match body {
            EventBody::ModelReplied { calls, .. } => {
                self.replies += 1;
                self.agents.extend(calls.iter().filter_map(|call| match &call.action {
                    Action::Dispatch(spec) => Some(AgentLine {
                        agent: spec.agent.to_string(),
                        mission: spec.mission.clone(),
                        status: None,
                        duration_ms: 0,
                    }),
                    Action::Answer { .. }
                    | Action::Skill(_)
                    | Action::Collect { .. }
                    | Action::ControlAgent { .. }
                    | Action::Alternatives(_)
                    | Action::Caller => None,
                }));
                self.reply_of.resize(self.agents.len(), self.replies);
            }
            EventBody::AgentReported { report } => {
                let at = self.started.get(agent.as_str()).copied().or_else(|| self.unreported(agent));
                if let Some(line) = at.and_then(|at| self.agents.get_mut(at)) {
                    line.status = Some(report.status.into());
                    line.duration_ms = report.duration_ms;
                }
            }
            EventBody::AgentStarted { .. } => {
                if let Some(at) = self.unreported(agent) {
                    self.started.entry(agent.to_string()).or_insert(at);
                }
            }
            EventBody::SkillFinished { skill, outcome, duration_ms, .. } => self.skills.push(SkillLine {
                agent: agent.to_string(),
                skill: skill.clone(),
                status: outcome.status,
                duration_ms: *duration_ms,
            }),
            EventBody::Received(_)
            | EventBody::Joined { .. }
            | EventBody::TurnStarted { .. }
            | EventBody::RoundBegan { .. }
            | EventBody::RoundNotBegun { .. }
            | EventBody::ModelFailed { .. }
            | EventBody::InterfaceChanged { .. }
            | EventBody::LoopDetected { .. }
            | EventBody::SkillStarted { .. }
            | EventBody::AgentSteered { .. }
            | EventBody::SteeringTaken { .. }
            | EventBody::AgentStopRequested { .. }
            | EventBody::CancelRequested { .. }
            | EventBody::Decided { .. }
            | EventBody::ApprovalRequested { .. }
            | EventBody::ApprovalDecided { .. }
            | EventBody::ResultsGiven
            | EventBody::Resumed { .. }
            | EventBody::Suspended { .. }
            | EventBody::Continued { .. }
            | EventBody::Reprioritised { .. }
            | EventBody::DeadlinePassed { .. }
            | EventBody::Deferred { .. }
            | EventBody::Retried { .. }
            | EventBody::Ordered { .. }
            | EventBody::DeadLetterDue { .. }
            | EventBody::DeadLetterMoved { .. }
            | EventBody::Answered { .. }
            | EventBody::Failed { .. }
            | EventBody::Cancelled { .. }
            | EventBody::Copied(_)
            | EventBody::Compacted(_) => {}
        }
    }
}

/// What the conversation shows of a request for an approval, or of its verdict.
fn line_of(body: &EventBody) -> Option<String> {
    if let EventBody::ApprovalRequested { skill, arguments, expires_at, .. } = body {
        return Some(approval::question(skill, arguments, *expires_at));
    }
    let EventBody::ApprovalDecided { number, verdict, by, .. } = body else { return None };
    Some(approval::outcome(*number, verdict, by))
}

/// The messages in a window of a log. An answer whose question is not in the window is left out, unless the window is `whole`,
/// which means that no further window will be read. Also returns the sequence number of the last answer that was left out.
fn fold(events: &[Event], whole: bool) -> (Vec<HistoryMessage>, Option<Seq>) {
    let mut open: BTreeMap<TaskId, Work> = BTreeMap::new();
    let mut messages = Vec::new();
    let mut left_out = None;
    for event in events {
        let message = |role, text: &str, state| HistoryMessage {
            seq: event.seq,
            task: event.task,
            role,
            text: text.to_owned(),
            at: event.at,
            state,
            agents: Vec::new(),
            skills: Vec::new(),
        };
        if let EventBody::Received(inbound) = &event.body {
            open.insert(event.task, Work::default());
            // The answer to the kernel's message of a reminder or a report is the reminder or the report.
            if !inbound.carries_answer() {
                messages.push(message(Role::User, &inbound.text, None));
            }
            continue;
        }
        if let EventBody::Compacted(compacted) = &event.body {
            messages.push(message(Role::System, &format!("[{}]", compacted.line()), None));
            continue;
        }
        if let Some(text) = line_of(&event.body) {
            messages.push(message(Role::Assistant, &text, None));
            continue;
        }
        let Some(end) = event.body.as_final() else {
            if let Some(work) = open.get_mut(&event.task) {
                work.take(&event.agent, &event.body);
            }
            continue;
        };
        let ended = match end {
            FinalEvent::Answered { .. } => TaskState::Completed,
            FinalEvent::Failed { .. } => TaskState::Failed,
            FinalEvent::Cancelled { .. } => TaskState::Cancelled,
        };
        let Some(mut work) = open.remove(&event.task).or_else(|| whole.then(Work::default)) else {
            left_out = Some(event.seq);
            continue;
        };
        // A dispatch without a report was never accepted into the plan: every other agent reports before its turn ends.
        work.agents.iter_mut().for_each(|agent| agent.status = agent.status.or(Some(AgentStatus::Refused)));
        let mut answer = message(Role::Assistant, end.text(), Some(ended));
        (answer.agents, answer.skills) = (work.agents, work.skills);
        messages.push(answer);
    }
    (messages, left_out)
}

#[cfg(test)]
mod tests;
