//! Hooks outside the kernel.

use super::Fut;
use crate::{event::HookAnswer, hooks::HookQuestion};

/// Asks one hook outside the kernel for its verdict.
pub trait HookRunner: Send + Sync {
    /// Asks the hook. The caller limits the time and drops the future at the limit, or if the turn ends; what was started for
    /// the question must then end too. The same question may be asked again after a crash, under the same id, so an answer
    /// must have no effect of its own. Must not block the thread.
    ///
    /// # Errors
    /// The reason why there is no valid verdict, for the log of events.
    fn ask<'a>(&'a self, question: &'a HookQuestion) -> Fut<'a, Result<HookAnswer, String>>;
}
