//! One run of a program: start it, write its input, read its output, wait for it, and kill all remaining processes.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use annie_core::{
    message::{ModelError, ModelErrorKind, ModelReply, ModelRequest},
    ports::{Draft, DraftSink},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, Command},
    time::timeout,
};

use super::{
    CommandConfig, CommandModel,
    group::Group,
    outcome,
    pipe::{ShimPipe, ShimReport},
    prompt,
};

/// How long the pipes may stay open after the group has ended, in milliseconds: a process that left the group may hold
/// them.
const PIPES_MS_MAX: u64 = 500;
/// How long a killed program may take to end, in milliseconds.
const GONE_MS_MAX: u64 = 2_000;
const READ_BYTES: usize = 16 * 1024;

/// The output of a program so far.
#[derive(Default)]
pub(super) struct Output {
    pub(super) reply: Reply,
    pub(super) stderr: StderrTail,
}

/// The program's stdout.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) bytes: Vec<u8>,
    /// How many of the bytes were shown as drafts.
    shown: usize,
}

/// The end of the program's stderr.
#[derive(Default)]
pub(super) struct StderrTail {
    pub(super) bytes: Vec<u8>,
    /// Earlier bytes were dropped.
    pub(super) is_cut: bool,
}

impl Reply {
    pub(super) const fn has_shown(&self) -> bool {
        self.shown > 0
    }

    /// Shows the complete lines that have arrived; at the end, everything.
    fn show(&mut self, drafts: &DraftSink, is_end: bool) {
        let rest = self.bytes.get(self.shown..).unwrap_or_default();
        let until = if is_end { rest.len() } else { rest.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1) };
        if let Some(whole) = rest.get(..until).filter(|w| !w.is_empty()) {
            drafts(Draft::Text(String::from_utf8_lossy(whole).into_owned()));
            self.shown += until;
        }
    }
}

/// Why a run was broken off.
pub(super) enum Broken {
    /// Stdout exceeded its size limit.
    TooLong,
    /// The run exceeded its time limit.
    Late,
    /// Waiting for the process failed.
    Lost(std::io::Error),
}

pub(super) async fn run(
    model: &CommandModel,
    request: &ModelRequest,
    drafts: DraftSink,
) -> Result<ModelReply, ModelError> {
    let config = &model.config;
    let prompt = prompt::text_of(request);
    if prompt.len() > config.prompt_bytes_max {
        let detail = format!("the prompt has {} bytes, {} are allowed", prompt.len(), config.prompt_bytes_max);
        return Err(ModelError::new(ModelErrorKind::Overflow, detail));
    }
    let Ended { how, report, mut output } = execute(model, prompt, &drafts).await?;
    match how {
        Ok(status) if status.success() => {
            output.reply.show(&drafts, true);
            outcome::reply(config, &output)
        }
        Ok(status) => Err(outcome::failed(config, status, report == ShimReport::NeverBegan, &output)),
        Err(why) => Err(outcome::broken(config, &why, &output)),
    }
}

/// The end of a program that was started.
pub(super) struct Ended {
    /// Its exit status, or why it was broken off.
    pub(super) how: Result<ExitStatus, Broken>,
    pub(super) report: ShimReport,
    pub(super) output: Output,
}

/// Runs the program with this input until it ends or reaches a limit. No process of it is left.
///
/// # Errors
/// If it cannot be started.
pub(super) async fn execute(model: &CommandModel, input: String, drafts: &DraftSink) -> Result<Ended, ModelError> {
    let config = &model.config;
    let pipe = config.shim.is_some().then(ShimPipe::new).transpose().map_err(|e| cannot_start(config, &e))?;
    let mut child = start(model, &input, pipe.as_ref())?;
    // From here on, dropping this future kills the group and the processes that left it.
    let mut group = Group::of(&child, config.shim.is_some());
    let mut output = Output::default();
    let by_stdin = (!config.is_prompt_an_argument()).then_some(input);
    let limit = Duration::from_millis(config.run_ms_max);
    let work = attend(model, &mut child, &mut group, &mut output, by_stdin, drafts);
    let how = timeout(limit, work).await.unwrap_or(Err(Broken::Late));
    if how.is_ok() {
        group.leader_has_ended();
    }
    group.kill();
    let report = pipe.map_or(ShimReport::Nothing, |pipe| pipe.report());
    if let (Ok(status), ShimReport::Group(program)) = (&how, report)
        && status.signal().is_some()
    {
        // Two cases: the shim ended by the program's signal and left no process, or the program killed only the shim.
        Group::led_by(program).kill();
    }
    if how.is_err() {
        // Waited for, so that no zombie stays in the process table.
        let _ = timeout(Duration::from_millis(GONE_MS_MAX), child.wait()).await;
    }
    Ok(Ended { how, report, output })
}

fn start(model: &CommandModel, prompt: &str, pipe: Option<&ShimPipe>) -> Result<Child, ModelError> {
    let config = &model.config;
    let (program, args) = model.argv(prompt, pipe.map(ShimPipe::descriptor));
    let stdin = if config.is_prompt_an_argument() { Stdio::null() } else { Stdio::piped() };
    let started = Command::new(program)
        .args(args)
        .env_clear()
        .envs(model.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&config.folder)
        .process_group(0)
        .kill_on_drop(true)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    started.map_err(|e| cannot_start(config, &e))
}

fn cannot_start(config: &CommandConfig, why: &std::io::Error) -> ModelError {
    ModelError::new(ModelErrorKind::Unavailable, format!("cannot start {}: {why}", config.program.display()))
}

/// Writes the input and reads the output until the program has ended. Processes that it leaves in its group are killed
/// then.
async fn attend(
    model: &CommandModel,
    child: &mut Child,
    group: &mut Group,
    output: &mut Output,
    by_stdin: Option<String>,
    drafts: &DraftSink,
) -> Result<ExitStatus, Broken> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let config = &model.config;
    let Output { reply, stderr: stderr_tail } = output;
    let work = async {
        tokio::try_join!(
            feed(stdin, by_stdin),
            keep_end(stderr, stderr_tail, config.stderr_bytes_max),
            listen(stdout, reply, config.output_bytes_max, drafts),
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

/// Writes the prompt to stdin. A program that needs only part of it may stop reading.
async fn feed(stdin: Option<ChildStdin>, text: Option<String>) -> Result<(), Broken> {
    if let (Some(mut stdin), Some(text)) = (stdin, text) {
        let _ = stdin.write_all(text.as_bytes()).await;
    }
    Ok(())
}

/// Reads stdout and shows it line by line. A read error counts as the end of the output: the exit code decides the outcome.
async fn listen(
    stdout: Option<impl AsyncRead + Unpin>,
    reply: &mut Reply,
    bytes_max: usize,
    drafts: &DraftSink,
) -> Result<(), Broken> {
    let Some(mut stdout) = stdout else { return Ok(()) };
    let mut piece = vec![0; READ_BYTES];
    while let Ok(n @ 1..) = stdout.read(&mut piece).await {
        if reply.bytes.len() + n > bytes_max {
            return Err(Broken::TooLong);
        }
        reply.bytes.extend_from_slice(piece.get(..n).unwrap_or_default());
        reply.show(drafts, false);
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
