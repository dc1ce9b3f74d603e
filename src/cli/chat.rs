//! `annie chat`: reads messages line by line and prints answers until the end of the input, at a terminal or from a pipe. Job
//! commands in plain words are executed by the kernel; long work runs in the background.

use std::{collections::VecDeque, io::IsTerminal as _, path::PathBuf, time::Duration};

use annie_core::{event::Priority, jobs::SLASH_WORDS, skill::slash_commands};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};

use super::{
    args,
    ask::{RECEIPT_UNKNOWN, Session, conversation, under_way},
    console::{Ink, Presses, Terminations, clipped, tame},
    editor::Editor,
    failure::{Exit, Failure},
    input::Input,
    notices::{Notice, Notices, notices_since},
    site::Site,
    skills,
    talk::{Partner, Say, Stored},
    turns::{Kind, Turns},
    waiting::Pulse,
};
use crate::{ops::skills::SlashCommands, system};

const HELP: &str = "\
/help        show this help
/status      show the server or kernel, and the conversation
/steer TEXT  send a message into the running turn
/new         begin a new conversation
/NAME TEXT   use a prompt skill of those below; Tab completes them, and /done ends one
/quit        leave (also Ctrl-D)
Any other line is a message to Annie. \"What are you working on?\", \"how busy are you?\", \"do that first\", \"this is urgent\",
\"pause that\", \"resume it\" and \"cancel that\" list or control tasks, and so do /jobs, /top, /first, /urgent, /pause,
/resume and /cancel. Ctrl-C stops the running answer, a second Ctrl-C leaves.";

/// The file in the data folder with the id of the last notification that was shown.
const NOTICES_FILE: &str = "cli_notifications";
/// How many earlier notifications are shown at the start; the others are only counted.
const NOTICES_SHOWN_MAX: usize = 3;
/// How long reading earlier notifications may delay the start of a chat, in milliseconds.
const CATCH_UP_MS_MAX: u64 = 2_000;
/// Maximum length of a turn's title, which is the start of its message, in characters.
const TITLE_CHARS_MAX: usize = 60;

/// The commands of the chat itself.
const COMMANDS: [&str; 6] = ["/help", "/status", "/steer", "/new", "/quit", "/done"];

/// A parsed input line.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Help,
    Status,
    Steer(&'a str),
    New,
    Quit,
    Nothing,
    Say(&'a str),
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Self {
        if let Some(text) = line.trim().strip_prefix("/steer")
            && (text.is_empty() || text.starts_with(char::is_whitespace))
        {
            return Self::Steer(text.trim());
        }
        match line.trim() {
            "" => Self::Nothing,
            "/help" | "/?" => Self::Help,
            "/status" => Self::Status,
            "/new" => Self::New,
            "/quit" | "/exit" | "/q" => Self::Quit,
            // Any other `/name` may be a job command or a prompt skill; the kernel decides.
            text => Self::Say(text),
        }
    }
}

/// A message that is not acknowledged yet. Turns and notifications continue meanwhile; the next line waits.
struct Sending<'a> {
    title: String,
    steer: bool,
    answer: BoxFuture<'a, Result<Stored, Failure>>,
}

/// A running chat.
struct Chat<'a> {
    site: &'a Site,
    partner: &'a Partner,
    target: args::ConversationArgs,
    private: bool,
    last: Option<Stored>,
    input: Input,
    sending: Option<Sending<'a>>,
    /// The cancellation of the front turn, while its reply is outstanding.
    stopping: Option<BoxFuture<'a, Result<bool, Failure>>>,
    turns: Turns<'a>,
    notices: Option<Notices>,
    /// Notifications that are shown when no answer is being written.
    pending: VecDeque<Notice>,
    /// The prompt is shown.
    is_prompted: bool,
    /// Ctrl-C was pressed during the front turn.
    is_stopping: bool,
    /// The question for the commands that Tab completes, at a terminal that edits lines.
    naming: Option<BoxFuture<'a, Vec<String>>>,
    pulse: Pulse<'a>,
}

