//! The audit chain: seals over the stored events of each conversation, which show whether an event was changed, removed or added
//! afterwards. A link contains only the digest of an event's body, so that a body can be erased and its digest kept without breaking
//! the chain.
//!
//! Two chains are linked. The links of a conversation follow its events. The seals follow each other over all conversations, so that
//! no seal can be removed. Who can write the database can also compute both anew; the number and digest of a seal that were noted
//! elsewhere show that.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    event::{CallVerdict, Event, EventBody, Recorder, shared_text_id},
    ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    ports::{Namespace, StoredEvent, StoredText},
    time::Micros,
};

/// The seals, each a document of [`seals_user`].
pub const SEALS: Namespace =
    Namespace { texts: &["conversation"], numbers: &["number", "until"], ..Namespace::named("auditseals") };
/// The link before the first event, and the seal before the first one.
pub const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// The version of the rules of this file, which every digest contains.
const VERSION: &[u8] = b"annie audit 1";

/// The user whose documents the seals are. No skill reads documents of this namespace, so not even a key of a user of this name sees
/// them.
///
/// # Errors
/// If the name were no valid user id.
pub fn seals_user() -> Result<UserId, crate::ids::IdError> {
    UserId::new("annie: audit")
}

/// A seal over events of one conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Its number, from 1 without gaps.
    pub number: u64,
    /// The conversation.
    pub conversation: ConversationId,
    /// The first event.
    pub from: Seq,
    /// The last event.
    pub to: Seq,
    /// The link of the event before the first one.
    pub link_before: String,
    /// The link of the last event.
    pub link: String,
    /// When the seal was made.
    pub at: Micros,
    /// The time of the last change of the conversation when the seal was made.
    pub until: Micros,
    /// The digest of the seal with the number before.
    pub previous: String,
    /// The digest of this seal.
    pub digest: String,
}

impl Seal {
    /// The digest of all other fields.
    #[must_use]
    pub fn computed(&self) -> String {
        let numbers = [self.number, self.from.0, self.to.0].map(u64::to_be_bytes);
        let times = [self.at.0, self.until.0].map(i64::to_be_bytes);
        let id = self.conversation.uuid();
        let mut parts: Vec<&[u8]> = vec![b"seal", id.as_bytes()];
        parts.extend(numbers.iter().map(<[u8; 8]>::as_slice));
        parts.extend(times.iter().map(<[u8; 8]>::as_slice));
        parts.extend([self.link_before.as_bytes(), self.link.as_bytes(), self.previous.as_bytes()]);
        hex(&digest(&parts))
    }

    /// The seal with its digest.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.digest = self.computed();
        self
    }

    /// The seal in a document; `None` if the document is not one.
    #[must_use]
    pub fn of(body: &Value) -> Option<Self> {
        serde_json::from_value(body.clone()).ok()
    }
}

/// The digest of a document that should be a seal and cannot be read as one. The next seal names it, so that the chain continues.
#[must_use]
pub fn raw_digest(body: &Value) -> String {
    hex(&digest(&[b"unreadable seal", body.to_string().as_bytes()]))
}

/// What is wrong with the text that an event shares with others. The link covers the text's id, which is in the body, and the id
/// follows from the text. A body of an earlier version does not contain the id; then only the text is compared with it.
#[must_use]
pub fn text_fault(event: &StoredEvent) -> Option<String> {
    let StoredEvent { seq, body, erased: None, text, .. } = event else { return None };
    if text.is_none() && !body.contains("\"turn_started\"") {
        return None;
    }
    let named = serde_json::from_str::<EventBody>(body).ok()?.named_text();
    let what = match (named, text) {
        (None, None) => return None,
        (Some(_), None) => "is not named by its row",
        (Some(named), Some(text)) if named != text.id => "is not the one that its row names",
        (_, Some(StoredText { text: None, .. })) => "is missing",
        (_, Some(StoredText { id, text: Some(text) })) if shared_text_id(text) != *id => "was changed",
        (_, Some(_)) => return None,
    };
    Some(format!("the shared text of event {seq} {what}"))
}

/// The link of an event, which follows the link of the event before it. That of an erased event is computed from the digest of the
/// body that it had.
#[must_use]
pub fn link(before: &str, conversation: ConversationId, event: &StoredEvent) -> String {
    let StoredEvent { seq, at, task, agent, body, erased, text: _ } = event;
    let body: [u8; 32] = erased.unwrap_or_else(|| Sha256::digest(body.as_bytes()).into());
    let (id, task) = (conversation.uuid(), task.uuid());
    let parts: [&[u8]; 8] = [
        b"event",
        before.as_bytes(),
        id.as_bytes(),
        &seq.0.to_be_bytes(),
        &at.0.to_be_bytes(),
        task.as_bytes(),
        agent.as_bytes(),
        &body,
    ];
    hex(&digest(&parts))
}

