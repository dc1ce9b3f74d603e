//! The state of one run of a workflow, and what follows from it. The turn folds it: [`WorkflowRun::next`] is the reply of a round,
//! [`WorkflowRun::finished`] takes the result of a call, and [`WorkflowRun::settle`] goes on once all calls have results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    Branch, CallWork, END, Step, StepCall, StepWork, Work, Workflow, WorkflowLimits, WorkflowStart,
    condition::Condition,
    template::{Values, plain},
};
use crate::{
    agent_report::AgentReport,
    context::{Frames, clip},
    event::ReportStatus,
    outcome::{Outcome, Status},
    plan::first_line,
    receipt::fingerprint,
    state::{StateKey, StateText},
};

/// Steps without calls in one run after which it is ended: a file whose loops make no calls must not keep its Engine busy.
const MOVES_MAX: u32 = 10_000;

/// The outcome of a step, by which routes are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// It succeeded.
    Ok,
    /// It failed.
    Failed,
    /// A rule, a person or a guard refused it.
    Denied,
    /// It is not known whether its effect happened.
    Unknown,
    /// Its time was up.
    Timeout,
    /// A loop or a step reached its bound.
    Exhausted,
    /// A long-running operation was accepted, and its result is not known yet.
    Pending,
}

impl StepOutcome {
    /// All outcomes.
    pub const ALL: [Self; 7] =
        [Self::Ok, Self::Failed, Self::Denied, Self::Unknown, Self::Timeout, Self::Exhausted, Self::Pending];

    /// The word in files and at the front ends.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
            Self::Timeout => "timeout",
            Self::Exhausted => "exhausted",
            Self::Pending => "pending",
        }
    }
}

/// The result of a step, or of one call of a fan-out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepResult {
    /// The outcome.
    pub outcome: StepOutcome,
    /// The error code; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The text.
    pub text: String,
    /// What the skill returned for programs.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub evidence: Value,
    /// What the skill returned for programs is larger than the limit, so it is not kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_evidence_left_out: bool,
}

impl StepResult {
    /// A result with this text and error code.
    #[must_use]
    pub fn new(outcome: StepOutcome, error: &str, text: impl Into<String>) -> Self {
        Self { outcome, error: error.to_owned(), text: text.into(), evidence: Value::Null, is_evidence_left_out: false }
    }

    /// The result of a skill run.
    #[must_use]
    pub fn of_skill(outcome: &Outcome) -> Self {
        let error = outcome.error_type.clone().unwrap_or_default();
        let kind = match outcome.status {
            Status::Success | Status::Partial => StepOutcome::Ok,
            Status::Pending => StepOutcome::Pending,
            Status::Unknown => StepOutcome::Unknown,
            Status::ErrorBlocked => StepOutcome::Denied,
            Status::ErrorTransient | Status::ErrorPermanent if error.contains("timeout") => StepOutcome::Timeout,
            Status::ErrorTransient | Status::ErrorPermanent => StepOutcome::Failed,
        };
        Self { evidence: outcome.evidence.clone(), ..Self::new(kind, &error, outcome.data.clone()) }
    }

    /// The result of a sub-agent.
    #[must_use]
    pub fn of_agent(report: &AgentReport) -> Self {
        let kind = match report.status {
            ReportStatus::Completed => return Self::new(StepOutcome::Ok, "", report.result.clone()),
            ReportStatus::Timeout => StepOutcome::Timeout,
            ReportStatus::NoAction
            | ReportStatus::Failed
            | ReportStatus::Crashed
            | ReportStatus::Skipped
            | ReportStatus::Cancelled => StepOutcome::Failed,
        };
        Self::new(kind, report.status.as_str(), report.result.clone())
    }

    fn is_ok(&self) -> bool {
        self.outcome == StepOutcome::Ok
    }

    /// The result with texts of at most this many bytes.
    #[must_use]
    pub fn bounded(mut self, bytes_max: usize) -> Self {
        self.text = clip(self.text.trim(), bytes_max).into_owned();
        if self.evidence.to_string().len() > bytes_max {
            self.evidence = Value::Null;
            self.is_evidence_left_out = true;
        }
        self
    }

    /// Whether a route for this outcome fits.
    fn fits(&self, on: Option<&str>) -> bool {
        match on {
            Some("any") => true,
            None => self.is_ok(),
            // An accepted operation has not failed. A step that tries again would begin it twice.
            Some("failed") => !self.is_ok() && self.outcome != StepOutcome::Pending,
            Some(on) => on == self.outcome.as_str() || (!self.error.is_empty() && on == self.error),
        }
    }
}

