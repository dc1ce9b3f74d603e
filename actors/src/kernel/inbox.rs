//! The messages that channels receive: they come in as a client's messages do, and their answers go back to the channel.

use std::{sync::Arc, time::Duration};

use annie_core::{
    ids::{ConversationId, TaskId},
    ports::{Address, Channel, Fut, Inbox, InboxError, Incoming},
};

use super::{Kernel, KernelError, Submission, submit::CHANNEL};
use crate::tasks::caught;

/// The waits between two starts of a channel's receiving part that fails, in milliseconds: the first one and the longest.
const RECEIVE_WAIT_MS: (u64, u64) = (1_000, 60_000);

/// The inbox of one channel.
struct ChannelInbox {
    kernel: Kernel,
    channel: String,
}

impl Inbox for ChannelInbox {
    fn submit(&self, message: Incoming) -> Fut<'_, Result<TaskId, InboxError>> {
        Box::pin(async move {
            let Incoming { user, conversation, text, id, reply_to } = message;
            // The channel may choose neither the names of other channels nor those of front ends.
            let source = format!("{CHANNEL}:{}", self.channel);
            let conversation = ConversationId::for_key(&user, &format!("{source}:{conversation}"));
            let mut submission = Submission::new(user, &source, text).within(conversation);
            submission.moves_on = true;
            submission.client_id = Some(format!("{source}:{id}"));
            submission.reply_to = Some(Address { channel: self.channel.clone(), to: reply_to });
            self.kernel.accept(submission).await.map(|submitted| submitted.task).map_err(refused)
        })
    }
}

fn refused(error: KernelError) -> InboxError {
    match error {
        KernelError::Full(refusal) => InboxError::Busy { retry_after_ms: refusal.retry_after_ms },
        KernelError::TooSoon { retry_after_ms } => InboxError::Busy { retry_after_ms },
        error @ (KernelError::Invalid(_)
        | KernelError::InvalidField { .. }
        | KernelError::NotFound(_)
        | KernelError::Deleted
        | KernelError::Conflict { .. }
        | KernelError::Stale(_)) => InboxError::Refused(error.to_string()),
        error @ (KernelError::Unavailable(_) | KernelError::NotReady(_) | KernelError::Store(_)) => {
            InboxError::Unavailable(error.to_string())
        }
    }
}

/// Receives until the channel ends by itself. An outage of its service does not use up the listener's restarts.
async fn receive(channel: &dyn Channel, inbox: &Arc<dyn Inbox>) {
    let (first_ms, longest_ms) = RECEIVE_WAIT_MS;
    let mut wait_ms = first_ms;
    loop {
        let begun = tokio::time::Instant::now();
        let error = match caught(async { channel.receive(inbox.clone()).await }).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) | Err(error) => error,
        };
        tracing::warn!(channel = channel.name(), error, "a channel stopped receiving and is started again");
        if begun.elapsed() > Duration::from_millis(longest_ms) {
            wait_ms = first_ms;
        }
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        wait_ms = (wait_ms * 2).min(longest_ms);
    }
}

impl Kernel {
    /// Runs the receiving part of each channel as a listener.
    pub(super) fn receive_from_channels(&self) {
        for channel in self.wiring.extensions.channels() {
            let name = channel.name().to_owned();
            let service = format!("{CHANNEL}:{name}");
            let inbox: Arc<dyn Inbox> = Arc::new(ChannelInbox { kernel: self.clone(), channel: name });
            let channel = channel.clone();
            let run = move || {
                let (channel, inbox) = (channel.clone(), inbox.clone());
                async move {
                    receive(&*channel, &inbox).await;
                    Ok(())
                }
            };
            self.run_listener(&service, Arc::new(move || Box::pin(run())));
        }
    }
}
