//! `annie chat`: lines in, answers out, until the end of the input. Works at a terminal and with a pipe. What is being done
//! is asked and told in plain words, which the kernel understands; what takes long goes on in the background.

use std::{collections::VecDeque, path::PathBuf, time::Duration};

use annie_core::event::Priority;
use futures_util::{FutureExt, future::BoxFuture};

use super::{
    args,
    ask::{MAYBE_HEARD, Session, conversation, under_way},
    console::{Ink, Presses, clipped, tame},
    failure::{Exit, Failure},
    input::Input,
    notices::{Notice, Notices, told_since},
    site::Site,
    talk::{Partner, Said, Say},
    turns::{Kind, Turns},
};
use crate::system;

const HELP: &str = "\
/help        this
/status      where you are and who answers
/steer TEXT  say something into the answer that is being worked on
/new         begin a new conversation
/quit        leave (also Ctrl-D)
Anything else is said to Annie. \"What are you working on?\", \"how busy are you?\", \"do that first\", \"this is urgent\",
\"pause that\", \"resume it\" and \"cancel that\" are about what she does, and so are /jobs, /top, /first, /urgent, /pause,
/resume and /cancel. Ctrl-C stops the running answer, twice it leaves.";

/// The file in the data folder that tells which notifications were shown.
const NOTICES_FILE: &str = "cli_notifications";
/// Notifications of before that are shown at the start; the rest is counted.
const NOTICES_SHOWN_MAX: usize = 3;
/// How long those of before may keep a chat from beginning, in milliseconds.
const CATCH_UP_MS_MAX: u64 = 2_000;
/// Characters of a message that name it.
const TITLE_CHARS_MAX: usize = 60;

/// What a line means.
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
            // Any other `/name` may be an order or a prompt skill, which the kernel knows.
            text => Self::Say(text),
        }
    }
}

/// A message that is on its way to being acknowledged. Turns and notifications go on meanwhile; the next line waits.
struct Saying<'a> {
    title: String,
    steer: bool,
    answer: BoxFuture<'a, Result<Said, Failure>>,
}

/// A chat that runs.
struct Chat<'a> {
    site: &'a Site,
    partner: &'a Partner,
    place: args::Place,
    private: bool,
    last: Option<Said>,
    input: Input,
    saying: Option<Saying<'a>>,
    /// The wish that the answer of the front stops.
    stopping: Option<BoxFuture<'a, Result<bool, Failure>>>,
    turns: Turns<'a>,
    notices: Option<Notices>,
    /// Notifications that wait until nobody is being answered.
    told: VecDeque<Notice>,
    /// The prompt stands.
    is_prompted: bool,
    /// Ctrl-C was pressed during the answer of the front.
    is_stopping: bool,
}

/// What happens next.
enum Next {
    Line(Option<String>),
    Said(Result<Said, Failure>),
    Seen,
    Stopped(Result<bool, Failure>),
    Told(Result<Notice, Failure>),
    Pressed,
}

/// `annie chat`
///
/// # Errors
/// If nobody can be talked to, or Ctrl-C was pressed twice.
pub async fn run(site: &Site, chat: args::Chat) -> Result<(), Failure> {
    over(site, chat, Input::of_process()).await
}

/// A chat over these lines.
///
/// # Errors
/// As [`run`].
pub async fn over(site: &Site, chat: args::Chat, input: Input) -> Result<(), Failure> {
    let session = Session::open(site).await?;
    let mut running = Chat {
        site,
        partner: &session.partner,
        place: chat.place,
        private: chat.private,
        last: None,
        input,
        saying: None,
        stopping: None,
        turns: Turns::of(&site.console),
        notices: None,
        told: VecDeque::new(),
        is_prompted: false,
        is_stopping: false,
    };
    running.catch_up().await;
    let ended = running.talk().await;
    drop(running);
    session.close(&ended).await;
    ended
}

