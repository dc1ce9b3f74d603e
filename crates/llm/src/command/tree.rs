//! Every process below one, found through `/proc`. A process that calls `setsid` leaves its process group, but not this tree:
//! the shim is a subreaper, so an orphan below it becomes its child and never the child of init.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How often the tree is read. A process that forks faster than it can be killed is given up after so many.
const ROUNDS_MAX: u32 = 32;

/// Kills every process below this one, which itself stays. A killed process forks no more, so the tree is read until it
/// shows no process that was not killed before.
pub fn end_descendants(root: Pid) {
    let mut tree = HashSet::from([root]);
    for _ in 0..ROUNDS_MAX {
        let parents = parents();
        let new: Vec<Pid> =
            parents.keys().copied().filter(|pid| !tree.contains(pid) && is_below(*pid, root, &parents)).collect();
        if new.is_empty() {
            return;
        }
        tree.extend(&new);
        for pid in new {
            kill(pid, &tree);
        }
    }
}

/// The children of a process, also those that have ended and were not waited for.
#[must_use]
pub fn children_of(parent: Pid) -> Vec<Pid> {
    parents().into_iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid).collect()
}

/// Kills a process of the tree. Its number may have become another process's since the tree was read: the handle is held
/// while the parent is looked at, and a stranger's parent is not in the tree.
fn kill(pid: Pid, tree: &HashSet<Pid>) {
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if parent_of(pid).is_some_and(|parent| tree.contains(&parent)) {
        // It may have ended by itself.
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
}

fn is_below(pid: Pid, root: Pid, parents: &HashMap<Pid, Pid>) -> bool {
    let mut at = pid;
    // The entries are read one after the other, so they may even show a circle.
    for _ in 0..parents.len() {
        match parents.get(&at) {
            Some(parent) if *parent == root => return true,
            Some(parent) => at = *parent,
            None => return false,
        }
    }
    false
}

/// Every process and its parent.
fn parents() -> HashMap<Pid, Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return HashMap::new() };
    let pids = entries.filter_map(|e| Pid::from_raw(e.ok()?.file_name().to_str()?.parse().ok()?));
    pids.filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name before it may hold anything, brackets and blanks too.
    let (_, rest) = stat.rsplit_once(')')?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}
