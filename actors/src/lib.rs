//! The tree of actors. Ractor is used in this package and nowhere else.
//!
//! [`Kernel`] is the handle that front ends hold. The rest is the tree of supervised actors behind it.

mod agent;
mod audit;
mod backend;
mod breaker;
mod conversations;
mod dead_letters;
mod delivery;
mod due_timer;
mod effects;
mod engine;
mod erasure;
mod expiry;
mod extensions;
mod fail_open;
mod fixed;
mod fork_reports;
mod hook_breakers;
mod hub;
mod jobs;
mod kernel;
mod live_channel;
mod log_ids;
mod log_writer;
mod node_lease;
mod notify;
mod observe;
mod opening;
mod operations;
mod orders;
mod ownership;
mod pulse;
mod reminders;
mod reply_cache;
mod root;
mod scheduler;
mod schedules;
mod services;
mod shared_effects;
mod skill_lists;
mod spend;
mod sub_agent;
mod subscriptions;
mod supervise;
mod task_log;
mod tasks;
mod watchdog;
mod wiring;
mod worker;

pub use audit::{Act, ActFilter, ActRequest, ActsPage, AuditPage, BrokenSeal, SealChore};
pub use engine::Control;
pub use erasure::{ErasedUser, ErasureChore, RetentionRules, erase_user};
pub use extensions::Extensions;
pub use kernel::{
    CommandCaller, Copy, DEAD_LETTERS_AT_ONCE_MAX, DeadLetterDetail, DeleteOptions, EXPORT_MARK, EXPORT_VERSION,
    EmbedError, Follow, FoundConversation, Health, ImportPart, Kernel, KernelError, KnownWorkflow, ManyDeadLetters,
    ManyDone, NoticeStream, OpenAgent, OpenApproval, Operation, OperationResult, PAGE_MAX, Parts, ReplayRequest,
    Replayed, RunWorkflow, SkillRun, StateChanged, StreamItem, Submission, Submitted, THREAD_BYTES_MAX, WorkflowState,
    with_titles,
};
pub use node_lease::LeaseLimits;
pub use observe::{Crash, NodeInfo, OperatedActor, Path};
pub use orders::{Order, OrderKind};
pub use pulse::PulseMinute;
pub use reply_cache::CacheLimits;
pub use root::StopReason;
pub use scheduler::{BackendLoad, GateGrant, QueuePosition};
pub use services::MakeService;
pub use wiring::{Backend, KernelLimits, Profile, Profiles, Routing};
