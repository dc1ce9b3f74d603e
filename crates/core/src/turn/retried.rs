//! The effects of a task before it failed. A retry of its dead letter receives them and does not repeat them (invariant 3).

#![deny(clippy::wildcard_enum_match_arm)]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::run::AgentRun;
use crate::{
    event::{Action, Event, EventBody, FinalEvent, HookAnswer, Inbound, PlannedSkill, PromptFacts, Retry},
    ids::{AgentId, IntentId, TaskId},
    outcome::{Outcome, Status},
    plan::first_line,
    receipt::Receipt,
    skill::Effect,
    time::Micros,
    workflow::{StepDone, StepResult, WorkflowBefore},
};

/// How many effects of each kind are carried into a retry; the newest are kept.
const EFFECTS_MAX: usize = 1_000;
/// How many bytes of results of steps are carried into a retry; of the further ones only the first line is. A run with the default
/// limits has at most three times as many.
const STEPS_BYTES_MAX: usize = 1024 * 1024;
/// The note to the model if an agentic backend worked on an earlier attempt, whose effects no receipt shows.
const PROGRAM_WORKED: &str = "[A program worked on an earlier try of this request, and what it did may have taken effect. Look what is \
     there already, and do only what is missing.]";

/// The effects of one task, of the turns that it continues, and of their sub-agents, collected from the events of its
/// conversation. The log has them even if no Engine survived to report them.
#[derive(Debug)]
pub struct TaskEffects {
    task: TaskId,
    of: BTreeMap<TaskId, Effects>,
}

/// The effects of one turn.
#[derive(Debug, Default)]
struct Effects {
    /// Planned runs without a result.
    open: BTreeMap<IntentId, OpenRun>,
    receipts: Vec<Receipt>,
    in_doubt: Vec<(String, Value)>,
    /// Rounds that began on an agentic backend.
    rounds_begun: BTreeSet<(AgentId, u32)>,
    /// An agentic backend worked on an earlier attempt.
    programs_ran: bool,
    /// The paused turn that this turn continued.
    continues: Option<TaskId>,
    /// The kernel started the task for a skill or a workflow that was called by its name.
    is_forked: bool,
    /// The workflow that the turn carries out, or an attempt before it.
    workflow: Option<WorkflowBefore>,
    steps: Steps,
}

/// A planned run without a result.
#[derive(Debug)]
struct OpenRun {
    planned: PlannedSkill,
    /// A breaker admitted it.
    is_begun: bool,
    /// If a step of a workflow requested it: its number among these calls, and the arguments before a hook changed them.
    step: Option<(u32, Value)>,
}

/// The effects of the steps of a workflow, by the order of their calls.
#[derive(Debug, Default)]
struct Steps {
    /// Set while the turn carries out a workflow: how many bytes of a result later steps may use.
    bytes_max: Option<usize>,
    calls: u32,
    done: BTreeMap<u32, StepDone>,
}

impl Steps {
    /// The next number of a call.
    fn number(&mut self) -> u32 {
        self.calls = self.calls.saturating_add(1);
        self.calls
    }

    /// The effects, after those of earlier attempts. Beyond [`STEPS_BYTES_MAX`] only the first line of a result is kept.
    fn after(self, mut before: WorkflowBefore) -> WorkflowBefore {
        before.done.extend(self.done.into_values());
        let mut bytes = 0_usize;
        for StepDone { result, .. } in &mut before.done {
            bytes = bytes.saturating_add(result.text.len()).saturating_add(result.evidence.to_string().len());
            if bytes > STEPS_BYTES_MAX {
                (result.text, result.evidence) = (first_line(&result.text), Value::Null);
            }
        }
        before
    }
}

impl TaskEffects {
    /// The effects of this task before any event is folded.
    #[must_use]
    pub const fn of(task: TaskId) -> Self {
        Self { task, of: BTreeMap::new() }
    }

    /// Folds the next event of the task's conversation.
    pub fn take(&mut self, event: &Event) {
        // Another turn that has ended without a pause cannot be continued.
        let has_ended = match event.body.as_final() {
            Some(FinalEvent::Answered { paused, .. }) => !paused,
            Some(FinalEvent::Failed { .. } | FinalEvent::Cancelled { .. }) => true,
            None => false,
        };
        if !has_ended || event.task == self.task {
            self.of.entry(event.task).or_default().take(event);
        } else {
            self.of.remove(&event.task);
        }
    }

    /// The retry of the task, with the effects that happened and those that may have happened, each kind oldest first. The
    /// first attempt failed at `since`.
    #[must_use]
    pub fn retry(mut self, since: Micros) -> Retry {
        let mut retry = Retry::of(self.task, since);
        if let Some(effects) = self.of.get_mut(&self.task) {
            retry.is_forked = effects.is_forked;
            let steps = std::mem::take(&mut effects.steps);
            retry.workflow = effects.workflow.take().map(|before| Box::new(steps.after(before)));
        }
        let mut next = Some(self.task);
        while let Some(effects) = next.and_then(|task| self.of.remove(&task)) {
            next = effects.continues;
            retry.programs_ran |= effects.programs_ran || !effects.rounds_begun.is_empty();
            retry.receipts.extend(effects.receipts);
            let begun = effects.open.into_values().filter(|run| run.is_begun);
            let begun = begun.map(|run| (run.planned.skill, run.planned.arguments));
            for doubt in effects.in_doubt.into_iter().chain(begun) {
                if !retry.in_doubt.contains(&doubt) {
                    retry.in_doubt.push(doubt);
                }
            }
        }
        let Retry { receipts, in_doubt, .. } = &mut retry;
        receipts.sort_by_key(|receipt| receipt.at);
        receipts.drain(..receipts.len().saturating_sub(EFFECTS_MAX));
        in_doubt.drain(..in_doubt.len().saturating_sub(EFFECTS_MAX));
        retry
    }
}

