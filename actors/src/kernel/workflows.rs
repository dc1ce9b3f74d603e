//! Workflows for front ends: what the files define, a run, and its state.

use annie_core::{
    event::{EventBody, FinalEvent, Priority, Scope},
    ids::{ConversationId, TaskId, UserId},
    inbound::FORK,
    ports::{TaskRow, WorkflowFile},
    replay::Replay,
    workflow::{ShownWorkflow, WORKFLOW, WORKFLOW_NOT_STARTED, WorkflowProblem, problems_with},
};
use serde_json::{Map, Value};

use super::{Kernel, KernelError, PAGE_MAX, Submission, Submitted, replay::RUNNING};
use crate::effects::start_of;

/// The longest key of a run, in bytes.
const KEY_BYTES_MAX: usize = 100;

/// A workflow and what is wrong with it.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownWorkflow {
    /// The file.
    pub file: WorkflowFile,
    /// The problems of the file: also another command with its name, and the skills that it names and that do not exist now.
    pub problems: Vec<WorkflowProblem>,
}

/// A request to run a workflow.
#[derive(Debug, Clone, Default)]
pub struct RunWorkflow {
    /// The workflow.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// The idempotency key; without one, a repeat is a new run.
    pub key: Option<String>,
    /// Only local backends may run its agents.
    pub private: bool,
    /// The front end that requests it: rules about this channel hold for the run.
    pub channel: String,
}

/// The state of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowState {
    /// Its task.
    pub task: TaskRow,
    /// The run. A run whose turn has not begun has no steps.
    pub run: ShownWorkflow,
    /// Whether a call waits for a person.
    pub awaits_approval: bool,
}

impl Kernel {
    /// All workflows, sorted by name.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub async fn workflows(&self) -> Result<Vec<KnownWorkflow>, KernelError> {
        let files = self.wiring.workflows.all().await.map_err(KernelError::Unavailable)?;
        Ok(files.into_iter().map(|file| self.known_workflow(file)).collect())
    }

    /// One workflow.
    ///
    /// # Errors
    /// If there is no file of this name.
    pub async fn workflow(&self, name: &str) -> Result<KnownWorkflow, KernelError> {
        let file = self.wiring.workflows.find(name).await.ok_or(KernelError::NotFound("workflow"))?;
        Ok(self.known_workflow(file))
    }

    fn known_workflow(&self, file: WorkflowFile) -> KnownWorkflow {
        let problems = match &file.read {
            Ok(workflow) => problems_with(workflow, &self.wiring.catalog.skills()),
            Err(problems) => problems.clone(),
        };
        KnownWorkflow { file, problems }
    }

    /// Starts a run of a workflow as a task of class normal in a conversation of its own. A repetition with the same key is the same
    /// run.
    ///
    /// # Errors
    /// If there is no such workflow, its file or the arguments have problems, the key is not valid or was used with other
    /// arguments, or the message cannot be accepted.
    pub async fn run_workflow(&self, user: UserId, asked: RunWorkflow) -> Result<Submitted, KernelError> {
        let RunWorkflow { name, arguments, key, private, channel } = asked;
        let text = if arguments.is_empty() { String::new() } else { Value::Object(arguments).to_string() };
        let key = match key.filter(|key| !key.is_empty()) {
            Some(key) if key.len() > KEY_BYTES_MAX => {
                return Err(KernelError::Invalid(format!("the key has at most {KEY_BYTES_MAX} bytes")));
            }
            Some(key) => key,
            None => self.wiring.env.uuid().to_string(),
        };
        let id = format!("{FORK}:{WORKFLOW}:{key}");
        // A repetition is answered like the first request, whatever has become of the file.
        if self.wiring.store.message(user.clone(), id.clone()).await?.is_none() {
            let file = self.wiring.workflows.find(&name).await.ok_or(KernelError::NotFound("workflow"))?;
            start_of(&self.wiring, file, &text, false).map_err(KernelError::Invalid)?;
        }
        let source = format!("{FORK}:{name}");
        let message = Submission {
            conversation: Some(ConversationId::for_key(&user, &id)),
            client_id: Some(id),
            priority: Some(Priority::Normal),
            private,
            channel,
            verbatim: true,
            ..Submission::new(user, &source, format!("/{name} {text}").trim_end())
        };
        self.accept(message).await
    }

    /// The state of a run, from the log of its conversation.
    ///
    /// # Errors
    /// If the scope sees no such task, the task carries out no workflow, or the store fails.
    pub async fn workflow_run(&self, scope: Scope, id: TaskId) -> Result<WorkflowState, KernelError> {
        let mut task = self.task(scope.clone(), id).await?;
        let _running = RUNNING.acquire().await.map_err(|_| KernelError::NotReady("it is shutting down".to_owned()))?;
        let mut replay = Replay::new(task.conversation, task.user.clone());
        let (mut ended, mut called, mut failure) = (None, None, None);
        // The task may end after its log was read. Then the rest of the log is read, so that status and steps agree.
        for _ in 0..2 {
            loop {
                let page = self.wiring.store.events(Scope::Operator, task.conversation, replay.seq(), PAGE_MAX).await?;
                if page.is_empty() {
                    break;
                }
                for event in &page {
                    if event.task == id
                        && let EventBody::Received(inbound) = &event.body
                    {
                        called = name_called(&inbound.text);
                    }
                    if event.task == id && event.body.is_final() {
                        ended = shown(&replay, id).map(ShownWorkflow::at_its_end);
                        failure = not_started(&event.body);
                    }
                    replay.see(event);
                }
                tokio::task::yield_now().await;
            }
            task = self.task(scope.clone(), id).await?;
            if !task.state.is_ended() || ended.is_some() || failure.is_some() {
                break;
            }
        }
        let awaits_approval = replay.state().open_approvals().any(|(task, _)| task == id);
        let run = match ended.or_else(|| shown(&replay, id)) {
            Some(run) => run,
            // The turn has not begun.
            None => match (called, failure) {
                (Some(name), Some(failure)) => ShownWorkflow::without_steps(name, failure),
                (Some(name), None) if !task.state.is_ended() && self.wiring.workflows.find(&name).await.is_some() => {
                    ShownWorkflow::without_steps(name, String::new())
                }
                _ => return Err(KernelError::NotFound("run of a workflow")),
            },
        };
        Ok(WorkflowState { task, run, awaits_approval })
    }
}

/// The name that a message calls: `brief` of `/brief --topic milk`.
fn name_called(text: &str) -> Option<String> {
    text.strip_prefix('/').and_then(|text| text.split_whitespace().next().map(str::to_owned))
}

/// Why the workflow of a message was not started, if this is its final event.
fn not_started(end: &EventBody) -> Option<String> {
    match end.as_final() {
        Some(FinalEvent::Failed { code, text, .. }) if code == WORKFLOW_NOT_STARTED => Some(text.to_owned()),
        _ => None,
    }
}

fn shown(replay: &Replay, task: TaskId) -> Option<ShownWorkflow> {
    replay.state().turn(task)?.main.workflow.as_ref().map(|run| run.shown())
}
