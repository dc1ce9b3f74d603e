//! The processes of one run. Dropping a `Group` kills them all.

use rustix::process::{Pid, Signal, kill_process_group};

use crate::tree::end_descendants;

/// A process group that is killed on drop. With a shim, all descendants of the shim are killed as well.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Option<Pid>,
    /// True while the leader is a shim that has not been waited for. Until then its process id cannot be reused, and
    /// processes that left the group are still its descendants.
    is_tree: bool,
}

impl Group {
    /// The group that this child leads.
    pub(crate) fn of(child: &tokio::process::Child, is_shim: bool) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { leader, is_tree: is_shim }
    }

    /// The group of a program whose shim has ended.
    pub(crate) const fn led_by(program: Pid) -> Self {
        Self { leader: Some(program), is_tree: false }
    }

    /// Records that the leader was waited for. A shim kills its descendants before it ends.
    pub(crate) const fn leader_has_ended(&mut self) {
        self.is_tree = false;
    }

    /// Kills all processes. The process id is used only once: when the leader has been waited for and the group is empty,
    /// the id may be reused by an unrelated process.
    pub(crate) fn kill(&mut self) {
        let Some(leader) = self.leader.take() else { return };
        if self.is_tree {
            // Descendants first: when the shim dies, its orphans are reparented to init.
            end_descendants(leader);
        }
        // An error means that the group is already empty.
        let _ = kill_process_group(leader, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
