//! Replays of conversations: the state at an event, differences, the comparison with the log, and copies.

use annie_actors::{Copy, EXPORT_MARK, EXPORT_VERSION, ImportPart, ReplayRequest, Replayed};
use annie_core::{
    event::Event,
    ids::{ConversationId, Seq},
    replay::redacted,
    time::Micros,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::row::{
    Call, Operation,
    Verb::{Get, Post},
    route,
};
use crate::{
    api::{
        page::{self, Page},
        shown_event,
    },
    auth::{KeyScope::Chat, Need::Scope},
    error::ApiError,
    grpc::{
        convert::{maybe_id, path_id},
        v1,
    },
    http::{
        extract::{Args, Body, Id},
        schema,
    },
};

/// The fields of a state that hold times.
const TIMES: [&str; 6] = ["engine_at", "started_at", "deferred_until", "since", "counts_from", "not_before"];

/// The operations on replays and copies.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/conversations/{id}/replay", Scope(Chat), replay, Replay::from)
            .about("replay_conversation", "replay", REPLAY, "replay")
            .rpc("/annie.v1.Replay/Show", asked, replayed),
        route(Post, "/api/v1/conversations/{id}/fork", Scope(Chat), fork, Copied::from)
            .about("fork_conversation", "replay", FORK, "conversations fork")
            .rpc("/annie.v1.Replay/Fork", asked_fork, copied),
        route(Get, "/api/v1/conversations/{id}/export", Scope(Chat), export, Export::from)
            .about("export_conversation", "replay", EXPORT, "conversations export")
            .rpc("/annie.v1.Replay/Export", asked_export, exported),
        route(Post, "/api/v1/conversations/import", Scope(Chat), import, Copied::from)
            .about("import_conversation", "replay", IMPORT, "conversations import")
            .rpc("/annie.v1.Replay/Import", asked_import, copied),
    ]
}

const REPLAY: &str =
    "Fold the log of a conversation again: its state after an event, differences, and whether all decisions agree.";
const FORK: &str = "Begin a new conversation with the history of this one up to an event. No effect is repeated.";
const EXPORT: &str = "Export the log of a conversation as stored, a page of lines at a time.";
const IMPORT: &str =
    "Import an exported conversation under a new id. Its events become records, which are not carried out.";

/// A replayed conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Replay {
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The sequence number of the last event that was folded.
    seq: u64,
    /// The sequence number of the last event of the log.
    last_seq: u64,
    /// The last event that was folded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Event>)]
    event: Option<Value>,
    /// Turns with their plan and open calls, waiting messages, outstanding directives, and what the core decides next.
    #[schema(value_type = Object)]
    state: Value,
    /// The differences from the state at `from`: `path`, `before`, `after`. Absent without `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    differences: Option<Value>,
    /// The result of the comparison: `events`, `decisions`, `diverged`, `divergences`. Absent without `check`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    check: Option<Value>,
}

impl From<Replayed> for Replay {
    fn from(replayed: Replayed) -> Self {
        let Replayed { id, last, event, state, differences, check } = replayed;
        let json = |value: Result<Value, serde_json::Error>| {
            let mut value = value.unwrap_or_default();
            show_times(&mut value);
            value
        };
        Self {
            conversation_id: id,
            seq: state.seq.0,
            last_seq: last.0,
            event: event.as_ref().map(shown_event),
            state: json(serde_json::to_value(&state)),
            differences: differences.map(|all| json(serde_json::to_value(all))),
            check: check.map(|check| serde_json::to_value(check).unwrap_or_default()),
        }
    }
}

