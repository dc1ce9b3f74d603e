//! State: values under keys that skills, workflows and people set and prompts show (ADR 0059). The prefix of a key says how long
//! its value lives and who sees it.
//!
//! Values of users, conversations and the application are documents. Values of a turn (`temp:`) are never stored.

mod template;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use template::{Placeholder, StateText, Unset, fill, placeholders};

use crate::{
    ids::{ConversationId, IdError, IntentId, UserId},
    ports::{
        Decide, Document, DocumentChange, DocumentQuery, DocumentWrite, Namespace, Seen, StoreError, StoreErrorKind,
    },
    time::Micros,
};

/// The values of all users. Stored documents have these fields: an old one must stay readable.
pub static STATE: Namespace = Namespace { texts: &["place", "key"], ..Namespace::named("state") };
/// The longest name of a key without its prefix, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// The largest value as JSON, in bytes: prompts contain values.
pub const VALUE_BYTES_MAX: usize = 8 * 1024;
/// The most keys of one place: of one user, of one conversation, of one turn, of the application.
pub const KEYS_MAX: u32 = 100;
/// How many changes of a value are kept with it, the newest ones.
pub const CHANGES_MAX: usize = 20;
/// How much of an old or a new value a change repeats, in bytes of JSON.
const CHANGE_BYTES_MAX: usize = 500;
/// The error type of a skill whose text needs a value that is not set.
pub const UNSET_STATE: &str = "state_not_set";
/// What an erased value has as its place and its key.
const ERASED: &str = "erased";

/// How long a value lives, and who sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateScope {
    /// The agents of one turn, while it runs in this process.
    Temp,
    /// One conversation.
    Session,
    /// All conversations of one user.
    User,
    /// All users. Only operators write it.
    App,
}

impl StateScope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Temp, Self::Session, Self::User, Self::App];

    /// The prefix of its keys, without the colon.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Temp => "temp",
            Self::Session => "session",
            Self::User => "user",
            Self::App => "app",
        }
    }
}

/// A key: `user:name`. A key without a prefix belongs to the conversation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateKey {
    /// The scope.
    pub scope: StateScope,
    /// The name, without the prefix.
    pub name: String,
}

impl fmt::Display for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.scope.as_str(), self.name)
    }
}

/// Why a value cannot be read or set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The prefix is unknown.
    #[error("the prefix {0:?} of a key is unknown: use temp:, session:, user:, app:, or none for the conversation")]
    Prefix(String),
    /// The name is not valid.
    #[error(
        "a key has 1 to {NAME_BYTES_MAX} bytes after its prefix: a letter, then letters, digits, `_`, `-` and `.`; got {0:?}"
    )]
    Name(String),
    /// The value is too large.
    #[error("a value has at most {VALUE_BYTES_MAX} bytes as JSON, got {0}")]
    Value(usize),
    /// The value is null.
    #[error("a value cannot be null: delete the key instead")]
    Null,
    /// The place has no room.
    #[error("there are {KEYS_MAX} keys with the prefix {0}: already, and one of them must be deleted first")]
    Full(&'static str),
    /// Only operators write values of the application.
    #[error("{0} is for operators to write: `annie state set {0} VALUE` with a key of scope admin")]
    ReadOnly(String),
    /// A value of a conversation without one.
    #[error("{0} belongs to a conversation: name one")]
    NoConversation(String),
    /// A value of a turn outside of one.
    #[error("{0} exists in a running turn only")]
    NoTurn(String),
}

impl StateKey {
    /// Reads a key.
    ///
    /// # Errors
    /// `Prefix` or `Name`.
    pub fn parse(text: &str) -> Result<Self, StateError> {
        let text = text.trim();
        let (scope, name) = match text.split_once(':') {
            None => (StateScope::Session, text),
            Some((prefix, name)) => {
                let scope = StateScope::ALL.into_iter().find(|scope| scope.as_str() == prefix);
                (scope.ok_or_else(|| StateError::Prefix(prefix.chars().take(80).collect()))?, name)
            }
        };
        let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
        if !begins || name.len() > NAME_BYTES_MAX || !name.chars().all(is_fit) {
            return Err(StateError::Name(name.chars().take(80).collect()));
        }
        Ok(Self { scope, name: name.to_owned() })
    }