/// An event as the audit trail shows it: the component, its decision and its reasons, and no text of a message or a result
/// [S3 11.2].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// When it happened.
    pub at: Micros,
    /// The conversation.
    pub conversation: ConversationId,
    /// The sequence number of the event.
    pub seq: Seq,
    /// The task.
    pub task: TaskId,
    /// The agent.
    pub agent: AgentId,
    /// The component that decided or recorded the event.
    pub component: String,
    /// The kind of the event.
    pub event_type: &'static str,
    /// What was decided; empty if the event records no decision.
    pub decision: String,
    /// The reasons.
    pub reasoning: String,
    /// What else was considered.
    pub alternatives: Vec<String>,
}

/// The audit row of an event.
#[must_use]
pub fn audit_row(event: &Event) -> AuditRow {
    let (decision, reasoning, alternatives) = decision_of(&event.body);
    let component = match (&event.body, event.body.recorder()) {
        (EventBody::Decided { component, .. }, _) => component.clone(),
        (_, Recorder::FrontEnd) => "front_end".to_owned(),
        (_, Recorder::Engine | Recorder::Several) => "engine".to_owned(),
        (_, Recorder::Agent | Recorder::Round) => format!("agent:{}", event.agent),
        (_, Recorder::Breaker) => "breaker".to_owned(),
        (_, Recorder::DeadLetters) => "dead_letters".to_owned(),
    };
    AuditRow {
        at: event.at,
        conversation: event.conversation,
        seq: event.seq,
        task: event.task,
        agent: event.agent.clone(),
        component,
        event_type: event.body.kind(),
        decision,
        reasoning,
        alternatives,
    }
}

/// The decision, the reasons and the alternatives that an event records.
fn decision_of(body: &EventBody) -> (String, String, Vec<String>) {
    let none = Vec::new;
    match body {
        EventBody::Decided { decision, reasoning, alternatives, .. } => {
            (decision.clone(), reasoning.clone(), alternatives.clone())
        }
        EventBody::Received(inbound) => (format!("accepted as {}", inbound.priority.as_str()), String::new(), none()),
        EventBody::Joined { into } => (format!("joins {into}"), String::new(), none()),
        EventBody::TurnStarted { mode, route, .. } => {
            let (preferred, others) =
                route.split_first().map_or(("", &route[..]), |(first, rest)| (first.as_str(), rest));
            (format!("begin in mode {} on {preferred}", mode.as_str()), String::new(), others.to_vec())
        }
        EventBody::RoundBegan { backend, .. } => (format!("begin the round on {backend}"), String::new(), none()),
        EventBody::RoundNotBegun { backend, .. } => (format!("{backend} did nothing"), String::new(), none()),
        EventBody::ModelReplied { calls, judged, backend, .. } => {
            let verdicts = judged.as_ref().map_or(&[][..], |judged| judged.verdicts.as_slice());
            let refused = verdicts.iter().filter(|one| matches!(one.verdict, CallVerdict::Refuse { .. })).count();
            let decision = format!("{} calls, {refused} refused", calls.len());
            (decision, format!("{backend} replied"), none())
        }
        EventBody::ModelFailed { error, .. } => ("the round failed".to_owned(), error.kind.as_str().to_owned(), none()),
        EventBody::InterfaceChanged { reason, .. } => ("another interface".to_owned(), reason.clone(), none()),
        EventBody::SkillStarted { skill, .. } => (format!("admit {skill}"), String::new(), none()),
        EventBody::SkillFinished { skill, outcome, .. } => {
            (format!("{skill} ended"), outcome.status.as_str().to_owned(), none())
        }
        EventBody::AgentStarted { calls_granted } => {
            (format!("start with {calls_granted} calls"), String::new(), none())
        }
        EventBody::AgentReported { report } => {
            ("the agent ended".to_owned(), report.status.as_str().to_owned(), none())
        }
        EventBody::AgentSteered { by, .. } => ("the agent was steered".to_owned(), format!("by {by}"), none()),
        EventBody::SteeringTaken { count } => (format!("{count} texts taken up"), String::new(), none()),
        EventBody::AgentStopRequested { by, .. } => ("stop the agent".to_owned(), format!("requested by {by}"), none()),
        EventBody::CancelRequested { by } => ("cancel".to_owned(), format!("requested by {by}"), none()),
        EventBody::ApprovalRequested { skill, .. } => (format!("{skill} waits for a person"), String::new(), none()),
        EventBody::ApprovalDecided { verdict, by, .. } => (verdict.state().to_owned(), format!("by {by}"), none()),
        EventBody::ResultsGiven => ("give the agents' results".to_owned(), String::new(), none()),
        EventBody::Resumed { .. } => {
            ("resume the turn".to_owned(), "the Engine was activated again".to_owned(), none())
        }
        EventBody::Suspended { by } => ("suspend".to_owned(), format!("requested by {by}"), none()),
        EventBody::Continued { by } => ("resume".to_owned(), format!("requested by {by}"), none()),
        EventBody::Reprioritised { priority, by } => {
            (format!("class {}", priority.as_str()), format!("by {by}"), none())
        }
        EventBody::DeadlinePassed { hard, .. } => {
            (if *hard { "hard deadline" } else { "soft deadline" }.to_owned(), String::new(), none())
        }
        EventBody::Deferred { until, reason, .. } => (format!("defer until {until}"), reason.clone(), none()),
        EventBody::Retried { reason, .. } => ("another attempt".to_owned(), reason.clone(), none()),
        EventBody::Ordered { targets, .. } => {
            (format!("job command about {} tasks", targets.len()), String::new(), none())
        }
        EventBody::DeadLetterDue { by } => ("retry the dead letter".to_owned(), format!("by {by}"), none()),
        EventBody::DeadLetterMoved { by, .. } => ("move the dead letter".to_owned(), format!("by {by}"), none()),
        EventBody::Answered { outcome, paused, finish, .. } => {
            ("answer".to_owned(), outcome.word(*paused, *finish).to_owned(), none())
        }
        EventBody::Failed { code, .. } => ("fail".to_owned(), code.clone(), none()),
        EventBody::Cancelled { .. } => ("end as cancelled".to_owned(), String::new(), none()),
        EventBody::LoopDetected { found, ends_run } => {
            let decision = if *ends_run { "end the run" } else { found.level.as_str() };
            (decision.to_owned(), format!("{} of {}", found.detector.as_str(), found.skill), none())
        }
        EventBody::Compacted(compacted) => (compacted.line(), compacted.without_model.clone(), none()),
        EventBody::Copied(copied) => ("copy".to_owned(), format!("of {}", copied.of), none()),
    }
}

