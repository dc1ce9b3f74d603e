//! `annie chat`: lines in, answers out, until the end of the input. Works at a terminal and with a pipe.

use std::{collections::VecDeque, io::IsTerminal};

use annie_core::ids::TaskId;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    sync::mpsc,
    task::JoinSet,
};

use super::{
    args,
    ask::{Session, conversation, watch},
    console::Ink,
    failure::{Exit, Failure},
    site::Site,
    talk::{Partner, Said, Say},
};
use crate::system;

const HELP: &str = "\
/help    this
/status  where you are and who answers
/cancel  stop the last message, also while it runs
/new     begin a new conversation
/quit    leave (also Ctrl-D)
Anything else is said to Annie. Ctrl-C stops the running answer, twice it leaves.";

/// The longest line, in bytes; the kernel's own limit is usually lower.
const LINE_BYTES_MAX: u64 = 1024 * 1024;
/// Lines that may be typed ahead.
const LINES_AHEAD_MAX: usize = 16;

/// What a line means.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Help,
    Status,
    Cancel,
    New,
    Quit,
    Nothing,
    Say(&'a str),
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Self {
        match line.trim() {
            "" => Self::Nothing,
            "/help" | "/?" => Self::Help,
            "/status" => Self::Status,
            "/cancel" => Self::Cancel,
            "/new" => Self::New,
            "/quit" | "/exit" | "/q" => Self::Quit,
            // Any other `/name` may be a prompt skill, which the kernel knows.
            text => Self::Say(text),
        }
    }
}

/// Lines from stdin, read beside everything else.
struct Input {
    lines: mpsc::Receiver<Result<String, String>>,
    ahead: VecDeque<String>,
    is_terminal: bool,
    _reader: JoinSet<()>,
}

impl Input {
    fn of_process() -> Self {
        let (tell, lines) = mpsc::channel(LINES_AHEAD_MAX);
        let mut reader = JoinSet::new();
        reader.spawn(read(tell));
        Self { lines, ahead: VecDeque::new(), is_terminal: std::io::stdin().is_terminal(), _reader: reader }
    }

    /// The next line; nothing at the end of the input.
    async fn next(&mut self) -> Result<Option<String>, Failure> {
        match self.ahead.pop_front() {
            Some(line) => Ok(Some(line)),
            None => self.lines.recv().await.transpose().map_err(|why| Failure::new(Exit::Failure, why)),
        }
    }
}

async fn read(tell: mpsc::Sender<Result<String, String>>) {
    let mut stdin = BufReader::new(tokio::io::stdin());
    loop {
        let mut line = String::new();
        let item = match (&mut stdin).take(LINE_BYTES_MAX).read_line(&mut line).await {
            Ok(0) => return,
            Ok(n) if n as u64 == LINE_BYTES_MAX && !line.ends_with('\n') => {
                Err(format!("a line is longer than {LINE_BYTES_MAX} bytes"))
            }
            Ok(_) => Ok(line),
            Err(e) => Err(format!("cannot read stdin as UTF-8 text: {e}")),
        };
        let over = item.is_err();
        if tell.send(item).await.is_err() || over {
            return;
        }
    }
}

/// A chat that runs.
struct Chat<'a> {
    site: &'a Site,
    partner: &'a Partner,
    place: args::Place,
    last: Option<Said>,
    input: Input,
}

/// `annie chat`
///
/// # Errors
/// If nobody can be talked to, or Ctrl-C was pressed twice.
pub async fn run(site: &Site, chat: args::Chat) -> Result<(), Failure> {
    let session = Session::open(site).await?;
    let input = Input::of_process();
    let mut running = Chat { site, partner: &session.partner, place: chat.place, last: None, input };
    let ended = running.talk().await;
    session.close(&ended).await;
    ended
}

impl Chat<'_> {
    async fn talk(&mut self) -> Result<(), Failure> {
        let console = &self.site.console;
        if self.input.is_terminal {
            console.say(&console.ink(Ink::Dim, "/help tells what else there is; Ctrl-D leaves"));
        }
        loop {
            if self.input.is_terminal && !console.is_json() {
                console.data("> ")?;
            }
            let line = tokio::select! {
                line = self.input.next() => line?,
                _ = tokio::signal::ctrl_c() => return Err(Failure::interrupted()),
            };
            let Some(line) = line else { return Ok(()) };
            if !self.carry_out(&line).await? {
                return Ok(());
            }
        }
    }

    /// Does what a line asks for; false if that is to leave.
    async fn carry_out(&mut self, line: &str) -> Result<bool, Failure> {
        let console = &self.site.console;
        match Line::of(line) {
            Line::Nothing => {}
            Line::Quit => return Ok(false),
            Line::Help => console.say_always(HELP),
            Line::Status => console.say_always(&self.status()),
            Line::Cancel => match &self.last {
                Some(said) => self.cancel(said.task).await,
                None => console.say("nothing was said yet"),
            },
            Line::New => {
                self.place = args::Place { conversation: None, new: true, mode: self.place.mode };
                console.say("the next message begins a new conversation");
            }
            Line::Say(text) => self.say(text).await?,
        }
        Ok(true)
    }

    async fn say(&mut self, text: &str) -> Result<(), Failure> {
        let say = Say {
            text: text.to_owned(),
            conversation: conversation(self.site, &self.place)?,
            mode: self.place.mode.map(Into::into),
            client_id: system::env().uuid().simple().to_string(),
        };
        // Only the first message begins a new conversation.
        self.place.new = false;
        let said = match self.partner.say(say).await {
            Ok(said) => said,
            // What is wrong with one message ends no chat; a server that is gone does.
            Err(failure) if failure.exit != Exit::Unavailable => {
                self.site.console.error(&failure);
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        self.last = Some(said.clone());
        let following = self.partner.follow(&said).await?;
        let (site, partner) = (self.site, self.partner);
        let mut shown = Box::pin(watch(site, partner, following, said.task));
        loop {
            // At a terminal, commands count while Annie works; what else is typed waits its turn. A pipe waits.
            let may_type = self.input.is_terminal && self.input.ahead.len() < LINES_AHEAD_MAX;
            tokio::select! {
                ended = &mut shown => return ended.map(drop),
                Some(Ok(line)) = self.input.lines.recv(), if may_type => match Line::of(&line) {
                    Line::Cancel => self.cancel(said.task).await,
                    Line::Status => site.console.say_always(&self.status()),
                    _ => self.input.ahead.push_back(line),
                },
            }
        }
    }

    async fn cancel(&self, task: TaskId) {
        let console = &self.site.console;
        match self.partner.cancel(task).await {
            Ok(true) => console.say("it is being stopped"),
            Ok(false) => console.say("it has ended already"),
            Err(failure) => console.error(&failure),
        }
    }

    fn status(&self) -> String {
        let who = match self.partner {
            Partner::Server(client) => format!("the server at {}", client.url()),
            Partner::Here { kernel, .. } => {
                let models = kernel.models();
                let models: Vec<String> = models.iter().map(|(name, _, about)| format!("{name} ({about})")).collect();
                format!("a kernel in this process on {}, with {}", self.site.folder.display(), models.join(", "))
            }
        };
        match &self.last {
            Some(said) => format!("you talk to {who} in {}", said.conversation),
            None => format!("you talk to {who}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_only_if_it_is_exactly_one() {
        assert_eq!(Line::of(" /quit \n"), Line::Quit);
        assert_eq!(Line::of("/quit smoking"), Line::Say("/quit smoking"));
        assert_eq!(Line::of("/standup"), Line::Say("/standup"));
        assert_eq!(Line::of("  \n"), Line::Nothing);
    }
}