/// The result of an effect that a step of an earlier attempt had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDone {
    /// The fingerprint of the skill and the arguments that the step named.
    pub call: String,
    /// The result.
    pub result: StepResult,
}

impl StepDone {
    /// The result of a call of this skill with these arguments.
    #[must_use]
    pub fn of(skill: &str, arguments: &Value, result: StepResult) -> Self {
        Self { call: fingerprint(skill, arguments), result }
    }
}

/// What an earlier attempt of a run leaves to the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowBefore {
    /// The local time when the first attempt began. Calls with the time in their arguments are equal only with the same time.
    pub now: String,
    /// The effects of its steps, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<StepDone>,
}

/// The calls of the present step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Acting {
    /// The step, by its number.
    at: usize,
    calls: Vec<StepCall>,
    /// Why this step follows, for people.
    why: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RunState {
    Acting(Acting),
    Answered(String),
    Failed(String),
}

/// What a run wants next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next<'a> {
    /// These calls, for this reason.
    Calls(&'a [StepCall], &'a str),
    /// To end with this answer.
    Answer(&'a str),
    /// To end without an answer, for this reason.
    Fail(&'a str),
}

/// The state of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkflowRun {
    /// The definition.
    pub workflow: Workflow,
    args: Map<String, Value>,
    limits: WorkflowLimits,
    /// The local time when the run began.
    now: String,
    /// The latest results of steps and branches.
    pub results: BTreeMap<String, StepResult>,
    /// How often each step was reached.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub visits: BTreeMap<String, u32>,
    /// The present pass of each loop, from 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub passes: BTreeMap<String, u32>,
    /// The number of calls so far.
    pub calls: u32,
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    moves: u32,
    /// The step whose calls ended last; empty before the first.
    last: String,
    /// The effects of earlier attempts that no call of this one has met yet, oldest first. Each of them answers one equal call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    done_before: Vec<StepDone>,
    /// The values of the state when the run began, and those that it has set since.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<String, StateText>,
    state: RunState,
}

impl WorkflowRun {
    /// A run before its first step. `now` is the user's local time: `2026-02-18 14:05 Wednesday`.
    #[must_use]
    pub fn begin(start: &WorkflowStart, now: &str, frames: &Frames) -> Self {
        let read = serde_json::from_str::<Workflow>(&start.definition);
        let is_readable = read.is_ok();
        let empty =
            || Workflow { name: start.name.clone(), description: String::new(), args: Vec::new(), steps: Vec::new() };
        let mut run = Self {
            workflow: read.unwrap_or_else(|_| empty()),
            args: serde_json::from_str(&start.arguments).unwrap_or_default(),
            limits: start.limits.clone(),
            now: now.to_owned(),
            results: BTreeMap::new(),
            visits: BTreeMap::new(),
            passes: BTreeMap::new(),
            calls: 0,
            moves: 0,
            last: String::new(),
            done_before: Vec::new(),
            values: start.state.clone(),
            state: RunState::Failed("the definition of the workflow cannot be read".to_owned()),
        };
        for arg in run.workflow.args.clone() {
            if !arg.default.is_null() {
                run.args.entry(arg.name).or_insert(arg.default);
            }
        }
        if is_readable {
            run.go(0, "it is the first step".to_owned(), frames);
        }
        run
    }

    /// The run with the effects of earlier attempts, oldest first.
    #[must_use]
    pub fn with_done_before(mut self, done: Vec<StepDone>) -> Self {
        self.done_before = done;
        self
    }

    /// The result that an earlier attempt has for this call, after `earlier` equal calls of the same round.
    #[must_use]
    pub fn done_before(&self, skill: &str, arguments: &Value, earlier: usize) -> Option<&StepResult> {
        let call = fingerprint(skill, arguments);
        self.done_before.iter().filter(|done| done.call == call).nth(earlier).map(|done| &done.result)
    }

    /// Gives a call of the present step the first result that an earlier attempt has for it.
    pub fn finished_before(&mut self, call_id: &str, skill: &str, arguments: &Value) {
        let call = fingerprint(skill, arguments);
        if let Some(at) = self.done_before.iter().position(|done| done.call == call) {
            let done = self.done_before.remove(at);
            self.finished(call_id, done.result);
        }
    }

