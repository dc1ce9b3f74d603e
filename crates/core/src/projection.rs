//! The changes of the tables that an event causes. Every store applies them in the transaction of the append, and a rebuild
//! folds the whole log through the same function. So the tables always agree with the log.

#![deny(clippy::wildcard_enum_match_arm)]

use std::collections::BTreeSet;

use crate::{
    approval::question,
    dead_letter::{DeadLetter, DeadLetterState},
    event::{Action, AnswerOutcome, EventBody, Inbound, NewEvent, Priority, ResolvedCall},
    ids::{IntentId, OperationId, OutboxId, TaskId},
    message::Usage,
    outcome::{Operation, Outcome, Status},
    ports::{Address, IntentState, TaskState},
    skill::Effect,
    spend::{Day, UsageTotals},
    time::Micros,
};

/// Text for the user when a dead letter is archived.
const GIVEN_UP: &str = "I kept trying until its time was up, and have given it up.";

/// One change of one row. The conversation and its user are those of the append.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A task was created. If the conversation has no title yet, it gets the task's title.
    TaskOpened {
        /// The id.
        task: TaskId,
        /// The client's id for the message, unique per user.
        client_id: String,
        /// SHA-256 of the text. It distinguishes a repeated message from a reused client id.
        text_sha256: [u8; 32],
        /// The first 80 characters.
        title: String,
        /// The front end or channel of the message.
        source: String,
        /// The scheduling class.
        priority: Priority,
        /// The task does not start before this time.
        not_before: Option<Micros>,
        /// The task starts when these tasks have ended.
        after: Vec<TaskId>,
        /// Whether it is a job command.
        is_job_command: bool,
        /// Whether it joins the running turn, if there is one.
        is_steer: bool,
        /// The task whose answer it shares.
        joins: Option<TaskId>,
        /// Whether it is a stateless call, whose conversation is not continued.
        stateless: bool,
        /// Time of the change.
        at: Micros,
    },
    /// A task changed its state. The state of a task that has ended never changes again.
    TaskMoved {
        /// The id.
        task: TaskId,
        /// The new state.
        state: TaskState,
        /// The failure's code.
        error: Option<String>,
        /// Time of the change.
        at: Micros,
    },
    /// A run was planned.
    IntentPlanned {
        /// The id.
        intent: IntentId,
        /// The task.
        task: TaskId,
        /// The skill.
        skill: String,
        /// The consequence of running the skill twice.
        effect: Effect,
        /// Time of the change.
        at: Micros,
    },
    /// A run begins. Compare-and-set: a `once` intent can start only from `planned`, an `idempotent` one also from
    /// `started`; otherwise the whole append is refused as `AlreadyStarted`.
    IntentStarted {
        /// The id.
        intent: IntentId,
        /// Time of the change.
        at: Micros,
    },
    /// A run's receipt.
    IntentClosed {
        /// The id.
        intent: IntentId,
        /// `Done` or `Unknown`.
        state: IntentState,
        /// Time of the change.
        at: Micros,
    },
    /// A task's class has changed.
    TaskReprioritised {
        /// The id.
        task: TaskId,
        /// The new class.
        priority: Priority,
    },
    /// A task was suspended or resumed. Has no effect on a task that has ended. A resumed task is `running` if its turn had
    /// begun, otherwise `queued`.
    TaskHeld {
        /// The id.
        task: TaskId,
        /// True if it was suspended, false if it was resumed.
        held: bool,
        /// Time of the change.
        at: Micros,
    },
    /// A task was deferred.
    TaskDeferred {
        /// The id.
        task: TaskId,
        /// The earliest time of resumption.
        until: Micros,
        /// Whether its model failed.
        has_model_failed: bool,
    },
    /// A failed task became a dead letter.
    DeadLetterPut {
        /// The task.
        task: TaskId,
        /// The data for a retry.
        dead_letter: DeadLetter,
        /// The failure's code.
        code: String,
        /// The text that the user received.
        text: String,
        /// The details for the operator.
        detail: String,
        /// Time of the change.
        at: Micros,
    },
    /// A dead letter is to be retried. Has no effect unless it is waiting.
    DeadLetterDue {
        /// The task that failed.
        task: TaskId,
        /// The earliest time of the retry.
        at: Micros,
    },
    /// A dead letter changed its state. Has no effect unless it was waiting.
    DeadLetterMoved {
        /// The task that failed.
        task: TaskId,
        /// The new state of the dead letter.
        state: DeadLetterState,
        /// The task of the retry.
        retry: Option<TaskId>,
        /// Time of the change.
        at: Micros,
    },
    /// A long-running operation was started.
    OperationOpened {
        /// The operation.
        operation: Operation,
        /// The task.
        task: TaskId,
        /// The run that started it.
        intent: IntentId,
        /// The skill.
        skill: String,
        /// Time of the change.
        at: Micros,
    },
    /// The result of an operation arrived, or the operation expired.
    OperationClosed {
        /// The id.
        operation: OperationId,
        /// The task that reports the result or the expiry.
        by: TaskId,
        /// Time of the change.
        at: Micros,
    },
    /// A round was answered.
    UsageAdded {
        /// The day of the answer.
        day: Day,
        /// The backend that ran the round.
        backend: String,
        /// The skills that the round called: sorted names, separated by commas. Empty if it called none.
        skills: String,
        /// The usage of the round.
        totals: UsageTotals,
    },
    /// The final texts of a task are to be delivered to an address.
    AddressPut {
        /// The task.
        task: TaskId,
        /// The address.
        address: Address,
    },
    /// A final text is to be delivered, to the address of its task if the task has one.
    OutboxPut {
        /// The id.
        id: OutboxId,
        /// The task that it is about.
        task: TaskId,
        /// The text.
        text: String,
        /// Time of the change.
        at: Micros,
    },
}

