//! Carries out directives. Each effect is a future that ends in one value. The actor that owns it runs it as a tracked task
//! and gets the value as a message; nothing here touches an actor's state.

mod compact;
mod context;
mod drafts;
mod facts;
mod fallback;
mod fork;
mod hook;
mod job_command;
mod model;
mod route;
mod skill;
mod slash;
mod state;
mod workflow;

pub(crate) use compact::summarise;
pub(crate) use facts::{SkillsInUse, read_facts};
pub(crate) use fallback::{Fallback, ROUTER, call_with_fallback, note_step};
pub(crate) use fork::{ForkedBy, fork_by_command, fork_called, fork_if_requested};
pub(crate) use hook::{ApprovalAsk, HookDone, HookRequest, answer_of, ask_hook};
pub(crate) use job_command::{answer_carried_by, run_job_command, understand_job_command};
pub(crate) use model::{Begin, ModelCall, ModelDone, Waits, call_model};
pub(crate) use route::{Routed, prefer_requested, route};
pub(crate) use skill::{SkillDone, call_skill};
pub(crate) use slash::{help, nothing_to_end};
pub(crate) use state::state_in;
pub(crate) use workflow::{CalledWorkflow, StepRound, called_workflow, start_of, step_round, with_workflow};
