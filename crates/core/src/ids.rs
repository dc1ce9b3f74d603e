//! Identifiers: UUIDv7 newtypes whose text form has the kind as a prefix (`conv_0198…`), so that the kind of an id is
//! visible in a log line or in the wrong field.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::time::Micros;

/// A text is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {kind} id: expected {expected}, got {got:?}")]
pub struct IdError {
    /// Name of the expected kind.
    pub kind: &'static str,
    /// Description of a valid id of this kind.
    pub expected: &'static str,
    /// The rejected text, truncated to 80 characters.
    pub got: String,
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// The part of the text form before the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// Wraps a UUID, which should be of version 7 so that ids sort by the time they were made.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID inside.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.simple())
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix(concat!($prefix, "_"))
                    .filter(|rest| rest.len() == 32)
                    .and_then(|rest| Uuid::try_parse(rest).ok())
                    .map(Self)
                    .ok_or_else(|| IdError {
                        kind: $kind,
                        expected: concat!("`", $prefix, "_` and 32 hexadecimal digits"),
                        got: text.chars().take(80).collect(),
                    })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id_type!(
    /// A durable thread of messages of one user.
    ConversationId, "conv", "conversation"
);
id_type!(
    /// The unit that the scheduler orders, usually a turn.
    TaskId, "task", "task"
);
id_type!(
    /// One planned side effect. It is the idempotency key that the skill receives.
    IntentId, "int", "intent"
);
id_type!(
    /// An answer waiting to be delivered.
    OutboxId, "out", "outbox entry"
);
id_type!(
    /// A long-running operation that a skill started and whose result arrives later.
    OperationId, "op", "operation"
);
id_type!(
    /// One of the processes that share a database. Stable over restarts on the same data folder.
    NodeId, "host", "node"
);
id_type!(
    /// One run of a process.
    NodeIncarnation, "node", "node incarnation"
);

impl ConversationId {
    /// The conversation for a client's own key. The same user and key always give the same id (UUIDv8 over SHA-256), so that
    /// no look-up table is needed and a repeated first message does not create a second conversation.
    #[must_use]
    pub fn for_key(user: &UserId, key: &str) -> Self {
        Self(hashed(&[b"conversation", user.as_str().as_bytes(), key.as_bytes()]))
    }

    /// The conversation that takes the place of this one for its key after this one was deleted.
    #[must_use]
    pub fn successor(self) -> Self {
        Self(hashed(&[b"conversation after", self.0.as_bytes()]))
    }
}

impl TaskId {
    /// The time at which the kernel made the id, which is when it accepted the message; in whole milliseconds. `None` for an id
    /// without a time.
    #[must_use]
    pub fn made_at(self) -> Option<Micros> {
        let (seconds, nanos) = self.0.get_timestamp()?.to_unix();
        let us = i64::try_from(seconds).ok()?.checked_mul(1_000_000)?;
        us.checked_add(i64::from(nanos / 1_000)).map(Micros)
    }
}

impl IntentId {
    /// The intent of one recorded tool call. It is derived from the call's own id and never from a position, because
    /// positions can shift after a resume.
    #[must_use]
    pub fn for_call(task: TaskId, agent: &AgentId, call: &str) -> Self {
        Self(hashed(&[b"intent", task.uuid().as_bytes(), agent.as_str().as_bytes(), call.as_bytes()]))
    }
}

impl IntentId {
    /// The intent of the seal of the audit chain whose first event this is. Two nodes that seal the same events store one seal.
    #[must_use]
    pub fn for_seal(conversation: ConversationId, from: Seq) -> Self {
        Self(hashed(&[b"seal", conversation.uuid().as_bytes(), &from.0.to_be_bytes()]))
    }

    /// The intent of a write that a person requested, with a random number of its own: the same request may be made again.
    #[must_use]
    pub fn for_request(nonce: Uuid) -> Self {
        Self(hashed(&[b"request", nonce.as_bytes()]))
    }

    /// The intent of the record of a pass that began at this time and sealed events.
    #[must_use]
    pub fn for_seal_pass(at: Micros) -> Self {
        Self(hashed(&[b"seal pass", &at.0.to_be_bytes()]))
    }
}

impl OperationId {
    /// The operation that a run may start. Each intent has one operation, so that a repeated run does not start a second
    /// one.
    #[must_use]
    pub fn for_intent(intent: IntentId) -> Self {
        Self(hashed(&[b"operation", intent.uuid().as_bytes()]))
    }
}

impl OutboxId {
    /// The delivery of a task's final text. The id is stable over replays, so that a repeated outbox entry is recognised.
    #[must_use]
    pub fn for_task(task: TaskId) -> Self {
        Self(hashed(&[b"outbox", task.uuid().as_bytes()]))
    }

    /// The delivery of the text that notifies a user of an archived dead letter.
    #[must_use]
    pub fn for_dead_letter(task: TaskId) -> Self {
        Self(hashed(&[b"letter", task.uuid().as_bytes()]))
    }

