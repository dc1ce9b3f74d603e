//! `annie exec-limited`: limits itself and becomes another program. A program that is a backend is started through this,
//! so that the kernel holds it to its limits and ends it when Annie is killed. People have no use for it.
//!
//! The death signal comes when the thread ends that started this process, so that must be one that lives as long as the
//! call: a worker of the runtime, never a thread for blocking work. It reaches the program and not the program's children.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use rustix::process::{Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit};

use super::{
    args::ExecLimited,
    console::Console,
    failure::{Exit, Failure},
};

/// The exit codes that `env` and `nice` have too: this itself failed, the program cannot be run, there is none.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Becomes the program, or says why not.
pub fn run(console: &Console, wish: &ExecLimited) -> ExitCode {
    let Some((program, args)) = wish.command.split_first() else { return ExitCode::from(FAILED) };
    // Made before memory may be scarce.
    let mut command = Command::new(program);
    command.args(args);
    if let Err(e) = limit(wish) {
        console.error(&Failure::new(Exit::Failure, format!("cannot set a limit: {e}")));
        return ExitCode::from(FAILED);
    }
    let error = command.exec();
    console.error(&Failure::new(Exit::Failure, format!("cannot run {}: {error}", program.display())));
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}

fn limit(wish: &ExecLimited) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Who had died before that sends no signal any more.
    if let Some(parent) = wish.parent
        && getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent)
    {
        return Err(io::Error::other("the parent is gone"));
    }
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
