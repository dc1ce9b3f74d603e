//! Message delivery. Ractor's mailboxes are unbounded, so the envelope counts the messages and refuses those above the
//! limit. The count falls when the envelope is dropped, handled or not.

use std::{
    marker::PhantomData,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use annie_core::{ids::Incarnation, ports::FaultAction};
use ractor::{ActorCell, ActorRef};
use serde_json::Value;
use tokio::sync::oneshot;

use super::{
    directory::{Directory, Entry, Meter, Path},
    node::Named,
};

/// The content of a node's mailbox.
pub enum Envelope<M> {
    /// A message of the node's own type.
    User { msg: M, depth: Depth },
    /// A request of an operator for the node's view.
    View(oneshot::Sender<Value>),
}

/// One counted message in a mailbox.
pub struct Depth(Arc<Meter>);

impl Depth {
    fn take(meter: &Arc<Meter>, mailbox_max: usize) -> Option<Self> {
        let depth = meter.depth.fetch_add(1, Relaxed) + 1;
        let slot = Self(meter.clone());
        if depth > mailbox_max {
            meter.refused.fetch_add(1, Relaxed);
            return None;
        }
        meter.depth_high.fetch_max(depth, Relaxed);
        Some(slot)
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        self.0.depth.fetch_sub(1, Relaxed);
    }
}

/// Why a message was not delivered, or its answer did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No actor runs at this path now.
    #[error("the actor is not running")]
    Unavailable,
    /// The mailbox is full.
    #[error("the actor's mailbox is full")]
    Overloaded,
    /// No answer arrived in time; the message may still be handled.
    #[error("the actor did not answer in time")]
    Timeout,
    /// The actor died, or dropped the request.
    #[error("the actor died before it answered")]
    Crashed,
}

/// The address of one incarnation of an actor.
pub struct Addr<M> {
    pub(crate) cell: ActorCell,
    pub(crate) meter: Arc<Meter>,
    pub(crate) mailbox_max: usize,
    /// The incarnation.
    pub incarnation: Incarnation,
    pub(crate) message: PhantomData<fn(M)>,
}

impl<M> Clone for Addr<M> {
    fn clone(&self) -> Self {
        Self {
            cell: self.cell.clone(),
            meter: self.meter.clone(),
            mailbox_max: self.mailbox_max,
            incarnation: self.incarnation,
            message: PhantomData,
        }
    }
}

