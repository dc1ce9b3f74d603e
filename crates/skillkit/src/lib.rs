//! Skills: files, catalogue, argument declarations, built-in handlers, runner, router.
//!
//! A skill is a file (`skills/<domain>/<verb>.md` or `<name>/SKILL.md`) and, for a command skill, a [`builtin`] handler.
//! [`FileCatalog`] keeps the catalogue of these skills current, and [`Runner`] runs one of them. [`Router`] joins them and
//! the skills of other sources. [`context_sources`] shows the data of skills in prompts, and [`validate`] lists the problems of
//! files before they are used.

mod approved;
mod builtin;
mod catalog;
mod context;
mod egress;
mod error;
mod files;
mod handler;
mod request;
mod router;
mod runner;
mod script;
mod template;
mod text;
mod trash;
pub mod when;
mod workflows;

pub use approved::{ApprovalState, BuiltSkill, DecisionError, SkillDecision};
pub use builtin::{
    files::{FileFolder, FileRules},
    memory::data::{MEMORY, MemoryDecay},
    tasks::data::TASKS,
    web::{SearchKind, SearchRules},
};
pub use catalog::{FileCatalog, ProgramSkills};
pub use context::context_sources;
pub use egress::{EgressLimits, EgressParts, EgressRules, HostPort, HttpEgress, Lookup, SystemLookup};
pub use error::SkillError;
pub use files::{Problem, Severity, SkillTemplate, validate};
pub use router::Router;
pub use runner::{Runner, RunnerParts};
pub use script::ProgramRules;
pub use workflows::{WorkflowFolder, validate_workflow};