pub(crate) fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(VERSION);
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn event(seq: u64, body: &str) -> StoredEvent {
        let task = TaskId::from_uuid(Uuid::from_u128(1));
        StoredEvent {
            seq: Seq(seq),
            at: Micros(7),
            task,
            agent: "orchestrator".to_owned(),
            body: body.to_owned(),
            erased: None,
            text: None,
        }
    }

    #[test]
    fn audit_link_changes_with_every_part_of_an_event_and_with_its_order() {
        let id = ConversationId::from_uuid(Uuid::from_u128(9));
        let first = link(NOTHING, id, &event(1, "{}"));
        assert_eq!(first.len(), NOTHING.len());
        let later = StoredEvent { at: Micros(8), ..event(1, "{}") };
        let other_agent = StoredEvent { agent: "one".to_owned(), ..event(1, "{}") };
        let others = [
            link(&first, id, &event(1, "{}")),
            link(NOTHING, ConversationId::from_uuid(Uuid::from_u128(8)), &event(1, "{}")),
            link(NOTHING, id, &event(2, "{}")),
            link(NOTHING, id, &event(1, "{ }")),
            link(NOTHING, id, &later),
            link(NOTHING, id, &other_agent),
        ];
        assert!(others.iter().all(|other| *other != first), "{others:?}");
        assert_eq!(link(NOTHING, id, &event(1, "{}")), first);
    }

    #[test]
    fn audit_seal_digest_covers_every_field() {
        let (link_before, link, previous) = (NOTHING.to_owned(), "a".to_owned(), NOTHING.to_owned());
        let conversation = ConversationId::from_uuid(Uuid::from_u128(9));
        let (at, until, digest) = (Micros(1), Micros(2), String::new());
        let seal =
            Seal { number: 1, conversation, from: Seq(1), to: Seq(2), link_before, link, at, until, previous, digest };
        let seal = seal.sealed();
        assert_eq!(seal.computed(), seal.digest);
        let changed = [
            Seal { number: 2, ..seal.clone() },
            Seal { to: Seq(3), ..seal.clone() },
            Seal { link: "b".to_owned(), ..seal.clone() },
            Seal { at: Micros(2), ..seal.clone() },
            Seal { previous: "c".to_owned(), ..seal.clone() },
        ];
        assert!(changed.iter().all(|other| other.computed() != seal.digest));
        assert_eq!(Seal::of(&serde_json::to_value(&seal).unwrap()), Some(seal));
    }
}
