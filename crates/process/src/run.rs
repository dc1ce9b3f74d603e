//! One run of a program: start it, write its input, read its output, wait for it, and kill all remaining processes. Or start it,
//! and leave its pipes to the caller.

use std::{
    io,
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::{
    group::Group,
    launch::Launch,
    pipe::{ShimPipe, ShimReport},
};

/// How long the pipes may stay open after the group has ended, in milliseconds: a process that left the group may hold
/// them.
const PIPES_MS_MAX: u64 = 500;
/// How long a killed program may take to end, in milliseconds.
const GONE_MS_MAX: u64 = 2_000;
const READ_BYTES: usize = 16 * 1024;

/// The end of a program's stderr.
#[derive(Debug, Default)]
pub struct StderrTail {
    /// The last bytes.
    pub bytes: Vec<u8>,
    /// Earlier bytes were dropped.
    pub is_cut: bool,
}

/// Why a run was broken off.
#[derive(Debug)]
pub enum Broken {
    /// Stdout exceeded its size limit.
    TooLong,
    /// The run exceeded its time limit.
    Late,
    /// Waiting for the process failed.
    Lost(io::Error),
}

/// The end of a program that was started.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status, or why it was broken off.
    pub how: Result<ExitStatus, Broken>,
    /// What the shim reported.
    pub report: ShimReport,
    /// What the program wrote to stdout, at most [`Launch::output_bytes_max`] bytes.
    pub stdout: Vec<u8>,
    /// The end of what it wrote to stderr, at most [`Launch::stderr_bytes_max`] bytes.
    pub stderr: StderrTail,
}

/// Runs a program until it ends or reaches a limit. Afterwards no process of the program's group is left, and with a shim no
/// descendant either. This also holds if the returned future is dropped. `on_output` receives all of stdout so far whenever more
/// has arrived.
///
/// # Errors
/// If the shim, or the program of a launch without one, cannot be started, or if a sandbox is required without a shim.
pub async fn execute(launch: Launch, on_output: &mut (dyn FnMut(&[u8]) + Send)) -> io::Result<Ended> {
    let stdin = if launch.input.is_some() { Stdio::piped() } else { Stdio::null() };
    // From here on, dropping this future kills the process group and, with a shim, the descendants that left the group.
    let mut running = Running::start(&launch, stdin)?;
    let (mut stdout, mut stderr) = (Vec::new(), StderrTail::default());
    let limit = Duration::from_millis(launch.run_ms_max);
    let work = attend(launch, &mut running, (&mut stdout, &mut stderr), on_output);
    let how = timeout(limit, work).await.unwrap_or(Err(Broken::Late));
    let report = running.end(how.as_ref().ok().copied());
    if how.is_err() {
        // Reaps the killed child, so that no zombie stays in the process table.
        let _ = timeout(Duration::from_millis(GONE_MS_MAX), running.child.wait()).await;
    }
    Ok(Ended { how, report, stdout, stderr })
}

/// Starts a program whose pipes the caller reads and writes. It may run until the returned [`Running`] is dropped; the limits of
/// time and output and the input of the launch are not used.
///
/// # Errors
/// As for [`execute`].
pub fn spawn(launch: &Launch) -> io::Result<(Running, Pipes)> {
    let mut running = Running::start(launch, Stdio::piped())?;
    let child = &mut running.child;
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok((running, Pipes { stdin, stdout, stderr })),
        _ => Err(io::Error::other("the program has no pipes")),
    }
}

/// A running program. Dropping it kills the process group and, with a shim, all descendants of the shim.
pub struct Running {
    // Dropped before the child: the descendants of a shim are found only until the shim has been waited for.
    group: Group,
    child: Child,
    pipe: Option<ShimPipe>,
}

/// The pipes of a program.
#[derive(Debug)]
pub struct Pipes {
    /// What the program reads.
    pub stdin: ChildStdin,
    /// What it writes.
    pub stdout: ChildStdout,
    /// Its messages.
    pub stderr: ChildStderr,
}