/// The next event of a chat.
enum Next {
    Line(Option<String>),
    Stored(Result<Stored, Failure>),
    Seen,
    Stopped(Result<bool, Failure>),
    Notified(Result<Notice, Failure>),
    Named(Vec<String>),
    Beat(Option<serde_json::Value>),
    Pressed,
}

/// `annie chat`
///
/// # Errors
/// If there is neither server nor kernel, or Ctrl-C was pressed twice.
pub async fn run(site: &Site, chat: args::Chat) -> Result<(), Failure> {
    over(site, chat, None).await
}

/// Runs a chat with the given input, or else with the lines of the process's own.
///
/// # Errors
/// As [`run`].
pub async fn over(site: &Site, chat: args::Chat, input: Option<Input>) -> Result<(), Failure> {
    let session = Session::open(site).await?;
    let mut terminations = Terminations::default();
    // Before the terminal gives single keys: a signal that is not handled would leave it in this mode.
    let mut presses = Presses::new()?;
    let input = input.unwrap_or_else(|| own_input(site, chat.private, &mut terminations));
    let mut running = Chat {
        site,
        partner: &session.partner,
        target: chat.target,
        private: chat.private,
        last: None,
        input,
        sending: None,
        stopping: None,
        turns: Turns::of(&site.console),
        notices: None,
        pending: VecDeque::new(),
        is_prompted: false,
        is_stopping: false,
        naming: None,
        pulse: Pulse::of(&site.console, &session.partner),
    };
    running.ask_for_names();
    let ended = tokio::select! {
        ended = running.talk(&mut presses) => ended,
        // The terminal must be restored, which a signal alone does not do.
        () = terminations.next() => Err(Failure::terminated()),
    };
    drop(running);
    site.console.show_status(None);
    session.close(&ended).await;
    ended
}

/// The input of this process: edited lines at a terminal, if it can show them.
fn own_input(site: &Site, is_private: bool, terminations: &mut Terminations) -> Input {
    let console = &site.console;
    let is_edited = console.live && console.has_region() && std::io::stdin().is_terminal();
    let editor = || -> Result<Editor, Failure> {
        *terminations = Terminations::new()?;
        Editor::open(console, &site.folder, is_private)
    };
    match is_edited.then(editor) {
        Some(Ok(editor)) => Input::edited(editor),
        // A terminal that cannot be controlled still gives whole lines.
        Some(Err(_)) | None => Input::of_process(),
    }
}

/// The commands that Tab completes.
async fn command_names(partner: &Partner) -> Vec<String> {
    let jobs = SLASH_WORDS.iter().map(|word| format!("/{word}"));
    let own = COMMANDS.iter().map(|name| (*name).to_owned());
    let skills = skill_commands(partner).await;
    let names = skills.iter().filter_map(|command| command["name"].as_str().map(str::to_owned));
    own.chain(jobs).chain(names).collect()
}

/// The slash commands of the kernel and of the prompt skills, as the server lists them; empty if they cannot be listed.
async fn skill_commands(partner: &Partner) -> Vec<Value> {
    let answer = match partner {
        Partner::Here { kernel, .. } => json!(SlashCommands::from(slash_commands(&kernel.catalog().skills()))),
        Partner::Server(client) => client.get(skills::COMMANDS.path()).await.unwrap_or_default(),
    };
    answer["commands"].as_array().cloned().unwrap_or_default()
}

/// The help of the chat, with a line for each prompt skill, as the answer of the kernel to `/help` has.
async fn help(partner: &Partner) -> String {
    let listed = tokio::time::timeout(Duration::from_millis(CATCH_UP_MS_MAX), skill_commands(partner)).await;
    let mut text = HELP.to_owned();
    for command in listed.unwrap_or_default() {
        let [name, hint, what] =
            ["name", "argument_hint", "description"].map(|key| tame(command[key].as_str().unwrap_or_default()));
        if !COMMANDS.contains(&name.as_str()) {
            text.push_str(&format!("\n- {}: {what}", format!("{name} {hint}").trim_end()));
        }
    }
    text
}

