//! Events of the log that are points in time within a span. Only their kinds and codes are shown, no texts.

use annie_core::{
    approval::ApprovalVerdict,
    event::{Event, EventBody},
};
use serde::Serialize;

use crate::{
    names,
    span::{Attribute, Mark, Value},
};

/// The wire word of a code.
pub fn word(code: &impl Serialize) -> String {
    serde_json::to_value(code).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The point in time of an event, if it has one.
pub fn mark(event: &Event) -> Option<Mark> {
    let attributes: Vec<Attribute> = match &event.body {
        EventBody::Resumed { cause } => vec![(names::REASON, word(cause).into())],
        EventBody::Retried { strategy, .. } => vec![(names::REASON, word(strategy).into())],
        EventBody::DeadlinePassed { hard, .. } => vec![(names::REASON, if *hard { "hard" } else { "soft" }.into())],
        EventBody::Reprioritised { priority, .. } => vec![(names::PRIORITY, priority.as_str().into())],
        EventBody::InterfaceChanged { to, .. } => vec![(names::REASON, word(to).into())],
        EventBody::LoopDetected { found, .. } => vec![(names::REASON, word(&found.detector).into())],
        EventBody::ApprovalRequested { skill, mode, .. } => {
            vec![(names::TOOL_NAME, skill.as_str().into()), (names::REASON, mode.as_str().into())]
        }
        EventBody::ApprovalDecided { verdict, .. } => vec![(names::REASON, Value::from(verdict_word(verdict)))],
        EventBody::Deferred { .. }
        | EventBody::Suspended { .. }
        | EventBody::Continued { .. }
        | EventBody::CancelRequested { .. }
        | EventBody::AgentSteered { .. }
        | EventBody::SteeringTaken { .. }
        | EventBody::AgentStopRequested { .. }
        | EventBody::ResultsGiven
        | EventBody::RoundNotBegun { .. }
        | EventBody::Compacted(_) => Vec::new(),
        EventBody::Received(_)
        | EventBody::Joined { .. }
        | EventBody::TurnStarted { .. }
        | EventBody::RoundBegan { .. }
        | EventBody::ModelReplied { .. }
        | EventBody::ModelFailed { .. }
        | EventBody::SkillStarted { .. }
        | EventBody::SkillFinished { .. }
        | EventBody::AgentStarted { .. }
        | EventBody::AgentReported { .. }
        | EventBody::Decided { .. }
        | EventBody::Ordered { .. }
        | EventBody::DeadLetterDue { .. }
        | EventBody::DeadLetterMoved { .. }
        | EventBody::Answered { .. }
        | EventBody::Failed { .. }
        | EventBody::Cancelled { .. }
        | EventBody::Copied(_) => return None,
    };
    Some(Mark { name: event.body.kind(), at: event.at, attributes })
}

const fn verdict_word(verdict: &ApprovalVerdict) -> &'static str {
    match verdict {
        ApprovalVerdict::Approve { .. } => "approve",
        ApprovalVerdict::Deny { .. } => "deny",
        ApprovalVerdict::Expire => "expire",
        ApprovalVerdict::Withdraw => "withdraw",
    }
}
