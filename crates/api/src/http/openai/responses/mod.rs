//! `POST /v1/responses`, the API that current agent libraries use. The id of a response is the id of its task, so that
//! `previous_response_id` leads to the earlier messages: to the conversation if Annie keeps it, or to the messages of the
//! thread if the client has tools of its own.

mod events;
mod items;
mod previous;
mod request;

use annie_actors::THREAD_BYTES_MAX;
use annie_core::caller::{CallerRequest, Thread};
use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};

use self::{
    events::Events,
    items::{Label, whole},
    previous::Previous,
    request::ResponseRequest,
};
use super::{
    attempt::{Attempt, RequestIdentity},
    request::{mode_of, newest},
    thread,
    turn::{Answer, TurnOptions, begin, failed, name_conversation, on_behalf, streamed},
};
use crate::{
    api::{AppState, ConversationRef},
    auth::Caller,
    error::ApiError,
    http::{extract::Hashed, messages::client_id},
};

/// The handler.
pub async fn create(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    Hashed(request, body_sha256, len_bytes): Hashed<ResponseRequest>,
) -> Result<Response, ApiError> {
    let caller = on_behalf(caller, &headers)?;
    request.check()?;
    let mode = mode_of(&request.model)?;
    let named = request.conversation(&headers);
    let key = client_id(None, &headers)?;
    let identity = RequestIdentity { surface: "responses", conversation_ref: named.as_ref(), body_sha256 };
    let attempt = Attempt::of(&state, &caller, &headers, key.as_deref(), identity).await?;
    let previous = match request.previous() {
        Some(id) => {
            let known_as = key.as_deref().or_else(|| attempt.as_ref()?.earlier());
            Some(Previous::read(&state, &caller, id, known_as).await?)
        }
        None => None,
    };
    let stateless = named.is_none();
    // The body of the request itself counts against the limit of the thread.
    let bytes_max = THREAD_BYTES_MAX.saturating_sub(len_bytes);
    let options = options(&request, previous, named, bytes_max).await?;
    let begun = begin(&state, caller, (key, attempt), TurnOptions { stateless, mode, ..options }).await?;
    let label = Label::new(&request, begun.task, state.kernel.now());
    let (task, conversation) = (begun.task, begun.conversation);
    let mut response = if request.stream == Some(true) {
        // The drafts of a repeated request may be over. And only the whole answer was validated against a requested format.
        let with_drafts = !begun.repeated && !request.is_formed();
        streamed(begun.feed, Events::new(label, task, with_drafts), begun.guard)
    } else {
        let event = begun.end(&state).await?;
        let Some(answer) = Answer::of(&event.body) else { return Err(failed(&event.body)) };
        Json(whole(&label, &answer)).into_response()
    };
    name_conversation(&mut response, conversation);
    Ok(response)
}

/// The turn for a request. If tools of the client are involved, it is a loop on the client's messages; else it is a message in
/// a conversation. `bytes_max` limits the messages that are taken from an earlier response.
async fn options(
    request: &ResponseRequest,
    previous: Option<Previous>,
    named: Option<ConversationRef>,
    bytes_max: usize,
) -> Result<TurnOptions, ApiError> {
    let (options, tools) = request.options()?;
    if !tools.is_empty() || request.has_calls() || previous.as_ref().is_some_and(Previous::is_thread) {
        let with_skills = request.with_skills();
        let (system, messages) = match previous {
            Some(previous) => previous.messages(bytes_max).await?,
            None => (String::new(), Vec::new()),
        };
        let (system, messages) = request.thread(system, messages)?;
        let text = thread::title(&messages);
        let thread = Some(Thread { system, messages, tools, with_skills });
        let instructions = request.instructions.clone().unwrap_or_default();
        let request = CallerRequest { options, instructions, thread };
        return Ok(TurnOptions {
            conversation_ref: named,
            stateless: true,
            mode: None,
            text,
            preamble: Vec::new(),
            request,
        });
    }
    let prompt = request.prompt()?;
    let mut preamble = prompt.before;
    let mut conversation_ref = named;
    if let Some(previous) = previous {
        if conversation_ref.is_none() && previous.continues_here {
            conversation_ref = Some(ConversationRef::Id(previous.conversation.to_string()));
        } else {
            // Another response has already continued that conversation: this one gets a conversation of its own with the same
            // beginning.
            preamble.splice(0..0, previous.role_texts().await?);
        }
    }
    let request = CallerRequest { options, instructions: prompt.instructions, thread: None };
    Ok(TurnOptions {
        conversation_ref,
        stateless: true,
        mode: None,
        text: prompt.text,
        preamble: newest(preamble),
        request,
    })
}
