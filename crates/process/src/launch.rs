//! One start of a program.

use std::{ffi::OsString, path::PathBuf};

use crate::{limits::ProcessLimits, sandbox::Sandbox};

/// A program to start, with everything that it gets.
#[derive(Clone, Default)]
pub struct Launch {
    /// The absolute path of the program. It is executed directly: no shell, no search path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment. The values may be secrets.
    pub environment: Vec<(String, String)>,
    /// Its working directory.
    pub folder: PathBuf,
    /// What it reads from stdin; `None` closes stdin.
    pub input: Option<Vec<u8>>,
    /// Time limit for the run, in milliseconds.
    pub run_ms_max: u64,
    /// Size limit for stdout, in bytes.
    pub output_bytes_max: usize,
    /// How many bytes from the end of stderr are kept.
    pub stderr_bytes_max: usize,
    /// Limits that the shim sets.
    pub limits: ProcessLimits,
    /// The program that sets the limits, which is `annie` itself. Without it there are no limits of the operating system, and
    /// the program outlives an Annie that is killed.
    pub shim: Option<PathBuf>,
    /// What the program may do; `None` for one that the operator trusts. A sandbox needs a shim.
    pub sandbox: Option<Sandbox>,
}

impl Launch {
    /// The program to start and its arguments. The shim limits itself, runs the program, and ends it when this process is
    /// gone. `report_fd` is the descriptor of this process through which the shim reports.
    #[must_use]
    pub fn argv(&self, report_fd: Option<i32>) -> (OsString, Vec<OsString>) {
        let Some(shim) = &self.shim else { return (self.program.clone().into(), self.args.clone()) };
        let mut all = vec![OsString::from("run-limited")];
        all.extend(self.limits.flags());
        all.extend(report_flags(report_fd));
        if let Some(sandbox) = &self.sandbox {
            all.extend([OsString::from("--"), shim.clone().into(), "__sandbox".into()]);
            all.extend(sandbox.flags());
            all.extend(report_flags(report_fd));
        }
        all.extend([OsString::from("--"), self.program.clone().into()]);
        all.extend(self.args.iter().cloned());
        (shim.clone().into(), all)
    }
}

fn report_flags(report_fd: Option<i32>) -> Vec<OsString> {
    let mut flags: Vec<OsString> = vec!["--parent".into(), std::process::id().to_string().into()];
    if let Some(report_fd) = report_fd {
        flags.extend([OsString::from("--tell-fd"), report_fd.to_string().into()]);
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argv_of_a_sandboxed_launch_has_the_shim_then_the_sandbox_then_the_program() {
        let sandbox = Sandbox { folder: "/w".into(), read: vec!["/s".into()], ..Sandbox::default() };
        let launch = Launch {
            program: "/usr/bin/python3".into(),
            args: vec!["-c".into(), "x".into()],
            shim: Some("/opt/annie".into()),
            sandbox: Some(sandbox),
            ..Launch::default()
        };
        let me = std::process::id().to_string();
        let (program, args) = launch.argv(Some(7));
        let limited = ["run-limited", "--files", "1024", "--parent", &me, "--tell-fd", "7", "--", "/opt/annie"];
        let boxed =
            ["__sandbox", "--level", "strict", "--folder", "/w", "--read", "/s", "--parent", &me, "--tell-fd", "7"];
        let own = ["--", "/usr/bin/python3", "-c", "x"];
        let wanted: Vec<OsString> = limited.into_iter().chain(boxed).chain(own).map(OsString::from).collect();
        assert_eq!((program, args), (OsString::from("/opt/annie"), wanted));
    }
}
