//! The program of a server that is reached over its pipes.

use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
};

use crate::{McpError, McpProgram};

/// How many bytes from the end of stderr are kept for the error.
const STDERR_BYTES_MAX: usize = 1024;
const READ_BYTES: usize = 4 * 1024;

/// A running program. Dropping it kills the program with all processes of its group, and the descendants of a shim.
pub(crate) struct Program {
    child: Child,
    leader: Option<Pid>,
    end_descendants: Option<fn(Pid)>,
}

/// The pipes of a program.
pub(crate) struct ProgramPipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl Program {
    /// Starts a program with these variables in addition to the configured ones. It gets no other environment.
    pub(crate) fn start(config: &McpProgram, secrets: &[(String, String)]) -> Result<(Self, ProgramPipes), McpError> {
        let mut command = match config.shim.as_ref().and_then(|shim| shim.argv.split_first()) {
            Some((shim, arguments)) => {
                let mut command = Command::new(shim);
                command.args(arguments).arg(&config.program);
                command
            }
            None => Command::new(&config.program),
        };
        let variables = config.env.iter().chain(secrets).map(|(name, value)| (name, value));
        let started = command
            .args(&config.args)
            .env_clear()
            .envs(variables)
            .current_dir(&config.folder)
            .process_group(0)
            .kill_on_drop(true)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = started.map_err(|why| McpError::Start(format!("{}: {why}", config.program.display())))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        // From here on, dropping the program kills it.
        let program = Self { child, leader, end_descendants: config.shim.as_ref().map(|shim| shim.end_descendants) };
        match pipes {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((program, ProgramPipes { stdin, stdout, stderr })),
            _ => Err(McpError::Start("it has no pipes".to_owned())),
        }
    }

    /// Waits until the program has ended.
    pub(crate) async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        let status = self.child.wait().await;
        // The shim ended its descendants before it ended itself, and its process id may be reused from now on.
        self.end_descendants = None;
        status
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let Some(leader) = self.leader else { return };
        if let Some(end_descendants) = self.end_descendants {
            // Descendants first: when the shim dies, its orphans are reparented to init.
            end_descendants(leader);
        }
        // An error means that the group is already empty.
        let _ = kill_process_group(leader, Signal::KILL);
    }
}

/// Reads stderr to its end, and keeps the end of it.
pub(crate) async fn read_stderr(mut stderr: impl AsyncRead + Unpin, tail: &mut Vec<u8>) {
    let mut piece = vec![0; READ_BYTES];
    while let Ok(bytes @ 1..) = stderr.read(&mut piece).await {
        tail.extend_from_slice(piece.get(..bytes).unwrap_or_default());
        let more = tail.len().saturating_sub(STDERR_BYTES_MAX);
        tail.drain(..more);
    }
}
