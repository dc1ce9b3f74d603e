//! Replays, copies and imports of conversations. A replay only reads. A copy is a new conversation that begins with the history of
//! another one, and no intent of the original is carried out in it.

use std::collections::BTreeSet;

use annie_core::{
    event::{Copied, Event, EventBody, NewEvent, Scope},
    ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    ports::{Append, Fence},
    replay::{Check, Difference, Divergence, DivergenceKind, Replay, ReplayState, differences, history_of, summary_of},
    turn::{Conversation, STATE_VERSION},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{Kernel, KernelError, PAGE_MAX};
use crate::log_writer::append;

/// The most events that one replay folds. Folding one takes about 0.03 ms, so a replay ends within half a minute.
const EVENTS_MAX: u64 = 1_000_000;
/// The most events of an imported conversation. Each activation of the copy without a snapshot reads all of them.
pub const IMPORTED_EVENTS_MAX: u64 = 100_000;
/// The largest sum of the events of one imported conversation, in bytes. A replay holds the whole conversation in memory.
pub const IMPORTED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The version of the export, which the first line names.
pub const EXPORT_VERSION: u64 = 1;
/// The field of an export's first line that contains the version.
pub const EXPORT_MARK: &str = "annie_conversation";
/// Events of a copy that are stored in one append.
const APPEND_EVENTS: usize = 200;
/// How many replays run at the same time. Each holds a conversation in memory and uses one core.
pub(super) static RUNNING: Semaphore = Semaphore::const_new(2);
/// The conversations into which a part is being imported. Two parts at once would both follow the same event.
static IMPORTING: Mutex<BTreeSet<ConversationId>> = Mutex::new(BTreeSet::new());

/// The only import into a conversation at this time.
struct Importing(ConversationId);

impl Importing {
    fn begin(id: ConversationId) -> Result<Self, KernelError> {
        if IMPORTING.lock().insert(id) {
            return Ok(Self(id));
        }
        Err(KernelError::Stale(format!("another part of {id} is being imported: send one part after the other")))
    }
}

impl Drop for Importing {
    fn drop(&mut self) {
        IMPORTING.lock().remove(&self.0);
    }
}

/// What a replay shows.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReplayRequest {
    /// The last event that is folded; absent means the last one of the log.
    pub until: Option<Seq>,
    /// The event with whose state the state is compared.
    pub from: Option<Seq>,
    /// Compare the decisions of the core with those that are stored.
    pub check: bool,
}

/// A replayed conversation.
#[derive(Debug, Clone)]
pub struct Replayed {
    /// The conversation.
    pub id: ConversationId,
    /// The sequence number of its last event.
    pub last: Seq,
    /// The last event that was folded.
    pub event: Option<Event>,
    /// The state after it.
    pub state: ReplayState,
    /// The differences from the state at [`ReplayRequest::from`].
    pub differences: Option<Vec<Difference>>,
    /// The result of the comparison.
    pub check: Option<Check>,
}

/// A part of an exported conversation.
#[derive(Debug, Clone, Default)]
pub struct ImportPart {
    /// The conversation that an earlier part began.
    pub into: Option<ConversationId>,
    /// Lines of an export, one JSON object each.
    pub lines: String,
    /// Further parts follow.
    pub is_partial: bool,
}

/// A copy of a conversation, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// The new conversation.
    pub conversation: ConversationId,
    /// The sequence number of its last event.
    pub last: Seq,
}

impl Kernel {
    /// Folds the log of a conversation up to an event.
    ///
    /// # Errors
    /// If the scope sees no such conversation, an event does not exist, or the store fails.
    pub async fn replay(&self, scope: Scope, id: ConversationId, what: ReplayRequest) -> Result<Replayed, KernelError> {
        let row = self.conversation(scope, id).await?;
        let until = existing("until", what.until, row.last_seq)?.unwrap_or(row.last_seq);
        let from = existing("from", what.from, row.last_seq)?;
        if let Some(from) = from.filter(|from| *from > until) {
            let why = format!("`from` ({from}) comes after `until` ({until}): the earlier event is `from`");
            return Err(KernelError::of_field("from", why));
        }
        let _running = RUNNING.acquire().await.map_err(|_| KernelError::NotReady("it is shutting down".to_owned()))?;
        let mut replay = Replay::new(id, row.user.clone());
        let earlier = match from {
            Some(from) => {
                self.fold_to(&mut replay, id, from).await?;
                Some(ReplayState::of(replay.state()))
            }
            None => None,
        };
        let mut snapshot = None;
        if what.check {
            snapshot = self.wrong_snapshot(&mut replay, &row.user, id, until).await?;
        }
        self.fold_to(&mut replay, id, until).await?;
        let (state, event) = (ReplayState::of(replay.state()), replay.last().cloned());
        let json = |state: &ReplayState| serde_json::to_value(state).unwrap_or_default();
        let differences = earlier.map(|earlier| differences(&json(&earlier), &json(&state)));
        let check = what.check.then(|| {
            // Before the end of the log, a decision behind the event is the next event.
            let mut check = if until < row.last_seq { replay.so_far() } else { replay.finish() };
            snapshot.into_iter().for_each(|wrong| check.add(wrong));
            check
        });
        Ok(Replayed { id, last: row.last_seq, event, state, differences, check })
    }

