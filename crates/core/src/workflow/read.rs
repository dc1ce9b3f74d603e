//! Reads the steps of a workflow's file, with all problems at once. Steps that contain others become a list.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    Branch, END, Route, Step, StepWork, WORKFLOW_BYTES_MAX, Work, Workflow, WorkflowLimits, WorkflowProblem,
    check::check,
};
use crate::{effort::Effort, skill::ArgSpec};

/// The longest name of a step, in bytes.
const ID_BYTES_MAX: usize = 40;
/// How deep steps may contain others.
const DEPTH_MAX: usize = 4;
/// The keys of a step.
const KEYS: [&str; 13] = [
    "id",
    "skill",
    "args",
    "agent",
    "skills",
    "calls_max",
    "effort",
    "parallel",
    "each",
    "loop",
    "answer",
    "next",
    "max",
];
/// The keys of a call within another step.
const CALL_KEYS: [&str; 7] = ["id", "skill", "args", "agent", "skills", "calls_max", "effort"];
/// The keys that say what a step does.
const KINDS: [&str; 6] = ["skill", "agent", "parallel", "each", "loop", "answer"];
/// The end of the name of the step at the end of a loop. No step of a file can have such a name.
const AGAIN: &str = ".again";

/// The head of a workflow's file without its steps.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowHead {
    /// The name.
    pub name: String,
    /// One sentence: its purpose.
    pub description: String,
    /// Its arguments, required ones first.
    pub args: Vec<ArgSpec>,
}

/// The workflow with these steps, if nothing is wrong with it, and otherwise all problems.
///
/// # Errors
/// All problems, in the order of the steps.
pub fn read(head: WorkflowHead, steps: &Value, limits: &WorkflowLimits) -> Result<Workflow, Vec<WorkflowProblem>> {
    let mut reader = Reader { limits, steps: Vec::new(), ids: BTreeSet::new(), problems: Vec::new() };
    match steps.as_array() {
        Some(steps) if !steps.is_empty() => reader.steps(steps, 0),
        _ => {
            reader.problem("", "`steps` must be a list of steps", "write `- id: first` with `skill: …` below `steps:`")
        }
    }
    let Reader { steps, mut problems, .. } = reader;
    let count = steps.iter().map(calls_of).sum::<usize>();
    let steps_max = limits.steps_max as usize;
    if count > steps_max {
        let what = format!("it has {count} steps, and at most {steps_max} are allowed");
        problems.push(WorkflowProblem {
            step: String::new(),
            what,
            fix: "divide it into several workflows".to_owned(),
        });
    }
    let WorkflowHead { name, description, args } = head;
    let workflow = Workflow { name, description, args, steps };
    problems.extend(check(&workflow));
    if serde_json::to_string(&workflow).is_ok_and(|text| text.len() > WORKFLOW_BYTES_MAX) {
        let what = format!("its definition is larger than {WORKFLOW_BYTES_MAX} bytes");
        let fix = "divide it into several workflows".to_owned();
        problems.push(WorkflowProblem { step: String::new(), what, fix });
    }
    if problems.is_empty() { Ok(workflow) } else { Err(problems) }
}

/// How many steps of the file a step of the list stands for.
fn calls_of(step: &Step) -> usize {
    match &step.work {
        StepWork::Parallel(branches) => branches.len() + 1,
        StepWork::Repeat { .. } => 0,
        StepWork::Call(_) | StepWork::Each { .. } | StepWork::Enter | StepWork::Answer(_) => 1,
    }
}

struct Reader<'a> {
    limits: &'a WorkflowLimits,
    steps: Vec<Step>,
    ids: BTreeSet<String>,
    problems: Vec<WorkflowProblem>,
}

