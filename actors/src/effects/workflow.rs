//! Begins workflows (ADR 0057). A message `/name arguments` starts a task of its own, as a forked prompt skill does; in that task the
//! turn carries out the steps.

use annie_core::{
    event::{Inbound, Mode, PlannedSkill, PromptFacts},
    fork_report::ForkCaller,
    ids::{AgentId, IntentId, UserId},
    limits::{MainInterface, TurnLimits},
    message::ModelReply,
    ports::WorkflowFile,
    skill::{Effect, is_kernel_command},
    workflow::{WORKFLOW, WorkflowProblem, WorkflowStart, problems_with},
};
use serde_json::json;

use super::{
    fork::fork_workflow,
    model::{ModelDone, Waits},
};
use crate::{
    agent::AnswerWithoutTurn,
    scheduler::{PermitRequest, RequestHandle, wait_to_work},
    wiring::Wiring,
};

/// What a message that calls a workflow leads to.
pub(crate) enum CalledWorkflow {
    /// The answer to the message: a task was started, or why none was.
    Answer(AnswerWithoutTurn),
    /// The task was started for a workflow that cannot be started any more, for this reason.
    Fails(String),
    /// The turn of the message carries out the workflow.
    Begins(Box<WorkflowStart>),
}

/// The name and the arguments in `/name arguments`.
fn call_in(text: &str) -> Option<(&str, &str)> {
    let call = text.strip_prefix('/')?;
    let (name, arguments) = call.split_once(char::is_whitespace).unwrap_or((call, ""));
    (!name.is_empty()).then(|| (name, arguments.trim()))
}

/// What the message leads to if it calls a workflow.
pub(crate) async fn called_workflow(
    wiring: &Wiring,
    user: &UserId,
    at: ForkCaller,
    inbound: &Inbound,
) -> Option<CalledWorkflow> {
    if inbound.outside_text().is_some() || inbound.thread().is_some_and(|thread| !thread.with_skills) {
        return None;
    }
    let (name, arguments) = call_in(&inbound.text)?;
    if is_kernel_command(&format!("/{name}")) {
        return None;
    }
    // The file may have changed since the task was accepted, or since its first attempt. No model is to guess what it meant.
    let retry = inbound.retry.as_ref();
    let was_found = inbound.is_forked() || retry.is_some_and(|retry| retry.is_forked || retry.workflow.is_some());
    let is_the_task = inbound.is_forked() || retry.is_some();
    let start = match wiring.workflows.find(name).await {
        Some(file) => start_of(wiring, file, arguments, is_the_task),
        None if was_found => Err(format!("There is no workflow or skill {name} any more, so it was not started.")),
        None => return None,
    };
    let start = match start {
        Ok(start) => start,
        Err(why) if was_found => return Some(CalledWorkflow::Fails(why)),
        Err(text) => return Some(CalledWorkflow::Answer(AnswerWithoutTurn { text, is_done: false })),
    };
    // As for prompt skills, a program that waits for the result gets it in the turn of its message.
    if is_the_task || inbound.thread().is_some() || inbound.format().is_some() {
        return Some(CalledWorkflow::Begins(Box::new(start)));
    }
    let called = PlannedSkill {
        intent: IntentId::for_call(at.task, &AgentId::orchestrator(), WORKFLOW),
        skill: name.to_owned(),
        arguments: json!({"args": arguments}),
        effect: Effect::Once,
        external: false,
        timeout_ms: 0,
        origin: Vec::new(),
    };
    Some(CalledWorkflow::Answer(fork_workflow(wiring, user, at, inbound, &called).await))
}

/// The start of a run. `is_accepted` says that its task exists: after a restart, the MCP servers may not be connected yet when it
/// begins.
///
/// # Errors
/// What is wrong with the file or the arguments, for people.
pub(crate) fn start_of(
    wiring: &Wiring,
    file: WorkflowFile,
    arguments: &str,
    is_accepted: bool,
) -> Result<WorkflowStart, String> {
    let refused = |problems: &[WorkflowProblem]| {
        let lines: Vec<String> = problems.iter().map(|problem| format!("- {problem}")).collect();
        let name = &file.name;
        format!("The file workflows/{name}.md has problems, so the workflow was not started:\n{}", lines.join("\n"))
    };
    let workflow = file.read.as_ref().map_err(|problems| refused(problems))?;
    let mut problems = problems_with(workflow, &wiring.catalog.skills());
    problems.retain(|problem| !is_accepted || !problem.is_about_mcp());
    if !problems.is_empty() {
        return Err(refused(&problems));
    }
    workflow.start(arguments, &wiring.limits.workflow)
}

/// Mode, facts and limits of a turn that carries out a workflow. Its bound is the number of calls of the run.
pub(crate) fn with_workflow(
    facts: PromptFacts,
    limits: TurnLimits,
    start: Box<WorkflowStart>,
) -> (Mode, PromptFacts, TurnLimits) {
    let calls_max = start.limits.calls_max;
    let limits = TurnLimits {
        main_interface: MainInterface::Tools,
        agents_max: limits.agents_max.max(calls_max),
        skill_calls_max: limits.skill_calls_max.max(calls_max),
        single_loop_calls_max: calls_max,
        window_calls_max: limits.window_calls_max.max(calls_max),
        ..limits
    };
    // No model reads the list of skills; the agents of steps have their own.
    let (skills, domains, manual) = (String::new(), Vec::new(), Vec::new());
    (Mode::Direct, PromptFacts { workflow: Some(start), skills, domains, manual, ..facts }, limits)
}

/// A round whose reply comes from a workflow.
pub(crate) struct StepRound {
    /// The task as it would ask for a permit. Its route is not used.
    pub request: PermitRequest,
    pub round: u32,
    pub reply: ModelReply,
    pub handle: RequestHandle,
    pub waits: Waits,
}

/// Waits until the task may work, and hands the reply in. The task waits for no permit, but for the tasks that it depends on.
pub(crate) async fn step_round(wiring: &Wiring, step: StepRound) -> ModelDone {
    let task = step.request.task;
    wait_to_work(&wiring.scheduler, step.request, &step.handle).await;
    let waited_ms = step.waits.end(wiring.env.now());
    metrics::counter!("annie_workflow_steps_total").increment(1);
    ModelDone::of_workflow(task, step.round, step.reply, waited_ms)
}