    /// Begins a new conversation with the history of another one up to an event. No effect of the original is repeated.
    ///
    /// # Errors
    /// If the scope sees no such conversation, the event does not exist, or the store fails.
    pub async fn fork(&self, scope: Scope, id: ConversationId, at: Option<Seq>) -> Result<Copy, KernelError> {
        self.check_takes_in()?;
        let row = self.conversation(scope, id).await?;
        let at = existing("at", at, row.last_seq)?.unwrap_or(row.last_seq);
        let _running = RUNNING.acquire().await.map_err(|_| KernelError::NotReady("it is shutting down".to_owned()))?;
        let mut replay = Replay::new(id, row.user.clone());
        self.fold_to(&mut replay, id, at).await?;
        let (history, summary) = (history_of(replay.state(), false), summary_of(replay.state()));
        let copied = Copied { of: id, original_seq: at, event: None, history, summary, bytes: 0 };
        let conversation = ConversationId::from_uuid(self.wiring.env.uuid());
        let last = self.store_copy(conversation, &row.user, vec![copied]).await?;
        Ok(Copy { conversation, last })
    }

    /// Imports a part of an exported conversation under a new id, as the given user. The events of the original become records for
    /// replays. The last part adds what later turns see of them.
    ///
    /// # Errors
    /// If a line is no event or not the next one, or the store fails. Nothing of the part is stored after an invalid line.
    pub async fn import(&self, user: &UserId, part: ImportPart) -> Result<Copy, KernelError> {
        self.check_takes_in()?;
        let conversation = part.into.unwrap_or_else(|| ConversationId::from_uuid(self.wiring.env.uuid()));
        let _alone = Importing::begin(conversation)?;
        let before = match part.into {
            Some(id) => Some(self.imported_so_far(user, id).await?),
            None => None,
        };
        let first = before.as_ref().map_or(1, |before| before.original_seq.0 + 1);
        let Some(Lines { of, bytes, copies }) = Lines::read(&part.lines, before)? else {
            return Err(KernelError::Invalid("the import contains no event: send the lines of an export".to_owned()));
        };
        let original_seq = Seq(first + copies.len() as u64 - 1);
        let mut last = Seq(first - 1);
        if !copies.is_empty() {
            last = self.store_copy(conversation, user, copies).await?;
        }
        if !part.is_partial {
            let _running =
                RUNNING.acquire().await.map_err(|_| KernelError::NotReady("it is shutting down".to_owned()))?;
            let mut replay = Replay::new(conversation, user.clone());
            self.fold_to(&mut replay, conversation, last).await?;
            let (history, summary) = (history_of(replay.state(), true), summary_of(replay.state()));
            let copied = Copied { of, original_seq, event: None, history, summary, bytes };
            last = self.store_copy(conversation, user, vec![copied]).await?;
        }
        Ok(Copy { conversation, last })
    }

    /// The last imported event of an import whose last part has not arrived.
    async fn imported_so_far(&self, user: &UserId, id: ConversationId) -> Result<Copied, KernelError> {
        let scope = Scope::User(user.clone());
        let row = self.conversation(scope.clone(), id).await?;
        let last = self.events(scope, id, Seq(row.last_seq.0.saturating_sub(1)), 1).await?.pop();
        if let Some(EventBody::Copied(copied)) = last.map(|event| event.body)
            && copied.event.is_some()
        {
            return Ok(*copied);
        }
        Err(KernelError::Stale(format!("{id} is no unfinished import: begin a new one")))
    }

