//! `annie __sandbox`: enters the sandbox and becomes another program. The shim (`run-limited`) starts it in the place of a
//! program that must not do more than compute. Without a program it prints how much of the sandbox is in force here.
//!
//! This process has one thread, and ends or becomes the program. No destructor of the shim is needed after that.

use std::{
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
};

use annie_process::{Enforced, SANDBOX_MISSING, SHIM_NEVER_BEGAN, Sandbox, enter};

use super::{
    args::SandboxArgs,
    console::Console,
    failure::{Exit, Failure},
    limited::{open_report, report_to_parent},
};

/// Exit codes as for `env`: the program cannot be executed, the program does not exist.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Becomes the program, or reports that the program never began.
pub fn run(console: &Console, options: &SandboxArgs) -> ExitCode {
    // The report is opened first: the sandbox hides other processes.
    let report = open_report(options.parent, options.tell_fd);
    let sandbox = Sandbox {
        level: options.level,
        folder: options.folder.clone(),
        read: options.read.clone(),
        network: options.network,
    };
    let (failure, code) = match enter(&sandbox) {
        Ok(enforced) => match options.command.split_first() {
            Some((program, args)) => cannot_become(Path::new(program), Command::new(program).args(args).exec()),
            None => return print(console, enforced),
        },
        Err(e) => {
            let what = format!("the sandbox is not available: {e}");
            (Failure::new(Exit::Failure, what), u8::try_from(SANDBOX_MISSING).unwrap_or(NOT_EXECUTABLE))
        }
    };
    console.error(&failure);
    report_to_parent(report, SHIM_NEVER_BEGAN);
    ExitCode::from(code)
}

fn cannot_become(program: &Path, why: io::Error) -> (Failure, u8) {
    let code = if why.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    (Failure::new(Exit::Failure, format!("cannot run {}: {why}", program.display())), code)
}

fn print(console: &Console, enforced: Enforced) -> ExitCode {
    match console.line(enforced.as_str()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