impl Reader<'_> {
    fn problem(&mut self, step: &str, what: impl Into<String>, fix: impl Into<String>) {
        self.problems.push(WorkflowProblem { step: step.to_owned(), what: what.into(), fix: fix.into() });
    }

    fn steps(&mut self, steps: &[Value], depth: usize) {
        for step in steps {
            match step.as_object() {
                Some(step) => self.step(step, depth),
                None => self.problem("", "a step is not a mapping", "write `- id: first` with `skill: …` below it"),
            }
        }
    }

    fn step(&mut self, step: &Map<String, Value>, depth: usize) {
        let id = self.id(step);
        self.known(&id, step, &KEYS);
        let kinds: Vec<&str> = KINDS.into_iter().filter(|kind| step.contains_key(*kind)).collect();
        let [kind] = kinds.as_slice() else {
            let what = if kinds.is_empty() {
                "it does nothing".to_owned()
            } else {
                format!("it does several things: {}", kinds.join(", "))
            };
            return self.problem(&id, what, format!("write exactly one of {}", KINDS.join(", ")));
        };
        let next = self.routes(&id, step.get("next"));
        let visits_max = self.bound(&id, "max", step.get("max"));
        let work = match *kind {
            "parallel" => self.parallel(&id, &step["parallel"]),
            "each" => self.each(&id, &step["each"]),
            "loop" => return self.repeated(id, &step["loop"], (next, visits_max), depth),
            "answer" => Some(StepWork::Answer(self.text(&id, "answer", step))),
            _ => self.call(&id, step).map(StepWork::Call),
        };
        if let Some(work) = work {
            self.steps.push(Step { id, work, next, visits_max });
        }
    }

    /// The name of a step, which is also taken.
    fn id(&mut self, step: &Map<String, Value>) -> String {
        let Some(id) = step.get("id").and_then(Value::as_str) else {
            let place = format!("step {}", self.ids.len() + 1);
            self.problem(&place, "it has no name", "write `id: …`");
            return place;
        };
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
        let begins = id.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || id.len() > ID_BYTES_MAX || !id.chars().all(is_part) || id == END {
            let fix = format!(
                "use small letters, digits, `-` and `_`, a letter first, at most {ID_BYTES_MAX} bytes, and not `{END}`"
            );
            self.problem(id, "this cannot be the name of a step", fix);
        }
        if !self.ids.insert(id.to_owned()) {
            self.problem(id, "the name is taken by another step", "give each step a name of its own");
        }
        id.to_owned()
    }

    fn known(&mut self, id: &str, map: &Map<String, Value>, keys: &[&str]) {
        for key in map.keys().filter(|key| !keys.contains(&key.as_str())) {
            self.problem(id, format!("unknown key `{key}`"), format!("known are {}", keys.join(", ")));
        }
    }

    /// A text that must be there.
    fn text(&mut self, id: &str, key: &str, map: &Map<String, Value>) -> String {
        match map.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty()) {
            Some(text) => text.to_owned(),
            None => {
                self.problem(id, format!("`{key}` must be a text"), format!("write `{key}: …`"));
                String::new()
            }
        }
    }

    /// A number from 1 to the limit of passes.
    fn bound(&mut self, id: &str, key: &str, value: Option<&Value>) -> Option<u32> {
        let value = value?;
        let number = value.as_u64().and_then(|n| u32::try_from(n).ok());
        let bound = number.filter(|n| (1..=self.limits.loop_max).contains(n));
        if bound.is_none() {
            self.problem(
                id,
                format!("`{key}` must be a whole number from 1 to {}", self.limits.loop_max),
                "correct it",
            );
        }
        bound
    }

    fn call(&mut self, id: &str, call: &Map<String, Value>) -> Option<Work> {
        match (call.contains_key("skill"), call.contains_key("agent")) {
            (true, false) => {
                let args = match call.get("args") {
                    None | Some(Value::Null) => Map::new(),
                    Some(Value::Object(args)) => args.clone(),
                    Some(_) => {
                        self.problem(id, "`args` must be a mapping", "write `title: …` below `args:`");
                        Map::new()
                    }
                };
                Some(Work::Skill { skill: self.text(id, "skill", call), args })
            }
            (false, true) => {
                let skills = self.names(id, call.get("skills"));
                let calls_max = call.get("calls_max").map(|value| value.as_u64().and_then(|n| u32::try_from(n).ok()));
                if calls_max == Some(None) {
                    self.problem(id, "`calls_max` must be a whole number", "write `calls_max: 5`");
                }
                let effort = self.effort(id, call.get("effort"));
                let mission = self.text(id, "agent", call);
                Some(Work::Agent { mission, skills, calls_max: calls_max.flatten(), effort })
            }
            _ => {
                self.problem(id, "a call needs `skill` or `agent`, and not both", "write `skill: tasks.search`");
                None
            }
        }
    }

    fn effort(&mut self, id: &str, value: Option<&Value>) -> Option<Effort> {
        let value = value?;
        let effort = value.as_str().and_then(Effort::named);
        if effort.is_none() {
            self.problem(id, "`effort` must be low, medium or high", "write `effort: low`");
        }
        effort
    }

    fn names(&mut self, id: &str, value: Option<&Value>) -> Vec<String> {
        match value {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
                names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            Some(_) => {
                self.problem(id, "`skills` must be a list of names", "write `skills: [tasks.search]`");
                Vec::new()
            }
        }
    }

    fn parallel(&mut self, id: &str, value: &Value) -> Option<StepWork> {
        let branches = value.as_array().filter(|branches| !branches.is_empty());
        let Some(branches) = branches else {
            self.problem(id, "`parallel` must be a list of calls", "write `- id: a` with `skill: …` below it");
            return None;
        };
        let parallel_max = self.limits.parallel_max as usize;
        if branches.len() > parallel_max {
            let what = format!("it makes {} calls at once, and at most {parallel_max} are allowed", branches.len());
            self.problem(id, what, "divide it into several steps");
        }
        let mut read = Vec::new();
        for branch in branches {
            let Some(branch) = branch.as_object() else {
                self.problem(id, "a call of `parallel` is not a mapping", "write `- id: a` with `skill: …` below it");
                continue;
            };
            let id = self.id(branch);
            self.known(&id, branch, &CALL_KEYS);
            if let Some(work) = self.call(&id, branch) {
                read.push(Branch { id, work });
            }
        }
        Some(StepWork::Parallel(read))
    }

    fn each(&mut self, id: &str, value: &Value) -> Option<StepWork> {
        const KEYS: [&str; 7] = ["of", "skill", "args", "agent", "skills", "calls_max", "effort"];
        let Some(each) = value.as_object() else {
            self.problem(id, "`each` must be a mapping", "write `of: \"{steps.list.result}\"` and `skill: …` below it");
            return None;
        };
        self.known(id, each, &KEYS);
        let of = self.text(id, "of", each);
        self.call(id, each).map(|work| StepWork::Each { of, work })
    }

    /// The steps of a loop, between its beginning and its end.
    fn repeated(&mut self, id: String, value: &Value, (next, visits_max): (Vec<Route>, Option<u32>), depth: usize) {
        const KEYS: [&str; 3] = ["max", "until", "steps"];
        let inner = value.get("steps").and_then(Value::as_array).filter(|steps| !steps.is_empty());
        let (Some(looped), Some(inner)) = (value.as_object(), inner) else {
            return self.problem(&id, "`loop` needs `max` and `steps`", "write `max: 5` and `steps:` below it");
        };
        self.known(&id, looped, &KEYS);
        if depth + 1 >= DEPTH_MAX {
            return self.problem(&id, format!("loops are more than {DEPTH_MAX} deep"), "divide it");
        }
        let passes_max = self.bound(&id, "max", looped.get("max"));
        if looped.get("max").is_none() {
            self.problem(&id, "the loop has no bound", "write `max: 5` below `loop:`");
        }
        let until = looped.get("until").map(|_| self.text(&id, "until", looped));
        self.steps.push(Step { id: id.clone(), work: StepWork::Enter, next: Vec::new(), visits_max });
        self.steps(inner, depth + 1);
        let work = StepWork::Repeat { of: id.clone(), until, passes_max: passes_max.unwrap_or(1) };
        self.steps.push(Step { id: format!("{id}{AGAIN}"), work, next, visits_max: None });
    }

    fn routes(&mut self, id: &str, value: Option<&Value>) -> Vec<Route> {
        const FIX: &str = "write `next: other`, or a list of `{on: failed, to: other}` and `{when: …, to: other}`";
        let listed = match value {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::String(to)) => return vec![Route { on: None, when: None, to: to.clone() }],
            Some(Value::Object(_)) => value.into_iter().collect(),
            Some(Value::Array(routes)) => routes.iter().collect::<Vec<_>>(),
            Some(_) => {
                self.problem(id, "`next` names no step", FIX);
                return Vec::new();
            }
        };
        let mut routes = Vec::new();
        for route in listed {
            let (Some(map), Some(to)) = (route.as_object(), route.get("to").and_then(Value::as_str)) else {
                self.problem(id, "a part of `next` has no `to`", FIX);
                continue;
            };
            self.known(id, map, &["on", "when", "to"]);
            let text = |key: &str| map.get(key).and_then(scalar);
            routes.push(Route { on: text("on"), when: text("when"), to: to.to_owned() });
        }
        routes
    }
}

/// A scalar as text: YAML reads `on: 404` as a number, and a bare `on` as a key that is true.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}
