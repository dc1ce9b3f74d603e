//! Types that exist only for the OpenAPI description: ids with their patterns, enumerations with all their values, events.
//! Handlers use them as `value_type` of fields whose own types belong to the core, which does not depend on OpenAPI.

use std::borrow::Cow;

use annie_core::{breaker, event, ids, outcome, route};
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

/// The pattern of an id: its prefix and a UUID without hyphens.
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
    /// A priority class, most urgent first.
    Priority, |object| object.enum_values(Some(event::Priority::ALL.map(event::Priority::as_str)))
);
text_schema!(
    /// A priority class of tasks in the queue. `realtime` is reserved for voice.
    QueuedPriority,
    |object| object.enum_values(Some(["high", "normal", "low", "background"]))
);
text_schema!(
    /// The mode of a turn.
    Mode, |object| object.enum_values(Some(["multi_agent", "single_loop", "direct"]))
);
text_schema!(
    /// The state of a task.
    TaskState,
    |object| object.enum_values(Some(["queued", "running", "suspended", "completed", "failed", "cancelled"]))
);
text_schema!(
    /// How an answered task ended.
    AnswerOutcome,
    |object| object.enum_values(Some(["done", "paused", "declined", "no_action", "gave_up", "incomplete"]))
);
text_schema!(
    /// The status of a skill run.
    SkillStatus, |object| object.enum_values(Some(outcome::Status::ALL.map(outcome::Status::as_str)))
);
text_schema!(
    /// The state of a skill's breaker.
    BreakerState, |object| object.enum_values(Some(breaker::BreakerState::ALL.map(breaker::BreakerState::as_str)))
);
text_schema!(
    /// The state of a model backend.
    BackendState, |object| object.enum_values(Some(route::BackendState::ALL.map(route::BackendState::as_str)))
);
text_schema!(
    /// The state of a dead letter.
    DeadLetterState, |object| object.enum_values(Some(["waiting", "retried", "discarded", "archived"]))
);
text_schema!(
    /// The effect of running a skill again.
    Effect, |object| object.enum_values(Some(["read", "idempotent", "once"]))
);
text_schema!(
    /// A scope of an API key.
    KeyScope, |object| object.enum_values(Some(auth::KeyScope::ALL.map(auth::KeyScope::as_str)))
);
text_schema!(
    /// A user's id: 1 to 128 bytes without control characters.
    UserId, |object| object.min_length(Some(1)).max_length(Some(128)).pattern(Some(VISIBLE))
);

/// The pattern of texts without control characters and not only of white space.
pub const VISIBLE: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*[^\\u0000-\\u0020\\u007f-\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000][^\\u0000-\\u001f\\u007f-\\u009f]*$";

/// An event of a conversation's log: the `data` of a server-sent event that has an `id`. The remaining fields depend on `kind`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the core writes")]
pub struct Event {
    /// The conversation of the log.
    conversation_id: ConversationId,
    /// The sequence number in the log, from 1 without gaps; also the `id` of the server-sent event.
    seq: u64,
    /// RFC 3339 in UTC, with microseconds.
    #[schema(format = DateTime)]
    at: String,
    /// The task of the event.
    task_id: TaskId,
    /// The agent of the event.
    agent: String,
    /// The kind of event; also the `event` of the server-sent event. `answered`, `failed` and `cancelled` end a task.
    kind: String,
}

/// A piece of a round that is still being generated: the `data` of a server-sent event `draft`, which has no `id`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct Draft {
    /// The task of the round.
    task_id: TaskId,
    /// The number of the round within the task.
    round: u32,
    /// A further piece of the answer.
    text: Option<String>,
    /// A further piece of the reasoning before the answer.
    reasoning: Option<String>,
}

/// The requested sequence number does not exist: the `data` of a server-sent event `reset`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct Reset {
    /// The last sequence number of the log.
    last_seq: u64,
}

/// The stream ends with an error: the `data` of a server-sent event `error`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct StreamError {
    /// The stable name of the error, as in a problem.
    code: String,
    /// What is wrong.
    detail: String,
}

/// A server-sent event of a conversation's stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct SentEvent {
    /// The sequence number of the event, after which the stream is resumed; absent for items that are not stored.
    id: Option<String>,
    /// The kind of the event, or `draft`, `reset`, `error`.
    event: String,
    /// A `StreamData` as JSON on one line.
    data: String,
}

/// A server-sent event of a user's notifications.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub struct SentNotice {
    /// The id of the notification, after which the stream is resumed.
    id: Option<String>,
    /// `notification`, or `error`.
    event: String,
    /// A `Notice` or a `StreamError` as JSON on one line.
    data: String,
}

