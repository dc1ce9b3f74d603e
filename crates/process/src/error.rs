//! Why a sandbox cannot be entered.

/// The sandbox is not in force; nothing may be run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Landlock cannot be applied.
    #[error("cannot apply Landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// The seccomp filter cannot be built for this processor.
    #[error("cannot build the seccomp filter: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// The kernel does not accept the seccomp filter.
    #[error("cannot apply the seccomp filter: {0}")]
    Seccomp(#[from] seccompiler::Error),
    /// The capabilities of the superuser cannot be dropped.
    #[error("cannot drop capabilities: {0}")]
    Capabilities(#[source] rustix::io::Errno),
    /// The kernel has no Landlock.
    #[error("this kernel enforces no Landlock rules; enable Landlock (Linux 5.13 or later, `lsm=landlock,...`)")]
    NoLandlock,
    /// The kernel's Landlock is older than the required level.
    #[error(
        "this kernel enforces only a part of the Landlock rules, and the level `strict` needs all of them (Linux 6.12 or later); \
         set `level = \"best_effort\"` below `[sandbox]` to accept that"
    )]
    PartialLandlock,
}
