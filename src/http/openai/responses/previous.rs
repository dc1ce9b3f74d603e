//! An earlier response, read out of the log: what was said until then.

use annie_core::{
    event::{Event, EventBody},
    ids::{ConversationId, Seq, TaskId},
    inbound::Inbound,
    message::Message,
};

use super::super::turn::Answer;
use crate::{
    auth::Caller,
    door::AppState,
    error::{Code, Fault},
};

/// An earlier response.
pub struct Previous {
    pub conversation: ConversationId,
    /// No message came to its conversation since.
    pub is_newest: bool,
    /// The client kept the conversation.
    pub is_thread: bool,
    /// The system messages of the thread.
    pub system: String,
    /// All that was said until then, with the response itself.
    pub messages: Vec<Message>,
}

impl Previous {
    /// Reads the response of this id; another user's is not found.
    pub async fn read(state: &AppState, caller: &Caller, id: &str) -> Result<Self, Fault> {
        let unknown = || {
            let mut fault = Fault::not_found("response").at("previous_response_id");
            fault.detail = format!("there is no response {id:?} of yours");
            fault
        };
        let uuid = id.strip_prefix("resp_").and_then(|hex| uuid::Uuid::try_parse(hex).ok()).ok_or_else(unknown)?;
        let row = state.kernel.task(caller.scope(), TaskId::from_uuid(uuid)).await.map_err(|error| match error {
            annie_actors::KernelError::NotFound(_) => unknown(),
            other => other.into(),
        })?;
        let mut reading = Reading::new(row.id);
        let mut after = Seq(0);
        while !(reading.is_followed && reading.is_over) {
            let page = state.kernel.events(caller.scope(), row.conversation, after, annie_actors::PAGE_MAX).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            page.into_iter().for_each(|event| reading.take(event));
        }
        match (reading.turns.pop(), reading.is_over) {
            (Some(Turn { inbound, answer: Some(answer), .. }), _) => {
                Ok(Self::of(row.conversation, !reading.is_followed, reading.turns, *inbound, answer))
            }
            (Some(_), false) => {
                Err(Fault::new(Code::Stale, "that response is not complete yet").at("previous_response_id"))
            }
            _ => Err(unknown()),
        }
    }

    fn of(
        conversation: ConversationId,
        is_newest: bool,
        earlier: Vec<Turn>,
        inbound: Inbound,
        answer: Message,
    ) -> Self {
        let asked = inbound.request.as_ref().and_then(|asked| asked.thread.clone());
        let is_thread = asked.is_some();
        let (system, mut messages) = match asked {
            Some(thread) => (thread.system, thread.messages),
            None => {
                let mut messages: Vec<Message> = earlier.into_iter().flat_map(Turn::messages).collect();
                messages.extend(spoken_by(&inbound));
                (String::new(), messages)
            }
        };
        messages.push(answer);
        Self { conversation, is_newest, is_thread, system, messages }
    }

    /// Role and text of each message.
    pub fn spoken(self) -> impl Iterator<Item = (String, String)> {
        self.messages.into_iter().filter_map(|message| match message {
            Message::User { text, .. } => Some(("user".to_owned(), text)),
            Message::Assistant { text, .. } => Some(("assistant".to_owned(), text)),
            _ => None,
        })
    }
}

/// One turn of the conversation.
struct Turn {
    task: TaskId,
    inbound: Box<Inbound>,
    answer: Option<Message>,
}

impl Turn {
    fn messages(self) -> impl Iterator<Item = Message> {
        spoken_by(&self.inbound).into_iter().chain(self.answer)
    }
}

/// What came with a message, and the message.
fn spoken_by(inbound: &Inbound) -> Vec<Message> {
    let before = inbound.preamble.iter().map(|(role, text)| match role.as_str() {
        "assistant" => Message::assistant(text.clone()),
        _ => Message::user(text.clone()),
    });
    before.chain([Message::user(inbound.text.clone())]).collect()
}

/// The turns of a conversation up to the one that is looked for.
struct Reading {
    wanted: TaskId,
    turns: Vec<Turn>,
    /// The wanted turn has ended.
    is_over: bool,
    /// A message came behind the wanted turn's.
    is_followed: bool,
}

impl Reading {
    fn new(wanted: TaskId) -> Self {
        Self { wanted, turns: Vec::new(), is_over: false, is_followed: false }
    }

    fn take(&mut self, event: Event) {
        let Event { task, body, .. } = event;
        match body {
            EventBody::Received(_) if self.turns.last().is_some_and(|turn| turn.task == self.wanted) => {
                self.is_followed = true;
            }
            EventBody::Received(inbound) => {
                self.turns.push(Turn { task, inbound: Box::new(inbound), answer: None });
            }
            body if body.is_final() => {
                self.is_over |= task == self.wanted;
                if let Some(turn) = self.turns.iter_mut().find(|turn| turn.task == task) {
                    turn.answer = Answer::of(&body).map(|answer| {
                        let mut said = Message::assistant(answer.text);
                        if let Message::Assistant { tool_calls, .. } = &mut said {
                            *tool_calls = answer.calls.to_vec();
                        }
                        said
                    });
                }
            }
            _ => {}
        }
    }
}
