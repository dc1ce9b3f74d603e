//! A run as people see it.

use serde::Serialize;

use super::{CallWork, Next, StepOutcome, StepWork, Work, WorkflowRun};
use crate::plan::first_line;

/// The longest text of one step in a view, in characters.
const TEXT_CHARS_MAX: usize = 400;

/// The state of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// It was not reached.
    Pending,
    /// Its calls are under way.
    Running,
    /// It succeeded, or the operation that it began was accepted.
    Done,
    /// It did not succeed.
    Failed,
    /// The run ended before it had a result: it was cancelled, or its time was up.
    Stopped,
}

impl StepState {
    /// The word at the front ends.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// A step of a run, or a branch of a fan-out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownStep {
    /// Its name.
    pub id: String,
    /// `skill tasks.search`, `agent`, `parallel`, `each`, `loop` or `answer`.
    pub work: String,
    /// Its state.
    pub state: StepState,
    /// How often it was reached, or the passes of a loop.
    pub visits: u32,
    /// The last outcome; empty before the first.
    pub outcome: String,
    /// The error code of the last outcome; empty if there is none.
    pub error: String,
    /// The beginning of its last result.
    pub text: String,
}

/// A run with its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownWorkflow {
    /// The name of the workflow.
    pub name: String,
    /// The name of the present step; empty if there is none.
    pub present: String,
    /// The steps in the order of the file.
    pub steps: Vec<ShownStep>,
    /// The number of calls so far.
    pub calls: u32,
    /// Why the run has no answer; empty unless it failed.
    pub failure: String,
}

impl ShownWorkflow {
    /// A run without steps: its turn has not begun.
    #[must_use]
    pub const fn without_steps(name: String, failure: String) -> Self {
        Self { name, present: String::new(), steps: Vec::new(), calls: 0, failure }
    }

    /// The same run after its task has ended: nothing of it is under way.
    #[must_use]
    pub fn at_its_end(mut self) -> Self {
        self.present.clear();
        for step in self.steps.iter_mut().filter(|step| step.state == StepState::Running) {
            step.state = StepState::Stopped;
        }
        self
    }
}

impl WorkflowRun {
    /// The run as people see it.
    #[must_use]
    pub fn shown(&self) -> ShownWorkflow {
        let present = self.present().map(|step| step.id.clone()).unwrap_or_default();
        let mut steps = Vec::new();
        for step in &self.workflow.steps {
            match &step.work {
                StepWork::Call(work) => steps.push(self.shown_step(&step.id, kind_of(work), &present)),
                StepWork::Parallel(branches) => {
                    steps.push(self.shown_step(&step.id, "parallel".to_owned(), &present));
                    for branch in branches {
                        steps.push(self.shown_step(&branch.id, kind_of(&branch.work), &present));
                    }
                }
                StepWork::Each { work, .. } => {
                    steps.push(self.shown_step(&step.id, format!("each {}", kind_of(work)), &present));
                }
                StepWork::Enter => steps.push(self.shown_step(&step.id, "loop".to_owned(), &present)),
                StepWork::Repeat { .. } => {}
                StepWork::Answer(_) => steps.push(self.shown_step(&step.id, "answer".to_owned(), &present)),
            }
        }
        let failure = if let Next::Fail(why) = self.next() { why.to_owned() } else { String::new() };
        ShownWorkflow { name: self.workflow.name.clone(), present, steps, calls: self.calls, failure }
    }

    fn shown_step(&self, id: &str, work: String, present: &str) -> ShownStep {
        let calls = match self.next() {
            Next::Calls(calls, _) => calls,
            Next::Answer(_) | Next::Fail(_) => &[],
        };
        let own = || calls.iter().filter(|call| call.of == id);
        let is_calling = own().any(|call| call.result.is_none());
        let result = own().find_map(|call| call.result.as_ref()).or_else(|| self.results.get(id));
        let is_open_loop = work == "loop" && self.passes.contains_key(id) && result.is_none();
        let is_answered = work == "answer" && self.visits.contains_key(id) && matches!(self.next(), Next::Answer(_));
        let state = match result {
            _ if is_calling || present == id || (is_open_loop && !present.is_empty()) => StepState::Running,
            _ if is_answered => StepState::Done,
            Some(result) if matches!(result.outcome, StepOutcome::Ok | StepOutcome::Pending) => StepState::Done,
            Some(_) => StepState::Failed,
            None => StepState::Pending,
        };
        let visits = self.passes.get(id).or_else(|| self.visits.get(id)).copied().unwrap_or(0);
        let text = result.map(|result| result.text.chars().take(TEXT_CHARS_MAX).collect()).unwrap_or_default();
        let (outcome, error) =
            result.map(|result| (result.outcome.as_str().to_owned(), result.error.clone())).unwrap_or_default();
        ShownStep { id: id.to_owned(), work, state, visits, outcome, error, text }
    }
}

fn kind_of(work: &Work) -> String {
    match work {
        Work::Skill { skill, .. } => format!("skill {skill}"),
        Work::Agent { .. } => "agent".to_owned(),
    }
}

impl CallWork {
    /// One line for people.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Self::Skill { skill, .. } => skill.clone(),
            Self::Agent { mission, .. } => first_line(mission),
        }
    }
}