impl Effects {
    /// Takes the outcome of a run.
    fn ended(&mut self, OpenRun { planned, step, .. }: OpenRun, outcome: &Outcome, event: &Event) {
        // A call whose effect was partial is made again, to do the rest.
        if let (Some((number, arguments)), Some(bytes_max)) = (step, self.steps.bytes_max)
            && matches!(outcome.status, Status::Success | Status::Pending)
        {
            let result = StepResult::of_skill(outcome).bounded(bytes_max);
            self.steps.done.insert(number, StepDone::of(&planned.skill, &arguments, result));
        }
        if outcome.status == Status::Unknown {
            self.in_doubt.push((planned.skill, planned.arguments));
        } else {
            self.receipts.extend(Receipt::of(&planned.skill, &planned.arguments, outcome, event.at));
        }
    }

    /// Takes the message, which contains the effects of earlier attempts.
    fn received(&mut self, inbound: &Inbound) {
        self.is_forked = inbound.is_forked();
        let Some(retry) = &inbound.retry else { return };
        self.receipts.extend(retry.receipts.iter().cloned());
        self.in_doubt.extend(retry.in_doubt.iter().cloned());
        self.programs_ran |= retry.programs_ran;
        self.is_forked |= retry.is_forked;
        self.workflow = retry.workflow.as_deref().cloned();
    }

    /// Takes the beginning of the turn with these facts.
    fn begins(&mut self, facts: &PromptFacts) {
        if let Some(start) = &facts.workflow {
            self.steps.bytes_max = Some(start.limits.value_bytes_max as usize);
            let now = || WorkflowBefore { now: facts.local_now.clone(), done: Vec::new() };
            self.workflow.get_or_insert_with(now);
        }
    }

    /// Takes a planned run with an effect, of the main agent or of another one.
    fn planned(&mut self, planned: &PlannedSkill, is_main: bool) {
        let is_step = is_main && self.steps.bytes_max.is_some();
        let step = is_step.then(|| (self.steps.number(), planned.arguments.clone()));
        self.open.insert(planned.intent, OpenRun { planned: planned.clone(), is_begun: false, step });
    }

    fn take(&mut self, event: &Event) {
        match &event.body {
            EventBody::Received(inbound) => self.received(inbound),
            EventBody::TurnStarted { continues, facts, .. } => {
                self.continues = *continues;
                self.begins(facts);
            }
            EventBody::RoundBegan { round, .. } => {
                self.rounds_begun.insert((event.agent.clone(), *round));
            }
            EventBody::RoundNotBegun { round, .. } => {
                self.rounds_begun.remove(&(event.agent.clone(), *round));
            }
            EventBody::ModelReplied { calls, .. } => {
                for call in calls {
                    if let Action::Skill(planned) = &call.action
                        && planned.effect != Effect::Read
                    {
                        self.planned(planned, event.agent.is_orchestrator());
                    }
                }
            }
            EventBody::SkillStarted { intent, .. } => {
                if let Some(run) = self.open.get_mut(intent) {
                    run.is_begun = true;
                }
            }
            EventBody::SkillFinished { intent, outcome, .. } => {
                if let Some(run) = self.open.remove(intent) {
                    self.ended(run, outcome, event);
                }
            }
            EventBody::Decided { hook: Some(decision), .. } => {
                if let HookAnswer::Replace { arguments } = &decision.verdict
                    && let Some(run) = self.open.get_mut(&decision.intent)
                {
                    run.planned.arguments = arguments.clone();
                }
            }
            EventBody::Joined { .. }
            | EventBody::ModelFailed { .. }
            | EventBody::InterfaceChanged { .. }
            | EventBody::LoopDetected { .. }
            | EventBody::AgentStarted { .. }
            | EventBody::AgentReported { .. }
            | EventBody::AgentSteered { .. }
            | EventBody::SteeringTaken { .. }
            | EventBody::AgentStopRequested { .. }
            | EventBody::CancelRequested { .. }
            | EventBody::Decided { hook: None, .. }
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

impl AgentRun {
    /// Begins the run as a retry of a failed task.
    pub(super) fn begin_retry(&mut self, retry: &Retry) {
        self.provenance.add_ids(retry.receipts.iter().flat_map(|receipt| receipt.ids.iter().copied()));
        self.known.extend(retry.receipts.iter().cloned());
        self.in_doubt.extend(retry.in_doubt.iter().cloned());
        self.programs_ran |= retry.programs_ran;
        let mut note = String::new();
        let done: Vec<String> = retry.receipts.iter().map(|receipt| format!("- {}", receipt.summary())).collect();
        if !done.is_empty() {
            let done = self.frames.wrap("result", &[("status", "ok")], &done.join("\n"));
            note =
                format!("[An earlier try of this request failed after it had done this. Do not do it again.]\n{done}");
        }
        let doubts: Vec<String> = retry.in_doubt.iter().map(|(skill, call)| format!("- {skill} {call}")).collect();
        if !doubts.is_empty() {
            let doubts = self.frames.wrap("result", &[("status", "unknown")], &doubts.join("\n"));
            let heading = "[An earlier try may have done this. Do not do it again, and say that it is not known.]";
            note = format!("{note}\n{heading}\n{doubts}").trim().to_owned();
        }
        if retry.programs_ran {
            note = format!("{note}\n{PROGRAM_WORKED}").trim().to_owned();
        }
        if !note.is_empty() {
            self.note(&note);
        }
    }
}
