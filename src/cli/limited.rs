//! `annie run-limited`: sets resource limits for itself, runs another program under them, and ends that program when its own
//! parent exits. Annie starts a program backend through this shim, so that the operating system enforces the limits and no
//! process of the backend outlives Annie. It is not meant for interactive use.
//!
//! The shim watches its parent, because a parent-death signal (`PR_SET_PDEATHSIG`) would reach the program alone, and would come
//! too early if the thread that started it ends before its process. The shim is a subreaper: all descendants of the program
//! stay below it, even if they leave the process group, and end with the program or the parent.
//!
//! The program leads its own process group. A signal to that group, as `kill 0` sends it, does not reach the shim, which must
//! outlive the program.
//!
//! The program may end with any exit code; the shim exits with the same code. A pipe reports whether the program started, and
//! its process group. **open**: a program that kills the shim before the group is reported, in its first milliseconds, survives.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::Path,
    process::{Child, Command, ExitCode, ExitStatus},
};

use annie_process::{SHIM_GROUP, SHIM_NEVER_BEGAN, children_of, end_descendants, threads_below};
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

/// Exit codes as for `env` and `nice`: the shim failed, the program cannot be executed, the program does not exist.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Added to the signal number if a signal ended the program, as shells do.
const BY_SIGNAL: u8 = 128;
/// How often program and parent are polled: rarely if pidfds report their exit, otherwise often.
const POLL_RARELY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const POLL_OFTEN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How often the processes of the program are counted, if their number is limited.
const POLL_COUNT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Runs the program until it ends, or reports why it cannot.
pub fn run(console: &Console, options: &RunLimited) -> ExitCode {
    let Some((program, args)) = options.command.split_first() else { return ExitCode::from(FAILED) };
    // The pipe is opened before the limits make files and memory scarce.
    let report = open_report(options.parent, options.tell_fd);
    let mut command = Command::new(program);
    command.args(args).process_group(0);
    if let Err(e) = limit(options) {
        console.error(&Failure::new(Exit::Failure, format!("cannot set a limit: {e}")));
        report_to_parent(report, SHIM_NEVER_BEGAN);
        return ExitCode::from(FAILED);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => {
            console.error(&Failure::new(Exit::Failure, format!("cannot run {}: {e}", Path::new(program).display())));
            report_to_parent(report, SHIM_NEVER_BEGAN);
            return ExitCode::from(if e.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE });
        }
    };
    report_to_parent(report, &format!("{SHIM_GROUP}{}", child.id()));
    match wait_for_end(&mut child, options) {
        Ok(End::Ended(status)) => {
            end_descendants(getpid());
            end_like(status)
        }
        Ok(End::Orphaned) => end_all(&mut child),
        Ok(End::TooMany(max)) => {
            // Killed before the message, so that the program cannot fork meanwhile.
            kill_all(&mut child);
            let what = format!("the program had more than {max} processes and threads, and was ended");
            console.error(&Failure::new(Exit::Failure, what));
            ExitCode::from(FAILED)
        }
        Err(e) => {
            console
                .error(&Failure::new(Exit::Failure, format!("cannot wait for {}: {e}", Path::new(program).display())));
            end_all(&mut child)
        }
    }
}

/// Opens the pipe to the parent. The program does not inherit it. If the pipe cannot be opened nothing is reported, and the
/// parent treats a failure as one during the work.
pub(super) fn open_report(parent: Option<i32>, fd: Option<i32>) -> Option<OwnedFd> {
    let (parent, fd) = (parent?, fd?);
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(format!("/proc/{parent}/fd/{fd}"), flags, Mode::empty()).ok()
}

pub(super) fn report_to_parent(report: Option<OwnedFd>, what: &str) {
    if let Some(report) = report {
        // An error means that the parent is gone.
        let _ = rustix::io::write(&report, what.as_bytes());
    }
}