    fn check_takes_in(&self) -> Result<(), KernelError> {
        if self.draining.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(KernelError::NotReady("it is shutting down".to_owned()));
        }
        if self.is_drained() {
            return Err(KernelError::NotReady("an operator has drained the server: it accepts no messages".to_owned()));
        }
        Ok(())
    }

    /// Stores events of a copy. Returns the sequence number of the last one.
    async fn store_copy(&self, id: ConversationId, user: &UserId, copies: Vec<Copied>) -> Result<Seq, KernelError> {
        // No task exists for these events: the id only fills the column.
        let (task, at) = (TaskId::from_uuid(self.wiring.env.uuid()), self.now());
        let event =
            |copied| NewEvent { at, task, agent: AgentId::orchestrator(), body: EventBody::Copied(Box::new(copied)) };
        let mut events: Vec<NewEvent> = copies.into_iter().map(event).collect();
        let mut last = Seq(0);
        while !events.is_empty() {
            let rest = events.split_off(events.len().min(APPEND_EVENTS));
            let part = std::mem::replace(&mut events, rest);
            let count = part.len() as u64;
            let what = Append { conversation: id, user: user.clone(), fence: Fence::Inbox, events: part };
            last = Seq(append(&self.wiring.log, what).await?.first.0 + count - 1);
        }
        Ok(last)
    }

    /// Folds the events after those that the replay has seen, up to a sequence number.
    async fn fold_to(&self, replay: &mut Replay, id: ConversationId, until: Seq) -> Result<(), KernelError> {
        if until.0 > EVENTS_MAX {
            let why = format!("a replay folds at most {EVENTS_MAX} events: choose an earlier one");
            return Err(KernelError::Invalid(why));
        }
        while replay.seq() < until {
            let limit = u32::try_from(until.0 - replay.seq().0).unwrap_or(PAGE_MAX).min(PAGE_MAX);
            let page = self.wiring.store.events(Scope::Operator, id, replay.seq(), limit).await?;
            if page.is_empty() {
                return Err(KernelError::Stale(format!("{id} has no event after {}", replay.seq())));
            }
            page.iter().for_each(|event| replay.see(event));
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Folds up to the stored snapshot, and compares the state with it.
    async fn wrong_snapshot(
        &self,
        replay: &mut Replay,
        user: &UserId,
        id: ConversationId,
        until: Seq,
    ) -> Result<Option<Divergence>, KernelError> {
        let snapshot = self.wiring.store.snapshot(id).await?;
        let usable = snapshot.filter(|kept| kept.v == STATE_VERSION && kept.seq <= until && kept.seq >= replay.seq());
        let Some(kept) = usable else { return Ok(None) };
        self.fold_to(replay, id, kept.seq).await?;
        let wrong = |why: String| Divergence {
            seq: kept.seq,
            kind: DivergenceKind::Snapshot,
            task: None,
            stored: why,
            replayed: "the state that the log folds to".to_owned(),
        };
        let folded = serde_json::to_value(replay.state()).unwrap_or_default();
        Ok(match Conversation::of_snapshot(&kept, id, user).map(serde_json::to_value) {
            Err(why) => Some(wrong(why)),
            Ok(Ok(stored)) if stored == folded => None,
            Ok(_) => Some(wrong("another state".to_owned())),
        })
    }
}

/// Checks that an event exists. Events are numbered from 1.
fn existing(field: &'static str, seq: Option<Seq>, last: Seq) -> Result<Option<Seq>, KernelError> {
    match seq {
        Some(seq) if seq.0 == 0 || seq > last => {
            Err(KernelError::of_field(field, format!("there is no event {seq}: the events are 1 to {last}")))
        }
        seq => Ok(seq),
    }
}

/// The events of one part of an import.
struct Lines {
    of: ConversationId,
    /// The bytes of all imported events so far.
    bytes: u64,
    copies: Vec<Copied>,
}

impl Lines {
    /// Reads the lines behind the last imported event. `None` if neither they nor the parts before have an event.
    fn read(lines: &str, before: Option<Copied>) -> Result<Option<Self>, KernelError> {
        let mut is_headed = before.is_some();
        let (mut of, first, mut bytes) =
            before.map_or((None, 1, 0), |before| (Some(before.of), before.original_seq.0 + 1, before.bytes));
        let mut copies = Vec::new();
        for (number, line) in lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |why: String| KernelError::Invalid(format!("line {}: {why}", number + 1));
            let value: Value = serde_json::from_str(line).map_err(|e| wrong(format!("it is no JSON: {e}")))?;
            if let Some(version) = value.get(EXPORT_MARK) {
                if version.as_u64() != Some(EXPORT_VERSION) {
                    return Err(wrong(format!("this Annie reads exports of version {EXPORT_VERSION}, not {version}")));
                }
                is_headed = true;
                continue;
            }
            bytes += line.len() as u64;
            let copied = copied_of(value, bytes).map_err(wrong)?;
            if !is_headed {
                return Err(wrong(format!(
                    "an export begins with a line that has `{EXPORT_MARK}`: send the whole file"
                )));
            }
            let expected = Seq(first + copies.len() as u64);
            if copied.original_seq != expected {
                let why = format!("event {expected} must follow, and the line has event {}", copied.original_seq);
                return Err(wrong(why));
            }
            if *of.get_or_insert(copied.of) != copied.of {
                return Err(wrong(format!("it belongs to another conversation, {}", copied.of)));
            }
            if expected.0 > IMPORTED_EVENTS_MAX {
                return Err(wrong(format!("a conversation of more than {IMPORTED_EVENTS_MAX} events is not imported")));
            }
            if bytes > IMPORTED_BYTES_MAX {
                return Err(wrong(format!("a conversation of more than {IMPORTED_BYTES_MAX} bytes is not imported")));
            }
            copies.push(copied);
        }
        Ok(of.map(|of| Self { of, bytes, copies }))
    }
}

