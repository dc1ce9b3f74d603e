//! The tables beside the log must equal their rebuild from the log. The table of tasks must also equal a second,
//! independent fold of the events, because a rebuild makes the same mistakes as the projection.

use std::collections::BTreeMap;

use annie_core::{
    event::{AnswerOutcome, Event, EventBody, Priority, Scope},
    ids::{Seq, TaskId},
    ports::{DeadLetterFilter, DeadLetters, Log, Operations, Outbox, Records, TaskState},
    time::Micros,
};

use super::{people, scenario::USERS, town::Town, watch::now};

/// Rebuilds the tables in place and compares.
pub fn check(town: &Town) {
    let before = all(town);
    now(town.data.rebuild());
    let after = all(town);
    for (was, is) in before.iter().zip(&after) {
        if was != is {
            town.watch.wrong(format!("a table had {was}, and the log gives {is}"));
        }
    }
    if before.len() != after.len() {
        town.watch.wrong(format!("the tables had {} rows, and the log gives {}", before.len(), after.len()));
    }
    check_tasks(town);
}

/// A task as its events describe it.
#[derive(Debug, PartialEq, Eq)]
struct Folded {
    state: TaskState,
    priority: Priority,
    not_before: Option<Micros>,
    has_model_failed: bool,
    started_at: Option<Micros>,
    ended_at: Option<Micros>,
    error: Option<String>,
}

impl Folded {
    /// Applies the next event. Nothing changes a task that has ended.
    fn take(&mut self, event: &Event) {
        if self.ended_at.is_some() {
            return;
        }
        match &event.body {
            EventBody::TurnStarted { .. } => {
                self.state = TaskState::Running;
                self.started_at.get_or_insert(event.at);
            }
            EventBody::Suspended { .. } => self.state = TaskState::Suspended,
            EventBody::Continued { .. } if self.started_at.is_some() => self.state = TaskState::Running,
            EventBody::Continued { .. } => self.state = TaskState::Queued,
            EventBody::Reprioritised { priority, .. } => self.priority = *priority,
            EventBody::Deferred { until, after_failure, .. } => {
                (self.not_before, self.has_model_failed) = (Some(*until), *after_failure);
            }
            EventBody::Answered { paused, outcome, finish, .. } => {
                self.state = TaskState::Completed;
                self.error =
                    Some(outcome.word(*paused, *finish)).filter(|word| *word != AnswerOutcome::DONE).map(str::to_owned);
            }
            EventBody::Cancelled { .. } => self.state = TaskState::Cancelled,
            EventBody::Failed { code, .. } => (self.state, self.error) = (TaskState::Failed, Some(code.clone())),
            EventBody::Received(_)
            | EventBody::Joined { .. }
            | EventBody::RoundBegan { .. }
            | EventBody::RoundNotBegun { .. }
            | EventBody::ModelReplied { .. }
            | EventBody::ModelFailed { .. }
            | EventBody::InterfaceChanged { .. }
            | EventBody::LoopDetected { .. }
            | EventBody::SkillStarted { .. }
            | EventBody::SkillFinished { .. }
            | EventBody::AgentStarted { .. }
            | EventBody::AgentReported { .. }
            | EventBody::AgentSteered { .. }
            | EventBody::SteeringTaken { .. }
            | EventBody::AgentStopRequested { .. }
            | EventBody::CancelRequested { .. }
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
        self.ended_at = event.body.is_final().then_some(event.at);
    }
}

fn check_tasks(town: &Town) {
    let ever = Micros(i64::MAX);
    let mut sent: BTreeMap<TaskId, Folded> = BTreeMap::new();
    for conversation in now(town.data.conversations(Scope::Operator, ever.into(), 10_000)) {
        for event in now(town.data.events(Scope::Operator, conversation.id, Seq(0), u32::MAX)) {
            if let EventBody::Received(inbound) = &event.body {
                let (priority, not_before) = (inbound.priority, inbound.not_before);
                let new = Folded {
                    state: TaskState::Queued,
                    priority,
                    not_before,
                    has_model_failed: false,
                    started_at: None,
                    ended_at: None,
                    error: None,
                };
                sent.insert(event.task, new);
            } else if let Some(task) = sent.get_mut(&event.task) {
                task.take(&event);
            }
        }
    }
    for row in now(town.data.tasks(Scope::Operator, false, ever.into(), 10_000)) {
        let is = Folded {
            state: row.state,
            priority: row.priority,
            not_before: row.not_before,
            has_model_failed: row.has_model_failed,
            started_at: row.started_at,
            ended_at: row.ended_at,
            error: row.error,
        };
        let sent = sent.remove(&row.id);
        if sent.as_ref() != Some(&is) {
            town.watch.wrong(format!("the table of tasks says of {} {is:?}, and its events {sent:?}", row.id));
        }
    }
    for task in sent.keys() {
        town.watch.wrong(format!("the table of tasks does not know {task}"));
    }
}

fn all(town: &Town) -> Vec<String> {
    let (data, ever) = (&town.data, Micros(i64::MAX));
    let tasks = now(data.tasks(Scope::Operator, false, ever.into(), 10_000));
    let mut rows: Vec<String> = Vec::new();
    for task in &tasks {
        rows.extend(now(data.intents(task.id)).iter().map(|intent| format!("{intent:?}")));
    }
    rows.extend(tasks.iter().map(|task| format!("{task:?}")));
    rows.extend(now(data.conversations(Scope::Operator, ever.into(), 10_000)).iter().map(|row| format!("{row:?}")));
    rows.extend(
        now(data.dead_letters(Scope::Operator, DeadLetterFilter::default(), ever.into(), 10_000))
            .iter()
            .map(|row| format!("{row:?}")),
    );
    rows.extend(now(data.operations(Scope::Operator, false, ever.into(), 10_000)).iter().map(|row| format!("{row:?}")));
    rows.extend(now(data.outbox(10_000)).iter().map(|row| format!("{row:?}")));
    for n in 0..USERS.len() {
        for step in 0..40 {
            let found = now(data.message(people::user(n), format!("step{step}")));
            rows.extend(found.map(|message| format!("{message:?}")));
        }
    }
    rows
}