/// The changes that one event causes.
#[must_use]
pub fn changes(event: &NewEvent) -> Vec<Change> {
    let (task, at) = (event.task, event.at);
    let moved = |state, error| Change::TaskMoved { task, state, error, at };
    let final_text = |text: &str| Change::OutboxPut { id: OutboxId::for_task(task), task, text: text.to_owned(), at };
    match &event.body {
        EventBody::Received(inbound) => received(task, inbound, at),
        EventBody::TurnStarted { .. } => vec![moved(TaskState::Running, None)],
        EventBody::ModelReplied { calls, usage, backend, .. } => {
            let used = usage_added(calls, usage, backend, at);
            planned(task, calls, at).into_iter().chain(used).collect()
        }
        EventBody::Compacted(compacted) => {
            usage_added(&[], &compacted.usage, &compacted.backend, at).into_iter().collect()
        }
        EventBody::SkillStarted { intent, .. } => vec![Change::IntentStarted { intent: *intent, at }],
        EventBody::SkillFinished { intent, skill, outcome, .. } => skill_finished((task, at), *intent, skill, outcome),
        EventBody::Answered { text, paused, outcome, finish, .. } => {
            let outcome_word = outcome.word(*paused, *finish);
            let outcome_word = (outcome_word != AnswerOutcome::DONE).then(|| outcome_word.to_owned());
            vec![moved(TaskState::Completed, outcome_word), final_text(text)]
        }
        EventBody::Failed { code, text, detail, dead_letter } => {
            let put = |dead_letter| {
                let (code, text, detail) = (code.clone(), text.clone(), detail.clone());
                Change::DeadLetterPut { task, dead_letter, code, text, detail, at }
            };
            let put = dead_letter.clone().map(put);
            [moved(TaskState::Failed, Some(code.clone())), final_text(text)].into_iter().chain(put).collect()
        }
        EventBody::Suspended { .. } => vec![Change::TaskHeld { task, held: true, at }],
        EventBody::Continued { .. } => vec![Change::TaskHeld { task, held: false, at }],
        EventBody::Reprioritised { priority, .. } => vec![Change::TaskReprioritised { task, priority: *priority }],
        EventBody::Deferred { until, after_failure, .. } => {
            vec![Change::TaskDeferred { task, until: *until, has_model_failed: *after_failure }]
        }
        EventBody::ApprovalRequested { number, skill, arguments, expires_at, .. } => {
            let (id, text) = (OutboxId::for_approval(task, *number), question(skill, arguments, *expires_at));
            vec![Change::OutboxPut { id, task, text, at }]
        }
        EventBody::DeadLetterDue { .. } => vec![Change::DeadLetterDue { task, at }],
        EventBody::DeadLetterMoved { state, .. } => dead_letter_moved(task, *state, at),
        EventBody::Cancelled { text } => vec![moved(TaskState::Cancelled, None), final_text(text)],
        EventBody::Joined { .. }
        | EventBody::ModelFailed { .. }
        | EventBody::InterfaceChanged { .. }
        | EventBody::LoopDetected { .. }
        | EventBody::RoundBegan { .. }
        | EventBody::RoundNotBegun { .. }
        | EventBody::AgentStarted { .. }
        | EventBody::AgentReported { .. }
        | EventBody::AgentSteered { .. }
        | EventBody::SteeringTaken { .. }
        | EventBody::AgentStopRequested { .. }
        | EventBody::CancelRequested { .. }
        | EventBody::Decided { .. }
        | EventBody::ApprovalDecided { .. }
        | EventBody::ResultsGiven
        | EventBody::DeadlinePassed { .. }
        | EventBody::Retried { .. }
        | EventBody::Ordered { .. }
        | EventBody::Resumed { .. }
        | EventBody::Copied(_) => Vec::new(),
    }
}

