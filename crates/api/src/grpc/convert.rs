//! Conversions between the kernel's types and the protobuf messages.

use std::str::FromStr;

use annie_actors::{NodeInfo, Submitted};
use annie_core::{
    event::{Event, Mode, Priority},
    ids::{IdError, TaskId},
    ports::{Draft, TaskState},
};
use tonic::Status;

use super::{refused, v1};
use crate::{
    api::{FeedItem, shown_event},
    error::ApiError,
    http::extract::Id,
};

/// Parses the id in a field.
pub fn id<T: FromStr<Err = IdError>>(field: &'static str, text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|e: IdError| ApiError::from(e).at(field))
}

/// Parses the id in a field, which HTTP has in its path.
pub fn path_id<T: FromStr<Err = IdError>>(field: &'static str, text: &str) -> Result<Id<T>, ApiError> {
    id(field, text).map(Id)
}

/// Parses the id in a field that may be empty.
pub fn maybe_id<T: FromStr<Err = IdError>>(field: &'static str, text: &str) -> Result<Option<T>, ApiError> {
    if text.is_empty() { Ok(None) } else { id(field, text).map(Some) }
}

pub fn priority(number: i32) -> Result<Option<Priority>, ApiError> {
    Ok(match v1::Priority::try_from(number) {
        Ok(v1::Priority::Unspecified) => None,
        Ok(v1::Priority::Realtime) => Some(Priority::Realtime),
        Ok(v1::Priority::High) => Some(Priority::High),
        Ok(v1::Priority::Normal) => Some(Priority::Normal),
        Ok(v1::Priority::Low) => Some(Priority::Low),
        Ok(v1::Priority::Background) => Some(Priority::Background),
        Err(_) => return Err(ApiError::invalid(format!("there is no priority {number}")).at("priority")),
    })
}

pub fn mode(number: i32) -> Result<Option<Mode>, ApiError> {
    Ok(match v1::Mode::try_from(number) {
        Ok(v1::Mode::Unspecified) => None,
        Ok(v1::Mode::MultiAgent) => Some(Mode::MultiAgent),
        Ok(v1::Mode::SingleLoop) => Some(Mode::SingleLoop),
        Ok(v1::Mode::Direct) => Some(Mode::Direct),
        Err(_) => return Err(ApiError::invalid(format!("there is no mode {number}")).at("mode")),
    })
}

pub const fn priority_of(priority: Priority) -> v1::Priority {
    match priority {
        Priority::Realtime => v1::Priority::Realtime,
        Priority::High => v1::Priority::High,
        Priority::Normal => v1::Priority::Normal,
        Priority::Low => v1::Priority::Low,
        Priority::Background => v1::Priority::Background,
    }
}

pub const fn state_of(state: TaskState) -> v1::TaskState {
    match state {
        TaskState::Queued => v1::TaskState::Queued,
        TaskState::Running => v1::TaskState::Running,
        TaskState::Suspended => v1::TaskState::Suspended,
        TaskState::Completed => v1::TaskState::Completed,
        TaskState::Failed => v1::TaskState::Failed,
        TaskState::Cancelled => v1::TaskState::Cancelled,
    }
}

/// The acknowledgement of a message.
pub fn submitted(submitted: Submitted) -> v1::SubmitResponse {
    let place = submitted.place.as_ref();
    v1::SubmitResponse {
        task_id: submitted.task.to_string(),
        conversation_id: submitted.conversation.to_string(),
        seq: submitted.seq.0,
        repeated: submitted.repeated,
        position: place.map(|p| p.position as u64),
        start_in_ms: place.map(|p| p.start_in_ms),
        priority: priority_of(submitted.priority).into(),
        is_job_command: submitted.is_job_command,
        same_as: place.and_then(|p| p.same_as).map(|task| task.to_string()).unwrap_or_default(),
    }
}

pub fn event(event: &Event) -> v1::Event {
    v1::Event {
        conversation_id: event.conversation.to_string(),
        seq: event.seq.0,
        at_us: event.at.0,
        task_id: event.task.to_string(),
        agent: event.agent.to_string(),
        kind: event.body.kind().to_owned(),
        json: shown_event(event).to_string(),
    }
}

fn draft(task: TaskId, round: u32, draft: Draft) -> v1::Draft {
    let piece = match draft {
        Draft::Text(text) => v1::draft::Piece::Text(text),
        Draft::Reasoning(text) => v1::draft::Piece::Reasoning(text),
    };
    v1::Draft { task_id: task.to_string(), round, piece: Some(piece) }
}

/// The error that ends a stream which the client should resume.
pub fn again() -> Status {
    let why = "the stream ends here; resume it from the last place that you have";
    refused(ApiError::new(crate::error::Code::Unavailable, why).retry_in_ms(2_000))
}

/// An item of a stream, or the error that ends it.
pub fn stream_item(item: FeedItem) -> Result<v1::StreamItem, Status> {
    use v1::stream_item::Item;
    let item = match item {
        FeedItem::Event(stored) => Item::Event(event(&stored)),
        FeedItem::Draft { task, round, draft: piece } => Item::Draft(draft(task, round, piece)),
        FeedItem::Reset(last) => Item::ResetToSeq(last.0),
        FeedItem::Again => return Err(again()),
    };
    Ok(v1::StreamItem { item: Some(item) })
}

pub fn actor(info: NodeInfo) -> v1::Actor {
    v1::Actor {
        path: info.path.to_string(),
        kind: info.kind.to_owned(),
        incarnation: info.incarnation.0,
        status: info.status,
        started_at_us: info.started_at.0,
        mailbox_depth: info.mailbox_depth as u64,
        mailbox_max: info.mailbox_max as u64,
        handled: info.handled,
        refused: info.refused,
        busy_us: info.busy_us,
        current: info.current.unwrap_or_default().to_owned(),
        current_ms: info.current_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_priority_and_mode_conversion_round_trips() {
        for class in Priority::ALL {
            assert_eq!(priority(priority_of(class).into()).unwrap(), Some(class));
        }
        assert_eq!(priority(0).unwrap(), None);
        assert_eq!(priority(9).unwrap_err().code.grpc(), tonic::Code::InvalidArgument);
        assert_eq!(mode(2).unwrap(), Some(Mode::SingleLoop));
        assert_eq!(mode(-1).unwrap_err().code.grpc(), tonic::Code::InvalidArgument);
    }
}
