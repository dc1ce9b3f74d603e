//! An earlier response, read out of the log: where a request that continues it belongs, and what was said until then. The log
//! is read backwards and no further than it is needed: the newest response, which is the usual one, costs its own turn.

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
    auth::Caller,
    door::AppState,
    error::{Code, Fault},
};

/// Events read at a time. Few, since each may hold a whole thread of a client.
const WINDOW: u32 = 100;

/// An earlier response.
pub struct Previous {
    pub conversation: ConversationId,
    /// A request that continues it belongs into its conversation: no message of a user came there since, or it was this one.
    pub goes_on: bool,
    task: TaskId,
    asked: Box<Inbound>,
    answer: Message,
    results: Results,
    log: Backwards,
}

impl Previous {
    /// Reads the response of this id; another user's is not found. The key is that of the request that continues it: a repeat
    /// belongs where the request was stored, whatever came there since.
    pub async fn read(state: &AppState, caller: &Caller, id: &str, key: Option<&str>) -> Result<Self, Fault> {
        let unknown = || {
            let mut fault = Fault::not_found("response").at("previous_response_id");
            fault.detail = format!("there is no response {id:?} of yours");
            fault
        };
        let uuid = id.strip_prefix("resp_").and_then(|hex| uuid::Uuid::try_parse(hex).ok()).ok_or_else(unknown)?;
        let row = state.kernel.task(caller.scope(), TaskId::from_uuid(uuid)).await.map_err(|error| match error {
            KernelError::NotFound(_) => unknown(),
            other => other.into(),
        })?;
        if !row.state.is_ended() {
            return Err(Fault::new(Code::Stale, "that response is not complete yet").at("previous_response_id"));
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
                let (answer, goes_on) = (answer.ok_or_else(unknown)?, is_repeat || !is_followed);
                return Ok(Self { conversation: row.conversation, goes_on, task, asked, answer, results, log });
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

    /// Whether the client kept the conversation.
    pub fn is_thread(&self) -> bool {
        self.asked.thread().is_some()
    }

    /// The system messages of the thread, and what was said until then with the response itself. Of a conversation that Annie
    /// keeps, the oldest messages are left out where all would have more than so many bytes.
    pub async fn messages(mut self, bytes_max: usize) -> Result<(String, Vec<Message>), Fault> {
        if let Some(thread) = self.asked.request.as_mut().and_then(|asked| asked.thread.take()) {
            let mut messages = thread.messages;
            messages.push(self.answer);
            return Ok((thread.system, messages));
        }
        let said = self.said(bytes_max).await?;
        let messages = said.into_iter().map(|said| match said {
            Said::Message(message) => message,
            // In a thread all that is no answer counts as the caller's own words: what the outside party sent is left out.
            Said::Outside(text) => Message::user(text.lines().next().unwrap_or_default()),
        });
        Ok((String::new(), messages.collect()))
    }

    /// Role and text of each message.
    pub async fn spoken(self) -> Result<Vec<(String, String)>, Fault> {
        let said = if self.is_thread() {
            let (_, messages) = self.messages(PREAMBLE_BYTES_MAX).await?;
            messages.into_iter().map(Said::Message).collect()
        } else {
            self.said(PREAMBLE_BYTES_MAX).await?
        };
        let spoken = said.into_iter().filter_map(|said| match said {
            Said::Message(Message::User { text, .. }) => Some(("user".to_owned(), text)),
            Said::Message(Message::Assistant { text, .. }) => Some(("assistant".to_owned(), text)),
            Said::Message(_) => None,
            Said::Outside(text) => Some((OUTSIDE.to_owned(), text)),
        });
        Ok(spoken.collect())
    }

    /// What was said in a conversation that Annie keeps: the response's own turn, and of what was said before it as much as
    /// does not make more than so many bytes.
    async fn said(mut self, bytes_max: usize) -> Result<Vec<Said>, Fault> {
        let own = Turn { task: self.task, asked: self.asked, answer: Some(self.answer) };
        let mut bytes = own.len_bytes() + self.results.len_bytes;
        let mut earlier = Vec::new();
        while let Some(mut turn) = self.log.turn().await? {
            // Of a thread that a client kept, only what was said is of use here.
            turn.asked.request = None;
            bytes += turn.len_bytes();
            if bytes > bytes_max {
                break;
            }
            earlier.push(turn);
        }
        let results = self.results.turns.into_iter().rev().map(|(_, turn)| turn);
        let turns = earlier.into_iter().rev().chain([own]).chain(results);
        Ok(turns.flat_map(Turn::said).collect())
    }
}

/// One message of an earlier turn.
enum Said {
    Message(Message),
    /// An outside party's: the kernel's line about it, and below it the party's text.
    Outside(String),
}

/// Turns of the kernel's own behind the wanted one, newest first: each with the task that it came of. They belong to what was
/// said until then, unless they came of another continuation.
#[derive(Default)]
struct Results {
    turns: Vec<(TaskId, Turn)>,
    len_bytes: usize,
}

impl Results {
    async fn keep(&mut self, log: &Backwards, turn: Turn) -> Result<(), Fault> {
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

    /// Leaves out what came of this task.
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
    /// Nothing if it failed, or has not ended.
    answer: Option<Message>,
}

impl Turn {
    fn len_bytes(&self) -> usize {
        let before: usize = self.asked.preamble.iter().map(|(_, text)| text.len()).sum();
        before + self.asked.text.len() + self.answer.as_ref().map_or(0, Message::len_bytes)
    }

    /// What came with the message, the message, and its answer.
    fn said(self) -> impl Iterator<Item = Said> {
        let is_outside = self.asked.outside_text().is_some();
        let Inbound { preamble, text, .. } = *self.asked;
        let before = preamble.into_iter().map(|(role, text)| match role.as_str() {
            "assistant" => Said::Message(Message::assistant(text)),
            OUTSIDE => Said::Outside(text),
            _ => Said::Message(Message::user(text)),
        });
        let asked = if is_outside { Said::Outside(text) } else { Said::Message(Message::user(text)) };
        before.chain([asked]).chain(self.answer.map(Said::Message))
    }
}

/// The turns of a conversation, newest first.
struct Backwards {
    kernel: Kernel,
    scope: Scope,
    conversation: ConversationId,
    /// The last event that was not read.
    end: u64,
    /// Events that were read and not looked at, oldest first.
    page: Vec<Event>,
    /// Answers whose messages were not reached.
    answers: BTreeMap<TaskId, Option<Message>>,
}

impl Backwards {
    async fn new(kernel: &Kernel, scope: Scope, conversation: ConversationId) -> Result<Self, Fault> {
        let end = kernel.conversation(scope.clone(), conversation).await?.last_seq.0;
        Ok(Self { kernel: kernel.clone(), scope, conversation, end, page: Vec::new(), answers: BTreeMap::new() })
    }

    /// The turn before; nothing before the first one.
    async fn turn(&mut self) -> Result<Option<Turn>, Fault> {
        while let Some(Event { task, body, .. }) = self.event().await? {
            match body {
                EventBody::Received(inbound) => {
                    let answer = self.answers.remove(&task).flatten();
                    return Ok(Some(Turn { task, asked: Box::new(inbound), answer }));
                }
                body if body.is_final() => {
                    self.answers.insert(task, Answer::of(&body).map(said));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    async fn event(&mut self) -> Result<Option<Event>, Fault> {
        while self.page.is_empty() && self.end > 0 {
            let start = self.end.saturating_sub(u64::from(WINDOW));
            let count = u32::try_from(self.end - start).unwrap_or(WINDOW);
            self.page = self.kernel.events(self.scope.clone(), self.conversation, Seq(start), count).await?;
            self.end = start;
        }
        Ok(self.page.pop())
    }
}

/// An answer as the message that it is.
fn said(answer: Answer<'_>) -> Message {
    let mut said = Message::assistant(answer.text);
    if let Message::Assistant { tool_calls, .. } = &mut said {
        *tool_calls = answer.calls.to_vec();
    }
    said
}
