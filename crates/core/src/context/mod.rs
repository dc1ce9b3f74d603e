//! Builds the input of a model: prompts, tool definitions, and history within its budget. All functions are pure and use
//! recorded facts only, so that a round can be repeated with identical input.

mod clip;
mod compaction;
mod frame;
mod history;
mod prompts;
mod tools;

pub use clip::{clip, is_clipped};
pub use compaction::{SUMMARISE, SUMMARY_BYTES_MAX, Span, Summary, to_summarise, with_context};
pub(crate) use frame::with_fences;
pub use frame::{Framed, Frames, escape, framed, unescape};
pub use history::{Exchange, History, Shown, Step, tokens, tokens_of};
pub use prompts::{
    VOICE, active_skill_part, agent_context, agent_mission, agent_system, continue_note, main_system, main_system_cmd,
    small_talk_system, turn_context,
};
pub(crate) use tools::TOOL_NAME_BYTES_MAX;
pub use tools::{
    SkillsList, control_tools, direct_tool_name, main_tools, scoped_use_skill, skills_list, skills_list_for,
};