    /// Whether a person or an agent that is no operator may write it.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub fn check_writable(&self) -> Result<(), StateError> {
        if self.scope == StateScope::App { Err(StateError::ReadOnly(self.to_string())) } else { Ok(()) }
    }
}

/// Checks a value.
///
/// # Errors
/// `Null` or `Value`.
pub fn check_value(value: &Value) -> Result<(), StateError> {
    let bytes = value.to_string().len();
    match value {
        Value::Null => Err(StateError::Null),
        _ if bytes > VALUE_BYTES_MAX => Err(StateError::Value(bytes)),
        _ => Ok(()),
    }
}

/// A value as prompts and results show it: a text as it is, anything else as JSON.
#[must_use]
pub fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// One change of a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateDelta {
    /// The time.
    pub at: Micros,
    /// What wrote it: a skill's agent, or a front end.
    pub by: String,
    /// The value before; null if there was none. A long one is cut.
    pub before: Value,
    /// The value after. A long one is cut.
    pub after: Value,
}

/// A stored value.
#[derive(Debug, Clone, PartialEq)]
pub struct StateEntry {
    /// Its key.
    pub key: StateKey,
    /// The value.
    pub value: Value,
    /// The origins of what its author had read and the user did not write. Empty if there were none.
    pub origin: Vec<String>,
    /// The time of its last change.
    pub updated_at: Micros,
    /// Its last changes, the oldest first.
    pub changes: Vec<StateDelta>,
}

#[derive(Serialize, Deserialize)]
struct Body {
    place: String,
    key: String,
    #[serde(default)]
    value: Value,
    #[serde(default)]
    origin: Vec<String>,
    #[serde(default)]
    changes: Vec<StateDelta>,
}

fn corrupt(error: impl ToString) -> StoreError {
    StoreError { kind: StoreErrorKind::Corrupt, what: "reading a state", detail: error.to_string() }
}

impl StateEntry {
    /// The value of a document; `None` if it was erased.
    ///
    /// # Errors
    /// `Corrupt` if the document is no value.
    pub fn of(document: &Document) -> Result<Option<Self>, StoreError> {
        let Body { place, key, value, origin, changes } = Body::deserialize(&document.body).map_err(corrupt)?;
        if place == ERASED {
            return Ok(None);
        }
        let key = StateKey::parse(&key).map_err(corrupt)?;
        Ok(Some(Self { key, value, origin, updated_at: document.updated_at, changes }))
    }

    /// The last change.
    #[must_use]
    pub fn last_change(&self) -> Option<&StateDelta> {
        self.changes.last()
    }
}

/// Where values are stored: the owner of the documents, and the place among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatePlace {
    /// The owner of the documents.
    pub user: UserId,
    /// The place, as documents name it.
    place: String,
    scope: StateScope,
}

/// The user to whom the values of the application belong. The colon of its name shows that it is no person.
fn app_user() -> Result<UserId, IdError> {
    UserId::new("annie: app")
}

impl StatePlace {
    /// The place of the values of a scope for this user and this conversation.
    ///
    /// # Errors
    /// `NoConversation`, or `NoTurn` for values of a turn, which are not stored.
    pub fn of(scope: StateScope, user: &UserId, conversation: Option<ConversationId>) -> Result<Self, StateError> {
        let named = || format!("{}:", scope.as_str());
        let (user, place) = match scope {
            StateScope::Temp => return Err(StateError::NoTurn(named())),
            StateScope::Session => {
                let conversation = conversation.ok_or_else(|| StateError::NoConversation(named()))?;
                (user.clone(), format!("session/{conversation}"))
            }
            StateScope::User => (user.clone(), "user".to_owned()),
            StateScope::App => (app_user().unwrap_or_else(|_| user.clone()), "app".to_owned()),
        };
        Ok(Self { user, place, scope })
    }

    /// The query for its values, by key.
    #[must_use]
    pub fn all(&self) -> DocumentQuery {
        let texts = [vec![self.place.clone()], Vec::new(), Vec::new()];
        DocumentQuery { texts, limit: KEYS_MAX, ..DocumentQuery::default() }
    }

