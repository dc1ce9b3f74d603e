//! What an event means for the tables beside the log. Every store applies these changes in the transaction of the append,
//! and a rebuild folds the whole log through the same function: so the tables can never say anything that the log does
//! not.

use crate::{
    event::{Action, AnswerOutcome, EventBody, Inbound, NewEvent, Priority, ResolvedCall},
    ids::{IntentId, OperationId, OutboxId, TaskId},
    letter::{Letter, LetterState},
    outcome::{Operation, Status},
    ports::{IntentState, TaskState},
    skill::Effect,
    time::Micros,
};

/// What a user is told of a dead letter whose time is up.
const GIVEN_UP: &str = "I kept trying until its time was up, and have given it up.";

/// One change of one row. The conversation and its user come from the append.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A task exists; also makes the conversation's title if it has none.
    TaskOpened {
        /// Its id.
        task: TaskId,
        /// The front end's id for the message: unique per user.
        client_id: String,
        /// SHA-256 of the text: tells a repeat from a reuse.
        text_sha256: [u8; 32],
        /// The first 80 characters.
        title: String,
        /// Through which door.
        source: String,
        /// Its class.
        priority: Priority,
        /// It does not start before this.
        not_before: Option<Micros>,
        /// It starts when these have ended.
        after: Vec<TaskId>,
        /// It is an order about tasks.
        is_order: bool,
        /// It joins the turn under way, if there is one.
        is_steer: bool,
        /// The task whose answer is its answer too.
        joins: Option<TaskId>,
        /// It is a stateless call, to which nobody comes back.
        stateless: bool,
        /// When.
        at: Micros,
    },
    /// A task moved on; a task that has ended never moves again.
    TaskMoved {
        /// Its id.
        task: TaskId,
        /// Where it stands now.
        state: TaskState,
        /// The failure's code.
        error: Option<String>,
        /// When.
        at: Micros,
    },
    /// A run is planned.
    IntentPlanned {
        /// Its id.
        intent: IntentId,
        /// In which task.
        task: TaskId,
        /// Of which skill.
        skill: String,
        /// What a repetition would mean.
        effect: Effect,
        /// When.
        at: Micros,
    },
    /// A run begins. Compare-and-set: a `once` intent only from `planned`, an `idempotent` one also from `started`;
    /// otherwise the whole append is refused as `AlreadyStarted`.
    IntentStarted {
        /// Its id.
        intent: IntentId,
        /// When.
        at: Micros,
    },
    /// A run's receipt.
    IntentClosed {
        /// Its id.
        intent: IntentId,
        /// `Done` or `Unknown`.
        state: IntentState,
        /// When.
        at: Micros,
    },
    /// A task's class has changed.
    TaskReprioritised {
        /// Its id.
        task: TaskId,
        /// The new class.
        priority: Priority,
    },
    /// A task is held back or let go on; one that has ended does not change. A task that is let go on is `running` if its turn
    /// had begun, else `queued`.
    TaskHeld {
        /// Its id.
        task: TaskId,
        /// Held back, or let go on.
        held: bool,
        /// When.
        at: Micros,
    },
    /// A task goes on at this time at the earliest.
    TaskDeferred {
        /// Its id.
        task: TaskId,
        /// When.
        until: Micros,
    },
    /// A failed task becomes a dead letter.
    LetterPut {
        /// The task.
        task: TaskId,
        /// What is kept of it.
        letter: Letter,
        /// The failure's code.
        code: String,
        /// What the user was told.
        text: String,
        /// What the operator is told.
        detail: String,
        /// When.
        at: Micros,
    },
    /// A dead letter is to be tried again, if it still waits.
    LetterDue {
        /// The task that failed.
        task: TaskId,
        /// From when on.
        at: Micros,
    },
    /// A dead letter moves on, if it still waits.
    LetterMoved {
        /// The task that failed.
        task: TaskId,
        /// What the letter is now.
        state: LetterState,
        /// The task that tries again.
        retry: Option<TaskId>,
        /// When.
        at: Micros,
    },
    /// A long-running operation is under way.
    OperationOpened {
        /// Its id.
        operation: Operation,
        /// In which task.
        task: TaskId,
        /// Of which run.
        intent: IntentId,
        /// Of which skill.
        skill: String,
        /// When.
        at: Micros,
    },
    /// Its result came, or its time is up: the task that tells of it.
    OperationClosed {
        /// Its id.
        operation: OperationId,
        /// The task.
        by: TaskId,
        /// When.
        at: Micros,
    },
    /// A final word to deliver.
    OutboxPut {
        /// Its id.
        id: OutboxId,
        /// About which task.
        task: TaskId,
        /// What is said.
        text: String,
        /// When.
        at: Micros,
    },
}

