//! The living tree: everything that is an actor, and nothing else. Ractor lives here and nowhere else.
//!
//! [`Kernel`] is what the doors hold. The rest is the tree of supervised actors behind it.

mod backend;
mod breaker;
mod conversations;
mod effects;
mod engine;
mod expiry;
mod fixed;
mod hub;
mod jobs;
mod kernel;
mod letters;
mod log_writer;
mod lookout;
mod node_lease;
mod notify;
mod observe;
mod operations;
mod park;
mod root;
mod scheduler;
mod services;
mod shared_effects;
mod sub_agent;
mod supervise;
mod tasks;
mod watchdog;
mod wiring;

pub use engine::Control;
pub use kernel::{
    EmbedError, Follow, Health, Kernel, KernelError, LETTERS_AT_ONCE_MAX, LetterDetail, ManyDone, ManyLetters,
    NoticeStream, Operation, OperationResult, PAGE_MAX, Parts, StopReason, StreamItem, Submission, Submitted,
    THREAD_BYTES_MAX,
};
pub use node_lease::LeaseLimits;
pub use observe::{Crash, NodeInfo, Path};
pub use scheduler::{GateGrant, Place};
pub use services::MakeService;
pub use wiring::{Backend, KernelLimits, Profile, Profiles, Routing};
