//! `annie ask`: sends one message and shows the turn. With a running server the command is a client; without one the kernel
//! runs in this process.

use std::{future::pending, io::Read};

use futures_util::{FutureExt, future::BoxFuture};
use serde_json::json;

use super::{
    args::{self, ConversationArgs, Named},
    console::{Ink, Presses},
    failure::{Exit, Failure},
    site::Site,
    talk::{Following, Partner, Say, Seen},
    waiting::{Activity, Pulse},
    watch::{Ending, Watch},
};
use crate::{
    boot::{self, Assembled},
    config, system,
};

/// The longest text that is read from stdin, in bytes; the kernel's own limit is usually lower.
const STDIN_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Key of the default conversation of the command line, until `--new` starts another.
const CONVERSATION: &str = "cli";
/// The file in the data folder that names the conversation of the command line.
const CONVERSATION_FILE: &str = "cli_conversation";

/// Printed if the command ends before the message was acknowledged.
pub const RECEIPT_UNKNOWN: &str = "it is not known whether the message was received; see `annie tasks list`";

/// The partner of this command, and the kernel that the command started, if any.
pub struct Session {
    /// The server, or the kernel in this process.
    pub partner: Partner,
    own: Option<Assembled>,
}

impl Session {
    /// Finds the server, or starts a kernel here.
    ///
    /// # Errors
    /// If neither works.
    pub async fn open(site: &Site) -> Result<Self, Failure> {
        if let Some(client) = site.server().await? {
            return Ok(Self { partner: Partner::Server(client), own: None });
        }
        let own = boot::assemble(&site.loaded, &site.folder).await?;
        introduce(site);
        let partner = Partner::Here { kernel: own.kernel.clone(), user: site.user() };
        Ok(Self { partner, own: Some(own) })
    }

    /// Stops the kernel that this command started, in good order. After Ctrl-C the kernel is not stopped in good order, so that
    /// the command ends at once; open work continues at the next start.
    pub async fn close<T>(self, how: &Result<T, Failure>) {
        let is_interrupted = matches!(how, Err(Failure { exit: Exit::Interrupted, .. }));
        if let Some(own) = self.own
            && !is_interrupted
        {
            own.stop().await;
        }
    }
}

/// Prints a notice if no language model is configured.
pub fn introduce(site: &Site) {
    if !site.loaded.config.backend.is_empty() {
        return;
    }
    let idle = config::idle_keys(&site.loaded.environment);
    let how = match idle.first() {
        Some(name) => format!("{name} is set; add ANNIE_MODEL=<model> to use it."),
        None => {
            "To use a model: `annie config init`, or ANNIE_MODEL with OPENAI_API_KEY or OPENAI_BASE_URL.".to_owned()
        }
    };
    let notice = format!("annie: the offline planner answers, which is not a language model. {how}");
    site.console.say(&site.console.ink(Ink::Dim, &notice));
}

/// The outcome of an answer that is not done, in words.
fn not_done(outcome: &str) -> String {
    let why = match outcome {
        "declined" => ": nothing or only a part was done, and the answer says why",
        "no_action" => ": the answer claims it, but no skill was run",
        "gave_up" => ": the turn made no progress",
        "paused" => ": it stopped at a limit; \"continue\" goes on",
        _ => "",
    };
    format!("not done ({outcome}){why}")
}

/// `annie ask`
///
/// # Errors
/// If the message was rejected, or the turn did not end with an answer.
pub async fn run(site: &Site, ask: args::Ask) -> Result<(), Failure> {
    let text = text_of(&ask.text)?;
    let session = Session::open(site).await?;
    let asked = say_and_watch(site, &session.partner, &text, &ask).await;
    session.close(&asked).await;
    match asked? {
        Some(Ending::Answered) | None => Ok(()),
        // The answer text is on stdout already.
        Some(Ending::NotDone(outcome)) => Err(Failure::new(Exit::NotDone, not_done(outcome))),
        Some(Ending::Failed) => Err(Failure::new(Exit::Failure, "the turn failed")),
        Some(Ending::Cancelled) => Err(Failure::interrupted()),
    }
}

