//! The loop of one agent, which the Engine runs for the main agent and a sub-agent's actor for itself: a directive becomes a
//! round, a skill run or a question to a hook in a tracked task, and its result becomes an event.
//!
//! Owns: nothing. Survives its callers: the events; both actors start what is outstanding again from the log.

mod append;
mod effect;
mod hooks;
mod result;

pub(crate) use append::{Stored, append_owned};
pub(crate) use effect::{AgentTasks, RoundHandles, start};
pub(crate) use hooks::{AnswerWithoutTurn, JudgedTurn, Resolved, hook_decided, judge_turn, note, record, resolve};
pub(crate) use result::{AgentDone, Finished, after_reply, chosen, failed, replied, skill_finished};
