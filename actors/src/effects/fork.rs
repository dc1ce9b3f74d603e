//! Starts the work of a prompt skill with `context: fork` as a new task in a new conversation [S1 Fork]. The message of the task
//! is `/name` with the arguments, so its turn gets the instructions as if a user had sent that message. The address of the message
//! is the conversation that started the task, so the result is reported there (`actors/src/fork_reports.rs`).
//!
//! The id of the task's message is derived from the intent of the call, so a call that is repeated after a crash starts no second
//! task.

use annie_core::{
    event::{Inbound, PlannedSkill, Priority},
    fork_report::ForkCaller,
    ids::{ConversationId, TaskId, UserId},
    inbound::FORK,
    outcome::Outcome,
    skill::{PromptContext, SkillChange, SkillFormat},
    turn::AgentView,
};
use serde_json::json;

use super::SkillDone;
use crate::{
    agent::AnswerWithoutTurn,
    kernel::{KernelError, Submission, accept_message},
    wiring::Wiring,
};

/// What the forked task inherits from its caller: an agent, or a user's message.
pub(crate) struct ForkedBy {
    user: UserId,
    /// Where the result is reported; `None` if a command without a conversation starts the task.
    caller: Option<ForkCaller>,
    is_private: bool,
    channel: String,
    /// The agent belongs to a forked task. A forked task forks no further tasks, so forks do not nest.
    is_forked: bool,
    /// The origins of what the agent has read. Its arguments may come from there.
    origins: Vec<String>,
    /// The tasks for whose end the message waits, if the fork answers it before its own turn can wait for them.
    after: Vec<TaskId>,
}

impl ForkedBy {
    pub fn of(view: AgentView<'_>) -> Self {
        Self {
            user: view.user().clone(),
            caller: Some(ForkCaller { conversation: view.conversation(), task: view.task() }),
            is_private: view.is_private(),
            channel: view.channels().into_iter().next().unwrap_or_default(),
            is_forked: is_fork(&view.facts().channel),
            origins: view.origins().to_vec(),
            // The agent has had a round, so they have ended.
            after: Vec::new(),
        }
    }

    /// The fork of a message that calls a skill or a workflow by its name.
    fn of_message(user: &UserId, caller: ForkCaller, inbound: &Inbound, origins: Vec<String>) -> Self {
        Self {
            user: user.clone(),
            caller: Some(caller),
            is_private: inbound.private,
            channel: inbound.channel().to_owned(),
            is_forked: false,
            origins,
            after: inbound.after.clone(),
        }
    }
}

fn is_fork(source: &str) -> bool {
    source.strip_prefix(FORK).is_some_and(|rest| rest.starts_with(':'))
}

/// If the outcome requests a fork, starts the task and returns its id as the outcome. In a forked task, the skill begins in the
/// running turn instead.
pub(crate) async fn fork_if_requested(wiring: &Wiring, mut done: SkillDone, by: ForkedBy) -> SkillDone {
    let change = done.outcome.as_ref().and_then(|outcome| outcome.skill_change.as_deref().cloned());
    let Some(SkillChange::Fork(active)) = change else { return done };
    done.outcome = if by.is_forked {
        done.outcome.map(|outcome| outcome.with_skill_change(SkillChange::Begin(active)))
    } else {
        Some(spawned(&done.request.skill, start_task(wiring, &done.request.skill, by).await))
    };
    done
}

fn spawned(planned: &PlannedSkill, started: Result<TaskId, KernelError>) -> Outcome {
    match started {
        Ok(task) => {
            let status = json!({"task_id": task, "status": "spawned"});
            let text = format!(
                "{status}\nThe work goes on in the background, and its result is reported in this conversation. Do not wait for \
                 it."
            );
            Outcome::success(text).with_evidence(json!({"skill": planned.skill, "task": task}))
        }
        Err(error) => {
            let text = format!("{} could not be started as a task: {error}.", planned.skill);
            match error {
                KernelError::Invalid(_) | KernelError::InvalidField { .. } => {
                    Outcome::permanent("invalid_arguments", text)
                }
                _ => Outcome::transient("not_spawned", text),
            }
        }
    }
}

