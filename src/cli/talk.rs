//! Sends a message and follows its turn, in the same way for a server and for a kernel in this process.

use annie_actors::{Follow, Kernel, StreamItem, Submission};
use annie_core::{
    event::{Event, Mode, Priority, Scope},
    ids::{ConversationId, Seq, TaskId, UserId},
    ports::Draft,
    time::Micros,
};
use serde_json::{Value, json};

use super::{
    args::{More, Named},
    client::{Client, encoded},
    failure::{Exit, Failure},
    resume::Resumed,
};
use crate::api::read_event;

/// The peer of the command line.
pub enum Partner {
    /// A kernel in this process.
    Here {
        /// The kernel.
        kernel: Kernel,
        /// The user of the command line.
        user: UserId,
    },
    /// A server.
    Server(Client),
}

/// A message to send.
#[derive(Debug, Clone)]
pub struct Say {
    /// The text.
    pub text: String,
    /// The conversation of the message.
    pub conversation: Named,
    /// How the turn runs.
    pub mode: Option<Mode>,
    /// Idempotency id: the message may be sent twice.
    pub client_id: String,
    /// Further options.
    pub more: More,
}

/// The acknowledgement of a stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The task of the message.
    pub task: TaskId,
    /// The conversation.
    pub conversation: ConversationId,
    /// Sequence number of the message in the log.
    pub seq: Seq,
    /// The class of the task.
    pub priority: Priority,
    /// The message is a job command.
    pub is_job_command: bool,
    /// Equal work waits already, and its answer is also the answer of this message.
    pub is_same: bool,
    /// Queue position from 1; absent if the task is not queued.
    pub position: Option<u64>,
}

/// A visible item of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// A stored event.
    Event(Box<Event>),
    /// A piece of an answer that is still being generated.
    Draft {
        /// The task.
        task: TaskId,
        /// The round of the main agent.
        round: u32,
        /// The new text.
        text: String,
    },
}

/// The stream of one message's turn.
pub struct Following {
    stored: Stored,
    from: From,
}

enum From {
    Here(Follow),
    Server { stream: Resumed, seen: Seq },
}

impl Partner {
    /// Sends a message. When this returns, the message is stored.
    ///
    /// # Errors
    /// If the message was rejected, or the server is unavailable.
    pub async fn say(&self, say: Say) -> Result<Stored, Failure> {
        match self {
            Self::Here { kernel, user } => {
                let conversation = match &say.conversation {
                    Named::Key(key) => ConversationId::for_key(user, key),
                    // An id never creates a conversation.
                    Named::Id(id) => kernel.conversation(Scope::User(user.clone()), *id).await?.id,
                };
                for task in &say.more.after {
                    kernel.task(Scope::User(user.clone()), *task).await?;
                }
                let message = submission(user.clone(), conversation, say, kernel.now());
                let submitted = kernel.submit(message).await?;
                let place = submitted.place.as_ref();
                Ok(Stored {
                    task: submitted.task,
                    conversation: submitted.conversation,
                    seq: submitted.seq,
                    priority: submitted.priority,
                    is_job_command: submitted.is_job_command,
                    is_same: place.is_some_and(|p| p.same_as.is_some()),
                    position: place.map(|p| p.position as u64),
                })
            }
            Self::Server(client) => {
                let answer = client.post_again("/api/v1/messages", &body(&say)).await?;
                stored(&answer)
                    .ok_or_else(|| Failure::new(Exit::Failure, "the server's acknowledgement is not understood"))
            }
        }
    }

    /// Follows the turn of a message, from the message itself on.
    ///
    /// # Errors
    /// If there is no such conversation.
    pub async fn follow(&self, stored: &Stored) -> Result<Following, Failure> {
        let after = Seq(stored.seq.0.saturating_sub(1));
        let from = match self {
            Self::Here { kernel, user } => {
                From::Here(kernel.follow(Scope::User(user.clone()), stored.conversation, after).await?)
            }
            Self::Server(client) => From::Server { stream: Resumed::of(client.clone()), seen: after },
        };
        Ok(Following { stored: stored.clone(), from })
    }

    /// Cancels a task. True if the task will end as cancelled. Waits for a server that is restarting.
    ///
    /// # Errors
    /// If there is no such task, or the server does not come back.
    pub async fn cancel(&self, task: TaskId) -> Result<bool, Failure> {
        match self {
            Self::Here { kernel, user } => {
                Ok(kernel.cancel(Scope::User(user.clone()), task, "the command line").await?)
            }
            Self::Server(client) => {
                let answer = client.post_idempotent(&format!("/api/v1/tasks/{task}/cancel"), &json!({})).await?;
                Ok(answer["cancelled"].as_bool().unwrap_or(true))
            }
        }
    }
}

/// A message for the kernel in this process.
fn submission(user: UserId, conversation: ConversationId, say: Say, now: Micros) -> Submission {
    let mut message = Submission::new(user, "cli", say.text).within(conversation);
    message.moves_on = matches!(say.conversation, Named::Key(_));
    message.mode = say.mode;
    message.client_id = Some(say.client_id);
    message.priority = say.more.priority.map(Into::into);
    message.private = say.more.private;
    message.name = say.more.name;
    message.steer = say.more.steer;
    message.not_before = say.more.delay.map(|s| now.plus_ms(i64::try_from(s * 1_000).unwrap_or(i64::MAX)));
    message.after = say.more.after;
    message.verbatim = say.more.verbatim;
    message
}

