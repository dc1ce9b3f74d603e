//! Which stored events concern consumers outside the conversation. Every match is exhaustive, so that a new kind does not
//! compile before it is classified.

#![deny(clippy::wildcard_enum_match_arm)]

use super::{EventBody, Priority};
use crate::time::Micros;

/// A set of topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Topics(u8);

impl Topics {
    /// No topic.
    pub const NONE: Self = Self(0);
    /// A text for the user was stored that ends a task, changed what becomes of its dead letter, or asks for an approval.
    pub const FINAL_TEXT: Self = Self(1);
    /// A dead letter was stored, retried or moved.
    pub const DEAD_LETTER: Self = Self(1 << 1);
    /// A long-running operation began.
    pub const OPERATION: Self = Self(1 << 2);
    /// Something that decides when a task may run has changed: [`EventBody::status_change`].
    pub const STATUS: Self = Self(1 << 3);
    /// A run of a skill ended. It may have changed documents.
    pub const SKILL_RUN: Self = Self(1 << 4);

    /// The topics of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set if `applies`, otherwise none.
    #[must_use]
    pub const fn when(self, applies: bool) -> Self {
        if applies { self } else { Self::NONE }
    }

    /// Whether the sets have a topic in common.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A stored change of a task that decides when its next round may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusChange {
    /// The task has ended.
    Ended,
    /// A user suspended the task. The round under way is not cut off.
    Suspended,
    /// A user resumed the task.
    Resumed,
    /// No further round of the task starts before a time.
    Deferred {
        /// The earliest time of its next round.
        until: Micros,
        /// Whether its model failed. Then the task resumes as soon as that model answers again, if this is sooner.
        after_failure: bool,
    },
    /// The task has another class.
    Reprioritised(Priority),
}

impl EventBody {
    /// The topics of the event.
    #[must_use]
    pub const fn topics(&self) -> Topics {
        let of_status = Topics::STATUS.when(self.status_change().is_some());
        of_status.with(match self {
            Self::Failed { dead_letter, .. } => {
                Topics::FINAL_TEXT.with(Topics::DEAD_LETTER.when(dead_letter.is_some()))
            }
            Self::Answered { .. } | Self::Cancelled { .. } | Self::ApprovalRequested { .. } => Topics::FINAL_TEXT,
            Self::Received(inbound) => Topics::DEAD_LETTER.when(inbound.retry.is_some()),
            Self::DeadLetterDue { .. } => Topics::DEAD_LETTER,
            Self::DeadLetterMoved { .. } => Topics::FINAL_TEXT.with(Topics::DEAD_LETTER),
            Self::SkillFinished { outcome, .. } => {
                Topics::SKILL_RUN.with(Topics::OPERATION.when(outcome.operation.is_some()))
            }
            Self::Joined { .. }
            | Self::TurnStarted { .. }
            | Self::RoundBegan { .. }
            | Self::RoundNotBegun { .. }
            | Self::ModelReplied { .. }
            | Self::ModelFailed { .. }
            | Self::InterfaceChanged { .. }
            | Self::LoopDetected { .. }
            | Self::SkillStarted { .. }
            | Self::AgentStarted { .. }
            | Self::AgentReported { .. }
            | Self::AgentSteered { .. }
            | Self::SteeringTaken { .. }
            | Self::AgentStopRequested { .. }
            | Self::CancelRequested { .. }
            | Self::Decided { .. }
            | Self::ApprovalDecided { .. }
            | Self::ResultsGiven
            | Self::Resumed { .. }
            | Self::Suspended { .. }
            | Self::Continued { .. }
            | Self::Reprioritised { .. }
            | Self::DeadlinePassed { .. }
            | Self::Deferred { .. }
            | Self::Retried { .. }
            | Self::Ordered { .. }
            | Self::Copied(_)
            | Self::Compacted(_) => Topics::NONE,
        })
    }

