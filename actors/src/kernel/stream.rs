//! Following a conversation: stored events from any sequence number on, then live ones, without a gap or a repeat, with
//! drafts in between. A follower that falls behind is not dropped: it reads the log.

use std::sync::Arc;

use annie_core::{
    event::{Event, Scope},
    ids::{ConversationId, Seq, TaskId},
    ports::Draft,
};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{Kernel, KernelError, PAGE_MAX, Submission, Submitted, submit::conversation_of};
use crate::hub::{Hub, Live};

/// An item of a stream.
#[derive(Debug, Clone)]
pub enum StreamItem {
    /// A stored event; its sequence number is a durable id.
    Event(Arc<Event>),
    /// A piece of a round that is still being written. It is not stored and not repeated; the final answer contains the
    /// text.
    Draft {
        /// The task of the round.
        task: TaskId,
        /// The number of the round.
        round: u32,
        /// The piece.
        draft: Draft,
    },
}

/// A follower of one conversation.
pub struct Follow {
    kernel: Kernel,
    scope: Scope,
    conversation: ConversationId,
    live: Option<Receiver<Live>>,
    hub: Arc<Hub>,
    /// The sequence number of the last event that was returned.
    seen: Seq,
    /// Events read from the log and not returned yet, newest first.
    page: Vec<Event>,
    /// The log may hold more than was read.
    behind: bool,
}

impl Drop for Follow {
    fn drop(&mut self) {
        // The receiver must be dropped first, because the topic counts as used while it exists.
        self.live = None;
        self.hub.leave(self.conversation, &self.scope);
    }
}

impl Kernel {
    /// Follows a conversation after a sequence number; `Seq(0)` is the beginning.
    ///
    /// # Errors
    /// If there is no such conversation that the scope sees.
    pub async fn follow(&self, scope: Scope, conversation: ConversationId, after: Seq) -> Result<Follow, KernelError> {
        // The subscription begins before the log is read, so that no event is missed in between.
        let mut follow = self.listen(scope.clone(), conversation, after);
        follow.read_page().await?;
        // An empty page means that the conversation has no such events yet, or that the scope does not see it.
        if follow.page.is_empty() {
            self.conversation(scope, conversation).await?;
        }
        Ok(follow)
    }

    /// Takes in a message and follows its conversation from the message on. The subscription begins before the message is
    /// stored, so that no draft of its turn is missed and the log need not be read; only a repeat may miss drafts, because its
    /// turn may be under way.
    ///
    /// # Errors
    /// As [`Kernel::submit`].
    pub async fn ask(&self, message: Submission) -> Result<(Submitted, Follow), KernelError> {
        let conversation = conversation_of(&self.wiring, &message);
        let user = message.user.clone();
        let mut follow = self.listen(Scope::User(message.user.clone()), conversation, Seq(0));
        let submitted = self.submit_to(Some(conversation), message).await?;
        if submitted.conversation != conversation {
            // The one of the key was deleted, and the message is in the next one.
            let follow = self.listen(Scope::User(user), submitted.conversation, Seq(submitted.seq.0));
            return Ok((submitted, follow));
        }
        follow.seen = submitted.seq;
        // Every event after a new message is published to the subscription, which began before the message was stored.
        follow.behind = submitted.repeated;
        Ok((submitted, follow))
    }

    fn listen(&self, scope: Scope, conversation: ConversationId, after: Seq) -> Follow {
        let live = Some(self.wiring.hub.subscribe(conversation, &scope));
        Follow {
            kernel: self.clone(),
            scope,
            conversation,
            live,
            hub: self.wiring.hub.clone(),
            seen: after,
            page: Vec::new(),
            behind: true,
        }
    }
}

impl Follow {
    /// The sequence number of the last event that was returned: the value from which to follow again.
    #[must_use]
    pub const fn seen(&self) -> Seq {
        self.seen
    }

    /// Waits for the next item. `None` when the kernel has ended.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn next(&mut self) -> Result<Option<StreamItem>, KernelError> {
        loop {
            if let Some(event) = self.page.pop() {
                self.seen = event.seq;
                return Ok(Some(StreamItem::Event(Arc::new(event))));
            }
            if self.behind {
                self.read_page().await?;
                continue;
            }
            let Some(live) = self.live.as_mut() else { return Ok(None) };
            match live.recv().await {
                Ok(Live::Event(event)) if event.seq <= self.seen => {}
                Ok(Live::Event(event)) if event.seq.0 == self.seen.0 + 1 => {
                    self.seen = event.seq;
                    return Ok(Some(StreamItem::Event(event)));
                }
                // A gap: an event of another node, or one that was published while the log was being read.
                Ok(Live::Event(_) | Live::Unsure) | Err(RecvError::Lagged(_)) => self.behind = true,
                Ok(Live::Draft { task, round, draft }) => return Ok(Some(StreamItem::Draft { task, round, draft })),
                Err(RecvError::Closed) => return Ok(None),
            }
        }
    }

    async fn read_page(&mut self) -> Result<(), KernelError> {
        let store = &self.kernel.wiring.store;
        let mut page = store.events(self.scope.clone(), self.conversation, self.seen, PAGE_MAX).await?;
        self.behind = page.len() == PAGE_MAX as usize;
        page.reverse();
        self.page = page;
        Ok(())
    }
}
