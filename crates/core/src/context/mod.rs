//! What a model is sent: prompts, tool definitions, history within its budget. Pure functions of recorded facts, so that
//! a round can be asked again word for word.

mod clip;
mod history;
mod prompts;
mod tools;

pub use clip::clip;
pub use history::{Exchange, History, tokens, tokens_of};
pub use prompts::{agent_mission, agent_system, continue_note, main_system, turn_context};
pub use tools::{direct_tool_name, main_tools, scoped_use_skill, skills_text};
