//! Workflows: what the files define, and their runs.

use annie_actors::{KnownWorkflow, RunWorkflow, WorkflowState};
use annie_core::{
    ids::{ConversationId, TaskId},
    ports::TaskState,
    workflow::{ShownStep, Workflow as Definition, WorkflowProblem},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::row::{
    Call, Operation,
    Verb::{Get, Post},
    route,
};
use crate::{
    auth::{
        KeyScope::{Chat, JobsRead},
        Need::Scope,
    },
    error::ApiError,
    grpc::{
        convert::{self, path_id},
        v1,
    },
    http::{
        extract::{Body, Id, Name},
        messages::Accepted,
        schema,
    },
};

/// The operations on workflows.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/workflows", Scope(JobsRead), list_workflows, Workflows::from)
            .about("list_workflows", "workflows", "List the workflows.", "workflows list")
            .rpc("/annie.v1.Workflows/List", |_: v1::ListWorkflowsRequest| Ok(()), listed),
        route(Get, "/api/v1/workflows/{name}", Scope(JobsRead), get_workflow, Workflow::from)
            .about("get_workflow", "workflows", "Get a workflow.", "workflows show")
            .rpc("/annie.v1.Workflows/Get", |r: v1::GetWorkflowRequest| Ok(Name(r.name)), message_of),
        route(Post, "/api/v1/workflows/{name}/run", Scope(Chat), run_workflow, Accepted::from)
            .about("run_workflow", "workflows", RUN, "workflows run")
            .rpc("/annie.v1.Workflows/Run", asked_run, convert::submitted),
        route(Get, "/api/v1/workflow-runs/{id}", Scope(JobsRead), get_workflow_run, WorkflowRun::from)
            .about("get_workflow_run", "workflows", "Get the state of a run of a workflow.", "workflows show")
            .rpc("/annie.v1.Workflows/Show", |r: v1::GetWorkflowRunRequest| path_id("task_id", &r.task_id), state_of),
    ]
}

const RUN: &str = "Run a workflow as a task in a conversation of its own.";

/// A workflow.
#[derive(Debug, Serialize, ToSchema)]
pub struct Workflow {
    /// The name of its file.
    name: String,
    description: String,
    /// One line of usage; empty if the file has problems.
    synopsis: String,
    /// The JSON Schema of its arguments; absent if the file cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    schema: Option<Value>,
    /// What is wrong with it. A workflow whose file has problems is not run.
    problems: Vec<String>,
    /// The names of its steps in the order of the file.
    steps: Vec<String>,
}

fn steps_of(workflow: &Definition) -> Vec<String> {
    // The steps at the end of loops have no names of the file.
    workflow.steps.iter().map(|step| step.id.clone()).filter(|id| !id.contains('.')).collect()
}

impl From<KnownWorkflow> for Workflow {
    fn from(KnownWorkflow { file, problems }: KnownWorkflow) -> Self {
        let read = file.read.ok();
        Self {
            name: file.name,
            description: file.description,
            synopsis: read.as_ref().map(|workflow| workflow.as_command().synopsis()).unwrap_or_default(),
            schema: read.as_ref().map(|workflow| workflow.as_command().schema()),
            problems: problems.iter().map(WorkflowProblem::to_string).collect(),
            steps: read.as_ref().map(steps_of).unwrap_or_default(),
        }
    }
}

fn message_of(known: KnownWorkflow) -> v1::Workflow {
    let Workflow { name, description, synopsis, schema, problems, steps } = Workflow::from(known);
    let schema_json = schema.map(|schema| schema.to_string()).unwrap_or_default();
    v1::Workflow { name, description, synopsis, problems, steps, schema_json }
}

/// The workflows of this installation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Workflows {
    /// By name.
    workflows: Vec<Workflow>,
}

impl From<Vec<KnownWorkflow>> for Workflows {
    fn from(all: Vec<KnownWorkflow>) -> Self {
        Self { workflows: all.into_iter().map(Into::into).collect() }
    }
}

fn listed(all: Vec<KnownWorkflow>) -> v1::ListWorkflowsResponse {
    v1::ListWorkflowsResponse { workflows: all.into_iter().map(message_of).collect() }
}

async fn list_workflows(call: Call, (): ()) -> Result<Vec<KnownWorkflow>, ApiError> {
    Ok(call.state.kernel.workflows().await?)
}

