//! What a model is sent: prompts, tool definitions, history within its budget. Pure functions of recorded facts, so that
//! a round can be asked again word for word.

mod clip;
mod frame;
mod history;
mod prompts;
mod tools;

pub use clip::clip;
pub(crate) use frame::with_fences;
pub use frame::{Framed, Frames, escape, framed, unescape};
pub use history::{Exchange, History, Shown, Step, tokens, tokens_of};
pub use prompts::{
    agent_context, agent_mission, agent_system, continue_note, main_system, main_system_cmd, turn_context,
};
pub(crate) use tools::TOOL_NAME_BYTES_MAX;
pub use tools::{SkillsList, direct_tool_name, main_tools, scoped_use_skill, skills_list, skills_list_for};
