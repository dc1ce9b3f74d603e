//! Following a conversation: stored events from any place on, then live ones, without a gap and without a repeat; drafts in
//! between. A follower that falls behind is not dropped: it reads the log.

use std::sync::Arc;

use annie_core::{
    event::{Event, Scope},
    ids::{ConversationId, Seq, TaskId},
    ports::Draft,
};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{Kernel, KernelError, PAGE_MAX, Submission, Submitted};
use crate::hub::{Hub, Live};

/// One thing that a follower sees.
#[derive(Debug, Clone)]
pub enum StreamItem {
    /// A stored event: its place is a durable id.
    Event(Arc<Event>),
    /// A piece of a round that is still being written. It is not stored and not repeated; the final answer has the text.
    Draft {
        /// Of which task.
        task: TaskId,
        /// Of which round.
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
    /// The last place that was handed out.
    seen: Seq,
    /// Events read from the log and not handed out yet, newest first.
    page: Vec<Event>,
    /// There may be more in the log than was read.
    behind: bool,
}

impl Drop for Follow {
    fn drop(&mut self) {
        // The receiver must go first, or the topic looks used.
        self.live = None;
        self.hub.leave(self.conversation, &self.scope);
    }
}

impl Kernel {
    /// Follows a conversation from behind a place on; `Seq(0)` is the beginning.
    ///
    /// # Errors
    /// If there is no such conversation that the scope sees.
    pub async fn follow(&self, scope: Scope, conversation: ConversationId, after: Seq) -> Result<Follow, KernelError> {
        // Listening begins before the log is read, so that nothing falls in between.
        let mut follow = self.listen(scope.clone(), conversation, after);
        follow.read_page().await?;
        // Only events of a conversation that the scope sees are read; none may also mean that there are none yet.
        if follow.page.is_empty() {
            self.conversation(scope, conversation).await?;
        }
        Ok(follow)
    }

    /// Takes in a message and follows its conversation from the message on. Listening begins before the message is
    /// stored, so that no draft of its turn is missed, except of a repeat whose turn was under way.
    ///
    /// # Errors
    /// As [`Kernel::submit`].
    pub async fn ask(&self, mut message: Submission) -> Result<(Submitted, Follow), KernelError> {
        let fresh = || ConversationId::from_uuid(self.wiring.env.uuid());
        let conversation = *message.conversation.get_or_insert_with(fresh);
        let mut follow = self.listen(Scope::User(message.user.clone()), conversation, Seq(0));
        let submitted = self.submit(message).await?;
        follow.seen = submitted.seq;
        // Whatever comes behind a new message is announced to those who listened before it was stored.
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
    /// The place of the last event that was handed out: where to follow from again.
    #[must_use]
    pub const fn seen(&self) -> Seq {
        self.seen
    }

    /// The next item; waits for it. Nothing when the kernel is gone.
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
                // A gap: another node's event, or one that came while this was being read.
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
