//! The turns of a chat that are under way. One is in front and shown as it goes: whoever waits, waits for it. The others are
//! shown when they end.

use std::collections::{BTreeMap, VecDeque};

use annie_core::ids::{Seq, TaskId};
use futures_util::{
    FutureExt,
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt},
};

use super::{
    console::{Console, Ink},
    failure::Failure,
    talk::{Following, Seen},
    watch::Watch,
};

/// Turns that are followed at a time; what is said beyond waits to be sent.
const TURNS_MAX: usize = 16;
/// Ends that are remembered to be shown: a notification comes soon after.
const SHOWN_MAX: usize = 256;

/// How a turn is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Somebody waits for it: as it goes.
    Front,
    /// An order about tasks: its answer, as soon as it is there.
    Order,
    /// Work in the background, or what joined another turn: its answer, with what it was about.
    Aside,
}

struct Turn<'a> {
    watch: Watch<'a>,
    kind: Kind,
    title: String,
    seq: Seq,
}

type Step = (Following, Result<Seen, Failure>);

/// The turns.
pub struct Turns<'a> {
    console: &'a Console,
    open: BTreeMap<TaskId, Turn<'a>>,
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    has_news: bool,
    /// The tasks whose ends were shown last.
    shown: VecDeque<TaskId>,
}

fn step(mut following: Following) -> BoxFuture<'static, Step> {
    async move {
        let seen = following.next().await;
        (following, seen)
    }
    .boxed()
}

impl<'a> Turns<'a> {
    /// None yet.
    #[must_use]
    pub fn of(console: &'a Console) -> Self {
        Self { console, open: BTreeMap::new(), steps: FuturesUnordered::new(), has_news: false, shown: VecDeque::new() }
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether another may begin.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.open.len() < TURNS_MAX
    }

    /// Whether somebody waits for an answer.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        self.open.values().any(|turn| turn.kind != Kind::Aside)
    }

    /// The turn in front: the first that was said of those that somebody waits for.
    #[must_use]
    pub fn front(&self) -> Option<TaskId> {
        let waited_for = self.open.iter().filter(|(_, turn)| turn.kind == Kind::Front);
        waited_for.min_by_key(|(_, turn)| turn.seq).map(|(task, _)| *task)
    }

    /// Whether something was written since this was last asked: a prompt that stood is gone.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Whether the end of a task was shown here.
    #[must_use]
    pub fn has_shown(&self, task: TaskId) -> bool {
        self.shown.contains(&task)
    }

    /// One more.
    pub fn begin(&mut self, following: Following, kind: Kind, title: String) {
        let said = following.said();
        let turn = Turn { watch: Watch::new(self.console), kind, title, seq: said.seq };
        self.open.insert(said.task, turn);
        self.steps.push(step(following));
    }

    /// Shows the next thing that is seen of any of them; whether a turn ended by it.
    ///
    /// # Errors
    /// If nobody reads any more, or a turn cannot be followed.
    pub async fn next(&mut self) -> Result<bool, Failure> {
        let Some((following, seen)) = self.steps.next().await else { return Ok(false) };
        let task = following.said().task;
        let ended = match seen {
            Ok(seen) => self.see(task, &seen)?,
            Err(failure) => {
                self.open.remove(&task);
                return Err(failure);
            }
        };
        if ended {
            self.open.remove(&task);
            self.shown.push_back(task);
            if self.shown.len() > SHOWN_MAX {
                self.shown.pop_front();
            }
        } else {
            self.steps.push(step(following));
        }
        Ok(ended)
    }

    fn see(&mut self, task: TaskId, seen: &Seen) -> Result<bool, Failure> {
        let front = self.front();
        let is_front = front == Some(task);
        let Some(kind) = self.open.get(&task).map(|turn| turn.kind) else { return Ok(true) };
        let is_final = matches!(seen, Seen::Event(event) if event.body.is_final());
        // Programs are told everything; people see drafts of one answer only, and of the rest how it ends.
        let is_shown = self.console.is_json()
            || match (kind, seen) {
                (Kind::Front, Seen::Draft { .. }) => is_front,
                (Kind::Front, Seen::Event(_)) => true,
                (Kind::Order | Kind::Aside, _) => is_final,
            };
        if !is_shown {
            return Ok(false);
        }
        if is_final && !is_front && !self.console.is_json() {
            self.make_way(front, task, kind)?;
        }
        let Some(turn) = self.open.get_mut(&task) else { return Ok(true) };
        self.has_news |= is_final;
        Ok(turn.watch.see(seen)?.is_some())
    }

    /// Another answer comes in between: it begins on a line of its own, and says what it is about.
    fn make_way(&mut self, front: Option<TaskId>, task: TaskId, kind: Kind) -> Result<(), Failure> {
        match front.and_then(|front| self.open.get_mut(&front)) {
            Some(turn) => turn.watch.break_off()?,
            None if kind == Kind::Aside && self.console.live => self.console.data("\n")?,
            None => {}
        }
        if kind == Kind::Aside
            && let Some(turn) = self.open.get(&task)
        {
            let about = format!("{} {}", self.console.ink(Ink::Name, "●"), turn.title);
            self.console.say(&about);
        }
        Ok(())
    }
}