/// What one event changes.
#[must_use]
pub fn changes(event: &NewEvent) -> Vec<Change> {
    let (task, at) = (event.task, event.at);
    let moved = |state, error| Change::TaskMoved { task, state, error, at };
    let said = |text: &str| Change::OutboxPut { id: OutboxId::for_task(task), task, text: text.to_owned(), at };
    match &event.body {
        EventBody::Received(inbound) => received(task, inbound, at),
        EventBody::TurnStarted { .. } => vec![moved(TaskState::Running, None)],
        EventBody::ModelReplied { calls, .. } => planned(task, calls, at),
        EventBody::SkillStarted { intent, .. } => vec![Change::IntentStarted { intent: *intent, at }],
        EventBody::SkillFinished { intent, skill, outcome, .. } => {
            let state = if outcome.status == Status::Unknown { IntentState::Unknown } else { IntentState::Done };
            let closed = Change::IntentClosed { intent: *intent, state, at };
            let opened = outcome.operation.map(|operation| Change::OperationOpened {
                operation,
                task,
                intent: *intent,
                skill: skill.clone(),
                at,
            });
            std::iter::once(closed).chain(opened).collect()
        }
        EventBody::Answered { text, paused, outcome, finish, .. } => {
            let word = outcome.word(*paused, *finish);
            let word = (word != AnswerOutcome::DONE).then(|| word.to_owned());
            vec![moved(TaskState::Completed, word), said(text)]
        }
        EventBody::Failed { code, text, detail, letter } => {
            let put = letter.clone().map(|letter| Change::LetterPut {
                task,
                letter,
                code: code.clone(),
                text: text.clone(),
                detail: detail.clone(),
                at,
            });
            [moved(TaskState::Failed, Some(code.clone())), said(text)].into_iter().chain(put).collect()
        }
        EventBody::Suspended { .. } => vec![Change::TaskHeld { task, held: true, at }],
        EventBody::Continued { .. } => vec![Change::TaskHeld { task, held: false, at }],
        EventBody::Reprioritised { priority, .. } => vec![Change::TaskReprioritised { task, priority: *priority }],
        EventBody::Deferred { until, .. } => vec![Change::TaskDeferred { task, until: *until }],
        EventBody::LetterDue { .. } => vec![Change::LetterDue { task, at }],
        EventBody::LetterMoved { state, .. } => {
            let moved = Change::LetterMoved { task, state: *state, retry: None, at };
            // Who was told that it is tried again is told that it is not.
            let given_up = (*state == LetterState::Archived).then(|| Change::OutboxPut {
                id: OutboxId::for_letter(task),
                task,
                text: GIVEN_UP.to_owned(),
                at,
            });
            std::iter::once(moved).chain(given_up).collect()
        }
        EventBody::Cancelled { text } => vec![moved(TaskState::Cancelled, None), said(text)],
        EventBody::Joined { .. }
        | EventBody::ModelFailed { .. }
        | EventBody::InterfaceChanged { .. }
        | EventBody::RoundBegan { .. }
        | EventBody::RoundNotBegun { .. }
        | EventBody::AgentStarted { .. }
        | EventBody::AgentReported { .. }
        | EventBody::CancelRequested { .. }
        | EventBody::Decided { .. }
        | EventBody::ResultsGiven
        | EventBody::DeadlinePassed { .. }
        | EventBody::Retried { .. }
        | EventBody::Ordered { .. }
        | EventBody::Resumed { .. } => Vec::new(),
    }
}

fn planned(task: TaskId, calls: &[ResolvedCall], at: Micros) -> Vec<Change> {
    let skills = calls.iter().filter_map(|call| match &call.action {
        Action::Skill(planned) if planned.effect != Effect::Read => Some(planned),
        _ => None,
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
        is_order: inbound.order,
        is_steer: inbound.steer,
        joins: inbound.same_as,
        stateless: inbound.stateless,
        at,
    };
    let retried = inbound.retry.as_ref().map(|retry| Change::LetterMoved {
        task: retry.of,
        state: LetterState::Retried,
        retry: Some(task),
        at,
    });
    let closed = inbound.resumes.map(|operation| Change::OperationClosed { operation, by: task, at });
    std::iter::once(opened).chain(retried).chain(closed).collect()
}

/// SHA-256 of a message's text.
#[must_use]
pub fn text_sha256(text: &str) -> [u8; 32] {
    use sha2::{Digest, Sha256};
    Sha256::digest(text.as_bytes()).into()
}

/// The first 80 characters of the first line that has any.
#[must_use]
pub fn title_of(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default();
    line.chars().take(80).collect()
}
