//! The search over the events of all conversations.

use annie_core::{
    event::{EVENT_KINDS, Event, Scope as DataScope},
    ids::Seq,
    ports::{Before, ConversationRow},
    time::Micros,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::row::{Call, Operation, Verb::Get, route};
use crate::{
    api::{page, shown_event},
    auth::{
        KeyScope::{Admin, Chat},
        Need::Scope,
    },
    error::ApiError,
    grpc::{convert, v1},
    http::{
        extract::{Args, time},
        schema,
    },
};

/// Conversations that one page searches. With [`EVENTS_READ_MAX`] it bounds what one request reads.
const CONVERSATIONS_MAX: u32 = 20;
/// Events of one conversation that are searched: the newest ones.
const EVENTS_READ_MAX: u64 = 2_000;
/// Matches of one conversation on a page: the newest ones.
const MATCHES_OF_ONE_MAX: usize = 100;
/// A page ends after the conversation with which it has this many matches.
const MATCHES_ENOUGH: usize = 200;
/// Events of one read.
const READ_ROWS: u32 = 500;

/// The search.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/events", Scope(Chat), search_events, FoundEvents::from)
            .about("search_events", "chat", SEARCH, "events")
            .rpc("/annie.v1.Events/Search", asked, found),
    ]
}

const SEARCH: &str = "Search the events of your conversations, those that changed last first. With the scope `admin` and \
    `everyone` the\nconversations of all users are searched.";

/// What a search found.
pub struct Found {
    events: Vec<Event>,
    searched: u32,
    left_out: u64,
    cursor: Option<String>,
}

/// Events of several conversations.
#[derive(Debug, Serialize, ToSchema)]
pub struct FoundEvents {
    /// Newest first within this page. `kind` determines the other fields.
    #[schema(value_type = Vec<schema::Event>)]
    events: Vec<Value>,
    /// How many conversations this page searched.
    searched: u32,
    /// Events of these conversations that were not searched because they are too old, and matches beyond those of this page.
    left_out: u64,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

impl From<Found> for FoundEvents {
    fn from(found: Found) -> Self {
        let Found { events, searched, left_out, cursor } = found;
        Self { events: events.iter().map(shown_event).collect(), searched, left_out, cursor }
    }
}

fn found(found: Found) -> v1::SearchEventsResponse {
    let Found { events, searched, left_out, cursor } = found;
    let events = events.iter().map(convert::event).collect();
    v1::SearchEventsResponse { events, searched, left_out, cursor: cursor.unwrap_or_default() }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsFilter {
    /// Only events of this kind, such as `failed`.
    kind: Option<String>,
    /// Only events that contain this text, in any field, in capital or small letters.
    text: Option<String>,
    /// Only events at this time or later, RFC 3339.
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Micros>,
    /// Only events before this time, RFC 3339.
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>, format = DateTime)]
    before: Option<Micros>,
    /// Search the conversations of all users. Requires the scope `admin`.
    #[serde(default)]
    everyone: bool,
    /// The `cursor` of an earlier page; this page continues after its conversations.
    #[param(pattern = "^([0-9]{1,18}_[0-9a-f]{32})?$")]
    cursor: Option<String>,
}

fn asked(asked: v1::SearchEventsRequest) -> Result<Args<EventsFilter>, ApiError> {
    let v1::SearchEventsRequest { kind, text, from_us, before_us, everyone, cursor } = asked;
    let (from, before) = (from_us.map(Micros), before_us.map(Micros));
    Ok(Args(EventsFilter { kind: Some(kind), text: Some(text), from, before, everyone, cursor: Some(cursor) }))
}

/// The filter as it is compared.
struct Wanted {
    kind: String,
    text: String,
    from: Option<Micros>,
    before: Option<Micros>,
}

impl Wanted {
    fn fits(&self, event: &Event) -> bool {
        let is_in_time = self.from.is_none_or(|from| event.at >= from) && self.before.is_none_or(|end| event.at < end);
        let is_of_kind = self.kind.is_empty() || event.body.kind() == self.kind;
        is_in_time
            && is_of_kind
            && (self.text.is_empty() || shown_event(event).to_string().to_lowercase().contains(&self.text))
    }
}

async fn search_events(call: Call, Args(filter): Args<EventsFilter>) -> Result<Found, ApiError> {
    let EventsFilter { kind, text, from, before, everyone, cursor } = filter;
    let scope = if everyone {
        call.caller.must(Admin).map_err(|error| error.at("everyone"))?;
        DataScope::Operator
    } else {
        call.caller.scope()
    };
    if let Some(kind) = kind.as_deref().filter(|kind| !kind.is_empty() && !EVENT_KINDS.contains(kind)) {
        let why = format!("there are no events of the kind {kind:?}; the kinds are {}", EVENT_KINDS.join(", "));
        return Err(ApiError::invalid(why).at("kind"));
    }
    let wanted =
        Wanted { kind: kind.unwrap_or_default(), text: text.unwrap_or_default().trim().to_lowercase(), from, before };
    let start: Before = page::before(cursor.as_deref()).map_err(|error| error.at("cursor"))?;
    let rows = call.state.kernel.conversations(scope.clone(), start, CONVERSATIONS_MAX, true).await?;
    let mut found = Found { events: Vec::new(), searched: 0, left_out: 0, cursor: None };
    for row in rows.iter().filter(|row| row.deleted_at.is_none()) {
        // Conversations come in the order of their last event, so that all further ones are older too.
        if from.is_some_and(|from| row.updated_at < from) {
            return Ok(sorted(found));
        }
        search_one(&call, &scope, row, &wanted, &mut found).await?;
        found.searched += 1;
        let is_last = rows.len() < CONVERSATIONS_MAX as usize && found.searched as usize == rows.len();
        found.cursor = (!is_last).then(|| row.page_start().to_string());
        if found.events.len() >= MATCHES_ENOUGH {
            break;
        }
    }
    Ok(sorted(found))
}

fn sorted(mut found: Found) -> Found {
    found.events.sort_by_key(|event| std::cmp::Reverse((event.at, event.conversation, event.seq)));
    found
}

async fn search_one(
    call: &Call,
    scope: &DataScope,
    row: &ConversationRow,
    wanted: &Wanted,
    found: &mut Found,
) -> Result<(), ApiError> {
    let mut after = row.last_seq.0.saturating_sub(EVENTS_READ_MAX);
    found.left_out += after;
    let mut matches = Vec::new();
    loop {
        let events = call.state.kernel.events(scope.clone(), row.id, Seq(after), READ_ROWS).await?;
        let (Some(last), is_end) = (events.last().map(|event| event.seq.0), events.len() < READ_ROWS as usize) else {
            break;
        };
        matches.extend(events.into_iter().filter(|event| wanted.fits(event)));
        after = last;
        // Events that arrive during the search belong to the next one.
        if is_end || after >= row.last_seq.0 {
            break;
        }
    }
    let surplus = matches.len().saturating_sub(MATCHES_OF_ONE_MAX);
    found.left_out += surplus as u64;
    found.events.extend(matches.into_iter().skip(surplus));
    Ok(())
}