/// Starts the task of a prompt skill that a user called by `/name`, and returns the answer to the message. Returns `None` if the
/// skill runs in the turn of the message. It always does so if a program requested a format or sends its own history, because
/// that program waits for the result.
pub(crate) async fn fork_called(
    wiring: &Wiring,
    user: &UserId,
    at: ForkCaller,
    inbound: &Inbound,
    called: &PlannedSkill,
) -> Option<AnswerWithoutTurn> {
    let skills = wiring.catalog.skills();
    let format = &skills.get(&called.skill)?.format;
    let has_fork_context = matches!(format, SkillFormat::Prompt { context: PromptContext::Fork, .. });
    // A retry can only be a retry of the forked task: the message that started the task was answered at once, so it cannot have
    // failed.
    let is_the_task = inbound.is_forked() || inbound.retry.is_some();
    if !has_fork_context || is_the_task || inbound.thread().is_some() || inbound.format().is_some() {
        return None;
    }
    Some(match start_task(wiring, called, ForkedBy::of_message(user, at, inbound, Vec::new())).await {
        Ok(task) => AnswerWithoutTurn {
            text: format!("{} is spawned as background task {task}. You are notified when it ends.", called.skill),
            is_done: true,
        },
        Err(error) => AnswerWithoutTurn {
            text: format!("{} could not be started: {error}. Send the message again.", called.skill),
            is_done: false,
        },
    })
}

/// Starts the task of a prompt skill that a user runs by command. A repetition under the same intent starts no second task.
pub(crate) async fn fork_by_command(
    wiring: &Wiring,
    user: UserId,
    channel: String,
    called: &PlannedSkill,
) -> Result<Outcome, KernelError> {
    let (origins, after) = (called.origin.clone(), Vec::new());
    let by = ForkedBy { user, caller: None, is_private: false, channel, is_forked: false, origins, after };
    let task = start_task(wiring, called, by).await?;
    let text = format!("{} is spawned as background task {task}. You are notified when it ends.", called.skill);
    let evidence = json!({"skill": called.skill, "task_id": task, "status": "spawned"});
    Ok(Outcome::success(text).with_evidence(evidence))
}

/// Starts the task of a workflow that a user called by `/name`, and returns the answer to the message.
pub(super) async fn fork_workflow(
    wiring: &Wiring,
    user: &UserId,
    at: ForkCaller,
    inbound: &Inbound,
    called: &PlannedSkill,
) -> AnswerWithoutTurn {
    match start_task(wiring, called, ForkedBy::of_message(user, at, inbound, inbound.origins.clone())).await {
        Ok(task) => {
            let name = &called.skill;
            let text = format!(
                "The workflow {name} is started as background task {task}. You are notified when it ends; `annie workflows show \
                 {task}` shows its steps."
            );
            AnswerWithoutTurn { text, is_done: true }
        }
        Err(error) => {
            let text = format!("The workflow {} could not be started: {error}. Send the message again.", called.skill);
            AnswerWithoutTurn { text, is_done: false }
        }
    }
}

async fn start_task(wiring: &Wiring, planned: &PlannedSkill, by: ForkedBy) -> Result<TaskId, KernelError> {
    let arguments = planned.arguments["args"].as_str().unwrap_or_default();
    let text = format!("/{} {arguments}", planned.skill);
    let (id, source) = (format!("{FORK}:{}", planned.intent), format!("{FORK}:{}", planned.skill));
    let message = Submission {
        conversation: Some(ConversationId::for_key(&by.user, &id)),
        client_id: Some(id),
        priority: Some(Priority::Normal),
        private: by.is_private,
        verbatim: true,
        channel: by.channel,
        origins: by.origins,
        after: by.after,
        reply_to: by.caller.map(ForkCaller::address),
        is_fork: true,
        ..Submission::new(by.user, &source, text.trim_end())
    };
    accept_message(wiring, message).await.map(|submitted| submitted.task)
}