    /// The query for one value.
    #[must_use]
    pub fn one(&self, key: &StateKey) -> DocumentQuery {
        let texts = [vec![self.place.clone()], vec![key.to_string()], Vec::new()];
        DocumentQuery { texts, limit: 1, ..DocumentQuery::default() }
    }

    /// Whether a write that changed nothing did so because there is no room.
    #[must_use]
    pub const fn full(&self) -> StateError {
        StateError::Full(self.scope.as_str())
    }

    /// The write that sets a value. It changes nothing if the place has [`KEYS_MAX`] other keys.
    #[must_use]
    pub fn set(&self, key: &StateKey, value: &Value, author: &StateAuthor) -> DocumentWrite {
        let StateAuthor { by, origin, intent, at } = author.clone();
        let (place, key, value) = (self.place.clone(), key.to_string(), value.clone());
        let decide: Decide = Arc::new(move |seen: &[Document]| {
            let old = seen.iter().find(|document| document.body["key"] == key.as_str());
            if old.is_none() && seen.len() >= KEYS_MAX as usize {
                return Ok(DocumentChange::Keep);
            }
            let before = old.map(|document| Body::deserialize(&document.body).map_err(corrupt)).transpose()?;
            let (old_value, mut changes) = before.map_or((Value::Null, Vec::new()), |b| (b.value, b.changes));
            changes.push(StateDelta { at, by: by.clone(), before: brief(&old_value), after: brief(&value) });
            changes.drain(..changes.len().saturating_sub(CHANGES_MAX));
            let body = json!({"place": place, "key": key, "value": value, "origin": origin, "changes": changes});
            Ok(match old {
                Some(old) => DocumentChange::Replace { number: old.number, body },
                None => DocumentChange::Insert(body),
            })
        });
        self.write(Seen::Query(self.all()), decide, intent, at)
    }

    /// The write that deletes a value. It changes nothing if there is none.
    #[must_use]
    pub fn delete(&self, key: &StateKey, author: &StateAuthor) -> DocumentWrite {
        let decide: Decide = Arc::new(|seen: &[Document]| {
            Ok(seen.first().map_or(DocumentChange::Keep, |old| DocumentChange::Archive(old.number)))
        });
        self.write(Seen::Query(self.one(key)), decide, author.intent, author.at)
    }

    /// The write that erases one document of this place for good.
    #[must_use]
    pub fn erase(&self, number: u64, intent: IntentId, at: Micros) -> DocumentWrite {
        let decide: Decide = Arc::new(move |seen: &[Document]| {
            let body = json!({"place": ERASED, "key": ERASED});
            Ok(if seen.is_empty() { DocumentChange::Keep } else { DocumentChange::Replace { number, body } })
        });
        self.write(Seen::Number(number), decide, intent, at)
    }

    /// Whether a document has a value of this place.
    #[must_use]
    pub fn has(&self, body: &Value) -> bool {
        body["place"] == self.place.as_str()
    }

    /// The write that erases the content of a deleted document of this place for good.
    #[must_use]
    pub fn erase_deleted(&self, number: u64, intent: IntentId, at: Micros) -> DocumentWrite {
        DocumentWrite { seen: Seen::Archived(number), ..self.erase(number, intent, at) }
    }

    fn write(&self, seen: Seen, decide: Decide, intent: IntentId, at: Micros) -> DocumentWrite {
        DocumentWrite { user: self.user.clone(), namespace: &STATE, intent, seen, decide, at }
    }
}

/// What writes a value.
#[derive(Debug, Clone, PartialEq)]
pub struct StateAuthor {
    /// The name, for the list of changes.
    pub by: String,
    /// The origins of what it had read and the user did not write.
    pub origin: Vec<String>,
    /// The idempotency key.
    pub intent: IntentId,
    /// The time.
    pub at: Micros,
}

/// A value for the list of changes: as it is, or the beginning of its text.
fn brief(value: &Value) -> Value {
    let text = value.to_string();
    if text.len() <= CHANGE_BYTES_MAX {
        return value.clone();
    }
    let at = crate::outcome::floor_char_boundary(&text, CHANGE_BYTES_MAX);
    format!("{}… [{} bytes]", &text[..at], text.len()).into()
}