impl Chat<'_> {
    /// Asks for the commands that Tab completes. Skills may change while the chat runs.
    fn ask_for_names(&mut self) {
        if self.input.editor().is_some() {
            self.naming = Some(command_names(self.partner).boxed());
        }
    }

    async fn talk(&mut self, presses: &mut Presses) -> Result<(), Failure> {
        tokio::select! {
            () = self.catch_up() => {}
            () = presses.next() => return Err(Failure::interrupted()),
        }
        let console = &self.site.console;
        if self.input.is_terminal {
            console.say(&console.ink(Ink::Dim, "/help lists the commands; Ctrl-D leaves"));
        }
        let mut is_open = true;
        loop {
            if !is_open && (self.input.is_terminal || self.turns.is_empty()) {
                return self.leave();
            }
            self.show_notices_or_prompt()?;
            match self.next(is_open, presses).await? {
                Next::Line(None) => is_open = false,
                Next::Line(Some(line)) => {
                    self.is_prompted = false;
                    if !self.carry_out(&line).await? {
                        return self.leave();
                    }
                }
                Next::Stored(stored) => self.acknowledged(stored).await?,
                Next::Seen => {}
                Next::Stopped(stopped) => {
                    self.stopping = None;
                    match stopped {
                        Ok(true) => {}
                        Ok(false) => console.say("the turn has ended already"),
                        Err(failure) => console.error(&failure),
                    }
                }
                // The end of these tasks was already shown, so the notification is not.
                Next::Notified(Ok(notice)) if notice.tasks().all(|task| self.turns.has_shown(task)) => {
                    self.remember(notice.id);
                }
                Next::Notified(Ok(notice)) => self.pending.push_back(notice),
                // A chat works without notifications.
                Next::Notified(Err(_)) => self.notices = None,
                Next::Named(names) => {
                    self.naming = None;
                    if let Some(editor) = self.input.editor() {
                        editor.set_commands(names);
                    }
                }
                Next::Beat(queue) => self.pulse.show(self.turns.front_activity(), queue.as_ref()),
                Next::Pressed => self.stop()?,
            }
        }
    }

    async fn next(&mut self, is_open: bool, presses: &mut Presses) -> Result<Next, Failure> {
        // At a terminal the user may send a message during an answer; from a pipe the next line waits for the answer.
        let may_send = self.sending.is_none()
            && self.turns.has_capacity()
            && (self.input.is_terminal || !self.turns.is_answering());
        let is_waiting = self.pulse.is_shown() && self.turns.front().is_some();
        let notices = &mut self.notices;
        let notice = async {
            match notices {
                Some(notices) => notices.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            line = self.input.next(), if is_open && may_send => Ok(Next::Line(line?)),
            stored = under_way(self.sending.as_mut().map(|sending| &mut sending.answer)) => Ok(Next::Stored(stored)),
            ended = self.turns.next(), if !self.turns.is_empty() => {
                if ended? && !self.turns.is_answering() {
                    self.is_stopping = false;
                    self.ask_for_names();
                }
                Ok(Next::Seen)
            }
            notice = notice, if is_open => Ok(Next::Notified(notice)),
            stopped = under_way(self.stopping.as_mut()) => Ok(Next::Stopped(stopped)),
            names = under_way(self.naming.as_mut()) => Ok(Next::Named(names)),
            queue = self.pulse.next(), if is_waiting => Ok(Next::Beat(queue)),
            () = presses.next() => Ok(Next::Pressed),
        }
    }

    /// Between two answers: shows pending notifications, then the prompt.
    fn show_notices_or_prompt(&mut self) -> Result<(), Failure> {
        let is_idle = self.sending.is_none() && !self.turns.is_answering();
        if let Some(editor) = self.input.editor() {
            editor.show(is_idle);
        }
        if !is_idle {
            return Ok(());
        }
        let console = &self.site.console;
        if self.turns.take_news() || !self.pending.is_empty() {
            if std::mem::take(&mut self.is_prompted) && !self.pending.is_empty() {
                console.data("\n")?;
            }
            self.is_prompted = false;
        }
        while let Some(notice) = self.pending.pop_front() {
            if console.is_json() {
                let mut line = notice.value.clone();
                line["kind"] = "notification".into();
                console.json(&line)?;
            } else {
                console.line(&format!("Notification: {}", tame(&notice.text)))?;
            }
            self.remember(notice.id);
        }
        if self.input.is_terminal && self.input.editor().is_none() && !console.is_json() && !self.is_prompted {
            self.is_prompted = true;
            console.data("> ")?;
        }
        Ok(())
    }

    /// Executes an input line. False if the line ends the chat.
    async fn carry_out(&mut self, line: &str) -> Result<bool, Failure> {
        let console = &self.site.console;
        match Line::of(line) {
            Line::Nothing => {}
            Line::Quit => return Ok(false),
            Line::Help => console.say_always(&help(self.partner).await),
            Line::Status => console.say_always(&self.status()),
            Line::New => {
                self.target = args::ConversationArgs { conversation: None, new: true, mode: self.target.mode };
                console.say("the next message begins a new conversation");
            }
            Line::Steer("") => console.say("/steer needs a text: /steer TEXT"),
            Line::Steer(text) => self.say(text, true)?,
            Line::Say(text) => self.say(text, false)?,
        }
        Ok(true)
    }

    fn say(&mut self, text: &str, steer: bool) -> Result<(), Failure> {
        let more = args::More { private: self.private, steer, ..args::More::default() };
        let say = Say {
            text: text.to_owned(),
            conversation: conversation(self.site, &self.target)?,
            mode: self.target.mode.map(Into::into),
            client_id: system::env().uuid().simple().to_string(),
            more,
        };
        // Only the first message begins a new conversation.
        self.target.new = false;
        let title = clipped(text, TITLE_CHARS_MAX);
        self.sending = Some(Sending { title, steer, answer: self.partner.say(say).boxed() });
        Ok(())
    }

    /// Handles the acknowledgement of a message, or its failure.
    async fn acknowledged(&mut self, stored: Result<Stored, Failure>) -> Result<(), Failure> {
        let Some(Sending { title, steer, .. }) = self.sending.take() else { return Ok(()) };
        let stored = match stored {
            Ok(stored) => stored,
            // A rejected message does not end the chat; the loss of the server does.
            Err(failure) if !self.is_gone(&failure) => {
                self.site.console.error(&failure);
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        let is_background = stored.priority > Priority::High && !stored.is_job_command;
        if is_background {
            self.site.console.say(&acknowledgement(&stored, &title));
        }
        let kind = match (stored.is_job_command, is_background || steer || stored.is_same) {
            (true, _) => Kind::JobCommand,
            (false, true) => Kind::Background,
            (false, false) => Kind::Front,
        };
        let following = self.partner.follow(&stored).await?;
        self.turns.begin(following, kind, title);
        self.last = Some(stored);
        Ok(())
    }

    /// Whether the server is gone. A rejection by a server is different: it has a request id.
    fn is_gone(&self, failure: &Failure) -> bool {
        let is_server = matches!(self.partner, Partner::Server(_));
        is_server && failure.exit == Exit::Unavailable && failure.request_id.is_none()
    }

    /// Handles Ctrl-C: cancels the front turn. Leaves the chat if there is no front turn, or Ctrl-C was pressed before.
    fn stop(&mut self) -> Result<(), Failure> {
        let Some(front) = self.turns.front().filter(|_| !self.is_stopping) else {
            if self.sending.is_some() {
                self.site.console.say_always(RECEIPT_UNKNOWN);
            }
            return Err(Failure::interrupted());
        };
        self.is_stopping = true;
        self.site.console.say("stopping the answer; Ctrl-C again leaves at once");
        self.stopping = Some(self.partner.cancel(front).boxed());
        Ok(())
    }

    fn leave(&self) -> Result<(), Failure> {
        if !self.turns.is_empty() {
            let how = match self.partner {
                Partner::Server(_) => "continues; `annie jobs` shows it",
                Partner::Here { .. } => "continues with the next `annie` on this data folder",
            };
            self.site.console.say(&format!("unfinished work {how}"));
        }
        Ok(())
    }

    // Notifications

    /// Reads the notifications since the last chat, and follows new ones from there.
    async fn catch_up(&mut self) {
        let after = self.remembered();
        let notices = tokio::time::timeout(Duration::from_millis(CATCH_UP_MS_MAX), notices_since(self.partner, after));
        let notices = match notices.await {
            Ok(Ok(notices)) => notices,
            // A chat works without notifications: an older server has none, or the key may not read them.
            Ok(Err(_)) => return,
            // The chat does not wait longer: the notifications are shown as they arrive.
            Err(_) => Vec::new(),
        };
        let last = notices.last().map_or(after, |notice| notice.id);
        let left_out = notices.len().saturating_sub(NOTICES_SHOWN_MAX);
        if left_out > 0 {
            self.site.console.say(&format!("older notifications ({left_out}): annie notifications --after {after}"));
        }
        self.pending.extend(notices.into_iter().skip(left_out));
        self.notices = Some(Notices::of(self.partner, last));
    }

    /// The source of the notification ids: a server's URL, or this folder. Ids of different sources are not comparable.
    fn notices_source(&self) -> String {
        match self.partner {
            Partner::Server(client) => client.url().to_owned(),
            Partner::Here { .. } => "here".to_owned(),
        }
    }

    fn notices_file(&self) -> PathBuf {
        self.site.folder.join(NOTICES_FILE)
    }

    fn remembered(&self) -> u64 {
        let text = std::fs::read_to_string(self.notices_file()).unwrap_or_default();
        let of = |line: &str| {
            let (id, source) = line.trim().split_once(' ')?;
            (source == self.notices_source()).then(|| id.parse().ok())?
        };
        text.lines().next().and_then(of).unwrap_or(0)
    }

    /// Stores the id of the last notification shown. If the write fails, a notification may be shown again.
    fn remember(&self, id: u64) {
        let _ = crate::system::write_private(&self.notices_file(), &format!("{id} {}\n", self.notices_source()));
    }

    fn status(&self) -> String {
        let partner = match self.partner {
            Partner::Server(client) => format!("the server at {}", client.url()),
            Partner::Here { kernel, .. } => {
                let models = kernel.models();
                let models: Vec<String> = models.iter().map(|(name, _, about)| format!("{name} ({about})")).collect();
                format!("a kernel in this process on {}, with {}", self.site.folder.display(), models.join(", "))
            }
        };
        match &self.last {
            Some(stored) => format!("connected to {partner}, conversation {}", stored.conversation),
            None => format!("connected to {partner}"),
        }
    }
}

/// The line that is printed at once for background work.
fn acknowledgement(stored: &Stored, title: &str) -> String {
    match stored.position {
        _ if stored.is_same => format!("Equal work is already queued or running: \"{title}\""),
        Some(position) if position > 1 => format!("On it in the background: \"{title}\" (queue position {position})"),
        _ => format!("On it in the background: \"{title}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chat_line_is_a_command_only_if_it_matches_exactly() {
        assert_eq!(Line::of(" /quit \n"), Line::Quit);
        assert_eq!(Line::of("/quit smoking"), Line::Say("/quit smoking"));
        assert_eq!(Line::of("/standup"), Line::Say("/standup"));
        assert_eq!(Line::of("/cancel"), Line::Say("/cancel"), "the kernel handles job commands");
        assert_eq!(Line::of("/steer  not that one "), Line::Steer("not that one"));
        assert_eq!(Line::of("/steering"), Line::Say("/steering"));
        assert_eq!(Line::of("  \n"), Line::Nothing);
    }

    #[test]
    fn background_work_is_acknowledged_with_its_queue_position() {
        let stored = Stored {
            task: annie_core::ids::TaskId::from_uuid(uuid::Uuid::nil()),
            conversation: annie_core::ids::ConversationId::from_uuid(uuid::Uuid::nil()),
            seq: annie_core::ids::Seq(1),
            priority: Priority::Normal,
            is_job_command: false,
            is_same: false,
            position: Some(3),
        };
        assert_eq!(acknowledgement(&stored, "read it"), "On it in the background: \"read it\" (queue position 3)");
        let first = Stored { position: Some(1), ..stored.clone() };
        assert_eq!(acknowledgement(&first, "read it"), "On it in the background: \"read it\"");
        let same = Stored { is_same: true, ..stored };
        assert_eq!(acknowledgement(&same, "read it"), "Equal work is already queued or running: \"read it\"");
    }
}