impl Chat<'_> {
    async fn talk(&mut self) -> Result<(), Failure> {
        let console = &self.site.console;
        if self.input.is_terminal {
            console.say(&console.ink(Ink::Dim, "/help tells what else there is; Ctrl-D leaves"));
        }
        let mut is_open = true;
        let mut presses = Presses::new()?;
        loop {
            if !is_open && (self.input.is_terminal || self.turns.is_empty()) {
                return self.leave();
            }
            self.tell_or_prompt()?;
            match self.next(is_open, &mut presses).await? {
                Next::Line(None) => is_open = false,
                Next::Line(Some(line)) => {
                    self.is_prompted = false;
                    if !self.carry_out(&line)? {
                        return self.leave();
                    }
                }
                Next::Said(said) => self.said(said).await?,
                Next::Seen => {}
                Next::Stopped(stopped) => {
                    self.stopping = None;
                    match stopped {
                        Ok(true) => {}
                        Ok(false) => console.say("it has ended already"),
                        Err(failure) => console.error(&failure),
                    }
                }
                // What was shown as it ended needs no second telling.
                Next::Told(Ok(notice)) if notice.tasks().all(|task| self.turns.has_shown(task)) => {
                    self.remember(notice.id);
                }
                Next::Told(Ok(notice)) => self.told.push_back(notice),
                // A chat works without them.
                Next::Told(Err(_)) => self.notices = None,
                Next::Pressed => self.stop()?,
            }
        }
    }

    async fn next(&mut self, is_open: bool, presses: &mut Presses) -> Result<Next, Failure> {
        // At a terminal one may speak while Annie works; a pipe waits for whoever is being answered.
        let may_speak =
            self.saying.is_none() && self.turns.has_room() && (self.input.is_terminal || !self.turns.is_answering());
        let notices = &mut self.notices;
        let notice = async {
            match notices {
                Some(notices) => notices.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            line = self.input.next(), if is_open && may_speak => Ok(Next::Line(line?)),
            said = under_way(self.saying.as_mut().map(|saying| &mut saying.answer)) => Ok(Next::Said(said)),
            ended = self.turns.next(), if !self.turns.is_empty() => {
                if ended? && !self.turns.is_answering() {
                    self.is_stopping = false;
                }
                Ok(Next::Seen)
            }
            notice = notice, if is_open => Ok(Next::Told(notice)),
            stopped = under_way(self.stopping.as_mut()) => Ok(Next::Stopped(stopped)),
            () = presses.next() => Ok(Next::Pressed),
        }
    }

    /// Between two answers: what was told meanwhile, and the prompt.
    fn tell_or_prompt(&mut self) -> Result<(), Failure> {
        if self.saying.is_some() || self.turns.is_answering() {
            return Ok(());
        }
        let console = &self.site.console;
        if self.turns.take_news() || !self.told.is_empty() {
            if std::mem::take(&mut self.is_prompted) && !self.told.is_empty() {
                console.data("\n")?;
            }
            self.is_prompted = false;
        }
        while let Some(notice) = self.told.pop_front() {
            if console.is_json() {
                let mut line = notice.value.clone();
                line["kind"] = "notification".into();
                console.json(&line)?;
            } else {
                console.line(&format!("By the way: {}", tame(&notice.text)))?;
            }
            self.remember(notice.id);
        }
        if self.input.is_terminal && !console.is_json() && !self.is_prompted {
            self.is_prompted = true;
            console.data("> ")?;
        }
        Ok(())
    }

    /// Does what a line asks for; false if that is to leave.
    fn carry_out(&mut self, line: &str) -> Result<bool, Failure> {
        let console = &self.site.console;
        match Line::of(line) {
            Line::Nothing => {}
            Line::Quit => return Ok(false),
            Line::Help => console.say_always(HELP),
            Line::Status => console.say_always(&self.status()),
            Line::New => {
                self.place = args::Place { conversation: None, new: true, mode: self.place.mode };
                console.say("the next message begins a new conversation");
            }
            Line::Steer("") => console.say("say what: /steer and the words"),
            Line::Steer(text) => self.say(text, true)?,
            Line::Say(text) => self.say(text, false)?,
        }
        Ok(true)
    }

    fn say(&mut self, text: &str, steer: bool) -> Result<(), Failure> {
        let more = args::More { private: self.private, steer, ..args::More::default() };
        let say = Say {
            text: text.to_owned(),
            conversation: conversation(self.site, &self.place)?,
            mode: self.place.mode.map(Into::into),
            client_id: system::env().uuid().simple().to_string(),
            more,
        };
        // Only the first message begins a new conversation.
        self.place.new = false;
        let title = clipped(text, TITLE_CHARS_MAX);
        self.saying = Some(Saying { title, steer, answer: self.partner.say(say).boxed() });
        Ok(())
    }

    /// It is acknowledged, or will not be.
    async fn said(&mut self, said: Result<Said, Failure>) -> Result<(), Failure> {
        let Some(Saying { title, steer, .. }) = self.saying.take() else { return Ok(()) };
        let said = match said {
            Ok(said) => said,
            // What is wrong with one message, or comes too soon, ends no chat; a server that is gone does.
            Err(failure) if !self.is_gone(&failure) => {
                self.site.console.error(&failure);
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        let is_behind = said.priority > Priority::High && !said.is_order;
        if is_behind {
            self.site.console.say(&acknowledgement(&said, &title));
        }
        let kind = match (said.is_order, is_behind || steer || said.is_same) {
            (true, _) => Kind::Order,
            (false, true) => Kind::Aside,
            (false, false) => Kind::Front,
        };
        let following = self.partner.follow(&said).await?;
        self.turns.begin(following, kind, title);
        self.last = Some(said);
        Ok(())
    }

    /// Whether nobody is there any more: a refusal of a server has its request's id.
    fn is_gone(&self, failure: &Failure) -> bool {
        let is_server = matches!(self.partner, Partner::Server(_));
        is_server && failure.exit == Exit::Unavailable && failure.request_id.is_none()
    }

    /// Ctrl-C: the answer that is being given is stopped; if there is none, or it was pressed before, it leaves.
    fn stop(&mut self) -> Result<(), Failure> {
        let Some(front) = self.turns.front().filter(|_| !self.is_stopping) else {
            if self.saying.is_some() {
                self.site.console.say_always(MAYBE_HEARD);
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
                Partner::Server(_) => "goes on; `annie jobs` shows it",
                Partner::Here { .. } => "goes on with the next `annie` on this data folder",
            };
            self.site.console.say(&format!("what is not finished {how}"));
        }
        Ok(())
    }

    // Notifications

    /// What was told since the last chat, and from there on what comes.
    async fn catch_up(&mut self) {
        let after = self.remembered();
        let told = tokio::time::timeout(Duration::from_millis(CATCH_UP_MS_MAX), told_since(self.partner, after));
        let told = match told.await {
            Ok(Ok(told)) => told,
            // A chat works without them: an older server has none, or the key may not read them.
            Ok(Err(_)) => return,
            // Nobody waits for them either: they are told as they come.
            Err(_) => Vec::new(),
        };
        let last = told.last().map_or(after, |notice| notice.id);
        let left_out = told.len().saturating_sub(NOTICES_SHOWN_MAX);
        if left_out > 0 {
            self.site.console.say(&format!("older notifications ({left_out}): annie notifications --after {after}"));
        }
        self.told.extend(told.into_iter().skip(left_out));
        self.notices = Some(Notices::of(self.partner, last));
    }

    /// Ids mean something at one place only: at this server, or in this folder.
    fn notices_place(&self) -> String {
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
            let (id, place) = line.trim().split_once(' ')?;
            (place == self.notices_place()).then(|| id.parse().ok())?
        };
        text.lines().next().and_then(of).unwrap_or(0)
    }

    /// If it is lost, something is told again.
    fn remember(&self, id: u64) {
        let _ = crate::system::write_private(&self.notices_file(), &format!("{id} {}\n", self.notices_place()));
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

/// What is said at once of work that nobody waits for.
fn acknowledgement(said: &Said, title: &str) -> String {
    match said.position {
        _ if said.is_same => format!("That is being done already: \"{title}\""),
        Some(place) if place > 1 => format!("On it in the background: \"{title}\" (place {place})"),
        _ => format!("On it in the background: \"{title}\""),
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
        assert_eq!(Line::of("/cancel"), Line::Say("/cancel"), "orders are the kernel's");
        assert_eq!(Line::of("/steer  not that one "), Line::Steer("not that one"));
        assert_eq!(Line::of("/steering"), Line::Say("/steering"));
        assert_eq!(Line::of("  \n"), Line::Nothing);
    }

    #[test]
    fn what_goes_on_behind_is_acknowledged_with_its_place() {
        let said = Said {
            task: annie_core::ids::TaskId::from_uuid(uuid::Uuid::nil()),
            conversation: annie_core::ids::ConversationId::from_uuid(uuid::Uuid::nil()),
            seq: annie_core::ids::Seq(1),
            priority: Priority::Normal,
            is_order: false,
            is_same: false,
            position: Some(3),
        };
        assert_eq!(acknowledgement(&said, "read it"), "On it in the background: \"read it\" (place 3)");
        let first = Said { position: Some(1), ..said.clone() };
        assert_eq!(acknowledgement(&first, "read it"), "On it in the background: \"read it\"");
        let same = Said { is_same: true, ..said };
        assert_eq!(acknowledgement(&same, "read it"), "That is being done already: \"read it\"");
    }
}