    /// What the run wants now.
    #[must_use]
    pub fn next(&self) -> Next<'_> {
        match &self.state {
            RunState::Acting(acting) => Next::Calls(&acting.calls, &acting.why),
            RunState::Answered(text) => Next::Answer(text),
            RunState::Failed(why) => Next::Fail(why),
        }
    }

    /// The step that acts now.
    #[must_use]
    pub fn present(&self) -> Option<&Step> {
        match &self.state {
            RunState::Acting(acting) => self.workflow.steps.get(acting.at),
            RunState::Answered(_) | RunState::Failed(_) => None,
        }
    }

    /// Takes the result of a call of the present step. A result of another call changes nothing.
    pub fn finished(&mut self, call_id: &str, result: StepResult) {
        let bytes_max = self.limits.value_bytes_max as usize;
        let RunState::Acting(acting) = &mut self.state else { return };
        if let Some(call) = acting.calls.iter_mut().find(|call| call.id == call_id && call.result.is_none()) {
            if let (CallWork::Skill { skill, args }, StepOutcome::Ok) = (&call.work, result.outcome) {
                note_state(&mut self.values, skill, args);
            }
            call.result = Some(result.bounded(bytes_max));
        }
    }

    /// Takes the report of a sub-agent of the present step.
    pub fn agent_reported(&mut self, agent: &str, report: &AgentReport) {
        let RunState::Acting(acting) = &self.state else { return };
        let is_its = |call: &&StepCall| matches!(&call.work, CallWork::Agent { agent: name, .. } if name == agent);
        if let Some(id) = acting.calls.iter().find(is_its).map(|call| call.id.clone()) {
            self.finished(&id, StepResult::of_agent(report));
        }
    }

    /// Goes on to the next step that makes calls, or to the end. Calls without a result count as failed.
    pub fn settle(&mut self, frames: &Frames) {
        let RunState::Acting(acting) = &self.state else { return };
        let Acting { at, calls, .. } = acting.clone();
        let Some(step) = self.workflow.steps.get(at).cloned() else { return };
        let missing = || StepResult::new(StepOutcome::Failed, "no_result", "the call has no result");
        let results: Vec<(String, StepResult)> =
            calls.into_iter().map(|call| (call.of, call.result.unwrap_or_else(missing))).collect();
        let whole = match (&step.work, results.as_slice()) {
            (StepWork::Call(_), [(_, result)]) => result.clone(),
            _ => gathered(&step.work, &results).bounded(self.limits.value_bytes_max as usize),
        };
        if matches!(step.work, StepWork::Parallel(_)) {
            self.results.extend(results);
        }
        self.last.clone_from(&step.id);
        match self.route(at, &step.id, whole) {
            Ok((at, why)) => self.go(at, why, frames),
            Err(why) => self.state = RunState::Failed(why),
        }
    }

    /// Stores the result of a step, and finds the step that follows it, with the reason.
    ///
    /// # Errors
    /// Why the run fails.
    fn route(&mut self, at: usize, id: &str, result: StepResult) -> Result<(usize, String), String> {
        let outcome = result.outcome.as_str();
        self.results.insert(id.to_owned(), result.clone());
        let Some(step) = self.workflow.steps.get(at) else { return Err("the step does not exist".to_owned()) };
        for route in step.next.iter().filter(|route| result.fits(route.on.as_deref())) {
            let holds = |when: &String| Condition::read(when).and_then(|c| c.holds(&self.values(None)));
            let is_taken = match route.when.as_ref().map(holds) {
                Some(Ok(holds)) => holds,
                Some(Err(why)) => return Err(format!("The condition behind step `{id}` cannot be judged: {why}.")),
                None => true,
            };
            if is_taken {
                let why = match &route.when {
                    Some(when) => format!("`{id}` is {outcome} and {when}"),
                    None => format!("`{id}` is {outcome}"),
                };
                let to = if route.to == END { None } else { self.workflow.position(&route.to) };
                return Ok((to.unwrap_or(self.workflow.steps.len()), why));
            }
        }
        if result.is_ok() {
            return Ok((at + 1, format!("it follows `{id}`")));
        }
        if result.outcome == StepOutcome::Pending {
            let text = first_line(&result.text);
            return Err(format!(
                "Step `{id}` began an operation whose result comes later, and no route is for that: {text}"
            ));
        }
        let code = if result.error.is_empty() { outcome } else { result.error.as_str() };
        Err(format!("Step `{id}` failed ({code}): {}", first_line(&result.text)))
    }

    /// Goes through the steps that make no calls until one does, or the run ends.
    fn go(&mut self, mut at: usize, mut why: String, frames: &Frames) {
        loop {
            self.moves = self.moves.saturating_add(1);
            if self.moves > MOVES_MAX {
                self.state = RunState::Failed(format!("It went through {MOVES_MAX} steps without an end."));
                return;
            }
            let Some(step) = self.workflow.steps.get(at).cloned() else {
                self.state = RunState::Answered(self.last_text());
                return;
            };
            let routed = match self.reach(at, &step, &why, frames) {
                Reached::Ends => return,
                Reached::Goes(to, reason) => Ok((to, reason)),
                Reached::Ended(id, result) => self.route(at, &id, result),
            };
            match routed {
                Ok(next) => (at, why) = next,
                Err(reason) => {
                    self.state = RunState::Failed(reason);
                    return;
                }
            }
        }
    }

    fn reach(&mut self, at: usize, step: &Step, why: &str, frames: &Frames) -> Reached {
        let visits = self.visits.entry(step.id.clone()).or_default();
        *visits = visits.saturating_add(1);
        if let Some(visits_max) = step.visits_max.filter(|max| *visits > *max) {
            let text = format!("step `{}` was reached more than {visits_max} times", step.id);
            return Reached::Ended(step.id.clone(), StepResult::new(StepOutcome::Exhausted, "", text));
        }
        match &step.work {
            StepWork::Enter => {
                self.passes.insert(step.id.clone(), 1);
                Reached::Goes(at + 1, format!("loop `{}` begins", step.id))
            }
            StepWork::Repeat { of, until, passes_max } => self.repeat(of, until.as_deref(), *passes_max),
            StepWork::Answer(text) => {
                self.state = match self.values(None).text(text, None) {
                    Ok(text) => RunState::Answered(self.or_done(text)),
                    Err(missing) => RunState::Failed(format!("Step `{}` has no answer: {missing}.", step.id)),
                };
                Reached::Ends
            }
            StepWork::Call(_) | StepWork::Parallel(_) | StepWork::Each { .. } => match self.prepared(step, frames) {
                Err(missing) => {
                    let result = StepResult::new(StepOutcome::Failed, "missing_value", missing);
                    Reached::Ended(step.id.clone(), result)
                }
                Ok(calls) if calls.is_empty() => {
                    Reached::Ended(step.id.clone(), StepResult::new(StepOutcome::Ok, "", String::new()))
                }
                Ok(calls) => {
                    let count = u32::try_from(calls.len()).unwrap_or(u32::MAX);
                    self.calls = self.calls.saturating_add(count);
                    self.state = if self.calls > self.limits.calls_max {
                        let calls_max = self.limits.calls_max;
                        RunState::Failed(format!("It reached its limit of {calls_max} calls at step `{}`.", step.id))
                    } else {
                        RunState::Acting(Acting { at, calls, why: why.to_owned() })
                    };
                    Reached::Ends
                }
            },
        }
    }

    /// The end of a pass of a loop.
    fn repeat(&mut self, of: &str, until: Option<&str>, passes_max: u32) -> Reached {
        let passes = self.passes.get(of).copied().unwrap_or(1);
        let holds = until.map(|until| Condition::read(until).and_then(|c| c.holds(&self.values(None))));
        let text = self.last_text();
        match holds {
            Some(Err(missing)) => {
                let text = format!("its condition cannot be judged: {missing}");
                Reached::Ended(of.to_owned(), StepResult::new(StepOutcome::Failed, "missing_value", text))
            }
            Some(Ok(true)) => Reached::Ended(of.to_owned(), StepResult::new(StepOutcome::Ok, "", text)),
            Some(Ok(false)) if passes >= passes_max => {
                let text = format!("its condition did not hold after {passes} passes");
                Reached::Ended(of.to_owned(), StepResult::new(StepOutcome::Exhausted, "", text))
            }
            None if passes >= passes_max => Reached::Ended(of.to_owned(), StepResult::new(StepOutcome::Ok, "", text)),
            Some(Ok(false)) | None => {
                self.passes.insert(of.to_owned(), passes + 1);
                let first = self.workflow.position(of).map_or(self.workflow.steps.len(), |at| at + 1);
                Reached::Goes(first, format!("pass {} of loop `{of}` begins", passes + 1))
            }
        }
    }

    /// The calls of a step with their values.
    fn prepared(&self, step: &Step, frames: &Frames) -> Result<Vec<StepCall>, String> {
        let mut calls = Vec::new();
        let mut add = |of: &str, work: &Work, item: Option<&Value>| {
            let number = self.calls as usize + calls.len() + 1;
            let work = self.filled(of, work, (item, number), frames)?;
            calls.push(StepCall { id: format!("{of}#{number}"), of: of.to_owned(), work, result: None });
            Ok::<(), String>(())
        };
        match &step.work {
            StepWork::Call(work) => add(&step.id, work, None)?,
            StepWork::Parallel(branches) => {
                for Branch { id, work } in branches {
                    add(id, work, None)?;
                }
            }
            StepWork::Each { of, work } => {
                let items = self.values(None).items(of)?;
                let parallel_max = self.limits.parallel_max as usize;
                if items.len() > parallel_max {
                    return Err(format!("the list has {} items, and at most {parallel_max} are allowed", items.len()));
                }
                for item in &items {
                    add(&step.id, work, Some(item))?;
                }
            }
            StepWork::Enter | StepWork::Repeat { .. } | StepWork::Answer(_) => {}
        }
        Ok(calls)
    }

    fn filled(
        &self,
        of: &str,
        work: &Work,
        (item, number): (Option<&Value>, usize),
        frames: &Frames,
    ) -> Result<CallWork, String> {
        let values = self.values(item);
        Ok(match work {
            Work::Skill { skill, args } => {
                CallWork::Skill { skill: skill.clone(), args: values.arguments_of_call(args)? }
            }
            Work::Agent { mission, skills, calls_max, effort } => CallWork::Agent {
                agent: format!("{of}-{number}"),
                mission: values.text(mission, Some(&|id, text| frames.wrap("result", &[("step", id)], text)))?,
                skills: skills.clone(),
                calls_max: *calls_max,
                effort: *effort,
            },
        })
    }

    fn values<'a>(&'a self, item: Option<&'a Value>) -> Values<'a> {
        let (args, results, passes, visits) = (&self.args, &self.results, &self.passes, &self.visits);
        let (state, bytes_max) = (&self.values, self.limits.value_bytes_max as usize);
        Values { args, results, passes, visits, now: &self.now, item, state, bytes_max }
    }

    /// The text of the step whose calls ended last.
    fn last_text(&self) -> String {
        self.or_done(self.results.get(&self.last).map(|result| result.text.clone()).unwrap_or_default())
    }

    fn or_done(&self, text: String) -> String {
        if text.trim().is_empty() { format!("The workflow {} is done.", self.workflow.name) } else { text }
    }
}