/// The `data` of a server-sent event.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what the stream writes")]
pub enum StreamData {
    /// Sent with an `id`.
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
    use std::collections::BTreeSet;

    use annie_core::{dead_letter, ids::Seq, message::Finish, ports, skill};
    use serde_json::Value;

    use super::*;
    use crate::api::AgentStatus;

    fn words<T: PartialSchema>() -> Vec<String> {
        let schema = serde_json::to_value(T::schema()).unwrap();
        schema["enum"].as_array().unwrap().iter().map(|w| w.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn schema_enum_values_parse_in_core() {
        for word in words::<TaskState>() {
            assert_eq!(word.parse::<ports::TaskState>().unwrap().as_str(), word);
        }
        for word in words::<DeadLetterState>() {
            assert_eq!(word.parse::<dead_letter::DeadLetterState>().unwrap().as_str(), word);
        }
        let queued = event::Priority::ALL.into_iter().filter(|p| *p != event::Priority::Realtime);
        assert_eq!(words::<QueuedPriority>(), queued.map(event::Priority::as_str).collect::<Vec<_>>());
        for word in words::<Mode>() {
            serde_json::from_value::<event::Mode>(Value::String(word)).unwrap();
        }
        for word in words::<Effect>() {
            serde_json::from_value::<skill::Effect>(Value::String(word)).unwrap();
        }
        for word in words::<SkillStatus>() {
            serde_json::from_value::<outcome::Status>(Value::String(word)).unwrap();
        }
        for word in words::<BreakerState>() {
            serde_json::from_value::<breaker::BreakerState>(Value::String(word)).unwrap();
        }
        for word in words::<BackendState>() {
            serde_json::from_value::<route::BackendState>(Value::String(word)).unwrap();
        }
    }

    #[test]
    fn schema_agent_statuses_are_those_of_reports_and_refused() {
        let mut described = words::<AgentStatus>();
        assert_eq!(described.pop().as_deref(), Some(AgentStatus::Refused.as_str()));
        for word in described {
            let word = Value::String(word);
            let status = AgentStatus::from(serde_json::from_value::<event::ReportStatus>(word.clone()).unwrap());
            assert_eq!(
                (serde_json::to_value(status).unwrap(), status.as_str()),
                (word.clone(), word.as_str().unwrap())
            );
        }
    }

    #[test]
    fn schema_answer_outcomes_are_the_words_of_core() {
        let ends = [(false, Finish::Stop), (true, Finish::Stop), (false, Finish::Length)];
        let outcomes = [
            event::AnswerOutcome::Done,
            event::AnswerOutcome::Declined,
            event::AnswerOutcome::NoAction,
            event::AnswerOutcome::GaveUp,
        ];
        let words_of =
            |outcome: event::AnswerOutcome| ends.map(|(paused, finish)| outcome.word(paused, finish).to_owned());
        let found: BTreeSet<String> = outcomes.into_iter().flat_map(words_of).collect();
        let described: BTreeSet<String> = words::<AnswerOutcome>().into_iter().collect();
        assert_eq!(described, found);
    }

    /// Collects the names of text properties that are named like a time and are not described as one.
    fn undescribed_times(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (name, property) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
                    let is_time = name.ends_with("_at") || name.ends_with("since") || name == "at" || name == "until";
                    let is_text = property["type"] == "string" || property["type"][0] == "string";
                    if is_time && is_text && property["format"] != "date-time" {
                        found.push(name.clone());
                    }
                }
                object.values().for_each(|value| undescribed_times(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| undescribed_times(item, found)),
            _ => {}
        }
    }

    #[test]
    fn schema_times_have_the_format_date_time() {
        let mut found = Vec::new();
        undescribed_times(&crate::http::document(), &mut found);
        assert_eq!(found, Vec::<String>::new(), "add #[schema(format = DateTime)] to these fields");
    }

    #[test]
    fn schema_event_has_fields_of_stored_event() {
        let new = event::NewEvent {
            at: annie_core::time::Micros(1),
            task: ids::TaskId::from_uuid(uuid::Uuid::nil()),
            agent: ids::AgentId::orchestrator(),
            body: event::EventBody::Continued { by: "ann".to_owned() },
        };
        let real = event::Event::placed(ids::ConversationId::from_uuid(uuid::Uuid::nil()), Seq(1), new);
        let real = crate::api::shown_event(&real);
        let described = serde_json::to_value(Event::schema()).unwrap();
        for field in described["required"].as_array().unwrap() {
            assert!(real.get(field.as_str().unwrap()).is_some(), "{field} in {real}");
        }
    }
}
