//! `annie run-limited`: limits itself, runs another program under these limits, and ends it when its own parent is gone. A
//! program that is a backend is started through this, so that the kernel holds it to its limits and nothing of it outlives
//! Annie, however she ends. People have no use for it.
//!
//! A death signal of the kernel would reach the program alone, and come too early where the thread that started it ends
//! before its process does: so this watches its parent. It is a subreaper, so that whatever the program starts stays below
//! it, also what leaves the process group, and ends all of that with the program or the parent.
//!
//! The program leads a process group of its own: what it sends to its group, as `kill 0` does, does not reach this process,
//! which has to outlive it.
//!
//! The program may end with any exit code, this process mirrors it. That the program never began, or which group it leads, is
//! told over a pipe. **open**: a program that kills this process before the group is told, in its first milliseconds, stays.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::Path,
    process::{Child, Command, ExitCode, ExitStatus},
};

use annie_llm::{SHIM_GROUP, SHIM_NEVER_BEGAN, children_of, end_descendants};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions, getpgrp, getpid, getppid,
        getrlimit, kill_process, kill_process_group, pidfd_open, set_child_subreaper, setpgid, setrlimit, waitid,
        waitpid,
    },
};

use super::{
    args::RunLimited,
    console::Console,
    failure::{Exit, Failure},
};

/// The exit codes that `env` and `nice` have too: this itself failed, the program cannot be run, there is none.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// A shell's way to say which signal ended a program.
const BY_SIGNAL: u8 = 128;
/// How often program and parent are looked at, should the system not tell: rarely, and often where it cannot.
const LOOK_RARELY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const LOOK_OFTEN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Runs the program to its end, or says why not.
pub fn run(console: &Console, wish: &RunLimited) -> ExitCode {
    let Some((program, args)) = wish.command.split_first() else { return ExitCode::from(FAILED) };
    // Opened and made before files and memory may be scarce.
    let tell = open_tell(wish);
    let mut command = Command::new(program);
    command.args(args).process_group(0);
    if let Err(e) = limit(wish) {
        console.error(&Failure::new(Exit::Failure, format!("cannot set a limit: {e}")));
        tell_parent(tell, SHIM_NEVER_BEGAN);
        return ExitCode::from(FAILED);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => {
            console.error(&Failure::new(Exit::Failure, format!("cannot run {}: {e}", Path::new(program).display())));
            tell_parent(tell, SHIM_NEVER_BEGAN);
            return ExitCode::from(if e.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE });
        }
    };
    tell_parent(tell, &format!("{SHIM_GROUP}{}", child.id()));
    match attend(&mut child, wish.parent) {
        Ok(Some(status)) => {
            end_descendants(getpid());
            end_like(status)
        }
        Ok(None) => end_all(&mut child),
        Err(e) => {
            console
                .error(&Failure::new(Exit::Failure, format!("cannot wait for {}: {e}", Path::new(program).display())));
            end_all(&mut child)
        }
    }
}

/// The pipe to the parent. The program does not inherit it. Where it cannot be opened nothing is told, and the parent takes a
/// failure for one in the middle of the work.
fn open_tell(wish: &RunLimited) -> Option<OwnedFd> {
    let (parent, fd) = (wish.parent?, wish.tell_fd?);
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(format!("/proc/{parent}/fd/{fd}"), flags, Mode::empty()).ok()
}

fn tell_parent(tell: Option<OwnedFd>, what: &str) {
    if let Some(tell) = tell {
        // A parent that is gone does not need to know.
        let _ = rustix::io::write(&tell, what.as_bytes());
    }
}

fn limit(wish: &RunLimited) -> io::Result<()> {
    if !is_under(wish.parent) {
        return Err(io::Error::other("the parent is gone"));
    }
    // Who leads a session leads a group already.
    if getpgrp() != getpid() {
        setpgid(None, None)?;
    }
    // What the program starts and leaves behind becomes a child of this process.
    set_child_subreaper(Some(getpid()))?;
    lower(Resource::Core, Some(0), 0)?;
    lower(Resource::Nofile, wish.files, 0)?;
    lower(Resource::Nproc, wish.procs, 0)?;
    // First the signal that says why, a second later the one that nobody can ignore.
    lower(Resource::Cpu, wish.cpu_s, 1)?;
    lower(Resource::As, wish.as_bytes, 0)
}

/// Lowers a limit, and never raises what was set for this process already.
fn lower(resource: Resource, wanted: Option<u64>, grace: u64) -> io::Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let max = getrlimit(resource).maximum;
    let at_most = |n: u64| Some(max.map_or(n, |max| n.min(max)));
    Ok(setrlimit(resource, Rlimit { current: at_most(wanted), maximum: at_most(wanted.saturating_add(grace)) })?)
}

/// Whether this is still its parent; where none was named, always.
fn is_under(parent: Option<i32>) -> bool {
    parent.is_none_or(|parent| getppid().map(|pid| pid.as_raw_nonzero().get()) == Some(parent))
}

/// Waits for the program's end, or for the parent's: then nothing is returned.
fn attend(child: &mut Child, parent: Option<i32>) -> io::Result<Option<ExitStatus>> {
    // The pipes are the program's now: who closes its end must be seen by the other side.
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    let both = [i32::try_from(child.id()).ok(), parent];
    let told: Vec<OwnedFd> = both
        .into_iter()
        .flatten()
        .filter_map(Pid::from_raw)
        .filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        .collect();
    let pause = if told.len() == both.len() { LOOK_RARELY } else { LOOK_OFTEN };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if !is_under(parent) {
            return Ok(None);
        }
        reap_orphans(child);
        let mut fds: Vec<PollFd<'_>> =
            told.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
        match poll(&mut fds, Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Takes the ends of processes that the program left behind, so that they do not fill the process table. The program's own
/// end is taken by whoever waits for the program.
fn reap_orphans(program: &Child) {
    let any_has_ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if !matches!(waitid(WaitId::All, any_has_ended), Ok(Some(_))) {
        return;
    }
    let is_program = |pid: &Pid| pid.as_raw_nonzero().get().unsigned_abs() == program.id();
    for orphan in children_of(getpid()).into_iter().filter(|pid| !is_program(pid)) {
        // One that lives stays.
        let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
    }
}

/// Ends as the program did, so that whoever waits for this sees what it would have seen.
fn end_like(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process(getpid(), signal);
        }
        return ExitCode::from(BY_SIGNAL.saturating_add(u8::try_from(signal).unwrap_or_default()));
    }
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED))
}

/// Ends the program, whatever it has started, and this process.
fn end_all(child: &mut Child) -> ExitCode {
    // The whole group at once; one by one, those that are left.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    end_descendants(getpid());
    let _ = kill_process_group(getpgrp(), Signal::KILL);
    ExitCode::from(FAILED)
}