/// Notes what a call has changed in the state. The value may be what a step returned, so it counts as text of others.
fn note_state(values: &mut BTreeMap<String, StateText>, skill: &str, args: &Map<String, Value>) {
    let text = |name: &str| args.get(name).and_then(Value::as_str);
    let Some(key) = text("key").and_then(|key| StateKey::parse(key).ok()) else { return };
    match (skill, text("value")) {
        ("state.set", Some(value)) => {
            let value = StateText { text: value.to_owned(), origin: vec![skill.to_owned()] };
            values.insert(key.to_string(), value);
        }
        ("state.delete", _) => drop(values.remove(&key.to_string())),
        _ => {}
    }
}

/// What happens when a step is reached.
enum Reached {
    /// The run makes calls, or has ended.
    Ends,
    /// The run goes to this step, for this reason.
    Goes(usize, String),
    /// The step with this name has this result.
    Ended(String, StepResult),
}

/// The result of several calls together: a JSON object with the texts of the branches, or a JSON array with those of the items.
/// It is a success if all of them are.
fn gathered(work: &StepWork, results: &[(String, StepResult)]) -> StepResult {
    let text = if matches!(work, StepWork::Parallel(_)) {
        let texts: Map<String, Value> = results.iter().map(|(id, r)| (id.clone(), r.text.clone().into())).collect();
        plain(&Value::Object(texts))
    } else {
        json!(results.iter().map(|(_, result)| &result.text).collect::<Vec<_>>()).to_string()
    };
    match results.iter().find(|(_, result)| !result.is_ok()) {
        Some((_, failed)) => StepResult::new(failed.outcome, &failed.error, text),
        None => StepResult::new(StepOutcome::Ok, "", text),
    }
}
