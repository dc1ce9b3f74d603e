//! One rule of the routing table, as in the configuration.

use std::{collections::BTreeSet, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
};

use super::facts::{BackendFacts, Privacy};
use crate::event::Priority;

/// The conditions of a rule. Conditions of different kinds must all hold; within one kind, any value is enough. Words and
/// pattern are one kind: the text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// The text contains one of these phrases as whole words, ignoring case: `git status` matches "Git status?", but not
    /// "digit status".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any_words: Vec<String>,
    /// The text matches this regular expression, ignoring case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// The front end or channel is one of these: `voice`, `http` …
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// The class is one of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub priorities: Vec<Priority>,
    /// One of these skills may be used: `tasks.create`. Checked if the skills are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// A skill of one of these domains may be used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
}

impl When {
    /// Whether there is no condition. Such a rule would match every request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The order of several matching backends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preference {
    /// The order in the configuration.
    #[default]
    Listed,
    /// The cheapest first; equal prices keep the order of the configuration.
    Cheapest,
}

/// The target of a rule: one backend by name, or any backend with the required properties.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Target {
    /// The backend with this name. Excludes the other conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Backends with all of these capabilities.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub capabilities: BTreeSet<String>,
    /// Backends with this location.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privacy: Option<Privacy>,
    /// The order of several matching backends.
    pub prefer: Preference,
}

impl Target {
    /// The backend with this name.
    #[must_use]
    pub fn backend(name: impl Into<String>) -> Self {
        Self { backend: Some(name.into()), ..Self::default() }
    }

    /// Any backend with all of these capabilities.
    #[must_use]
    pub fn able<const N: usize>(capabilities: [&str; N]) -> Self {
        Self { capabilities: capabilities.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }

    /// Any local backend.
    #[must_use]
    pub fn local() -> Self {
        Self { privacy: Some(Privacy::Local), ..Self::default() }
    }

    /// Whether this backend matches. A program matches by its name or its capabilities, never by its location alone.
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

/// The fallbacks if the backends selected by a rule cannot run a request [S3 10.4]. The other backends selected by the rule
/// are always fallbacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Any other language model, in the order of the configuration. A program is a fallback only if it is named.
    #[default]
    Allow,
    /// No fallback: the request fails.
    Never,
    /// These backends, in this order.
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

/// One rule of the table. The first rule that matches applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteRule {
    /// The name, for records and people.
    pub name: String,
    /// The conditions.
    pub when: When,
    /// The target.
    pub to: Target,
    /// The fallbacks.
    #[serde(default)]
    pub fallback: Fallback,
    /// The reason for the rule, for people.
    #[serde(default)]
    pub reason: String,
}
