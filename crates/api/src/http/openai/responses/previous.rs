//! Reads an earlier response from the log: the conversation to which its continuation belongs, and the messages up to it. The
//! log is read backwards and only as far as needed: the newest response, which is the usual one, costs only its own turn.

use std::collections::BTreeMap;

use annie_actors::{Kernel, KernelError};
use annie_core::{
    event::{Event, EventBody, Inbound, Scope},
    ids::{ConversationId, Seq, TaskId},
    inbound::OUTSIDE,
    message::Message,
};

use super::super::{request::PREAMBLE_BYTES_MAX, turn::Answer};
use crate::{
    api::AppState,
    auth::Caller,
    error::{ApiError, Code},
};

/// Events per read. Few, since each may contain a whole thread of a client.
const WINDOW: u32 = 100;

/// An earlier response.
pub struct Previous {
    pub conversation: ConversationId,
    /// Whether a continuation belongs to the same conversation: no later message of the user is in it, or the continuation is a
    /// repeat that is stored there.
    pub continues_here: bool,
    task: TaskId,
    asked: Box<Inbound>,
    answer: Message,
    results: Results,
    log: Backwards,
}

impl Previous {
    /// Reads the response with this id. The response of another user counts as not found. The key is that of the continuing
    /// request: a repeat belongs to the conversation in which the request was stored, whatever followed there.
    pub async fn read(state: &AppState, caller: &Caller, id: &str, key: Option<&str>) -> Result<Self, ApiError> {
        let unknown = || {
            let mut error = ApiError::not_found("response").at("previous_response_id");
            error.detail = format!("there is no response {id:?} of yours");
            error
        };
        let uuid = id.strip_prefix("resp_").and_then(|hex| uuid::Uuid::try_parse(hex).ok()).ok_or_else(unknown)?;
        let row = state.kernel.task(caller.scope(), TaskId::from_uuid(uuid)).await.map_err(|error| match error {
            KernelError::NotFound(_) => unknown(),
            other => other.into(),
        })?;
        if !row.state.is_ended() {
            return Err(ApiError::new(Code::Stale, "that response is not complete yet").at("previous_response_id"));
        }
        let is_repeat = match key {
            Some(key) => state.kernel.store().message(caller.user.clone(), key.to_owned()).await?,
            None => None,
        };
        let is_repeat = is_repeat.is_some_and(|before| before.conversation == row.conversation);
        let mut log = Backwards::new(&state.kernel, caller.scope(), row.conversation).await?;
        let (mut results, mut is_followed) = (Results::default(), false);
        while let Some(Turn { task, asked, answer }) = log.turn().await? {
            if task == row.id {
                let (answer, continues_here) = (answer.ok_or_else(unknown)?, is_repeat || !is_followed);
                return Ok(Self { conversation: row.conversation, continues_here, task, asked, answer, results, log });
            }
            if asked.resumes.is_some() || asked.retry.is_some() {
                results.keep(&log, Turn { task, asked, answer }).await?;
            } else {
                is_followed = true;
                results.leave_out(task);
            }
        }
        Err(unknown())
    }

    /// Whether the client keeps the conversation.
    pub fn is_thread(&self) -> bool {
        self.asked.thread().is_some()
    }

    /// The system messages of the thread, and all messages up to and including the response. If Annie keeps the conversation,
    /// the oldest messages are left out when all together exceed `bytes_max`.
    pub async fn messages(mut self, bytes_max: usize) -> Result<(String, Vec<Message>), ApiError> {
        if let Some(thread) = self.asked.request.as_mut().and_then(|asked| asked.thread.take()) {
            let mut messages = thread.messages;
            messages.push(self.answer);
            return Ok((thread.system, messages));
        }
        let earlier = self.earlier_messages(bytes_max).await?;
        let messages = earlier.into_iter().map(|message| match message {
            Earlier::Message(message) => message,
            // In a thread every message that is not an answer counts as the caller's own text, so the text of an outside party
            // is left out.
            Earlier::Outside(text) => Message::user(text.lines().next().unwrap_or_default()),
        });
        Ok((String::new(), messages.collect()))
    }

    /// Role and text of each message.
    pub async fn role_texts(self) -> Result<Vec<(String, String)>, ApiError> {
        let earlier = if self.is_thread() {
            let (_, messages) = self.messages(PREAMBLE_BYTES_MAX).await?;
            messages.into_iter().map(Earlier::Message).collect()
        } else {
            self.earlier_messages(PREAMBLE_BYTES_MAX).await?
        };
        let texts = earlier.into_iter().filter_map(|message| match message {
            Earlier::Message(Message::User { text, .. }) => Some(("user".to_owned(), text)),
            Earlier::Message(Message::Assistant { text, .. }) => Some(("assistant".to_owned(), text)),
            Earlier::Message(_) => None,
            Earlier::Outside(text) => Some((OUTSIDE.to_owned(), text)),
        });
        Ok(texts.collect())
    }

