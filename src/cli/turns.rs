//! The running turns of a chat. The front turn, for which the user waits, is shown as it proceeds. The other turns are shown
//! when they end.

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
    waiting::Activity,
    watch::Watch,
};

/// Maximum number of turns that are followed at a time; further messages wait before they are sent.
const TURNS_MAX: usize = 16;
/// How many finished tasks are remembered, so that the notification that follows soon is not shown again.
const SHOWN_MAX: usize = 256;

/// How a turn is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The user waits for it: shown as it proceeds.
    Front,
    /// A job command: only the answer is shown.
    JobCommand,
    /// Background work, or a message that joined another turn: only the answer is shown, with its title.
    Background,
}

struct Turn<'a> {
    watch: Watch<'a>,
    kind: Kind,
    title: String,
    seq: Seq,
    activity: Activity,
}

type Step = (Following, Result<Seen, Failure>);

/// The running turns, and the tasks that ended last.
pub struct Turns<'a> {
    console: &'a Console,
    open: BTreeMap<TaskId, Turn<'a>>,
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    has_news: bool,
    /// The tasks whose end was shown last, oldest first.
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
    /// Creates an empty list of turns.
    #[must_use]
    pub fn of(console: &'a Console) -> Self {
        Self { console, open: BTreeMap::new(), steps: FuturesUnordered::new(), has_news: false, shown: VecDeque::new() }
    }

    /// Whether no turn is running.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether another turn may be followed.
    #[must_use]
    pub fn has_capacity(&self) -> bool {
        self.open.len() < TURNS_MAX
    }

    /// Whether the user waits for an answer.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        self.open.values().any(|turn| turn.kind != Kind::Background)
    }

    /// The front turn: the oldest of those for which the user waits.
    #[must_use]
    pub fn front(&self) -> Option<TaskId> {
        let waited_for = self.open.iter().filter(|(_, turn)| turn.kind == Kind::Front);
        waited_for.min_by_key(|(_, turn)| turn.seq).map(|(task, _)| *task)
    }

    /// The front turn, and what it waits for.
    pub fn front_activity(&mut self) -> Option<(TaskId, &mut Activity)> {
        let front = self.front()?;
        self.open.get_mut(&front).map(|turn| (front, &mut turn.activity))
    }

    /// Whether output was written since the last call, so that a prompt must be shown again.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Whether the end of a task was shown.
    #[must_use]
    pub fn has_shown(&self, task: TaskId) -> bool {
        self.shown.contains(&task)
    }

    /// Starts to follow a turn.
    pub fn begin(&mut self, following: Following, kind: Kind, title: String) {
        let stored = following.stored();
        let turn = Turn { watch: Watch::new(self.console), kind, title, seq: stored.seq, activity: Activity::begin() };
        self.open.insert(stored.task, turn);
        self.steps.push(step(following));
    }

    /// Shows the next event or draft of any turn. True if a turn ended.
    ///
    /// # Errors
    /// If stdout is closed, or a turn cannot be followed.
    pub async fn next(&mut self) -> Result<bool, Failure> {
        let Some((following, seen)) = self.steps.next().await else { return Ok(false) };
        let task = following.stored().task;
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
        if let Some(turn) = self.open.get_mut(&task) {
            turn.activity.see(seen);
        }
        if is_front && (is_final || matches!(seen, Seen::Draft { .. })) {
            // The answer takes the place of the line about the wait.
            self.console.show_status(None);
        }
        // JSON output has everything. People see drafts of one answer only, and only the end of the other turns.
        let is_shown = self.console.is_json()
            || match (kind, seen) {
                (Kind::Front, Seen::Draft { .. }) => is_front,
                (Kind::Front, Seen::Event(_)) => true,
                (Kind::JobCommand | Kind::Background, _) => is_final,
            };
        if !is_shown {
            return Ok(false);
        }
        if is_final && !is_front && !self.console.is_json() {
            self.begin_other_answer(front, task, kind)?;
        }
        let Some(turn) = self.open.get_mut(&task) else { return Ok(true) };
        self.has_news |= is_final;
        Ok(turn.watch.see(seen)?.is_some())
    }

    /// Prepares the output for an answer that interrupts the front turn: a new line, and the title of a background turn.
    fn begin_other_answer(&mut self, front: Option<TaskId>, task: TaskId, kind: Kind) -> Result<(), Failure> {
        match front.and_then(|front| self.open.get_mut(&front)) {
            Some(turn) => turn.watch.break_off()?,
            // The prompt stands in the row, unless it is in the live region.
            None if kind == Kind::Background && self.console.live && !self.console.has_region() => {
                self.console.data("\n")?;
            }
            None => {}
        }
        if kind == Kind::Background
            && let Some(turn) = self.open.get(&task)
        {
            let title = format!("{} {}", self.console.ink(Ink::Name, "●"), turn.title);
            self.console.say(&title);
        }
        Ok(())
    }
}
