//! Saying something and following what becomes of it, the same whether the kernel is a server or runs in this process.

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
use crate::door::read_event;

/// Whom the command line talks to.
pub enum Partner {
    /// A kernel in this process.
    Here {
        /// The kernel.
        kernel: Kernel,
        /// For whom.
        user: UserId,
    },
    /// A server.
    Server(Client),
}

/// Something to say.
#[derive(Debug, Clone)]
pub struct Say {
    /// The words.
    pub text: String,
    /// In which conversation.
    pub conversation: Named,
    /// How the turn runs.
    pub mode: Option<Mode>,
    /// The message's own id: it may be sent twice.
    pub client_id: String,
    /// What else it wishes.
    pub more: More,
}

/// It is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// What it became.
    pub task: TaskId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// Its place in the log.
    pub seq: Seq,
    /// The class that it got.
    pub priority: Priority,
    /// It is an order about tasks.
    pub is_order: bool,
    /// Equal work waits already, and answers this too.
    pub is_same: bool,
    /// Its place in the queue, if it has one.
    pub position: Option<u64>,
}

/// What is seen of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// A stored event.
    Event(Box<Event>),
    /// A piece of an answer that is still being written.
    Draft {
        /// Of which task.
        task: TaskId,
        /// Of which round.
        round: u32,
        /// The piece.
        text: String,
    },
}

/// What comes of one message.
pub struct Following {
    said: Said,
    from: From,
}

enum From {
    Here(Follow),
    Server { stream: Resumed, seen: Seq },
}

impl Partner {
    /// Says something. When this returns, it is stored.
    ///
    /// # Errors
    /// If it was not taken in.
    pub async fn say(&self, say: Say) -> Result<Said, Failure> {
        match self {
            Self::Here { kernel, user } => {
                let conversation = match &say.conversation {
                    Named::Key(key) => ConversationId::for_key(user, key),
                    // A conversation that is not there is not begun by its id.
                    Named::Id(id) => kernel.conversation(Scope::User(user.clone()), *id).await?.id,
                };
                for task in &say.more.after {
                    kernel.task(Scope::User(user.clone()), *task).await?;
                }
                let message = submission(user.clone(), conversation, say, kernel.now());
                let submitted = kernel.submit(message).await?;
                let place = submitted.place.as_ref();
                Ok(Said {
                    task: submitted.task,
                    conversation: submitted.conversation,
                    seq: submitted.seq,
                    priority: submitted.priority,
                    is_order: submitted.is_order,
                    is_same: place.is_some_and(|p| p.same_as.is_some()),
                    position: place.map(|p| p.position as u64),
                })
            }
            Self::Server(client) => {
                let answer = client.post_again("/api/v1/messages", &body(&say)).await?;
                said(&answer)
                    .ok_or_else(|| Failure::new(Exit::Failure, "the server's acknowledgement is not understood"))
            }
        }
    }

    /// Follows what becomes of it, from the message itself on.
    ///
    /// # Errors
    /// If there is no such conversation.
    pub async fn follow(&self, said: &Said) -> Result<Following, Failure> {
        let after = Seq(said.seq.0.saturating_sub(1));
        let from = match self {
            Self::Here { kernel, user } => {
                From::Here(kernel.follow(Scope::User(user.clone()), said.conversation, after).await?)
            }
            Self::Server(client) => From::Server { stream: Resumed::of(client.clone()), seen: after },
        };
        Ok(Following { said: said.clone(), from })
    }

    /// Stops a task. True if it will end as cancelled. A server that is between two lives is waited for.
    ///
    /// # Errors
    /// If there is no such task, or the server does not come back.
    pub async fn cancel(&self, task: TaskId) -> Result<bool, Failure> {
        match self {
            Self::Here { kernel, user } => {
                Ok(kernel.cancel(Scope::User(user.clone()), task, "the command line").await?)
            }
            Self::Server(client) => {
                let answer = client.post_until_heard(&format!("/api/v1/tasks/{task}/cancel"), &json!({})).await?;
                Ok(answer["cancelled"].as_bool().unwrap_or(true))
            }
        }
    }
}

