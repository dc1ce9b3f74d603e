//! What is wrong with a workflow as a graph: routes to steps that do not exist, steps that are never reached, cycles without a
//! bound, and templates that name nothing.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    END, Step, StepWork, Work, Workflow, WorkflowProblem,
    condition::Condition,
    run::StepOutcome,
    template::{Piece, Reference, pieces},
};
use crate::skill::{SkillFormat, SkillSet, is_kernel_command};

/// All problems of the graph and of the templates, in the order of the steps.
pub(super) fn check(workflow: &Workflow) -> Vec<WorkflowProblem> {
    let mut checker = Checker { workflow, problems: Vec::new() };
    for step in &workflow.steps {
        checker.routes(step);
        checker.templates(step);
    }
    // The graph of a file with wrong routes says nothing.
    if checker.problems.is_empty() && !workflow.steps.is_empty() {
        checker.reach();
        checker.cycles();
    }
    checker.problems
}

/// What is wrong with a workflow beside these skills: another command has its name, or it names skills that do not exist. A run
/// would be something else, or would fail after its first effects.
#[must_use]
pub fn problems_with(workflow: &Workflow, skills: &SkillSet) -> Vec<WorkflowProblem> {
    let mut problems: Vec<WorkflowProblem> = taken_name(workflow, skills).into_iter().collect();
    problems.extend(unknown_skills(workflow, skills));
    problems
}

/// Messages that begin with the name of a workflow start it, unless the name is already that of another command.
fn taken_name(workflow: &Workflow, skills: &SkillSet) -> Option<WorkflowProblem> {
    let command = format!("/{}", workflow.name);
    let is_prompt = |name: &str| skills.get(name).is_some_and(|s| matches!(s.format, SkillFormat::Prompt { .. }));
    let owner = match workflow.name.as_str() {
        name if is_prompt(name) => "a prompt skill",
        _ if is_kernel_command(&command) => "a command of the kernel",
        _ => return None,
    };
    let (what, fix) = (format!("`{command}` is {owner}, so it starts no run"), "rename the file".to_owned());
    Some(WorkflowProblem { step: String::new(), what, fix })
}

fn unknown_skills(workflow: &Workflow, skills: &SkillSet) -> Vec<WorkflowProblem> {
    let mut problems = Vec::new();
    for (id, work) in workflow.works() {
        let names: Vec<&String> = match work {
            Work::Skill { skill, .. } => vec![skill],
            Work::Agent { skills, .. } => skills.iter().collect(),
        };
        for name in names.into_iter().filter(|name| skills.named_like(name).is_none()) {
            let near = skills.near(name);
            let fix = if near.is_empty() {
                "name one that `annie skills list` shows".to_owned()
            } else {
                format!("write {}", near.join(" or "))
            };
            problems.push(WorkflowProblem { step: id.to_owned(), what: format!("there is no skill `{name}`"), fix });
        }
    }
    problems
}

impl Workflow {
    /// Its calls, each with the name of its step or branch.
    pub(super) fn works(&self) -> impl Iterator<Item = (&str, &Work)> {
        self.steps.iter().flat_map(|step| match &step.work {
            StepWork::Call(work) | StepWork::Each { work, .. } => vec![(step.id.as_str(), work)],
            StepWork::Parallel(branches) => branches.iter().map(|b| (b.id.as_str(), &b.work)).collect(),
            StepWork::Enter | StepWork::Repeat { .. } | StepWork::Answer(_) => Vec::new(),
        })
    }

    /// The steps that may follow a step; the number of steps stands for the end. The way back of a loop is left out, because the
    /// loop has a bound.
    fn successors(&self, at: usize) -> Vec<usize> {
        let Some(step) = self.steps.get(at) else { return Vec::new() };
        if matches!(step.work, StepWork::Answer(_)) {
            return Vec::new();
        }
        let target = |to: &str| if to == END { Some(self.steps.len()) } else { self.position(to) };
        let mut next: Vec<usize> = step.next.iter().filter_map(|route| target(&route.to)).collect();
        // A success takes the following step unless a route without a condition stands for it.
        let is_sure = |on: &Option<String>| on.as_deref().is_none_or(|on| matches!(on, "ok" | "any"));
        if !step.next.iter().any(|route| route.when.is_none() && is_sure(&route.on)) {
            next.push(at + 1);
        }
        next
    }
}

struct Checker<'a> {
    workflow: &'a Workflow,
    problems: Vec<WorkflowProblem>,
}

