//! `POST /v1/responses`: the interface that agent libraries use today. A response's id is its task's, so that
//! `previous_response_id` leads to what was said before: to its conversation where Annie keeps it, and to its messages where
//! the client has tools of its own.

mod events;
mod items;
mod request;

use std::time::Duration;

use annie_core::{
    caller::{CallerRequest, Thread},
    event::{Event, EventBody},
    ids::{ConversationId, Seq, TaskId},
    message::Message,
};
use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};

use self::{
    events::Events,
    items::{Label, whole},
    request::ResponseRequest,
};
use super::{
    request::mode_of,
    thread,
    turn::{Abandon, Answer, Begun, TurnWish, begin, failed, name_conversation, streamed},
};
use crate::{
    auth::Caller,
    door::{AppState, Where},
    error::{Code, Fault},
    http::extract::Body,
};

/// The handler.
pub async fn create(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    Body(request): Body<ResponseRequest>,
) -> Result<Response, Fault> {
    request.check()?;
    let mode = mode_of(&request.model)?;
    let previous = match request.previous() {
        Some(id) => Some(Previous::read(&state, &caller, id).await?),
        None => None,
    };
    let named = request.conversation(&headers);
    let stateless = named.is_none();
    let wish = wish(&request, previous, named)?;
    let begun = begin(&state, caller, &headers, TurnWish { stateless, mode, ..wish }).await?;
    let label = Label::new(&request, begun.task, state.kernel.now());
    let Begun { task, conversation, repeated, feed, abandon } = begun;
    let mut response = if request.stream == Some(true) {
        // Of a repeat, drafts may have gone by; and only a whole answer was held against its form.
        let with_drafts = !repeated && !request.is_formed();
        streamed(feed, Events::new(label, task, with_drafts), abandon)
    } else {
        let mut feed = feed.at_most(Duration::from_secs(state.limits.wait_s_max));
        let Some(event) = feed.last().await? else {
            let why = "the answer takes longer than may be waited for here; ask for a stream";
            return Err(Fault::new(Code::DeadlineExceeded, why));
        };
        let mut abandon = abandon;
        Abandon::disarm(&mut abandon);
        let Some(answer) = Answer::of(&event.body) else { return Err(failed(&event.body)) };
        Json(whole(&label, &answer)).into_response()
    };
    name_conversation(&mut response, conversation);
    Ok(response)
}

/// The turn that a request means: the model's own loop on the client's messages where tools of the client are in play, else a
/// message in a conversation.
fn wish(request: &ResponseRequest, previous: Option<Previous>, named: Option<Where>) -> Result<TurnWish, Fault> {
    let (options, tools) = request.options()?;
    let instructions = request.instructions.clone().unwrap_or_default();
    let before = previous.as_ref().is_some_and(|p| p.asked.as_ref().is_some_and(|asked| asked.thread.is_some()));
    if !tools.is_empty() || before || request.has_calls() {
        let with_skills = request.with_skills();
        let (system, messages) = request.thread(previous.map(Previous::messages).unwrap_or_default())?;
        let text = thread::title(&messages);
        let thread = Some(Thread { system, messages, tools, with_skills });
        let request = CallerRequest { options, thread, ..CallerRequest::default() };
        return Ok(TurnWish { place: named, stateless: true, mode: None, text, preamble: Vec::new(), request });
    }
    let (text, preamble) = request.said()?;
    let place = named.or_else(|| previous.map(|p| Where::Id(p.conversation.to_string())));
    let request = CallerRequest { options, instructions, ..CallerRequest::default() };
    Ok(TurnWish { place, stateless: true, mode: None, text, preamble, request })
}

/// An earlier response.
struct Previous {
    conversation: ConversationId,
    text: String,
    preamble: Vec<(String, String)>,
    asked: Option<Box<CallerRequest>>,
    answer: Message,
}

impl Previous {
    /// Reads it out of the log.
    async fn read(state: &AppState, caller: &Caller, id: &str) -> Result<Self, Fault> {
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
        let mut after = Seq(0);
        let mut received = None;
        loop {
            let page = state.kernel.events(caller.scope(), row.conversation, after, annie_actors::PAGE_MAX).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for Event { body, .. } in page.into_iter().filter(|e| e.task == row.id) {
                match body {
                    EventBody::Received(inbound) => received = Some(inbound),
                    body if body.is_final() => {
                        let Some(answer) = Answer::of(&body) else { return Err(unknown()) };
                        let mut said = Message::assistant(answer.text);
                        if let Message::Assistant { tool_calls, .. } = &mut said {
                            *tool_calls = answer.calls.to_vec();
                        }
                        let inbound = received.ok_or_else(unknown)?;
                        return Ok(Self {
                            conversation: row.conversation,
                            text: inbound.text,
                            preamble: inbound.preamble,
                            asked: inbound.request,
                            answer: said,
                        });
                    }
                    _ => {}
                }
            }
        }
        Err(Fault::new(Code::Stale, "that response is not complete yet").at("previous_response_id"))
    }

    /// All that was said until then.
    fn messages(self) -> Vec<Message> {
        let mut messages = match self.asked.and_then(|asked| asked.thread) {
            Some(thread) => thread.messages,
            None => {
                let before = self.preamble.into_iter().map(|(role, text)| match role.as_str() {
                    "assistant" => Message::assistant(text),
                    _ => Message::user(text),
                });
                before.chain([Message::user(self.text)]).collect()
            }
        };
        messages.push(self.answer);
        messages
    }
}
