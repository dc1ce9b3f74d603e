//! The store for simulation: everything in ordered maps behind one lock, no thread and no timer, so that it works under a
//! paused clock and the same calls always give the same answers. A hook may strike at every call. Clones share the data:
//! what was stored survives the kernel that stored it, as a disk would.

mod data;
mod log;
mod memories;
mod nodes;
mod outbox;
mod plain;
mod records;
mod search;
mod todos;
mod work;

use std::sync::Arc;

use annie_core::{
    event::{Event, NewEvent},
    ids::{ConversationId, UserId},
    ports::{Append, Fut, Store, StoreError, StoreErrorKind},
    projection,
};
use parking_lot::Mutex;

use data::Data;

/// Where a fault may strike.
#[derive(Debug, Clone, Copy)]
pub enum StorePoint<'a> {
    /// A batch is about to be committed.
    Commit(&'a [Append]),
    /// A conversation is about to be claimed.
    Claim(ConversationId),
    /// Something else is about to be written: the method's name.
    Write(&'static str),
    /// Something is about to be read: the method's name.
    Read(&'static str),
}

/// What happens there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StoreFault {
    /// Nothing.
    #[default]
    Pass,
    /// Nothing is done, and the caller is told so.
    Fail(StoreErrorKind),
    /// It is done, and the caller is told that it failed: an outcome that it cannot know.
    LoseReply(StoreErrorKind),
    /// Nothing is done, and the caller waits for ever.
    Hang,
    /// It is done, and the caller waits for ever.
    HangAfter,
}

/// Decides what happens at each point.
pub type StoreHook = Arc<dyn Fn(StorePoint<'_>) -> StoreFault + Send + Sync>;

/// Which side of a call its caller waits at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreSide {
    /// Nothing is done yet.
    Before,
    /// It is done, and the caller has not heard of it.
    After,
}

/// How long a call takes on each of its sides: a slow disk, or a process that is frozen in the middle of it. The hook is
/// asked between the two.
pub type StoreWait = Arc<dyn Fn(StorePoint<'_>, StoreSide) -> Fut<'static, ()> + Send + Sync>;

/// When one process hears that another may have stored something: each call is one wait.
pub type StoreWakes = Arc<dyn Fn() -> Fut<'static, ()> + Send + Sync>;

/// The store in memory.
#[derive(Clone, Default)]
pub struct MemoryStore {
    data: Arc<Mutex<Data>>,
    hook: Option<StoreHook>,
    wait: Option<StoreWait>,
    wakes: Option<StoreWakes>,
}

impl MemoryStore {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same data, seen through a hook.
    #[must_use]
    pub fn with_hook(&self, hook: StoreHook) -> Self {
        Self { hook: Some(hook), ..self.clone() }
    }

    /// The same data, whose calls take their time.
    #[must_use]
    pub fn with_wait(&self, wait: StoreWait) -> Self {
        Self { wait: Some(wait), ..self.clone() }
    }

    /// The same data, as one of several processes has it.
    #[must_use]
    pub fn with_wakes(&self, wakes: StoreWakes) -> Self {
        Self { wakes: Some(wakes), ..self.clone() }
    }

    /// Takes in events that another store accepted, without judging them again.
    pub(crate) fn take_in(&self, conversation: ConversationId, user: &UserId, events: Vec<Event>) {
        let mut data = self.data.lock();
        for Event { at, task, agent, body, .. } in events {
            let event = NewEvent { at, task, agent, body };
            let changes = projection::changes(&event);
            data.append(conversation, user, event, &changes);
        }
    }

    /// Does something to the data, unless the hook has other plans.
    async fn at<T>(&self, point: StorePoint<'_>, act: impl FnOnce(&mut Data) -> T) -> Result<T, StoreError> {
        let Some(wait) = &self.wait else { return self.struck(point, act).await };
        wait(point, StoreSide::Before).await;
        let done = self.struck(point, act).await;
        wait(point, StoreSide::After).await;
        done
    }

    async fn struck<T>(&self, point: StorePoint<'_>, act: impl FnOnce(&mut Data) -> T) -> Result<T, StoreError> {
        let fault = self.hook.as_ref().map_or(StoreFault::Pass, |hook| hook(point));
        let struck = |kind| StoreError { kind, what: name_of(point), detail: "injected fault".to_owned() };
        match fault {
            StoreFault::Pass => Ok(act(&mut self.data.lock())),
            StoreFault::Fail(kind) => Err(struck(kind)),
            StoreFault::LoseReply(kind) => {
                act(&mut self.data.lock());
                Err(struck(kind))
            }
            StoreFault::Hang => std::future::pending().await,
            StoreFault::HangAfter => {
                act(&mut self.data.lock());
                std::future::pending().await
            }
        }
    }

    /// A write that answers with a value.
    async fn write<T>(&self, name: &'static str, act: impl FnOnce(&mut Data) -> T) -> Result<T, StoreError> {
        self.at(StorePoint::Write(name), act).await
    }

    /// A read.
    async fn read<T>(&self, name: &'static str, act: impl FnOnce(&Data) -> T) -> Result<T, StoreError> {
        self.at(StorePoint::Read(name), |data| act(data)).await
    }
}

const fn name_of(point: StorePoint<'_>) -> &'static str {
    match point {
        StorePoint::Commit(_) => "commit",
        StorePoint::Claim(_) => "claim",
        StorePoint::Write(name) | StorePoint::Read(name) => name,
    }
}

impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn woken(&self) -> Fut<'_, ()> {
        self.wakes.as_ref().map_or_else(|| Box::pin(std::future::pending()) as Fut<'_, ()>, |wakes| wakes())
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use annie_core::{
        breaker::BreakerRow,
        ports::{Breakers, StoreErrorKind},
    };

    use super::{MemoryStore, StoreFault, StorePoint, StoreSide};

    fn struck(fault: StoreFault) -> (MemoryStore, MemoryStore) {
        let store = MemoryStore::new();
        let hooked = store.with_hook(std::sync::Arc::new(move |point| match point {
            StorePoint::Write("put_breaker") => fault,
            _ => StoreFault::Pass,
        }));
        (store, hooked)
    }

    #[tokio::test]
    async fn a_failed_write_is_not_done_and_a_lost_reply_is() {
        for (fault, done) in
            [(StoreFault::Fail(StoreErrorKind::Full), false), (StoreFault::LoseReply(StoreErrorKind::Full), true)]
        {
            let (store, hooked) = struck(fault);
            let answer = hooked.put_breaker("s".into(), BreakerRow::default()).await;
            assert_eq!(answer.map_err(|e| e.kind), Err(StoreErrorKind::Full));
            assert_eq!(store.breaker("s".into()).await.unwrap().is_some(), done);
        }
    }

    #[tokio::test]
    async fn a_call_waits_on_both_sides_and_what_is_done_between_is_done() {
        let store = MemoryStore::new();
        let (before, after) = (std::sync::Arc::new(tokio::sync::Notify::new()), tokio::sync::Notify::new());
        let gates = std::sync::Arc::new([before, std::sync::Arc::new(after)]);
        let held = gates.clone();
        let slow = store.with_wait(std::sync::Arc::new(move |_, side| {
            let gate = held[usize::from(side == StoreSide::After)].clone();
            Box::pin(async move { gate.notified().await })
        }));
        let is_stored = async || store.breaker("s".into()).await.unwrap().is_some();
        let mut write = slow.put_breaker("s".into(), BreakerRow::default());
        let mut is_pending =
            async || std::future::poll_fn(|cx| std::task::Poll::Ready(write.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending().await && !is_stored().await);
        gates[0].notify_one();
        assert!(is_pending().await && is_stored().await);
        gates[1].notify_one();
        assert!(!is_pending().await);
    }

    #[tokio::test]
    async fn a_hanging_write_never_answers_and_what_was_stored_survives_it() {
        for (fault, done) in [(StoreFault::Hang, false), (StoreFault::HangAfter, true)] {
            let (store, hooked) = struck(fault);
            let mut write = hooked.put_breaker("s".into(), BreakerRow::default());
            let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(write.as_mut().poll(cx).is_pending())).await;
            assert!(poll);
            drop(write);
            assert_eq!(store.breaker("s".into()).await.unwrap().is_some(), done);
        }
    }
}
