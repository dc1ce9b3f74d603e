//! The store for simulation: ordered maps behind one lock, without threads and timers, so that it works under a paused clock
//! and the same calls always give the same answers. A hook may inject a fault at every call. Clones share the data, so that it
//! survives the kernel that stored it, as on a disk.

mod data;
mod deletions;
mod documents;
mod log;
mod nodes;
mod outbox;
mod plain;
mod records;
mod search;
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

/// A point at which a fault may be injected.
#[derive(Debug, Clone, Copy)]
pub enum StorePoint<'a> {
    /// A batch is about to be committed.
    Commit(&'a [Append]),
    /// A conversation is about to be claimed.
    Claim(ConversationId),
    /// Another write is about to begin: the method's name.
    Write(&'static str),
    /// A read is about to begin: the method's name.
    Read(&'static str),
}

/// The fault at a point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StoreFault {
    /// No fault.
    #[default]
    Pass,
    /// The call is not performed and returns an error.
    Fail(StoreErrorKind),
    /// The call is performed and returns an error: the caller cannot know the outcome.
    LoseReply(StoreErrorKind),
    /// The call is not performed and never returns.
    Hang,
    /// The call is performed and never returns.
    HangAfter,
}

/// Chooses the fault at each point.
pub type StoreHook = Arc<dyn Fn(StorePoint<'_>) -> StoreFault + Send + Sync>;

/// The side of a call on which its caller waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreSide {
    /// Before the call is performed.
    Before,
    /// After the call was performed and before its reply arrives.
    After,
}

/// How long a call takes on each side: a slow disk, or a process that is frozen in the middle of the call. The hook is called
/// between the two waits.
pub type StoreWait = Arc<dyn Fn(StorePoint<'_>, StoreSide) -> Fut<'static, ()> + Send + Sync>;

/// When one process is notified that another may have stored data: each call is one wait.
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
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same data, with a hook.
    #[must_use]
    pub fn with_hook(&self, hook: StoreHook) -> Self {
        Self { hook: Some(hook), ..self.clone() }
    }

    /// The same data, with calls that take time.
    #[must_use]
    pub fn with_wait(&self, wait: StoreWait) -> Self {
        Self { wait: Some(wait), ..self.clone() }
    }

    /// The same data, with notifications as one of several processes receives them.
    #[must_use]
    pub fn with_wakes(&self, wakes: StoreWakes) -> Self {
        Self { wakes: Some(wakes), ..self.clone() }
    }

    /// Appends events that another store accepted, without judging them again.
    pub(crate) fn import(&self, conversation: ConversationId, user: &UserId, events: Vec<Event>) {
        let mut data = self.data.lock();
        for Event { at, task, agent, body, .. } in events {
            let event = NewEvent { at, task, agent, body };
            let changes = projection::changes(&event);
            data.append(conversation, user, event, &changes);
        }
    }

    /// Performs a call on the data, with the waits and the fault of its point.
    async fn at<T>(&self, point: StorePoint<'_>, act: impl FnOnce(&mut Data) -> T) -> Result<T, StoreError> {
        let Some(wait) = &self.wait else { return self.injected(point, act).await };
        wait(point, StoreSide::Before).await;
        let done = self.injected(point, act).await;
        wait(point, StoreSide::After).await;
        done
    }

    async fn injected<T>(&self, point: StorePoint<'_>, act: impl FnOnce(&mut Data) -> T) -> Result<T, StoreError> {
        let fault = self.hook.as_ref().map_or(StoreFault::Pass, |hook| hook(point));
        let injected = |kind| StoreError { kind, what: name_of(point), detail: "injected fault".to_owned() };
        match fault {
            StoreFault::Pass => Ok(act(&mut self.data.lock())),
            StoreFault::Fail(kind) => Err(injected(kind)),
            StoreFault::LoseReply(kind) => {
                act(&mut self.data.lock());
                Err(injected(kind))
            }
            StoreFault::Hang => std::future::pending().await,
            StoreFault::HangAfter => {
                act(&mut self.data.lock());
                std::future::pending().await
            }
        }
    }

    /// A write that returns a value.
    async fn write<T>(&self, name: &'static str, act: impl FnOnce(&mut Data) -> T) -> Result<T, StoreError> {
        self.at(StorePoint::Write(name), act).await
    }

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

    fn injected(fault: StoreFault) -> (MemoryStore, MemoryStore) {
        let store = MemoryStore::new();
        let hooked = store.with_hook(std::sync::Arc::new(move |point| match point {
            StorePoint::Write("put_breaker") => fault,
            _ => StoreFault::Pass,
        }));
        (store, hooked)
    }

    #[tokio::test]
    async fn memory_store_performs_a_write_whose_reply_is_lost_but_not_a_failed_one() {
        for (fault, done) in
            [(StoreFault::Fail(StoreErrorKind::Full), false), (StoreFault::LoseReply(StoreErrorKind::Full), true)]
        {
            let (store, hooked) = injected(fault);
            let answer = hooked.put_breaker("s".into(), BreakerRow::default()).await;
            assert_eq!(answer.map_err(|e| e.kind), Err(StoreErrorKind::Full));
            assert_eq!(store.breaker("s".into()).await.unwrap().is_some(), done);
        }
    }

    #[tokio::test]
    async fn memory_store_performs_a_call_between_its_two_waits() {
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
    async fn memory_store_keeps_data_when_a_write_hangs() {
        for (fault, done) in [(StoreFault::Hang, false), (StoreFault::HangAfter, true)] {
            let (store, hooked) = injected(fault);
            let mut write = hooked.put_breaker("s".into(), BreakerRow::default());
            let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(write.as_mut().poll(cx).is_pending())).await;
            assert!(poll);
            drop(write);
            assert_eq!(store.breaker("s".into()).await.unwrap().is_some(), done);
        }
    }
}