impl Running {
    fn start(launch: &Launch, stdin: Stdio) -> io::Result<Self> {
        if launch.sandbox.is_some() && launch.shim.is_none() {
            return Err(io::Error::other("a sandbox needs the shim"));
        }
        let has_shim = launch.shim.is_some();
        let pipe = has_shim.then(ShimPipe::new).transpose()?;
        let child = start(launch, pipe.as_ref(), stdin)?;
        let group = Group::of(&child, has_shim);
        Ok(Self { group, child, pipe })
    }

    /// Waits until the program has ended, and kills the processes that it left.
    ///
    /// # Errors
    /// If the program cannot be waited for.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.end(status.as_ref().ok().copied());
        status
    }

    /// Kills all processes that are left, and returns what the shim reported. `status` is the exit status, or `None` if the child
    /// has not been reaped.
    fn end(&mut self, status: Option<ExitStatus>) -> ShimReport {
        if status.is_some() {
            self.group.leader_has_ended();
        }
        self.group.kill();
        let report = self.pipe.as_ref().map_or(ShimReport::Nothing, ShimPipe::report);
        if let (Some(status), ShimReport::Group(program)) = (status, report)
            && status.signal().is_some()
        {
            // A signal ended the shim. Either the shim repeated the signal that ended the program, and no process is left, or the
            // program killed the shim and still runs. Killing the group is right in both cases.
            Group::led_by(program).kill();
        }
        report
    }
}

fn start(launch: &Launch, pipe: Option<&ShimPipe>, stdin: Stdio) -> io::Result<Child> {
    let (program, args) = launch.argv(pipe.map(ShimPipe::descriptor));
    Command::new(program)
        .args(args)
        .env_clear()
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&launch.folder)
        .process_group(0)
        .kill_on_drop(true)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Writes the input and reads the output until the program has ended. Processes that it leaves in its group are killed
/// then.
async fn attend(
    launch: Launch,
    running: &mut Running,
    (output, tail): (&mut Vec<u8>, &mut StderrTail),
    on_output: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<ExitStatus, Broken> {
    let Running { group, child, .. } = running;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let work = async {
        tokio::try_join!(
            feed(stdin, launch.input),
            keep_end(stderr, tail, launch.stderr_bytes_max),
            listen(stdout, output, launch.output_bytes_max, on_output),
        )
    };
    let mut work = std::pin::pin!(work);
    tokio::select! {
        // The program may close its pipes and continue.
        done = &mut work => { done?; child.wait().await.map_err(Broken::Lost) }
        status = child.wait() => {
            group.leader_has_ended();
            group.kill();
            if let Ok(done) = timeout(Duration::from_millis(PIPES_MS_MAX), work).await {
                done?;
            }
            status.map_err(Broken::Lost)
        }
    }
}

/// Writes the input to stdin. A program that needs only part of it may stop reading.
async fn feed(stdin: Option<ChildStdin>, input: Option<Vec<u8>>) -> Result<(), Broken> {
    if let (Some(mut stdin), Some(input)) = (stdin, input) {
        let _ = stdin.write_all(&input).await;
    }
    Ok(())
}

/// Reads stdout. A read error counts as the end of the output: the exit code decides the outcome.
async fn listen(
    stdout: Option<impl AsyncRead + Unpin>,
    output: &mut Vec<u8>,
    bytes_max: usize,
    on_output: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<(), Broken> {
    let Some(mut stdout) = stdout else { return Ok(()) };
    let mut piece = vec![0; READ_BYTES];
    while let Ok(n @ 1..) = stdout.read(&mut piece).await {
        if output.len() + n > bytes_max {
            return Err(Broken::TooLong);
        }
        output.extend_from_slice(piece.get(..n).unwrap_or_default());
        on_output(output.as_slice());
    }
    Ok(())
}

/// Keeps the end of stderr: the last output of a program states why it failed.
async fn keep_end(
    stderr: Option<impl AsyncRead + Unpin>,
    tail: &mut StderrTail,
    bytes_max: usize,
) -> Result<(), Broken> {
    let Some(mut stderr) = stderr else { return Ok(()) };
    let mut piece = vec![0; READ_BYTES];
    while let Ok(n @ 1..) = stderr.read(&mut piece).await {
        tail.bytes.extend_from_slice(piece.get(..n).unwrap_or_default());
        let more = tail.bytes.len().saturating_sub(bytes_max);
        tail.bytes.drain(..more);
        tail.is_cut |= more > 0;
    }
    Ok(())
}