fn limit(options: &RunLimited) -> io::Result<()> {
    if !is_under(options.parent) {
        return Err(io::Error::other("the parent is gone"));
    }
    // A session leader is already a group leader.
    if getpgrp() != getpid() {
        setpgid(None, None)?;
    }
    // Orphaned descendants of the program become children of this process.
    set_child_subreaper(Some(getpid()))?;
    lower(Resource::Core, Some(0), 0)?;
    lower(Resource::Nofile, options.files, 0)?;
    lower(Resource::Nproc, options.procs, 0)?;
    lower(Resource::Fsize, options.file_bytes, 0)?;
    // SIGXCPU at the limit, SIGKILL one second later.
    lower(Resource::Cpu, options.cpu_s, 1)?;
    lower(Resource::As, options.as_bytes, 0)
}

/// Lowers a limit; never raises a limit that was already set for this process.
fn lower(resource: Resource, wanted: Option<u64>, grace: u64) -> io::Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let max = getrlimit(resource).maximum;
    let at_most = |n: u64| Some(max.map_or(n, |max| n.min(max)));
    Ok(setrlimit(resource, Rlimit { current: at_most(wanted), maximum: at_most(wanted.saturating_add(grace)) })?)
}

/// Whether the named process is still the parent; always true if none was named.
fn is_under(parent: Option<i32>) -> bool {
    parent.is_none_or(|parent| getppid().map(|pid| pid.as_raw_nonzero().get()) == Some(parent))
}

/// Why the shim stops waiting.
enum End {
    /// The program ended.
    Ended(ExitStatus),
    /// The parent ended.
    Orphaned,
    /// The program has more processes and threads than this limit.
    TooMany(u64),
}

/// Waits until the program or the parent ends, or the program has too many processes.
fn wait_for_end(child: &mut Child, options: &RunLimited) -> io::Result<End> {
    let parent = options.parent;
    // The pipes belong to the program now. The shim closes its own copies, so that the other side notices when the program closes
    // its end.
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    let both = [i32::try_from(child.id()).ok(), parent];
    let pidfds: Vec<OwnedFd> = both
        .into_iter()
        .flatten()
        .filter_map(Pid::from_raw)
        .filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        .collect();
    let pause = match options.own_procs {
        Some(_) => POLL_COUNT,
        None if pidfds.len() == both.len() => POLL_RARELY,
        None => POLL_OFTEN,
    };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(End::Ended(status));
        }
        if !is_under(parent) {
            return Ok(End::Orphaned);
        }
        if let Some(max) = options.own_procs.filter(|max| threads_below(getpid()) > *max) {
            return Ok(End::TooMany(max));
        }
        reap_orphans(child);
        let mut fds: Vec<PollFd<'_>> =
            pidfds.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
        match poll(&mut fds, Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Reaps orphaned descendants of the program, so that they do not fill the process table. The program itself is reaped by
/// `child.try_wait`.
fn reap_orphans(program: &Child) {
    let any_has_ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if !matches!(waitid(WaitId::All, any_has_ended), Ok(Some(_))) {
        return;
    }
    let is_program = |pid: &Pid| pid.as_raw_nonzero().get().unsigned_abs() == program.id();
    for orphan in children_of(getpid()).into_iter().filter(|pid| !is_program(pid)) {
        // A running process is not affected.
        let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
    }
}

/// Ends as the program did, so that the parent sees the same exit status.
fn end_like(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process(getpid(), signal);
        }
        return ExitCode::from(BY_SIGNAL.saturating_add(u8::try_from(signal).unwrap_or_default()));
    }
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED))
}

/// Ends the program and all its descendants.
fn kill_all(child: &mut Child) {
    // The whole group at once, then the remaining descendants one by one.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    end_descendants(getpid());
}

/// Ends the program, all its descendants, and this process.
fn end_all(child: &mut Child) -> ExitCode {
    kill_all(child);
    let _ = kill_process_group(getpgrp(), Signal::KILL);
    ExitCode::from(FAILED)
}