    /// What the event changes about when its task may run; `None` if nothing.
    #[must_use]
    pub const fn status_change(&self) -> Option<StatusChange> {
        match self {
            Self::Suspended { .. } => Some(StatusChange::Suspended),
            Self::Continued { .. } => Some(StatusChange::Resumed),
            Self::Deferred { until, after_failure, .. } => {
                Some(StatusChange::Deferred { until: *until, after_failure: *after_failure })
            }
            Self::Reprioritised { priority, .. } => Some(StatusChange::Reprioritised(*priority)),
            Self::Answered { .. } | Self::Failed { .. } | Self::Cancelled { .. } => Some(StatusChange::Ended),
            Self::Received(_)
            | Self::Joined { .. }
            | Self::TurnStarted { .. }
            | Self::RoundBegan { .. }
            | Self::RoundNotBegun { .. }
            | Self::ModelReplied { .. }
            | Self::ModelFailed { .. }
            | Self::InterfaceChanged { .. }
            | Self::LoopDetected { .. }
            | Self::SkillStarted { .. }
            | Self::SkillFinished { .. }
            | Self::AgentStarted { .. }
            | Self::AgentReported { .. }
            | Self::AgentSteered { .. }
            | Self::SteeringTaken { .. }
            | Self::AgentStopRequested { .. }
            | Self::CancelRequested { .. }
            | Self::Decided { .. }
            | Self::ApprovalRequested { .. }
            | Self::ApprovalDecided { .. }
            | Self::ResultsGiven
            | Self::Resumed { .. }
            | Self::DeadlinePassed { .. }
            | Self::Retried { .. }
            | Self::Ordered { .. }
            | Self::DeadLetterDue { .. }
            | Self::DeadLetterMoved { .. }
            | Self::Copied(_)
            | Self::Compacted(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn event_topics_are_those_of_its_consumers() {
        let (text, dead_letter, status) = (Topics::FINAL_TEXT, Topics::DEAD_LETTER, Topics::STATUS);
        let by = |kind: &str| json!({"kind": kind, "by": "ann"});
        let dead_letter_body = json!({"tried": [], "since": 0, "retry_at": null});
        let id = |kind: &str| format!("{kind}_0198c0ffee0070008000000000000001");
        let received = |more: Value| {
            let message = json!({"kind": "received", "client_id": "c", "text": "x", "source": "cli", "retry": more});
            (message, Topics::DEAD_LETTER.when(!more.is_null()), None)
        };
        let finished = |operation: Value| {
            let outcome = json!({"status": "pending", "data": "", "operation": operation});
            let run = json!({
                "kind": "skill_finished", "intent": id("int"), "call_id": "b", "skill": "x.y", "outcome": outcome,
            });
            (run, Topics::SKILL_RUN.with(Topics::OPERATION.when(!operation.is_null())), None)
        };
        let deferred = |after_failure: bool| {
            let event = json!({"kind": "deferred", "until": 7, "reason": "x", "after_failure": after_failure});
            (event, status, Some(StatusChange::Deferred { until: Micros(7), after_failure }))
        };
        for (event, topics, change) in [
            (json!({"kind": "answered", "text": "x"}), text.with(status), Some(StatusChange::Ended)),
            (json!({"kind": "cancelled", "text": "x"}), text.with(status), Some(StatusChange::Ended)),
            (
                json!({"kind": "failed", "code": "x", "text": "x", "detail": "", "dead_letter": dead_letter_body}),
                text.with(status).with(dead_letter),
                Some(StatusChange::Ended),
            ),
            (
                json!({"kind": "failed", "code": "x", "text": "x", "detail": ""}),
                text.with(status),
                Some(StatusChange::Ended),
            ),
            (by("suspended"), status, Some(StatusChange::Suspended)),
            (by("continued"), status, Some(StatusChange::Resumed)),
            (by("dead_letter_due"), dead_letter, None),
            (json!({"kind": "dead_letter_moved", "state": "archived", "by": "ann"}), text.with(dead_letter), None),
            (json!({"kind": "results_given"}), Topics::NONE, None),
            (
                json!({
                    "kind": "approval_requested", "number": 1, "intent": id("int"), "skill": "x.y", "arguments": {},
                    "mode": "ask", "expires_at": 7,
                }),
                text,
                None,
            ),
            received(json!({"of": id("task"), "since": 0})),
            received(Value::Null),
            finished(json!({"id": id("op"), "expires_at": 0})),
            finished(Value::Null),
            deferred(true),
            deferred(false),
            (
                json!({"kind": "reprioritised", "priority": "low", "by": "ann"}),
                status,
                Some(StatusChange::Reprioritised(Priority::Low)),
            ),
        ] {
            let body: EventBody =
                serde_json::from_value::<Value>(event.clone()).and_then(serde_json::from_value).unwrap();
            assert_eq!((body.topics(), body.status_change()), (topics, change), "{event}");
        }
    }
}
