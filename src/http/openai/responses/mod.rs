//! `POST /v1/responses`: the interface that agent libraries use today. A response's id is its task's, so that
//! `previous_response_id` leads to what was said before: to its conversation where Annie keeps it, and to its messages where
//! the client has tools of its own.

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
    attempt::{Asked, Attempt},
    request::{mode_of, newest},
    thread,
    turn::{Answer, TurnWish, begin, failed, name_conversation, on_behalf, streamed},
};
use crate::{
    auth::Caller,
    door::{AppState, Where},
    error::Fault,
    http::{extract::Hashed, messages::client_id},
};

/// The handler.
pub async fn create(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    Hashed(request, body_sha256, len_bytes): Hashed<ResponseRequest>,
) -> Result<Response, Fault> {
    let caller = on_behalf(caller, &headers)?;
    request.check()?;
    let mode = mode_of(&request.model)?;
    let named = request.conversation(&headers);
    let key = client_id(None, &headers)?;
    let this = Asked { surface: "responses", place: named.as_ref(), body_sha256 };
    let attempt = Attempt::of(&state, &caller, &headers, key.as_deref(), this).await?;
    let previous = match request.previous() {
        Some(id) => {
            let known_as = key.as_deref().or_else(|| attempt.as_ref()?.earlier());
            Some(Previous::read(&state, &caller, id, known_as).await?)
        }
        None => None,
    };
    let stateless = named.is_none();
    // What the request brings itself needs no more room than its body.
    let bytes_max = THREAD_BYTES_MAX.saturating_sub(len_bytes);
    let wish = wish(&request, previous, named, bytes_max).await?;
    let begun = begin(&state, caller, (key, attempt), TurnWish { stateless, mode, ..wish }).await?;
    let label = Label::new(&request, begun.task, state.kernel.now());
    let (task, conversation) = (begun.task, begun.conversation);
    let mut response = if request.stream == Some(true) {
        // Of a repeat, drafts may have gone by; and only a whole answer was held against its form.
        let with_drafts = !begun.repeated && !request.is_formed();
        streamed(begun.feed, Events::new(label, task, with_drafts), begun.stay)
    } else {
        let event = begun.end(&state).await?;
        let Some(answer) = Answer::of(&event.body) else { return Err(failed(&event.body)) };
        Json(whole(&label, &answer)).into_response()
    };
    name_conversation(&mut response, conversation);
    Ok(response)
}

/// The turn that a request means: the model's own loop on the client's messages where tools of the client are in play, else a
/// message in a conversation. Of an earlier response's messages it takes so many bytes at most.
async fn wish(
    request: &ResponseRequest,
    previous: Option<Previous>,
    named: Option<Where>,
    bytes_max: usize,
) -> Result<TurnWish, Fault> {
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
        return Ok(TurnWish { place: named, stateless: true, mode: None, text, preamble: Vec::new(), request });
    }
    let said = request.said()?;
    let mut preamble = said.before;
    let mut place = named;
    if let Some(previous) = previous {
        if place.is_none() && previous.goes_on {
            place = Some(Where::Id(previous.conversation.to_string()));
        } else {
            // Another response went on from there already: this one gets a conversation of its own with the same beginning.
            preamble.splice(0..0, previous.spoken().await?);
        }
    }
    let request = CallerRequest { options, instructions: said.instructions, thread: None };
    Ok(TurnWish { place, stateless: true, mode: None, text: said.text, preamble: newest(preamble), request })
}
