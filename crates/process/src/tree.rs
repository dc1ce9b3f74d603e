//! The descendants of a process, found through `/proc`. A process that calls `setsid` leaves its process group, but not
//! this tree: the shim is a subreaper, so an orphan below it becomes its child and not a child of init.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How many times the tree is read. A process that forks faster than it can be killed is given up after that.
const ROUNDS_MAX: u32 = 32;
/// The parent of a process in `/proc/PID/stat`, and the number of its threads.
const PARENT_FIELD: usize = 1;
const THREADS_FIELD: usize = 17;

/// Kills all descendants of a process, but not the process itself. A killed process cannot fork, so the tree is read until
/// it shows no new process.
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

/// The children of a process, zombies included.
#[must_use]
pub fn children_of(parent: Pid) -> Vec<Pid> {
    parents().into_iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid).collect()
}

/// How many threads all descendants of a process have together. A process without further threads counts as one.
#[must_use]
pub fn threads_below(root: Pid) -> u64 {
    let parents = parents();
    let below = parents.keys().filter(|pid| is_below(**pid, root, &parents));
    below.filter_map(|pid| stat_field(*pid, THREADS_FIELD)?.parse::<u64>().ok()).sum()
}

/// Kills a process of the tree. Its id may have been reused since the tree was read. The pidfd is therefore opened before
/// the parent is checked: the parent of an unrelated process is not in the tree.
fn kill(pid: Pid, tree: &HashSet<Pid>) {
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if parent_of(pid).is_some_and(|parent| tree.contains(&parent)) {
        // An error means that the process has already ended.
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
}

fn is_below(pid: Pid, root: Pid, parents: &HashMap<Pid, Pid>) -> bool {
    let mut at = pid;
    // The entries are read one after another, so they may even show a cycle.
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
    Pid::from_raw(stat_field(pid, PARENT_FIELD)?.parse().ok()?)
}

/// One field of `/proc/PID/stat`, counted from 0 after the process name.
fn stat_field(pid: Pid, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The process name before the last bracket may contain anything, including brackets and blanks.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(field).map(str::to_owned)
}