    /// The delivery of the text that asks a user for an approval: the request of a task with this number.
    #[must_use]
    pub fn for_approval(task: TaskId, number: u32) -> Self {
        Self(hashed(&[b"approval", task.uuid().as_bytes(), &number.to_be_bytes()]))
    }
}

fn hashed(parts: &[&[u8]]) -> Uuid {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    Uuid::new_v8(bytes)
}

/// The owner of data. Free text given by the operator or a trusted front end: 1 to 128 bytes, no control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct UserId(String);

impl UserId {
    /// The longest user id, in bytes.
    pub const LEN_BYTES_MAX: usize = 128;

    /// Checks and wraps a user id.
    ///
    /// # Errors
    /// If it is empty, longer than [`Self::LEN_BYTES_MAX`] or holds control characters.
    pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
        let text = text.into();
        if text.is_empty() || text.len() > Self::LEN_BYTES_MAX || text.chars().any(char::is_control) {
            let expected = "1 to 128 bytes without control characters";
            return Err(IdError { kind: "user", expected, got: text.chars().take(80).collect() });
        }
        Ok(Self(text))
    }

    /// The default user of an installation without named users.
    #[must_use]
    pub fn local() -> Self {
        Self("me".to_owned())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for UserId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// An agent that runs rounds within a turn: the orchestrator, or a sub-agent under the name that the orchestrator gave it (1
/// to 64 of `A-Z a-z 0-9 _ -`, unique within the turn).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct AgentId(String);

impl AgentId {
    /// The longest agent id, in bytes.
    pub const LEN_BYTES_MAX: usize = 64;

    /// The orchestrator, which is the Engine's own agent.
    #[must_use]
    pub fn orchestrator() -> Self {
        Self("orchestrator".to_owned())
    }

    /// Checks the name that a model chose for a sub-agent.
    ///
    /// # Errors
    /// If it is empty, too long, has other characters, or is the orchestrator's name.
    pub fn sub(text: &str) -> Result<Self, IdError> {
        let fits = !text.is_empty()
            && text.len() <= Self::LEN_BYTES_MAX
            && text != "orchestrator"
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            let expected = "1 to 64 letters, digits, `_` and `-`, and not `orchestrator`";
            Err(IdError { kind: "agent", expected, got: text.chars().take(80).collect() })
        }
    }

    /// Whether this is the orchestrator.
    #[must_use]
    pub fn is_orchestrator(&self) -> bool {
        self.0 == "orchestrator"
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for AgentId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "orchestrator" {
            return Ok(Self(text));
        }
        Self::sub(&text).map_err(serde::de::Error::custom)
    }
}

macro_rules! number_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_type!(
    /// Sequence number of an event in its conversation, from 1 without gaps. Also the durable id of server-sent events.
    Seq
);
number_type!(
    /// Number of an ownership of a conversation. Every claim increases it by one, and the store refuses writes with a lower
    /// one.
    Epoch
);
impl Epoch {
    /// The epoch of the first owner of a conversation.
    pub const FIRST: Self = Self(1);
}

number_type!(
    /// Number of an actor's incarnation, from 1. A command that names another incarnation is refused.
    Incarnation
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_round_trips_through_text_and_rejects_other_prefixes() {
        let id = TaskId::from_uuid(Uuid::new_v8([7; 16]));
        let text = id.to_string();
        assert!(text.starts_with("task_"));
        assert_eq!(text.parse(), Ok(id));
        assert!(text.parse::<ConversationId>().is_err());
        assert!("task_zz".parse::<TaskId>().is_err());
        assert_eq!(serde_json::to_string(&id).ok().as_deref(), Some(format!("\"{text}\"").as_str()));
    }

    #[test]
    fn id_error_describes_expected_format() {
        let message = |error: Result<(), IdError>| error.unwrap_err().to_string();
        assert!(message("x".parse::<TaskId>().map(drop)).contains("`task_` and 32 hexadecimal digits"));
        assert!(message(UserId::new("").map(drop)).contains("1 to 128 bytes"));
        assert!(message(AgentId::sub("a b").map(drop)).contains("1 to 64 letters"));
    }

    #[test]
    fn conversation_id_for_key_depends_on_user_and_key() {
        let (ann, bob) = (UserId("ann".into()), UserId("bob".into()));
        assert_eq!(ConversationId::for_key(&ann, "k"), ConversationId::for_key(&ann, "k"));
        assert_ne!(ConversationId::for_key(&ann, "k"), ConversationId::for_key(&bob, "k"));
        assert_ne!(ConversationId::for_key(&ann, "k"), ConversationId::for_key(&ann, "l"));
    }

    #[test]
    fn agent_id_rejects_special_characters_and_orchestrator_name() {
        assert!(AgentId::sub("task_search-2").is_ok());
        for bad in ["", "orchestrator", "a b", "ä", &"x".repeat(65)] {
            assert!(AgentId::sub(bad).is_err(), "{bad}");
        }
    }
}