/// The body of a message for a server. Only options that are set are included, so that an older server accepts the others.
fn body(say: &Say) -> Value {
    let more = &say.more;
    let mut body = json!({"text": say.text, "client_id": say.client_id, "source": "cli"});
    match &say.conversation {
        Named::Id(id) => body["conversation_id"] = json!(id),
        Named::Key(key) => body["conversation_key"] = json!(key),
    }
    let mut options = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            body[key] = value;
        }
    };
    options("mode", say.mode.map(|mode| json!(mode)));
    options("priority", more.priority.map(|class| json!(Priority::from(class))));
    options("name", more.name.as_ref().map(|name| json!(name)));
    options("delay_ms", more.delay.map(|s| json!(s * 1_000)));
    options("after", (!more.after.is_empty()).then(|| json!(more.after)));
    for (key, is_set) in [("private", more.private), ("steer", more.steer), ("verbatim", more.verbatim)] {
        options(key, is_set.then_some(Value::Bool(true)));
    }
    body
}

fn stored(answer: &Value) -> Option<Stored> {
    Some(Stored {
        task: answer["task_id"].as_str()?.parse().ok()?,
        conversation: answer["conversation_id"].as_str()?.parse().ok()?,
        seq: Seq(answer["seq"].as_u64()?),
        priority: serde_json::from_value(answer["priority"].clone()).unwrap_or_default(),
        is_job_command: answer["is_job_command"] == true,
        is_same: answer["same_as"].is_string(),
        position: answer["position"].as_u64(),
    })
}

impl Following {
    /// The message whose turn is followed.
    #[must_use]
    pub const fn stored(&self) -> &Stored {
        &self.stored
    }

    /// The next item of this task. No event is skipped or repeated; drafts may be, when a stream was interrupted.
    ///
    /// # Errors
    /// If the stream cannot be resumed.
    pub async fn next(&mut self) -> Result<Seen, Failure> {
        loop {
            let seen = match &mut self.from {
                From::Here(follow) => match follow.next().await? {
                    Some(StreamItem::Event(event)) => Seen::Event(Box::new(Event::clone(&event))),
                    Some(StreamItem::Draft { task, round, draft: Draft::Text(text) }) => {
                        Seen::Draft { task, round, text }
                    }
                    Some(StreamItem::Draft { .. }) => continue,
                    None => {
                        return Err(Failure::new(
                            Exit::Unavailable,
                            "the kernel has ended in the middle of the answer",
                        ));
                    }
                },
                From::Server { .. } => match self.next_of_server().await? {
                    Some(seen) => seen,
                    None => continue,
                },
            };
            let task = match &seen {
                Seen::Event(event) => event.task,
                Seen::Draft { task, .. } => *task,
            };
            if task == self.stored.task {
                return Ok(seen);
            }
        }
    }

    /// The next item from the server; nothing if it is not a visible one. An interrupted stream is resumed where it ended.
    async fn next_of_server(&mut self) -> Result<Option<Seen>, Failure> {
        let From::Server { stream, seen } = &mut self.from else { return Ok(None) };
        let Stored { conversation, task, .. } = self.stored;
        let path = || {
            let task = encoded(&task.to_string());
            format!("/api/v1/conversations/{conversation}/stream?task_id={task}&after={seen}")
        };
        let Some(event) = stream.next(path).await.map_err(|failure| broken(task, failure))? else { return Ok(None) };
        let item = decoded(&event.kind, &event.data);
        if let Some(Seen::Event(event)) = &item {
            if event.seq <= *seen {
                return Ok(None);
            }
            *seen = event.seq;
            stream.note_progress();
        }
        Ok(item)
    }
}

/// The failure of a stream that could not be resumed. The message was stored in any case.
fn broken(task: TaskId, failure: Failure) -> Failure {
    if failure.exit != Exit::Unavailable {
        return failure;
    }
    let what = format!("the stream of {task} broke and could not be taken up again: {}", failure.what);
    Failure { what, ..failure }.fix("the task continues on the server; look later with `annie tasks show ID`")
}

/// Decodes a server-sent event; nothing for an event that is not shown.
fn decoded(kind: &str, data: &str) -> Option<Seen> {
    if kind == "draft" {
        let draft: Value = serde_json::from_str(data).ok()?;
        let task = draft["task_id"].as_str()?.parse().ok()?;
        let round = u32::try_from(draft["round"].as_u64()?).ok()?;
        return Some(Seen::Draft { task, round, text: draft["text"].as_str()?.to_owned() });
    }
    read_event(data).ok().map(|event| Seen::Event(Box::new(event)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::client::{RESUME_MS, RESUME_MS_MAX};

    #[tokio::test(start_paused = true)]
    async fn following_waits_for_a_restarting_server_and_its_failure_names_the_task() {
        // The port is reserved, and no socket listens on it.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let stored = stored(&json!({
            "task_id": TaskId::from_uuid(uuid::Uuid::nil()), "seq": 1,
            "conversation_id": ConversationId::from_uuid(uuid::Uuid::nil()),
        }));
        let client = Client::new(&format!("http://{}", socket.local_addr().unwrap()), None).unwrap();
        let mut following = Partner::Server(client).follow(&stored.expect("an acknowledgement")).await.unwrap();
        let from = tokio::time::Instant::now();
        let failure = following.next().await.unwrap_err();
        assert_eq!(failure.exit, Exit::Unavailable);
        assert!(failure.what.contains(&following.stored().task.to_string()), "{failure}");
        let wanted = RESUME_MS_MAX - 2 * RESUME_MS..=RESUME_MS_MAX;
        assert!(wanted.contains(&(from.elapsed().as_millis() as u64)), "{:?}", from.elapsed());
    }
}
