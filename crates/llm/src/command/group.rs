//! The processes of one run. They end with this value, whoever they are.

use rustix::process::{Pid, Signal, kill_process_group};

use super::tree::end_descendants;

/// A process group, and with a shim every process below it, that is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Group {
    leader: Option<Pid>,
    /// The leader is the shim and has not been waited for, so its number is its own and whatever left the group is below it.
    is_tree: bool,
}

impl Group {
    /// The group that this child leads.
    pub(super) fn of(child: &tokio::process::Child, is_shim: bool) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { leader, is_tree: is_shim }
    }

    /// The group of a program whose shim is gone.
    pub(super) const fn led_by(program: Pid) -> Self {
        Self { leader: Some(program), is_tree: false }
    }

    /// The leader has been waited for. A shim has ended what was below it before it ended itself.
    pub(super) const fn leader_has_ended(&mut self) {
        self.is_tree = false;
    }

    /// Ends all of them. The number is used once: when the leader has been waited for and nobody is left in the group, the
    /// number may one day be another's.
    pub(super) fn kill(&mut self) {
        let Some(leader) = self.leader.take() else { return };
        if self.is_tree {
            // Before the shim itself: the orphans of a dead shim belong to init.
            end_descendants(leader);
        }
        // A group that nobody is in any more is what was wanted.
        let _ = kill_process_group(leader, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