    /// The messages of a conversation that Annie keeps: the response's own turn, and as many earlier turns as fit into
    /// `bytes_max`.
    async fn earlier_messages(mut self, bytes_max: usize) -> Result<Vec<Earlier>, ApiError> {
        let own = Turn { task: self.task, asked: self.asked, answer: Some(self.answer) };
        let mut bytes = own.len_bytes() + self.results.len_bytes;
        let mut earlier = Vec::new();
        while let Some(mut turn) = self.log.turn().await? {
            // Of a thread that a client keeps, only the messages are used here.
            turn.asked.request = None;
            bytes += turn.len_bytes();
            if bytes > bytes_max {
                break;
            }
            earlier.push(turn);
        }
        let results = self.results.turns.into_iter().rev().map(|(_, turn)| turn);
        let turns = earlier.into_iter().rev().chain([own]).chain(results);
        Ok(turns.flat_map(Turn::into_messages).collect())
    }
}

/// One message of an earlier turn.
enum Earlier {
    Message(Message),
    /// The message of an outside party: the kernel's line about it, followed by the party's text.
    Outside(String),
}

/// Turns that the kernel started itself after the requested response, newest first, each with the task that caused it. They
/// belong to the earlier messages, unless they were caused by another continuation.
#[derive(Default)]
struct Results {
    turns: Vec<(TaskId, Turn)>,
    len_bytes: usize,
}

impl Results {
    async fn keep(&mut self, log: &Backwards, turn: Turn) -> Result<(), ApiError> {
        if self.len_bytes > PREAMBLE_BYTES_MAX {
            return Ok(());
        }
        let cause = match (turn.asked.resumes, &turn.asked.retry) {
            (Some(operation), _) => match log.kernel.operation(log.scope.clone(), operation).await {
                Ok(operation) => operation.task,
                Err(KernelError::NotFound(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            },
            (None, Some(retry)) => retry.of,
            (None, None) => return Ok(()),
        };
        self.len_bytes += turn.len_bytes();
        self.turns.push((cause, turn));
        Ok(())
    }

    /// Leaves out the turns that this task caused, directly or indirectly.
    fn leave_out(&mut self, task: TaskId) {
        let mut gone = vec![task];
        while let Some(task) = gone.pop() {
            gone.extend(self.turns.extract_if(.., |(cause, _)| *cause == task).map(|(_, turn)| turn.task));
        }
    }
}

/// One turn of the conversation.
struct Turn {
    task: TaskId,
    asked: Box<Inbound>,
    /// Absent if the turn failed or has not ended.
    answer: Option<Message>,
}

impl Turn {
    fn len_bytes(&self) -> usize {
        let before: usize = self.asked.preamble.iter().map(|(_, text)| text.len()).sum();
        before + self.asked.text.len() + self.answer.as_ref().map_or(0, Message::len_bytes)
    }

    /// The messages sent with the prompt, the prompt, and its answer.
    fn into_messages(self) -> impl Iterator<Item = Earlier> {
        let is_outside = self.asked.outside_text().is_some();
        let Inbound { preamble, text, .. } = *self.asked;
        let before = preamble.into_iter().map(|(role, text)| match role.as_str() {
            "assistant" => Earlier::Message(Message::assistant(text)),
            OUTSIDE => Earlier::Outside(text),
            _ => Earlier::Message(Message::user(text)),
        });
        let asked = if is_outside { Earlier::Outside(text) } else { Earlier::Message(Message::user(text)) };
        before.chain([asked]).chain(self.answer.map(Earlier::Message))
    }
}

/// Reads the turns of a conversation, newest first.
struct Backwards {
    kernel: Kernel,
    scope: Scope,
    conversation: ConversationId,
    /// The sequence number of the last event that was not read.
    end: u64,
    /// Events that were read but not processed, oldest first.
    page: Vec<Event>,
    /// Answers whose prompts were not reached yet.
    answers: BTreeMap<TaskId, Option<Message>>,
}

impl Backwards {
    async fn new(kernel: &Kernel, scope: Scope, conversation: ConversationId) -> Result<Self, ApiError> {
        let end = kernel.conversation(scope.clone(), conversation).await?.last_seq.0;
        Ok(Self { kernel: kernel.clone(), scope, conversation, end, page: Vec::new(), answers: BTreeMap::new() })
    }

    /// The next earlier turn; nothing before the first one.
    async fn turn(&mut self) -> Result<Option<Turn>, ApiError> {
        while let Some(Event { task, body, .. }) = self.event().await? {
            if body.is_final() {
                self.answers.insert(task, Answer::of(&body).map(answer_message));
            } else if let EventBody::Received(inbound) = body {
                let answer = self.answers.remove(&task).flatten();
                return Ok(Some(Turn { task, asked: Box::new(inbound), answer }));
            }
        }
        Ok(None)
    }

    async fn event(&mut self) -> Result<Option<Event>, ApiError> {
        while self.page.is_empty() && self.end > 0 {
            let start = self.end.saturating_sub(u64::from(WINDOW));
            let count = u32::try_from(self.end - start).unwrap_or(WINDOW);
            self.page = self.kernel.events(self.scope.clone(), self.conversation, Seq(start), count).await?;
            self.end = start;
        }
        Ok(self.page.pop())
    }
}

/// An answer as a message.
fn answer_message(answer: Answer<'_>) -> Message {
    let mut message = Message::assistant(answer.text);
    if let Message::Assistant { tool_calls, .. } = &mut message {
        *tool_calls = answer.calls.to_vec();
    }
    message
}
