//! The process group of one run. It ends with this value, whoever is in it.

use rustix::process::{Pid, Signal, kill_process_group};

/// A process group that is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Group(Option<Pid>);

impl Group {
    /// The group that this child leads.
    pub(super) fn of(child: &tokio::process::Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// Ends everything in it. The number is used once: when the leader has been waited for and nobody is left in the
    /// group, the number may one day be another's.
    pub(super) fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            // A group that nobody is in any more is what was wanted.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
