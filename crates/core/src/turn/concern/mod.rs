//! The concerns of a conversation and its turns: one file each, with its own state, its folds, and the decisions and directives
//! that follow. `machine` routes the events to them.

mod active_skill;
mod agent_control;
mod approvals;
mod budget;
mod compaction;
mod control;
mod copied;
mod deadlines;
mod deferral;
mod effects;
mod ending;
mod inbox;
mod job_commands;
mod joins;
mod lanes;
mod opening;
mod plan;
mod recovery;
mod retry;
mod rounds;
mod steering;

pub use active_skill::Carried;
pub use approvals::{Approval, ApprovalStep, ApprovedSkill};
pub use compaction::{Compaction, CompactionWork, Summarised};
pub use control::Control;
pub use deadlines::Clock;
pub use deferral::Deferral;
pub use ending::Paused;
pub use inbox::Pending;
pub use job_commands::{JobCommand, Meant};
pub use joins::Joined;
pub use lanes::Lane;
pub use plan::Agents;
pub use recovery::Recovery;
pub use retry::{Retries, workflow_not_started};
pub use steering::Steering;

pub(super) use compaction::Basis;

pub(super) use budget::{Now, window_start};
pub(super) use deadlines::missed_deadline;
