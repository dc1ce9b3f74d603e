//! A message comes in: one place asked for, one append, and only then an acknowledgement (invariant 1).

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use annie_core::{
    event::{EventBody, Inbound, Mode, NewEvent, Priority, Scope},
    ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    ports::{Append, AppendError, Fence},
};

use super::{Kernel, KernelError};
use crate::{
    conversations::ConversationsMsg,
    engine::Cancelled,
    log_writer::{LogError, append},
    observe::Handle,
    scheduler::{Place, SchedulerMsg},
};

/// How long a place may take to be answered, in milliseconds.
const ADMIT_MS_MAX: u64 = 5_000;
/// The longest client id, in bytes.
const CLIENT_ID_BYTES_MAX: usize = 200;

/// A message as a door hands it in.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Whose message.
    pub user: UserId,
    /// In which conversation; nothing starts a new one.
    pub conversation: Option<ConversationId>,
    /// What the user said.
    pub text: String,
    /// The front end's id for it; nothing means that a repeat cannot be recognised.
    pub client_id: Option<String>,
    /// Through which door.
    pub source: String,
    /// Its class.
    pub priority: Priority,
    /// The mode asked for.
    pub mode: Option<Mode>,
    /// What a stateless front end says came before.
    pub preamble: Vec<(String, String)>,
}

impl Submission {
    /// A plain message of a user through a door.
    #[must_use]
    pub fn new(user: UserId, source: &str, text: impl Into<String>) -> Self {
        Self {
            user,
            conversation: None,
            text: text.into(),
            client_id: None,
            source: source.to_owned(),
            priority: Priority::High,
            mode: None,
            preamble: Vec::new(),
        }
    }

    /// In this conversation.
    #[must_use]
    pub const fn within(mut self, conversation: ConversationId) -> Self {
        self.conversation = Some(conversation);
        self
    }
}

/// An acknowledgement: the message is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// What it became.
    pub task: TaskId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// Where it is in the log: follow from here for its answer.
    pub seq: Seq,
    /// The same message had come before; this is its first acknowledgement again.
    pub repeated: bool,
    /// Its place in the queue.
    pub place: Option<Place>,
}

/// A place that is asked for and not used yet: it goes back with whoever asked, also if they leave before an answer. If
/// the message is stored after all, its Engine asks for rounds and gets a place again.
struct Held<'a> {
    scheduler: &'a Handle<SchedulerMsg>,
    task: TaskId,
    used: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.scheduler.tell(SchedulerMsg::Forget { task: self.task });
        }
    }
}

impl Kernel {
    /// Takes in a message. When this returns, the message is stored and will get exactly one final answer or one visible
    /// failure, whatever dies.
    ///
    /// # Errors
    /// If it is not acceptable, there is no place, or it could not be stored; then nothing happened, except that after
    /// `Unavailable` it may have been stored: send it again with the same client id.
    pub async fn submit(&self, message: Submission) -> Result<Submitted, KernelError> {
        if self.draining.load(Relaxed) {
            return Err(KernelError::Unavailable("it is shutting down".to_owned()));
        }
        self.check(&message)?;
        let env = &self.wiring.env;
        let task = TaskId::from_uuid(env.uuid());
        let conversation = message.conversation.unwrap_or_else(|| ConversationId::from_uuid(env.uuid()));
        let mut held = Held { scheduler: &self.wiring.scheduler, task, used: false };
        let place = self.place(task, conversation, &message).await?;
        let inbound = Inbound {
            client_id: message.client_id.unwrap_or_else(|| task.to_string()),
            text: message.text,
            source: message.source,
            priority: message.priority,
            mode: message.mode,
            preamble: message.preamble,
        };
        let received =
            NewEvent { at: env.now(), task, agent: AgentId::orchestrator(), body: EventBody::Received(inbound) };
        let what = Append { conversation, user: message.user, fence: Fence::Inbox, events: vec![received] };
        match append(&self.wiring.log, what).await {
            Ok(stored) => {
                held.used = true;
                metrics::counter!("annie_messages_total").increment(1);
                Ok(Submitted { task, conversation, seq: stored.first, repeated: false, place: Some(place) })
            }
            Err(LogError::Refused(AppendError::Duplicate { task, conversation, seq, same: true })) => {
                Ok(Submitted { task, conversation, seq, repeated: true, place: None })
            }
            Err(e) => Err(e.into()),
        }
    }

    fn check(&self, message: &Submission) -> Result<(), KernelError> {
        let max = self.wiring.limits.message_bytes_max;
        if message.text.trim().is_empty() {
            return Err(KernelError::Invalid("the message is empty: say something in `text`".to_owned()));
        }
        if message.text.len() > max {
            let len = message.text.len();
            let why = format!("the message has {len} bytes, and at most {max} are allowed: shorten it or split it");
            return Err(KernelError::Invalid(why));
        }
        if let Some(id) = &message.client_id
            && (id.is_empty() || id.len() > CLIENT_ID_BYTES_MAX || id.chars().any(char::is_control))
        {
            return Err(KernelError::Invalid(format!(
                "the message id must have 1 to {CLIENT_ID_BYTES_MAX} bytes and no control characters"
            )));
        }
        let preamble: usize = message.preamble.iter().map(|(_, text)| text.len()).sum();
        if preamble > max {
            return Err(KernelError::Invalid(format!(
                "the earlier messages have {preamble} bytes, at most {max} are allowed"
            )));
        }
        Ok(())
    }

    async fn place(
        &self,
        task: TaskId,
        conversation: ConversationId,
        message: &Submission,
    ) -> Result<Place, KernelError> {
        let (user, priority) = (message.user.clone(), message.priority);
        let wait = Duration::from_millis(ADMIT_MS_MAX);
        let ask = |reply| SchedulerMsg::Admit { task, user: user.clone(), conversation, priority, reply };
        match self.wiring.scheduler.call(wait, ask).await {
            Ok(answer) => answer.map_err(KernelError::Full),
            // A death of the scheduler in between is no reason to turn somebody away: its next life is asked once.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                self.wiring.scheduler.call(wait, ask).await?.map_err(KernelError::Full)
            }
        }
    }

    /// Cancels a task. True if it will end as cancelled; false if it had ended before.
    ///
    /// # Errors
    /// If there is no such task that the scope sees, or its Engine does not answer.
    pub async fn cancel(&self, scope: Scope, task: TaskId, by: &str) -> Result<bool, KernelError> {
        let row = self.task(scope, task).await?;
        if row.state.is_ended() {
            return Ok(false);
        }
        let wait = Duration::from_millis(ADMIT_MS_MAX);
        let answer = self
            .wiring
            .conversations
            .call(wait, |reply| ConversationsMsg::Cancel {
                conversation: row.conversation,
                user: row.user,
                task,
                by: by.to_owned(),
                reply,
            })
            .await?;
        Ok(answer == Cancelled::Yes)
    }
}