impl Checker<'_> {
    fn problem(&mut self, step: &str, what: impl Into<String>, fix: impl Into<String>) {
        let step = step.split('.').next().unwrap_or_default().to_owned();
        self.problems.push(WorkflowProblem { step, what: what.into(), fix: fix.into() });
    }

    fn routes(&mut self, step: &Step) {
        for route in &step.next {
            if route.to != END && self.workflow.position(&route.to).is_none_or(|_| route.to.contains('.')) {
                let fix = format!("name a step of this file, or `{END}`");
                self.problem(&step.id, format!("`next` names step `{}`, which does not exist", route.to), fix);
            }
            let is_word = |on: &str| on.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if let Some(on) = route.on.as_deref().filter(|on| on.is_empty() || !is_word(on)) {
                let known = StepOutcome::ALL.map(StepOutcome::as_str).join(", ");
                let fix = format!("write {known}, any, or an error code such as http_404");
                self.problem(&step.id, format!("`on: {on}` is no outcome"), fix);
            }
            if let Some(when) = &route.when {
                self.condition(&step.id, when);
            }
        }
        if matches!(step.work, StepWork::Answer(_)) && !step.next.is_empty() {
            self.problem(&step.id, "an answer ends the workflow, so nothing follows it", "leave `next` out");
        }
    }

    fn templates(&mut self, step: &Step) {
        match &step.work {
            StepWork::Call(work) => self.work(&step.id, work, false),
            StepWork::Parallel(branches) => {
                branches.iter().for_each(|branch| self.work(&branch.id, &branch.work, false))
            }
            StepWork::Each { of, work } => {
                self.template(&step.id, of, false);
                self.work(&step.id, work, true);
            }
            StepWork::Enter => {}
            StepWork::Repeat { until, .. } => {
                if let Some(until) = until {
                    self.condition(&step.id, until);
                }
            }
            StepWork::Answer(text) => self.template(&step.id, text, false),
        }
    }

    fn work(&mut self, id: &str, work: &Work, has_item: bool) {
        match work {
            Work::Skill { args, .. } => args.values().for_each(|value| self.value(id, value, has_item)),
            Work::Agent { mission, .. } => self.template(id, mission, has_item),
        }
    }

    fn value(&mut self, id: &str, value: &Value, has_item: bool) {
        match value {
            Value::String(text) => self.template(id, text, has_item),
            Value::Array(items) => items.iter().for_each(|item| self.value(id, item, has_item)),
            Value::Object(map) => map.values().for_each(|item| self.value(id, item, has_item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn template(&mut self, id: &str, text: &str, has_item: bool) {
        match pieces(text) {
            Err(what) => self.problem(id, what, "write `{args.name}` or `{steps.name.result}`"),
            Ok(pieces) => {
                for piece in pieces {
                    if let Piece::Value(reference) = piece {
                        self.reference(id, reference, has_item);
                    }
                }
            }
        }
    }

    fn condition(&mut self, id: &str, text: &str) {
        match Condition::read(text) {
            Err(what) => self.problem(id, format!("the condition `{text}` is wrong: {what}"), "correct it"),
            Ok(condition) => condition.references().for_each(|reference| self.reference(id, reference, false)),
        }
    }

    fn reference(&mut self, id: &str, reference: Reference<'_>, has_item: bool) {
        match reference {
            Reference::Arg(name) => {
                if !self.workflow.args.iter().any(|arg| arg.name == name) {
                    let fix = "declare it below `arguments:`, or correct the name";
                    self.problem(id, format!("`{{args.{name}}}` is no argument"), fix);
                }
            }
            Reference::Step { id: named, .. } => {
                let is_branch = |step: &Step| match &step.work {
                    StepWork::Parallel(branches) => branches.iter().any(|branch| branch.id == named),
                    _ => false,
                };
                if self.workflow.position(named).is_none() && !self.workflow.steps.iter().any(is_branch) {
                    let what = format!("`{{steps.{named}…}}` names a step that does not exist");
                    self.problem(id, what, "name a step of this file");
                }
            }
            Reference::Item(_) if !has_item => {
                self.problem(id, "`{item}` has a meaning in a step with `each` only", "name another value");
            }
            Reference::Item(_) | Reference::Now | Reference::Today | Reference::State { .. } => {}
        }
    }

    /// Reports the steps that no way leads to.
    fn reach(&mut self) {
        let (mut reached, mut open) = (BTreeSet::new(), vec![0]);
        while let Some(at) = open.pop() {
            if at < self.workflow.steps.len() && reached.insert(at) {
                open.extend(self.workflow.successors(at));
            }
        }
        for (at, step) in self.workflow.steps.iter().enumerate() {
            if !reached.contains(&at) && !matches!(step.work, StepWork::Repeat { .. }) {
                let fix = "name it in the `next` of another step, or remove it";
                self.problem(&step.id, "no way leads to this step", fix);
            }
        }
    }

    /// Reports a cycle of steps of which none has a bound.
    fn cycles(&mut self) {
        let count = self.workflow.steps.len();
        let is_bounded = |at: usize| self.workflow.steps.get(at).is_some_and(|step| step.visits_max.is_some());
        for start in (0..count).filter(|at| !is_bounded(*at)) {
            let (mut seen, mut open) = (BTreeSet::new(), self.workflow.successors(start));
            while let Some(at) = open.pop() {
                if at < count && !is_bounded(at) && seen.insert(at) {
                    open.extend(self.workflow.successors(at));
                }
            }
            if seen.contains(&start) {
                let id = self.workflow.steps[start].id.clone();
                let fix = "write `max: 5` at one of its steps, or use `loop`";
                return self.problem(&id, "it is a part of a cycle that has no bound", fix);
            }
        }
    }
}
