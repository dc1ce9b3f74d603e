//! One line of the routing table, as it stands in the configuration.

use std::{collections::BTreeSet, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
};

use super::facts::{BackendFacts, Privacy};
use crate::event::Priority;

/// When a rule fits. Conditions of different kinds must all hold; within one, any is enough. Words and pattern are one
/// kind: the text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// The text has one of these, word for word whatever the case: `git status` fits "Git status?", not "digit status".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any_words: Vec<String>,
    /// The text fits this pattern, whatever the case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// It came through one of these doors or channels: `voice`, `http` …
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// It has one of these classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub priorities: Vec<Priority>,
    /// It may use one of these skills: `tasks.create`, where that is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// It may use a skill of one of these domains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
}

impl When {
    /// Whether nothing is asked for: such a rule would fit everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Which of several fitting backends comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preference {
    /// The one that stands first in the configuration.
    #[default]
    Listed,
    /// The cheapest; the first of equals.
    Cheapest,
}

/// Where a rule sends to: one backend by name, or any that has what is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Target {
    /// This one, and no other condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// One that can do all of these.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub capabilities: BTreeSet<String>,
    /// One that works there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privacy: Option<Privacy>,
    /// Which of several comes first.
    pub prefer: Preference,
}

impl Target {
    /// The backend of this name.
    #[must_use]
    pub fn backend(name: impl Into<String>) -> Self {
        Self { backend: Some(name.into()), ..Self::default() }
    }

    /// Any that can do all of these.
    #[must_use]
    pub fn able<const N: usize>(capabilities: [&str; N]) -> Self {
        Self { capabilities: capabilities.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }

    /// Any in the house.
    #[must_use]
    pub fn local() -> Self {
        Self { privacy: Some(Privacy::Local), ..Self::default() }
    }

    /// Whether this backend is meant. A program is meant by its name or by what it can do, never by its place alone.
    #[must_use]
    pub fn fits(&self, facts: &BackendFacts) -> bool {
        match &self.backend {
            Some(name) => *name == facts.name,
            None => {
                let is_named = !facts.acts || !self.capabilities.is_empty();
                is_named
                    && self.capabilities.is_subset(&facts.capabilities)
                    && self.privacy.is_none_or(|p| p == facts.privacy)
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.backend {
            return write!(f, "`{name}`");
        }
        let able: Vec<&str> = self.capabilities.iter().map(String::as_str).collect();
        match self.privacy {
            Some(p) if able.is_empty() => write!(f, "a {} backend", p.as_str()),
            Some(p) => write!(f, "a {} backend with {}", p.as_str(), able.join(", ")),
            None => write!(f, "a backend with {}", able.join(", ")),
        }
    }
}

/// Who may stand in when those that a rule means cannot [S3 10.4]. Backends that the rule means as well always may.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Any other language model, in the order of the configuration. A program stands in only where it is named.
    #[default]
    Allow,
    /// Nobody: rather fail.
    Never,
    /// These, in this order.
    Names(Vec<String>),
}

impl Serialize for Fallback {
    /// `"allow"`, `"never"` or a list of names.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Allow => serializer.serialize_str("allow"),
            Self::Never => serializer.serialize_str("never"),
            Self::Names(names) => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Fallback {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = Fallback;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"allow\", \"never\" or a list of backends")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Fallback, E> {
                match word {
                    "allow" => Ok(Fallback::Allow),
                    "never" => Ok(Fallback::Never),
                    _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Fallback, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Ok(Fallback::Names(names))
            }
        }
        deserializer.deserialize_any(Words)
    }
}

/// One line of the table. The first that fits counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteRule {
    /// Its name, for records and for people.
    pub name: String,
    /// When it fits.
    pub when: When,
    /// Where it sends to.
    pub to: Target,
    /// Who may stand in.
    #[serde(default)]
    pub fallback: Fallback,
    /// Why it is so, in words for people.
    #[serde(default)]
    pub reason: String,
}
