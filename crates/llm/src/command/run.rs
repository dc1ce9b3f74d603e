//! One run: start, feed, listen, wait, and leave nothing behind.

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
    pipe::{ShimPipe, Told},
    prompt,
};

/// How long the pipes may stay open after the group has ended, in milliseconds: somebody who left the group may hold them.
const PIPES_MS_MAX: u64 = 500;
/// How long a killed program may take to be gone, in milliseconds.
const GONE_MS_MAX: u64 = 2_000;
const READ_BYTES: usize = 16 * 1024;

/// What a program has said so far.
#[derive(Default)]
pub(super) struct Said {
    pub(super) reply: Reply,
    pub(super) complaint: Complaint,
}

/// Its stdout.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) bytes: Vec<u8>,
    /// How much of it has been shown as drafts.
    shown: usize,
}

/// The end of its stderr.
#[derive(Default)]
pub(super) struct Complaint {
    pub(super) bytes: Vec<u8>,
    /// There was more before.
    pub(super) is_cut: bool,
}

impl Reply {
    pub(super) const fn has_shown(&self) -> bool {
        self.shown > 0
    }

    /// Shows what has come in whole lines; at the end, all.
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
    /// It said more than it may.
    TooLong,
    /// Its time was up.
    Late,
    /// It could not be waited for.
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
    let pipe = config.shim.is_some().then(ShimPipe::new).transpose().map_err(|e| cannot_start(config, &e))?;
    let mut child = start(model, &prompt, pipe.as_ref())?;
    // From here on, whatever ends this future ends the whole group and what left it.
    let mut group = Group::of(&child, config.shim.is_some());
    let mut said = Said::default();
    let by_stdin = (!config.is_prompt_an_argument()).then_some(prompt);
    let limit = Duration::from_millis(config.run_ms_max);
    let work = attend(model, &mut child, &mut group, &mut said, by_stdin, &drafts);
    let ended = timeout(limit, work).await.unwrap_or(Err(Broken::Late));
    if ended.is_ok() {
        group.leader_has_ended();
    }
    group.kill();
    let told = pipe.map_or(Told::Nothing, |pipe| pipe.told());
    if let (Ok(status), Told::Group(program)) = (&ended, told)
        && status.signal().is_some()
    {
        // Either the shim ended as the program did and left nothing of it, or the shim alone was killed, by its own program.
        Group::led_by(program).kill();
    }
    if ended.is_err() {
        // Waited for, so that no dead entry stays in the process table.
        let _ = timeout(Duration::from_millis(GONE_MS_MAX), child.wait()).await;
    }
    match ended {
        Ok(status) if status.success() => {
            said.reply.show(&drafts, true);
            outcome::reply(config, &said)
        }
        Ok(status) => Err(outcome::failed(config, status, told == Told::NeverBegan, &said)),
        Err(why) => Err(outcome::broken(config, &why, &said)),
    }
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

/// Feeds it and listens to it until it has ended. What it leaves running in its group ends with it.
async fn attend(
    model: &CommandModel,
    child: &mut Child,
    group: &mut Group,
    said: &mut Said,
    by_stdin: Option<String>,
    drafts: &DraftSink,
) -> Result<ExitStatus, Broken> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let config = &model.config;
    let Said { reply, complaint } = said;
    let work = async {
        tokio::try_join!(
            feed(stdin, by_stdin),
            keep_end(stderr, complaint, config.stderr_bytes_max),
            listen(stdout, reply, config.output_bytes_max, drafts),
        )
    };
    let mut work = std::pin::pin!(work);
    tokio::select! {
        // It may close its pipes and go on.
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

/// Gives it the prompt. A program that does not want all of it may say so by not reading.
async fn feed(stdin: Option<ChildStdin>, text: Option<String>) -> Result<(), Broken> {
    if let (Some(mut stdin), Some(text)) = (stdin, text) {
        let _ = stdin.write_all(text.as_bytes()).await;
    }
    Ok(())
}

/// Takes its reply and shows it line by line. A pipe that breaks is at its end: the exit code says what it was.
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

/// Keeps the end of its stderr: what a program says last is why it failed.
async fn keep_end(
    stderr: Option<impl AsyncRead + Unpin>,
    complaint: &mut Complaint,
    bytes_max: usize,
) -> Result<(), Broken> {
    let Some(mut stderr) = stderr else { return Ok(()) };
    let mut piece = vec![0; READ_BYTES];
    while let Ok(n @ 1..) = stderr.read(&mut piece).await {
        complaint.bytes.extend_from_slice(piece.get(..n).unwrap_or_default());
        let more = complaint.bytes.len().saturating_sub(bytes_max);
        complaint.bytes.drain(..more);
        complaint.is_cut |= more > 0;
    }
    Ok(())
}
