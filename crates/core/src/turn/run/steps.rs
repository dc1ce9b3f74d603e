//! The run of an agent whose calls come from a workflow in place of a model (ADR 0057). The prompts of a model are not needed, so
//! the context stays as it began.

use super::{AgentRun, Ending, OpenCall, Reply};
use crate::{
    context::Frames,
    event::{AgentReport, PlannedSkill, PromptFacts, Retry},
    ids::AgentId,
    message::{Finish, ModelReply, ToolCall, Usage},
    outcome::Outcome,
    receipt::Extent,
    skill::Effect,
    turn::calls::{DONE_ALREADY, IN_DOUBT, REFUSED},
    workflow::{CallWork, Next, StepCall, StepDone, StepOutcome, StepResult, WORKFLOW, WorkflowBefore, WorkflowRun},
};

/// The tools of a workflow. Its calls are resolved by these names.
pub(in crate::turn) const RUN_SKILL: &str = "use_skill";
pub(in crate::turn) const DISPATCH: &str = "dispatch_agent";
pub(in crate::turn) const COLLECT: &str = "get_agent_results";

impl AgentRun {
    /// Begins the workflow of the turn, if it has one. In a retry it has the time and the effects of the attempts before.
    pub(in crate::turn) fn begin_workflow(&mut self, facts: &PromptFacts, retry: Option<&mut Retry>) {
        let Some(start) = &facts.workflow else { return };
        // The results move into the run, so that the state does not hold them twice.
        let before =
            retry.map(|retry| retry.workflow.take().map_or_else(|| of_receipts(retry, facts), |before| *before));
        let WorkflowBefore { now, done } =
            before.unwrap_or_else(|| WorkflowBefore { now: facts.local_now.clone(), done: Vec::new() });
        let run = WorkflowRun::begin(start, &now, &self.frames).with_done_before(done);
        // The author of the file named what it contains.
        self.provenance.add_trusted_text(&start.definition);
        self.provenance.note_pasted_values(&serde_json::from_str(&start.arguments).unwrap_or_default());
        // A value whose author had read text of others brings those texts into the run.
        for origin in start.state.values().flat_map(|value| &value.origin) {
            self.provenance.has_read(origin);
        }
        self.workflow = Some(Box::new(run));
    }

    /// The reply of the current round, if it comes from a workflow.
    #[must_use]
    pub fn workflow_reply(&self) -> Option<ModelReply> {
        self.workflow.as_ref().map(|run| reply(run))
    }

    /// Folds a reply of the workflow. What the reply says holds, also if the rules have changed since it was recorded.
    pub(super) fn step_replied(&mut self, reply: &Reply<'_>) {
        let text = reply.text.to_owned();
        if !reply.calls.is_empty() {
            self.admit(reply.calls, reply.judged);
        } else if reply.declined {
            self.end(Ending::StepFailed(text));
        } else {
            self.end(Ending::Output(text));
        }
    }

    /// Takes the outcome of a skill run that the workflow requested.
    pub(in crate::turn) fn step_finished(&mut self, call_id: &str, outcome: &Outcome) {
        if let Some(run) = &mut self.workflow {
            run.finished(call_id, StepResult::of_skill(outcome));
        }
    }

    /// Takes the result of an earlier attempt for a call of the workflow, which is not made again.
    pub(in crate::turn) fn step_done_before(&mut self, call_id: &str, planned: &PlannedSkill) {
        let Some(run) = &mut self.workflow else { return };
        run.finished_before(call_id, &planned.skill, &planned.arguments);
        // A text that was read remains one.
        if planned.effect == Effect::Read || planned.external || planned.skill.starts_with("mcp.") {
            self.provenance.has_read(&planned.skill);
        }
    }

    /// Takes the report of a sub-agent that the workflow requested.
    pub(in crate::turn) fn step_reported(&mut self, agent: &AgentId, report: &AgentReport) {
        if let Some(run) = &mut self.workflow {
            run.agent_reported(agent.as_str(), report);
        }
    }

    /// Goes on to the next step once all calls have results. A call that was not made has its text as the result.
    pub(super) fn step_settled(&mut self, calls: &[OpenCall]) {
        let frames: Frames = self.frames.clone();
        let Some(run) = &mut self.workflow else { return };
        for open in calls {
            let text = open.result.clone().unwrap_or_default();
            let (outcome, error) = if text.starts_with(DONE_ALREADY) {
                (StepOutcome::Ok, "")
            } else if text.starts_with(IN_DOUBT) {
                (StepOutcome::Unknown, "in_doubt")
            } else if text.starts_with(REFUSED) {
                (StepOutcome::Denied, "denied")
            } else if open.refused {
                (StepOutcome::Failed, "call_limit")
            } else {
                (StepOutcome::Failed, "invalid_call")
            };
            // The acceptance of a dispatch is not the result of its agent.
            run.finished(&open.call.id, StepResult::new(outcome, error, text));
        }
        run.settle(&frames);
        self.next_round();
    }
}

/// What an older message of a retry says about the steps: of each result it has the first line.
fn of_receipts(retry: &Retry, facts: &PromptFacts) -> WorkflowBefore {
    let done = retry.receipts.iter().filter(|receipt| receipt.extent != Extent::Partial);
    let done = done.map(|receipt| {
        let outcome = if receipt.extent == Extent::Accepted { StepOutcome::Pending } else { StepOutcome::Ok };
        StepDone { call: receipt.call.clone(), result: StepResult::new(outcome, "", receipt.summary()) }
    });
    WorkflowBefore { now: facts.local_now.clone(), done: done.collect() }
}

fn reply(run: &WorkflowRun) -> ModelReply {
    let (text, tool_calls, declined) = match run.next() {
        Next::Calls(calls, why) => (why.to_owned(), tool_calls(calls), false),
        Next::Answer(text) => (text.to_owned(), Vec::new(), false),
        Next::Fail(why) => (why.to_owned(), Vec::new(), true),
    };
    ModelReply {
        text,
        finish: if tool_calls.is_empty() { Finish::Stop } else { Finish::ToolCalls },
        tool_calls,
        usage: Usage::default(),
        model: run.workflow.name.clone(),
        declined,
        provider_state: None,
        repairs: Vec::new(),
        cached: false,
    }
}

fn tool_calls(calls: &[StepCall]) -> Vec<ToolCall> {
    let mut made = Vec::new();
    let mut agents = Vec::new();
    for call in calls {
        let (name, arguments) = match &call.work {
            CallWork::Skill { skill, args } => (RUN_SKILL, serde_json::json!({"skill": skill, "arguments": args})),
            CallWork::Agent { agent, mission, skills, calls_max, effort } => {
                agents.push(agent.clone());
                let arguments = serde_json::json!({
                    "agent_id": agent, "mission": mission, "skills": skills, "max_tool_calls": calls_max,
                    "effort": effort,
                });
                (DISPATCH, arguments)
            }
        };
        made.push(ToolCall { id: call.id.clone(), name: name.to_owned(), arguments: arguments.to_string() });
    }
    if let Some(first) = calls.first().filter(|_| !agents.is_empty()) {
        let arguments = serde_json::json!({ "agent_ids": agents }).to_string();
        made.push(ToolCall { id: format!("{}:{WORKFLOW}", first.id), name: COLLECT.to_owned(), arguments });
    }
    made
}