/// Sends the message and shows its turn. Returns `None` with `--detach`. Ctrl-C is handled at every step.
async fn say_and_watch(site: &Site, partner: &Partner, text: &str, ask: &args::Ask) -> Result<Option<Ending>, Failure> {
    if ask.more.detach && matches!(partner, Partner::Here { .. }) {
        let what = "--detach needs a server, and none runs";
        return Err(Failure::new(Exit::Unavailable, what).fix("start one with `annie serve`, or leave out --detach"));
    }
    let mut more = ask.more.clone();
    if more.detach && more.priority.is_none() {
        // Nothing waits for the answer, and a notification reports the end of work below class high.
        more.priority = Some(args::ClassArg::Normal);
    }
    let say = Say {
        text: text.to_owned(),
        conversation: conversation(site, &ask.target)?,
        mode: ask.target.mode.map(Into::into),
        client_id: system::env().uuid().simple().to_string(),
        more,
    };
    let mut presses = Presses::new()?;
    let stored = tokio::select! {
        stored = partner.say(say) => stored?,
        () = presses.next() => {
            site.console.say_always(RECEIPT_UNKNOWN);
            return Err(Failure::interrupted());
        }
    };
    if ask.more.detach {
        let (task, conversation) = (stored.task, stored.conversation);
        if site.console.is_json() {
            site.console.json(&json!({"kind": "accepted", "task_id": task, "conversation_id": conversation}))?;
        } else {
            site.console.line(&task.to_string())?;
        }
        return Ok(None);
    }
    let following = partner.follow(&stored).await?;
    let ending = watch(site, partner, following, presses).await;
    site.console.show_status(None);
    ending.map(Some)
}

/// Shows a turn until it ends. The first Ctrl-C cancels the turn; the second ends the process.
///
/// # Errors
/// If the turn cannot be followed.
async fn watch(
    site: &Site,
    partner: &Partner,
    mut following: Following,
    mut presses: Presses,
) -> Result<Ending, Failure> {
    let mut watch = Watch::new(&site.console);
    let (mut pulse, mut activity) = (Pulse::of(&site.console, partner), Activity::begin());
    let mut asked_to_stop = false;
    let mut stopping: Option<BoxFuture<'_, Result<bool, Failure>>> = None;
    loop {
        let seen = tokio::select! {
            seen = following.next() => seen?,
            stopped = under_way(stopping.as_mut()) => {
                stopping = None;
                // If the cancellation fails, the turn is still shown to its end.
                if let Err(failure) = stopped {
                    site.console.error(&failure);
                }
                continue;
            }
            queue = pulse.next(), if pulse.is_shown() => {
                pulse.show(Some((following.stored().task, &mut activity)), queue.as_ref());
                continue;
            }
            () = presses.next() => {
                if asked_to_stop {
                    let task = following.stored().task;
                    site.console.say_always(&format!("it is not known whether the task was cancelled; see `annie tasks show {task}`"));
                    return Err(Failure::interrupted());
                }
                asked_to_stop = true;
                site.console.say("stopping the answer; Ctrl-C again leaves at once");
                stopping = Some(partner.cancel(following.stored().task).boxed());
                continue;
            }
        };
        activity.see(&seen);
        if matches!(&seen, Seen::Draft { .. }) || matches!(&seen, Seen::Event(event) if event.body.is_final()) {
            // The answer takes the place of the line about the wait.
            site.console.show_status(None);
        }
        if let Some(ending) = watch.see(&seen)? {
            return Ok(ending);
        }
    }
}

/// Waits for a future if there is one; otherwise never completes.
pub async fn under_way<T>(future: Option<&mut BoxFuture<'_, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// The conversation of a message: the named one, a new one, or the one of the last command.
///
/// # Errors
/// If the name of a new conversation cannot be stored.
pub fn conversation(site: &Site, target: &ConversationArgs) -> Result<Named, Failure> {
    if let Some(name) = &target.conversation {
        return Ok(name.clone());
    }
    let file = site.folder.join(CONVERSATION_FILE);
    if target.new {
        let key = format!("{CONVERSATION}-{}", system::env().uuid().simple());
        let kept = system::write_private(&file, &key);
        kept.map_err(|e| Failure::io(&format!("cannot remember the new conversation in {}", file.display()), &e))?;
        return Ok(Named::Key(key));
    }
    let fits = |key: &str| key.starts_with(CONVERSATION) && key.len() < 100;
    let remembered = std::fs::read_to_string(&file).ok().map(|k| k.trim().to_owned()).filter(|k| fits(k));
    Ok(Named::Key(remembered.unwrap_or_else(|| CONVERSATION.to_owned())))
}

fn text_of(words: &[String]) -> Result<String, Failure> {
    if words != ["-"] {
        return Ok(words.join(" "));
    }
    let mut text = String::new();
    std::io::stdin()
        .take(STDIN_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|e| Failure::io("cannot read stdin as UTF-8 text", &e))?;
    Ok(text)
}