async fn get_workflow(call: Call, Name(name): Name) -> Result<KnownWorkflow, ApiError> {
    Ok(call.state.kernel.workflow(&name).await?)
}

/// How a workflow is run.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowStart {
    /// The arguments by name. Texts are converted to the declared types.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    arguments: Map<String, Value>,
    /// The idempotency key, at most 100 bytes: a repetition with the same key is the same run.
    #[serde(default)]
    #[schema(max_length = 100)]
    key: String,
    /// Only local backends may run its agents, and no skill that reaches other machines is run.
    #[serde(default)]
    private: bool,
}

fn asked_run(asked: v1::RunWorkflowRequest) -> Result<(Name, Body<WorkflowStart>), ApiError> {
    let v1::RunWorkflowRequest { name, arguments_json, key, private } = asked;
    let arguments = match arguments_json.trim() {
        "" => Map::new(),
        text => serde_json::from_str(text)
            .map_err(|error| ApiError::invalid(format!("arguments_json is no JSON object: {error}")))?,
    };
    Ok((Name(name), Body(WorkflowStart { arguments, key, private })))
}

async fn run_workflow(
    call: Call,
    (Name(name), Body(start)): (Name, Body<WorkflowStart>),
) -> Result<annie_actors::Submitted, ApiError> {
    let WorkflowStart { arguments, key, private } = start;
    let channel = call.channel.to_owned();
    let asked = RunWorkflow { name, arguments, key: Some(key), private, channel };
    Ok(call.state.kernel.run_workflow(call.caller.user.clone(), asked).await?)
}

/// A step of a run.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkflowStep {
    id: String,
    /// `skill tasks.search`, `agent`, `parallel`, `each …`, `loop` or `answer`.
    work: String,
    /// `pending`, `running`, `done`, `failed` or, if the run ended before the step had a result, `stopped`.
    state: &'static str,
    /// How often the step was reached; the passes of a loop.
    visits: u32,
    /// The last outcome: `ok`, `failed`, `denied`, `unknown`, `timeout`, `exhausted` or `pending`; empty before the first.
    outcome: String,
    /// The error code of the last outcome; empty if there is none.
    error: String,
    /// The beginning of the last result.
    text: String,
}

impl From<ShownStep> for WorkflowStep {
    fn from(step: ShownStep) -> Self {
        let ShownStep { id, work, state, visits, outcome, error, text } = step;
        Self { id, work, state: state.as_str(), visits, outcome, error, text }
    }
}

/// The state of a run.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkflowRun {
    #[schema(value_type = schema::TaskId)]
    task_id: TaskId,
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The name of the workflow.
    workflow: String,
    #[schema(value_type = schema::TaskState)]
    status: TaskState,
    /// The present step; empty if there is none.
    present: String,
    /// The number of calls so far.
    calls: u32,
    /// Why the run failed; empty if it did not.
    failure: String,
    /// Whether a call waits for a person: see the approvals.
    awaits_approval: bool,
    /// The steps in the order of the file; empty before the turn begins.
    steps: Vec<WorkflowStep>,
}

impl From<WorkflowState> for WorkflowRun {
    fn from(WorkflowState { task, run, awaits_approval }: WorkflowState) -> Self {
        Self {
            task_id: task.id,
            conversation_id: task.conversation,
            workflow: run.name,
            status: task.state,
            present: run.present,
            calls: run.calls,
            failure: run.failure,
            awaits_approval,
            steps: run.steps.into_iter().map(Into::into).collect(),
        }
    }
}

fn state_of(state: WorkflowState) -> v1::WorkflowRun {
    let status = convert::state_of(state.task.state).into();
    let run = WorkflowRun::from(state);
    let step = |step: WorkflowStep| {
        let WorkflowStep { id, work, state, visits, outcome, error, text } = step;
        v1::WorkflowStep { id, work, state: state.to_owned(), visits, outcome, error, text }
    };
    v1::WorkflowRun {
        task_id: run.task_id.to_string(),
        conversation_id: run.conversation_id.to_string(),
        workflow: run.workflow,
        status,
        present: run.present,
        calls: run.calls,
        failure: run.failure,
        awaits_approval: run.awaits_approval,
        steps: run.steps.into_iter().map(step).collect(),
    }
}

async fn get_workflow_run(call: Call, Id(id): Id<TaskId>) -> Result<WorkflowState, ApiError> {
    Ok(call.state.kernel.workflow_run(call.caller.scope(), id).await?)
}
