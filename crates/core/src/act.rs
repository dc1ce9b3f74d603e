//! The acts of operators: each act that a person requests of the server is stored as two entries of one chain, the request before
//! the act and its result after it. The digest of an entry covers all of its fields and the digest of the entry before it, so that
//! no entry can be changed, added or removed in the middle unnoticed. As with the seals of events, a noted digest of the newest
//! entry shows later that the chain was not computed anew.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    audit::{digest, hex},
    ports::Namespace,
    time::Micros,
};

/// The entries, each a document of [`crate::audit::seals_user`].
pub const ACTS: Namespace =
    Namespace { texts: &["target", "phase", "of"], numbers: &["number", "at"], ..Namespace::named("operatoracts") };

/// The part of an act that an entry records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActPhase {
    /// The act was requested, and may have begun.
    Requested,
    /// The act has ended.
    Ended,
}

impl ActPhase {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Ended => "ended",
        }
    }
}

/// How an act ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActResult {
    /// It was done.
    Done,
    /// It was refused, and nothing was changed.
    Refused,
    /// It failed; something may have been changed.
    Failed,
}

impl ActResult {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// One entry of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActEntry {
    /// Its number, from 1 without gaps.
    pub number: u64,
    /// The number of the entry of the request, as text.
    pub of: String,
    /// The part of the act.
    pub phase: ActPhase,
    /// The time of the entry.
    pub at: Micros,
    /// The node that carried the act out.
    pub node: String,
    /// The person: the user, and the public id of the key.
    pub by: String,
    /// The front end: `http` or `grpc`.
    pub channel: String,
    /// The kind of act, such as `actor.kill`.
    pub act: String,
    /// What the act is about: the path of an actor, a class, a skill, a conversation or a task.
    pub target: String,
    /// The reason that the person gave; empty if none.
    pub reason: String,
    /// How it ended; absent in the entry of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ActResult>,
    /// The error of an act that was not done; empty if it was.
    #[serde(default)]
    pub detail: String,
    /// The digest of the entry with the number before.
    pub previous: String,
    /// The digest of this entry.
    pub digest: String,
}

impl ActEntry {
    /// The digest of all other fields.
    #[must_use]
    pub fn computed(&self) -> String {
        let (number, at) = (self.number.to_be_bytes(), self.at.0.to_be_bytes());
        let result = self.result.map_or("", ActResult::as_str);
        let texts = [
            &self.of,
            &self.node,
            &self.by,
            &self.channel,
            &self.act,
            &self.target,
            &self.reason,
            &self.detail,
            &self.previous,
        ];
        let mut parts: Vec<&[u8]> = vec![b"act", &number, &at, self.phase.as_str().as_bytes(), result.as_bytes()];
        parts.extend(texts.iter().map(|text| text.as_bytes()));
        hex(&digest(&parts))
    }

    /// The entry with its digest.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.digest = self.computed();
        self
    }

    /// The entry in a document; `None` if the document is not one.
    #[must_use]
    pub fn of(body: &Value) -> Option<Self> {
        serde_json::from_value(body.clone()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> ActEntry {
        let text = str::to_owned;
        ActEntry {
            number: 2,
            of: text("1"),
            phase: ActPhase::Ended,
            at: Micros(7),
            node: text("node"),
            by: text("ann (key 1)"),
            channel: text("http"),
            act: text("actor.kill"),
            target: text("/scheduler"),
            reason: text("it hangs"),
            result: Some(ActResult::Done),
            detail: String::new(),
            previous: text("a"),
            digest: String::new(),
        }
    }

    #[test]
    fn act_digest_covers_every_field() {
        let sealed = entry().sealed();
        assert_eq!(sealed.computed(), sealed.digest);
        let text = str::to_owned;
        let changed = [
            ActEntry { number: 3, ..entry() },
            ActEntry { of: text("2"), ..entry() },
            ActEntry { phase: ActPhase::Requested, ..entry() },
            ActEntry { at: Micros(8), ..entry() },
            ActEntry { node: text("other"), ..entry() },
            ActEntry { by: text("bob"), ..entry() },
            ActEntry { channel: text("grpc"), ..entry() },
            ActEntry { act: text("actor.stop"), ..entry() },
            ActEntry { target: text("/"), ..entry() },
            ActEntry { reason: text("none"), ..entry() },
            ActEntry { result: Some(ActResult::Failed), ..entry() },
            ActEntry { result: None, ..entry() },
            ActEntry { detail: text("x"), ..entry() },
            ActEntry { previous: text("b"), ..entry() },
        ];
        assert!(changed.iter().all(|other| other.computed() != sealed.digest));
        assert_eq!(ActEntry::of(&serde_json::to_value(&sealed).unwrap()), Some(sealed));
    }
}
