//! `annie ask`: says one thing and shows the turn. With a running server it is a client; without one the kernel runs in
//! this process.

use std::{future::pending, io::Read};

use futures_util::{FutureExt, future::BoxFuture};
use serde_json::json;

use super::{
    args::{self, Named, Place},
    console::{Ink, Presses},
    failure::{Exit, Failure},
    site::Site,
    talk::{Following, Partner, Say},
    watch::{Ending, Watch},
};
use crate::{
    boot::{self, Assembled},
    config, system,
};

/// The longest text that is read from stdin, in bytes; the kernel's own limit is usually lower.
const STDIN_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The conversation of the command line, until `--new` begins another.
const CONVERSATION: &str = "cli";
/// The file in the data folder that names the conversation of the command line.
const CONVERSATION_FILE: &str = "cli_conversation";

/// To whoever leaves before a message was acknowledged.
pub const MAYBE_HEARD: &str = "whether the message was heard is not known; `annie tasks list` tells";

/// Whom this command talks to, and what must be ended afterwards.
pub struct Session {
    /// Whom.
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

    /// Ends what was started, in good order unless somebody is in a hurry: then what is open goes on at the next start.
    pub async fn close<T>(self, how: &Result<T, Failure>) {
        let is_hurry = matches!(how, Err(Failure { exit: Exit::Interrupted, .. }));
        if let Some(own) = self.own
            && !is_hurry
        {
            own.stop().await;
        }
    }
}

/// Says plainly if no language model answers.
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
    let told = format!("annie: the offline planner answers, which is not a language model. {how}");
    site.console.say(&site.console.ink(Ink::Dim, &told));
}

/// `annie ask`
///
/// # Errors
/// If the text was not taken in, or the turn did not end with an answer.
pub async fn run(site: &Site, ask: args::Ask) -> Result<(), Failure> {
    let text = text_of(&ask.text)?;
    let session = Session::open(site).await?;
    let asked = say_and_watch(site, &session.partner, &text, &ask).await;
    session.close(&asked).await;
    match asked? {
        Some(Ending::Answered) | None => Ok(()),
        // The words stand on stdout already.
        Some(Ending::NotDone(outcome)) => Err(Failure::new(Exit::NotDone, format!("not done ({outcome})"))),
        Some(Ending::Failed) => Err(Failure::new(Exit::Failure, "the turn failed")),
        Some(Ending::Cancelled) => Err(Failure::interrupted()),
    }
}

/// Says it, and shows what becomes of it; nothing if it is not waited for. Ctrl-C is heard all the time.
async fn say_and_watch(site: &Site, partner: &Partner, text: &str, ask: &args::Ask) -> Result<Option<Ending>, Failure> {
    if ask.more.detach && matches!(partner, Partner::Here { .. }) {
        let what = "nobody would go on with it: no server runs";
        return Err(Failure::new(Exit::Unavailable, what).fix("start one with `annie serve`, or leave out --detach"));
    }
    let say = Say {
        text: text.to_owned(),
        conversation: conversation(site, &ask.place)?,
        mode: ask.place.mode.map(Into::into),
        client_id: system::env().uuid().simple().to_string(),
        more: ask.more.clone(),
    };
    let mut presses = Presses::new()?;
    let said = tokio::select! {
        said = partner.say(say) => said?,
        () = presses.next() => {
            site.console.say_always(MAYBE_HEARD);
            return Err(Failure::interrupted());
        }
    };
    if ask.more.detach {
        let (task, place) = (said.task, said.conversation);
        if site.console.is_json() {
            site.console.json(&json!({"kind": "accepted", "task_id": task, "conversation_id": place}))?;
        } else {
            site.console.line(&task.to_string())?;
        }
        return Ok(None);
    }
    let following = partner.follow(&said).await?;
    watch(site, partner, following, presses).await.map(Some)
}

/// Shows a turn to its end. The first Ctrl-C cancels it; the second ends the process.
///
/// # Errors
/// If it cannot be followed.
async fn watch(
    site: &Site,
    partner: &Partner,
    mut following: Following,
    mut presses: Presses,
) -> Result<Ending, Failure> {
    let mut watch = Watch::new(&site.console);
    let mut asked_to_stop = false;
    let mut stopping: Option<BoxFuture<'_, Result<bool, Failure>>> = None;
    loop {
        let seen = tokio::select! {
            seen = following.next() => seen?,
            stopped = under_way(stopping.as_mut()) => {
                stopping = None;
                // The answer is waited for all the same.
                if let Err(failure) = stopped {
                    site.console.error(&failure);
                }
                continue;
            }
            () = presses.next() => {
                if asked_to_stop {
                    let task = following.said().task;
                    site.console.say_always(&format!("whether it was stopped is not known; `annie tasks show {task}` tells"));
                    return Err(Failure::interrupted());
                }
                asked_to_stop = true;
                site.console.say("stopping the answer; Ctrl-C again leaves at once");
                stopping = Some(partner.cancel(following.said().task).boxed());
                continue;
            }
        };
        if let Some(ending) = watch.see(&seen)? {
            return Ok(ending);
        }
    }
}

/// What is under way, if something is; otherwise this never ends.
pub async fn under_way<T>(what: Option<&mut BoxFuture<'_, T>>) -> T {
    match what {
        Some(what) => what.await,
        None => pending().await,
    }
}

/// In which conversation something is said: the named one, a new one, or the one of last time.
///
/// # Errors
/// If a new one cannot be remembered.
pub fn conversation(site: &Site, place: &Place) -> Result<Named, Failure> {
    if let Some(name) = &place.conversation {
        return Ok(name.clone());
    }
    let file = site.folder.join(CONVERSATION_FILE);
    if place.new {
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