fn skill_finished((task, at): (TaskId, Micros), intent: IntentId, skill: &str, outcome: &Outcome) -> Vec<Change> {
    let state = if outcome.status == Status::Unknown { IntentState::Unknown } else { IntentState::Done };
    let closed = Change::IntentClosed { intent, state, at };
    let opened = outcome.operation.map(|operation| Change::OperationOpened {
        operation,
        task,
        intent,
        skill: skill.to_owned(),
        at,
    });
    std::iter::once(closed).chain(opened).collect()
}

fn dead_letter_moved(task: TaskId, state: DeadLetterState, at: Micros) -> Vec<Change> {
    let moved = Change::DeadLetterMoved { task, state, retry: None, at };
    // The user was notified of the pending retry, so the user is also notified that there will be none.
    let given_up = (state == DeadLetterState::Archived).then(|| Change::OutboxPut {
        id: OutboxId::for_dead_letter(task),
        task,
        text: GIVEN_UP.to_owned(),
        at,
    });
    std::iter::once(moved).chain(given_up).collect()
}

fn planned(task: TaskId, calls: &[ResolvedCall], at: Micros) -> Vec<Change> {
    let skills = calls.iter().filter_map(|call| match &call.action {
        Action::Skill(planned) => Some(planned).filter(|planned| planned.effect != Effect::Read),
        Action::Answer { .. }
        | Action::Dispatch(_)
        | Action::Collect { .. }
        | Action::ControlAgent { .. }
        | Action::Alternatives(_)
        | Action::Caller => None,
    });
    skills
        .map(|planned| Change::IntentPlanned {
            intent: planned.intent,
            task,
            skill: planned.skill.clone(),
            effect: planned.effect,
            at,
        })
        .collect()
}

/// The usage of a round. A round of the offline planner, which counts nothing, is no usage.
fn usage_added(calls: &[ResolvedCall], usage: &Usage, backend: &str, at: Micros) -> Option<Change> {
    if *usage == Usage::default() {
        return None;
    }
    let skills: BTreeSet<&str> = calls
        .iter()
        .filter_map(|call| match &call.action {
            Action::Skill(planned) => Some(planned.skill.as_str()),
            Action::Answer { .. }
            | Action::Dispatch(_)
            | Action::Collect { .. }
            | Action::ControlAgent { .. }
            | Action::Alternatives(_)
            | Action::Caller => None,
        })
        .collect();
    let skills = skills.into_iter().collect::<Vec<_>>().join(", ");
    let (backend, totals) = (backend.to_owned(), UsageTotals::of(usage));
    Some(Change::UsageAdded { day: Day::of(at), backend, skills, totals })
}

fn received(task: TaskId, inbound: &Inbound, at: Micros) -> Vec<Change> {
    let opened = Change::TaskOpened {
        task,
        client_id: inbound.client_id.clone(),
        text_sha256: text_sha256(&inbound.text),
        title: title_of(&inbound.text),
        source: inbound.source.clone(),
        priority: inbound.priority,
        not_before: inbound.not_before,
        after: inbound.after.clone(),
        is_job_command: inbound.order,
        is_steer: inbound.steer,
        joins: inbound.same_as,
        stateless: inbound.stateless,
        at,
    };
    let retried = inbound.retry.as_ref().map(|retry| Change::DeadLetterMoved {
        task: retry.of,
        state: DeadLetterState::Retried,
        retry: Some(task),
        at,
    });
    let closed = inbound.resumes.map(|operation| Change::OperationClosed { operation, by: task, at });
    let addressed = inbound.reply_to.clone().map(|address| Change::AddressPut { task, address });
    std::iter::once(opened).chain(addressed).chain(retried).chain(closed).collect()
}

/// SHA-256 of a message's text.
#[must_use]
pub fn text_sha256(text: &str) -> [u8; 32] {
    use sha2::{Digest, Sha256};
    Sha256::digest(text.as_bytes()).into()
}

/// The first 80 characters of the first non-blank line.
#[must_use]
pub fn title_of(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default();
    line.chars().take(80).collect()
}