impl<M: Named + Send + 'static> Addr<M> {
    pub(crate) fn of(entry: &Entry) -> Self {
        Self {
            cell: entry.cell.clone(),
            meter: entry.meter.clone(),
            mailbox_max: entry.mailbox_max,
            incarnation: entry.incarnation,
            message: PhantomData,
        }
    }

    /// Sends a request. It may be refused, so the sender must be able to do without it.
    ///
    /// # Errors
    /// If the mailbox is full or the actor is gone.
    pub fn cast(&self, msg: M) -> Result<(), SendError> {
        if let Some(mail) = &self.meter.mail
            && mail.at("mailbox", msg.name()) == FaultAction::Fail
        {
            self.meter.refused.fetch_add(1, Relaxed);
            return Err(SendError::Overloaded);
        }
        self.send(msg, self.mailbox_max)
    }

    /// Sends a fact that the actor waits for: the result of its own task, a released permit, a stored message. Facts are
    /// never refused for a full mailbox, because the actor would wait for ever; their number is bounded by what the actor
    /// itself requested. Returns false if the actor is gone; its next incarnation does not need this fact, because it reads
    /// the store.
    pub fn tell(&self, msg: M) -> bool {
        self.send(msg, usize::MAX).is_ok()
    }

    fn send(&self, msg: M, depth_max: usize) -> Result<(), SendError> {
        if let Some(mail) = &self.meter.mail
            && let Some(again) = msg.again()
        {
            match mail.at("arrival", msg.name()) {
                FaultAction::Twice => {
                    // The duplicate is not counted against the mailbox limit.
                    self.put(again, usize::MAX)?;
                }
                FaultAction::Slow { wait_ms } => return self.put_late(msg, depth_max, wait_ms),
                _ => {}
            }
        }
        self.put(msg, depth_max)
    }

    fn put(&self, msg: M, depth_max: usize) -> Result<(), SendError> {
        let depth = Depth::take(&self.meter, depth_max).ok_or(SendError::Overloaded)?;
        let to: ActorRef<Envelope<M>> = self.cell.clone().into();
        to.cast(Envelope::User { msg, depth }).map_err(|_| SendError::Unavailable)
    }

    /// Delivers a message with a delay, so that later messages overtake it. It is lost if the actor is gone by then.
    fn put_late(&self, msg: M, depth_max: usize, wait_ms: u32) -> Result<(), SendError> {
        let depth = Depth::take(&self.meter, depth_max).ok_or(SendError::Overloaded)?;
        let to: ActorRef<Envelope<M>> = self.cell.clone().into();
        to.send_after(Duration::from_millis(u64::from(wait_ms)), move || Envelope::User { msg, depth });
        Ok(())
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// If the request cannot be delivered, is not answered in time, or the actor dies before it answers.
    pub async fn call<R>(&self, wait: Duration, msg: impl FnOnce(oneshot::Sender<R>) -> M) -> Result<R, SendError> {
        let (reply, answer) = oneshot::channel();
        let msg = msg(reply);
        let name = msg.name();
        self.cast(msg)?;
        match tokio::time::timeout(wait, answer).await {
            Ok(Ok(answer)) => self.answered(name).await.map(|()| answer),
            Ok(Err(_)) => Err(SendError::Crashed),
            Err(_) => Err(SendError::Timeout),
        }
    }

    /// Applies a fault that loses or delays an answer.
    async fn answered(&self, name: &str) -> Result<(), SendError> {
        let Some(mail) = &self.meter.mail else { return Ok(()) };
        match mail.at("reply", name) {
            FaultAction::Fail => return Err(SendError::Timeout),
            FaultAction::Slow { wait_ms } => tokio::time::sleep(Duration::from_millis(u64::from(wait_ms))).await,
            _ => {}
        }
        Ok(())
    }
}

/// An actor by its path in the tree. Every message goes to the present incarnation, so the sender does not notice a restart.
pub struct Handle<M> {
    path: Path,
    directory: Arc<Directory>,
    message: PhantomData<fn(M)>,
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Self { path: self.path.clone(), directory: self.directory.clone(), message: PhantomData }
    }
}

impl<M: Named + Send + 'static> Handle<M> {
    pub(crate) fn new(path: Path, directory: Arc<Directory>) -> Self {
        Self { path, directory, message: PhantomData }
    }

    /// A handle to another path in the same tree.
    pub(crate) fn sibling<O: Named + Send + 'static>(&self, path: Path) -> Handle<O> {
        Handle::new(path, self.directory.clone())
    }

    /// The present incarnation.
    ///
    /// # Errors
    /// If no actor runs at this path.
    pub fn resolve(&self) -> Result<Addr<M>, SendError> {
        self.directory.get(&self.path).map(|e| Addr::of(&e)).ok_or(SendError::Unavailable)
    }

    /// Sends a request to the present incarnation.
    ///
    /// # Errors
    /// As [`Addr::cast`].
    pub fn cast(&self, msg: M) -> Result<(), SendError> {
        self.resolve()?.cast(msg)
    }

    /// Sends a fact to the present incarnation.
    ///
    /// As [`Addr::tell`].
    pub fn tell(&self, msg: M) -> bool {
        self.resolve().is_ok_and(|addr| addr.tell(msg))
    }

    /// Sends a request to the present incarnation and waits for its answer.
    ///
    /// # Errors
    /// As [`Addr::call`].
    pub async fn call<R>(&self, wait: Duration, msg: impl FnOnce(oneshot::Sender<R>) -> M) -> Result<R, SendError> {
        self.resolve()?.call(wait, msg).await
    }
}