/// A message for the kernel in this process.
fn submission(user: UserId, conversation: ConversationId, say: Say, now: Micros) -> Submission {
    let mut message = Submission::new(user, "cli", say.text).within(conversation);
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

/// A message for a server: only what is wished is said, so that an older one understands the rest.
fn body(say: &Say) -> Value {
    let more = &say.more;
    let mut body = json!({"text": say.text, "client_id": say.client_id});
    match &say.conversation {
        Named::Id(id) => body["conversation_id"] = json!(id),
        Named::Key(key) => body["conversation_key"] = json!(key),
    }
    let mut wish = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            body[key] = value;
        }
    };
    wish("mode", say.mode.map(|mode| json!(mode)));
    wish("priority", more.priority.map(|class| json!(Priority::from(class))));
    wish("name", more.name.as_ref().map(|name| json!(name)));
    wish("delay_ms", more.delay.map(|s| json!(s * 1_000)));
    wish("after", (!more.after.is_empty()).then(|| json!(more.after)));
    for (key, is_wished) in [("private", more.private), ("steer", more.steer), ("verbatim", more.verbatim)] {
        wish(key, is_wished.then_some(Value::Bool(true)));
    }
    body
}

fn said(answer: &Value) -> Option<Said> {
    Some(Said {
        task: answer["task_id"].as_str()?.parse().ok()?,
        conversation: answer["conversation_id"].as_str()?.parse().ok()?,
        seq: Seq(answer["seq"].as_u64()?),
        priority: serde_json::from_value(answer["priority"].clone()).unwrap_or_default(),
        is_order: answer["is_order"] == true,
        is_same: answer["same_as"].is_string(),
        position: answer["position"].as_u64(),
    })
}

impl Following {
    /// What is followed.
    #[must_use]
    pub const fn said(&self) -> &Said {
        &self.said
    }

    /// The next thing of this task. Nothing is left out and nothing comes twice, except drafts when a stream broke.
    ///
    /// # Errors
    /// If the stream cannot be taken up again.
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
            let of = match &seen {
                Seen::Event(event) => event.task,
                Seen::Draft { task, .. } => *task,
            };
            if of == self.said.task {
                return Ok(seen);
            }
        }
    }

    /// The next thing that the server tells, if it is one to be seen. A stream that broke is taken up where it was.
    async fn next_of_server(&mut self) -> Result<Option<Seen>, Failure> {
        let From::Server { stream, seen } = &mut self.from else { return Ok(None) };
        let Said { conversation, task, .. } = self.said;
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
            stream.goes_on();
        }
        Ok(item)
    }
}

/// It was taken in all the same.
fn broken(task: TaskId, failure: Failure) -> Failure {
    if failure.exit != Exit::Unavailable {
        return failure;
    }
    let what = format!("the stream of {task} broke and could not be taken up again: {}", failure.what);
    Failure { what, ..failure }.fix("the task goes on where it was; look later with `annie tasks show ID`")
}

/// What a server-sent event says, if it is one that is shown.
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
    async fn who_was_acknowledged_waits_for_a_server_that_is_between_two_lives_and_is_told_of_the_task() {
        // Nobody listens, and nobody else can.
        let place = tokio::net::TcpSocket::new_v4().unwrap();
        place.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let said = said(&json!({
            "task_id": TaskId::from_uuid(uuid::Uuid::nil()), "seq": 1,
            "conversation_id": ConversationId::from_uuid(uuid::Uuid::nil()),
        }));
        let client = Client::new(&format!("http://{}", place.local_addr().unwrap()), None).unwrap();
        let mut following = Partner::Server(client).follow(&said.expect("an acknowledgement")).await.unwrap();
        let from = tokio::time::Instant::now();
        let failure = following.next().await.unwrap_err();
        assert_eq!(failure.exit, Exit::Unavailable);
        assert!(failure.what.contains(&following.said().task.to_string()), "{failure}");
        let wanted = RESUME_MS_MAX - 2 * RESUME_MS..=RESUME_MS_MAX;
        assert!(wanted.contains(&(from.elapsed().as_millis() as u64)), "{:?}", from.elapsed());
    }
}
