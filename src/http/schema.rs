//! Types that only describe: ids with their form, words with all their values, events. Handlers name them as the
//! `value_type` of a field whose own type belongs to the core, which knows no OpenAPI.

use std::borrow::Cow;

use annie_core::{event, ids};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr,
        schema::{ObjectBuilder, Schema, Type},
    },
};

use crate::auth;

macro_rules! text_schema {
    ($(#[$doc:meta])* $name:ident, |$object:ident| $described:expr) => {
        $(#[$doc])*
        pub enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let $object = ObjectBuilder::new().schema_type(Type::String);
                $described.into()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    };
}

/// The form of an id: its prefix and a UUID without hyphens.
fn id_pattern(prefix: &str) -> String {
    format!("^{prefix}_[0-9a-f]{{32}}$")
}

text_schema!(
    /// A task's id.
    TaskId, |object| object.pattern(Some(id_pattern(ids::TaskId::PREFIX)))
);
text_schema!(
    /// A conversation's id.
    ConversationId, |object| object.pattern(Some(id_pattern(ids::ConversationId::PREFIX)))
);
text_schema!(
    /// A long-running operation's id.
    OperationId, |object| object.pattern(Some(id_pattern(ids::OperationId::PREFIX)))
);
text_schema!(
    /// A class of tasks, most urgent first.
    Priority, |object| object.enum_values(Some(event::Priority::ALL.map(event::Priority::as_str)))
);
text_schema!(
    /// A class of tasks that wait in the queue: `realtime` is kept for voice.
    QueuedPriority,
    |object| object.enum_values(Some(["high", "normal", "low", "background"]))
);
text_schema!(
    /// How a turn is run.
    Mode, |object| object.enum_values(Some(["multi_agent", "single_loop", "direct"]))
);
text_schema!(
    /// Where a task stands.
    TaskState,
    |object| object.enum_values(Some(["queued", "running", "suspended", "completed", "failed", "cancelled"]))
);
text_schema!(
    /// Where a dead letter stands.
    LetterState, |object| object.enum_values(Some(["waiting", "retried", "discarded", "archived"]))
);
text_schema!(
    /// What running a skill again does.
    Effect, |object| object.enum_values(Some(["read", "idempotent", "once"]))
);
text_schema!(
    /// What a key may do.
    KeyScope, |object| object.enum_values(Some(auth::KeyScope::ALL.map(auth::KeyScope::as_str)))
);
text_schema!(
    /// A user's id: 1 to 128 bytes without control characters.
    UserId, |object| object.min_length(Some(1)).max_length(Some(128)).pattern(Some(VISIBLE))
);

/// Texts without control characters, and not of blanks alone.
pub const VISIBLE: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*[^\\u0000-\\u0020\\u007f-\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000][^\\u0000-\\u001f\\u007f-\\u009f]*$";

/// An event of a conversation's log: the `data` of a server-sent event that has an `id`. Besides these it has the fields of
/// its kind.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the core writes")]
pub struct Event {
    /// Whose log.
    conversation_id: ConversationId,
    /// Its place in the log, from 1 without gaps; also the `id` of the server-sent event.
    seq: u64,
    /// RFC 3339 in UTC, with microseconds.
    at: String,
    /// Which task it belongs to.
    task_id: TaskId,
    /// Which agent it is about.
    agent: String,
    /// What happened; also the `event` of the server-sent event. `answered`, `failed` and `cancelled` end a task.
    kind: String,
}

/// A piece of a round that is still being written: the `data` of a server-sent event `draft`, which has no `id`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct Draft {
    /// Which task.
    task_id: TaskId,
    /// Which round of it.
    round: u32,
    /// More of the answer.
    text: Option<String>,
    /// More of the reasoning before it.
    reasoning: Option<String>,
}

/// The place that was asked for does not exist: the `data` of a server-sent event `reset`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct Reset {
    /// The last place that there is.
    last_seq: u64,
}

/// The stream ends by a fault: the `data` of a server-sent event `error`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct StreamError {
    /// The kind as a stable word, as in a problem.
    code: String,
    /// What is wrong.
    detail: String,
}

/// A server-sent event of a conversation's stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct SentEvent {
    /// Its place in the log, to resume behind; absent for what is not stored.
    id: Option<String>,
    /// The event's kind, or `draft`, `reset`, `error`.
    event: String,
    /// A `StreamData` as JSON on one line.
    data: String,
}

/// A server-sent event of a user's notifications.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct SentNotice {
    /// Its place, to resume behind.
    id: Option<String>,
    /// `notification`, or `error`.
    event: String,
    /// A `Notice` or a `StreamError` as JSON on one line.
    data: String,
}

/// A server-sent event's `data`.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub enum StreamData {
    /// With an `id`.
    Event(Event),
    /// `event: draft`
    Draft(Draft),
    /// `event: reset`
    Reset(Reset),
    /// `event: error`
    Error(StreamError),
}

#[cfg(test)]
mod tests {
    use annie_core::{ids::Seq, letter, ports, skill};
    use serde_json::Value;

    use super::*;

    fn words<T: PartialSchema>() -> Vec<String> {
        let schema = serde_json::to_value(T::schema()).unwrap();
        schema["enum"].as_array().unwrap().iter().map(|w| w.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_described_word_is_one_that_the_core_reads() {
        for word in words::<TaskState>() {
            assert_eq!(word.parse::<ports::TaskState>().unwrap().as_str(), word);
        }
        for word in words::<LetterState>() {
            assert_eq!(word.parse::<letter::LetterState>().unwrap().as_str(), word);
        }
        let queued = event::Priority::ALL.into_iter().filter(|p| *p != event::Priority::Realtime);
        assert_eq!(words::<QueuedPriority>(), queued.map(event::Priority::as_str).collect::<Vec<_>>());
        for word in words::<Mode>() {
            serde_json::from_value::<event::Mode>(Value::String(word)).unwrap();
        }
        for word in words::<Effect>() {
            serde_json::from_value::<skill::Effect>(Value::String(word)).unwrap();
        }
    }

    #[test]
    fn described_event_has_the_fields_of_a_real_one() {
        let new = event::NewEvent {
            at: annie_core::time::Micros(1),
            task: ids::TaskId::from_uuid(uuid::Uuid::nil()),
            agent: ids::AgentId::orchestrator(),
            body: event::EventBody::Continued { by: "ann".to_owned() },
        };
        let real = event::Event::placed(ids::ConversationId::from_uuid(uuid::Uuid::nil()), Seq(1), new);
        let real = crate::door::shown_event(&real);
        let described = serde_json::to_value(Event::schema()).unwrap();
        for field in described["required"].as_array().unwrap() {
            assert!(real.get(field.as_str().unwrap()).is_some(), "{field} in {real}");
        }
    }
}