/// The record of an exported event, or why there is none.
fn copied_of(value: Value, bytes: u64) -> Result<Copied, String> {
    let event: Event = serde_json::from_value(value.clone()).map_err(|e| format!("it is no event: {e}"))?;
    let copied = Copied {
        of: event.conversation,
        original_seq: event.seq,
        event: Some(value),
        history: Vec::new(),
        summary: None,
        bytes,
    };
    // The record nests the event deeper, and what is nested too deeply cannot be read again.
    let stored = serde_json::to_string(&EventBody::Copied(Box::new(copied.clone())));
    let is_readable = stored.is_ok_and(|text| serde_json::from_str::<EventBody>(&text).is_ok());
    is_readable.then_some(copied).ok_or_else(|| "it is nested too deeply".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(seq: u64, more: Value) -> String {
        let conversation = ConversationId::from_uuid(Default::default());
        let task = TaskId::from_uuid(Default::default());
        let mut line = json!({
            "conversation": conversation, "seq": seq, "at": 1, "task": task, "agent": "main", "kind": "results_given",
        });
        line["more"] = more;
        line.to_string()
    }

    fn before(bytes: u64) -> Option<Copied> {
        let of = ConversationId::from_uuid(Default::default());
        Some(Copied { of, original_seq: Seq(1), event: None, history: Vec::new(), summary: None, bytes })
    }

    #[test]
    fn import_of_a_second_part_at_the_same_time_is_refused() {
        let named = |key| ConversationId::for_key(&UserId::local(), key);
        let id = named("a");
        let first = Importing::begin(id).expect("nothing else is imported");
        assert!(
            matches!(Importing::begin(id), Err(KernelError::Stale(why)) if why.contains("one part after the other"))
        );
        assert!(Importing::begin(named("b")).is_ok());
        drop(first);
        assert!(Importing::begin(id).is_ok());
    }

    #[test]
    fn import_beyond_its_bytes_and_of_a_line_that_could_not_be_read_again_is_refused() {
        let ok = Lines::read(&line(2, Value::Null), before(7)).unwrap().unwrap();
        assert_eq!((ok.copies.len(), ok.bytes), (1, 7 + line(2, Value::Null).len() as u64));
        let refused = |lines: &str, before| match Lines::read(lines, before) {
            Err(KernelError::Invalid(why)) => why,
            other => panic!("{:?}", other.map(|read| read.map(|read| read.copies))),
        };
        let why = refused(&line(2, Value::Null), before(IMPORTED_BYTES_MAX));
        assert!(why.starts_with("line 1: a conversation of more than 67108864 bytes"), "{why}");
        let deep = (0..126).fold(Value::Null, |inner, _| json!([inner]));
        assert_eq!(refused(&line(2, deep), before(0)), "line 1: it is nested too deeply");
        assert!(
            refused(&line(1, Value::Null), None).contains("an export begins with a line"),
            "without its first line"
        );
    }
}
