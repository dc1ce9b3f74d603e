//! Workflows: steps that a file lists, in place of a model that decides what comes next (ADR 0057). A step runs a skill, starts an
//! agent, runs several of these at once, repeats other steps, or gives the answer. Everything here is pure: the file is read into
//! a [`Workflow`] with all its problems ([`read`]), and a [`WorkflowRun`] is the state of one run, which the turn folds.

mod call;
mod check;
mod condition;
mod read;
mod run;
mod show;
mod template;

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    command::{Resolution, resolve},
    effort::Effort,
    people::for_people,
    skill::{ArgSpec, Effect, SkillFormat, SkillSet, SkillSpec},
    state::StateText,
};

pub use call::{CallWork, StepCall};
pub use check::problems_with;
pub use read::{WorkflowHead, read};
pub use run::{Next, StepDone, StepOutcome, StepResult, WorkflowBefore, WorkflowRun};
pub use show::{ShownStep, ShownWorkflow, StepState};

/// The name of the backend in the replies of a workflow. No configured backend may have it.
pub const WORKFLOW: &str = "workflow";
/// The largest definition of a workflow, in bytes: it is recorded with each run.
pub const WORKFLOW_BYTES_MAX: usize = 64 * 1024;
/// The code of the failure of a message that calls a workflow which cannot be started.
pub const WORKFLOW_NOT_STARTED: &str = "workflow_not_started";
/// The step name that ends a workflow.
pub const END: &str = "end";

/// The limits of workflows. They are recorded with each run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkflowLimits {
    /// Maximum number of steps in a file, those inside of others included.
    pub steps_max: u32,
    /// Maximum number of calls that one step makes at once.
    pub parallel_max: u32,
    /// Maximum number of passes of a loop, and of visits of a step that a cycle contains.
    pub loop_max: u32,
    /// Maximum number of calls of one run in all. Each call of a fan-out counts.
    pub calls_max: u32,
    /// Maximum size of the result of a step that later steps use, and of a value that is filled into a text, in bytes. A longer
    /// one is cut. It is then no list for `each`, no exact value of an argument, and no side of a comparison. All values of one text
    /// together have at most twice this size, and those of the arguments of one call four times.
    pub value_bytes_max: u32,
}

impl Default for WorkflowLimits {
    fn default() -> Self {
        // A run of all 200 calls with results of the largest size has a state of 1.6 MB.
        Self { steps_max: 50, parallel_max: 8, loop_max: 100, calls_max: 200, value_bytes_max: 8 * 1024 }
    }
}

/// A workflow as a list of steps. Loops are two steps in the list, which enclose the steps that they repeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workflow {
    /// Its name, which is also that of the file.
    pub name: String,
    /// One sentence: its purpose.
    pub description: String,
    /// Its arguments, required ones first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<ArgSpec>,
    /// Its steps, in the order in which they follow each other unless a step names another one.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its name, unique in the workflow.
    pub id: String,
    /// What it does.
    pub work: StepWork,
    /// Which step follows, by its outcome. The first route that fits decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<Route>,
    /// Maximum number of visits in one run; `None` means any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visits_max: Option<u32>,
}

/// The work of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepWork {
    /// One call.
    Call(Work),
    /// Several calls at once. The step ends when all of them have ended.
    Parallel(Vec<Branch>),
    /// The same call for each item of a list, all at once.
    Each {
        /// The template of the list: a JSON array, or lines of text.
        of: String,
        /// The call, in which `{item}` is the item.
        work: Work,
    },
    /// The beginning of a loop, which has the loop's name.
    Enter,
    /// The end of a loop: it goes back to the step behind the beginning.
    Repeat {
        /// The name of the loop.
        of: String,
        /// The loop ends when this condition holds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<String>,
        /// The loop ends after this many passes.
        passes_max: u32,
    },
    /// Ends the workflow with this text, a template.
    Answer(String),
}

/// One call with templates in place of values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Run a skill.
    Skill {
        /// The skill.
        skill: String,
        /// Its arguments. Each text in them is a template.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        args: Map<String, Value>,
    },
    /// Start an agent and wait for its report.
    Agent {
        /// The goal, a template.
        mission: String,
        /// The skills it may use.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skills: Vec<String>,
        /// Maximum number of its calls; `None` means the default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        calls_max: Option<u32>,
        /// How hard its model should think.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effort: Option<Effort>,
    },
}

/// One call of a fan-out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    /// Its name, unique in the workflow. Its result has this name.
    pub id: String,
    /// The call.
    pub work: Work,
}

/// A way from one step to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The outcome for which the route is: `ok`, `failed`, `denied`, `unknown`, `timeout`, `exhausted`, `pending`, `any`, or an
    /// error code.
    /// `None` means a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// The condition that must hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The next step, or [`END`].
    pub to: String,
}

/// A problem of a workflow's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowProblem {
    /// The step; empty if the problem is not one of a step.
    pub step: String,
    /// The problem.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

impl WorkflowProblem {
    /// Whether it is about a tool of an MCP server, which is known only while the server is connected.
    #[must_use]
    pub fn is_about_mcp(&self) -> bool {
        self.what.contains("`mcp.")
    }
}

impl fmt::Display for WorkflowProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.step.is_empty() {
            write!(f, "step `{}`: ", self.step)?;
        }
        write!(f, "{}; {}", self.what, self.fix)
    }
}

/// A workflow and its arguments as the facts of a turn record them. The definition is a text, so that it can be erased like one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowStart {
    /// Its name.
    pub name: String,
    /// The [`Workflow`] in JSON.
    pub definition: String,
    /// The arguments in JSON, an object.
    pub arguments: String,
    /// The limits of the run.
    #[serde(default)]
    pub limits: WorkflowLimits,
    /// The values of the state that its texts name, when the turn began.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub state: BTreeMap<String, StateText>,
}

impl Workflow {
    /// The step with this name.
    #[must_use]
    pub fn position(&self, id: &str) -> Option<usize> {
        self.steps.iter().position(|step| step.id == id)
    }

    /// The workflow as a command, for the help text and for the arguments.
    #[must_use]
    pub fn as_command(&self) -> SkillSpec {
        SkillSpec {
            name: self.name.clone(),
            domain: WORKFLOW.to_owned(),
            description: self.description.clone(),
            body: String::new(),
            args: self.args.clone(),
            effect: Effect::Once,
            external: false,
            timeout_ms: 0,
            alternatives: Vec::new(),
            fallback: std::collections::BTreeMap::new(),
            is_ready: false,
            format: SkillFormat::Command,
            source: WORKFLOW.to_owned(),
        }
    }

    /// The start of a run with the arguments of a command: `--day monday`, or `{"day": "monday"}`.
    ///
    /// # Errors
    /// The text for the author of the command: what is wrong, or the help that the command asks for.
    pub fn start(&self, arguments: &str, limits: &WorkflowLimits) -> Result<WorkflowStart, String> {
        let set = SkillSet::new([self.as_command()], [], 0);
        match resolve(&format!("{} {arguments}", self.name), &set, None) {
            Resolution::Run { arguments, .. } => Ok(WorkflowStart {
                name: self.name.clone(),
                definition: serde_json::to_string(self).unwrap_or_default(),
                arguments: arguments.to_string(),
                limits: limits.clone(),
                state: BTreeMap::new(),
            }),
            Resolution::Help(text) => Err(text),
            // A person or a program called the workflow, and no model reads this.
            Resolution::Error(text) => Err(format!("The workflow was not started: {}", for_people(&text))),
        }
    }
}

#[cfg(test)]
mod tests;