/// Makes RFC 3339 times of those in a state, which are in microseconds.
fn show_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match field.as_i64().filter(|_| TIMES.contains(&key.as_str())) {
                    Some(us) => *field = Micros(us).to_string().into(),
                    None => show_times(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(show_times),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReplayArgs {
    /// The last event that is folded; the last one of the log by default.
    #[param(minimum = 1)]
    until: Option<u64>,
    /// The event with whose state the state is compared.
    #[param(minimum = 1)]
    from: Option<u64>,
    /// Compare the decisions of the core with those that are stored.
    #[serde(default)]
    check: bool,
}

fn asked(asked: v1::ReplayRequest) -> Result<(Id<ConversationId>, Args<ReplayArgs>), ApiError> {
    let v1::ReplayRequest { conversation_id, until_seq, from_seq, check } = asked;
    let args = ReplayArgs { until: given(until_seq), from: given(from_seq), check };
    Ok((path_id("conversation_id", &conversation_id)?, Args(args)))
}

fn given(seq: u64) -> Option<u64> {
    Some(seq).filter(|seq| *seq != 0)
}

fn replayed(replayed: Replayed) -> v1::ReplayResponse {
    let agrees = replayed.check.as_ref().is_none_or(annie_core::replay::Check::agrees);
    let shown = Replay::from(replayed);
    v1::ReplayResponse {
        conversation_id: shown.conversation_id.to_string(),
        seq: shown.seq,
        last_seq: shown.last_seq,
        json: json!(shown).to_string(),
        agrees,
    }
}

async fn replay(
    call: Call,
    (Id(id), Args(args)): (Id<ConversationId>, Args<ReplayArgs>),
) -> Result<Replayed, ApiError> {
    let what = ReplayRequest { until: args.until.map(Seq), from: args.from.map(Seq), check: args.check };
    Ok(call.state.kernel.replay(call.caller.scope(), id, what).await?)
}

/// A copy of a conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Copied {
    /// The new conversation.
    #[schema(value_type = schema::ConversationId)]
    conversation_id: ConversationId,
    /// The sequence number of its last event.
    last_seq: u64,
}

impl From<Copy> for Copied {
    fn from(copy: Copy) -> Self {
        Self { conversation_id: copy.conversation, last_seq: copy.last.0 }
    }
}

fn copied(copy: Copy) -> v1::CopyResponse {
    v1::CopyResponse { conversation_id: copy.conversation.to_string(), last_seq: copy.last.0 }
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// The last event whose state the copy has; the last one of the log by default.
    #[schema(minimum = 1)]
    at: Option<u64>,
}

fn asked_fork(asked: v1::ForkRequest) -> Result<(Id<ConversationId>, Body<Fork>), ApiError> {
    Ok((path_id("conversation_id", &asked.conversation_id)?, Body(Fork { at: given(asked.at_seq) })))
}

async fn fork(call: Call, (Id(id), Body(fork)): (Id<ConversationId>, Body<Fork>)) -> Result<Copy, ApiError> {
    let copy = call.state.kernel.fork(call.caller.scope(), id, fork.at.map(Seq)).await?;
    tracing::info!(conversation = %id, copy = %copy.conversation, by = call.caller.name(), "a conversation was forked");
    Ok(copy)
}

/// A page of an export.
#[derive(Debug, Serialize, ToSchema)]
pub struct Export {
    /// One object for each line of the export. The first line of the first page names the version.
    #[schema(value_type = Vec<Object>)]
    lines: Vec<Value>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExportPage {
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^[0-9]{0,18}$")]
    next: Option<String>,
    /// The maximum number of events; 100 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
    /// Replace the texts of people, models and skills.
    #[serde(default)]
    redact: bool,
}

impl From<Page<Value>> for Export {
    fn from(page: Page<Value>) -> Self {
        Self { lines: page.rows, next: page.next }
    }
}

fn exported(page: Page<Value>) -> v1::ExportConversationResponse {
    let lines = page.rows.iter().map(Value::to_string).collect();
    v1::ExportConversationResponse { lines, next: page.next.unwrap_or_default() }
}

fn asked_export(asked: v1::ExportConversationRequest) -> Result<(Id<ConversationId>, Args<ExportPage>), ApiError> {
    let v1::ExportConversationRequest { conversation_id, next, limit, redact } = asked;
    let page = ExportPage { next: Some(next), limit: page::text_of(limit), redact };
    Ok((path_id("conversation_id", &conversation_id)?, Args(page)))
}

async fn export(
    call: Call,
    (Id(id), Args(asked)): (Id<ConversationId>, Args<ExportPage>),
) -> Result<Page<Value>, ApiError> {
    let limit = page::EVENTS.of_text(asked.limit.as_deref())?;
    let after: u64 = page::cursor(asked.next.as_deref())?.unwrap_or(0);
    let events = call.state.kernel.events(call.caller.scope(), id, Seq(after), limit).await?;
    let line = |event: &Event| if asked.redact { redacted(event) } else { json!(event) };
    let Page { rows, next } = Page::of(events, limit, |event| event.seq.0);
    let mut lines: Vec<Value> = rows.iter().map(line).collect();
    if after == 0 {
        let version = env!("CARGO_PKG_VERSION");
        lines.insert(
            0,
            json!({EXPORT_MARK: EXPORT_VERSION, "conversation": id, "annie": version, "redacted": asked.redact}),
        );
    }
    Ok(Page { rows: lines, next })
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// Lines of an export, each a JSON object. The limit of a request's body holds: send more than that in parts.
    lines: String,
    /// The conversation that an earlier part began.
    #[serde(default)]
    #[schema(value_type = Option<schema::ConversationId>)]
    conversation_id: Option<ConversationId>,
    /// Further parts follow.
    #[serde(default)]
    is_partial: bool,
}

fn asked_import(asked: v1::ImportConversationRequest) -> Result<Body<Import>, ApiError> {
    let v1::ImportConversationRequest { lines, conversation_id, is_partial } = asked;
    let conversation_id = maybe_id("conversation_id", &conversation_id)?;
    Ok(Body(Import { lines, conversation_id, is_partial }))
}

async fn import(call: Call, Body(import): Body<Import>) -> Result<Copy, ApiError> {
    let Import { lines, conversation_id, is_partial } = import;
    let part = ImportPart { into: conversation_id, lines, is_partial };
    Ok(call.state.kernel.import(&call.caller.user, part).await?)
}
