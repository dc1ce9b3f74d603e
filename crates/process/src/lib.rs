//! The one way in which Annie starts programs: of backends, of hooks, of skills, and of MCP servers.
//!
//! [`execute`] starts a [`Launch`]: an argument list and never a shell, an environment that the caller lists, a process group
//! of its own that ends with the call, and limits of time and output. [`spawn`] starts one that runs until it is dropped, and
//! leaves its pipes to the caller. With a shim (`annie run-limited`) the operating system enforces further limits, and no process
//! outlives Annie. With a [`Sandbox`] the shim starts `annie __sandbox`, which calls [`enter`] and then becomes the program.

mod enter;
mod error;
mod filter;
mod group;
mod launch;
mod limits;
mod pipe;
mod run;
mod sandbox;
mod tree;

pub use enter::{Enforced, enter};
pub use error::ProcessError;
pub use launch::Launch;
pub use limits::ProcessLimits;
pub use pipe::{SHIM_GROUP, SHIM_NEVER_BEGAN, ShimReport};
pub use run::{Broken, Ended, Pipes, Running, StderrTail, execute, spawn};
pub use sandbox::{Sandbox, SandboxLevel};
pub use tree::{children_of, end_descendants, threads_below};

/// The exit code with which `annie __sandbox` reports that the sandbox is not available. It counts only with the report that
/// the program never began.
pub const SANDBOX_MISSING: i32 = 125;
