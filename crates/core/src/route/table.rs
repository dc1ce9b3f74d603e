//! The routing rules, checked against the backends and compiled. Invalid rules are reported by name; nothing is dropped
//! silently.

use std::collections::BTreeSet;

use regex::{Regex, RegexBuilder};

use super::{
    choose::Asked,
    facts::BackendFacts,
    rules::{Fallback, RouteRule},
};
use crate::outcome::floor_char_boundary;

/// How much of a text the rules examine, in bytes. The request is at the beginning of a text, and a pasted document is not a
/// request.
pub(super) const LOOKED_AT_BYTES_MAX: usize = 4 * 1024;

/// The routing table is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteTableError {
    /// There is no backend.
    #[error("no backend is configured")]
    NoBackend,
    /// There are too many rules.
    #[error("{count} routing rules are too many; {max} are allowed")]
    TooMany {
        /// Number of rules.
        count: usize,
        /// Maximum number of rules.
        max: usize,
    },
    /// A backend's facts are invalid.
    #[error("backend `{name}`: {what}")]
    Backend {
        /// The backend's name.
        name: String,
        /// The error, with the name of the setting.
        what: String,
    },
    /// A rule is invalid.
    #[error("routing rule `{name}`: {what}")]
    Rule {
        /// The rule's name, or its number from 1 if it has none.
        name: String,
        /// The error, with the name of the setting.
        what: String,
    },
}

/// A compiled rule.
#[derive(Debug, Clone)]
pub(super) struct Ready {
    pub(super) rule: RouteRule,
    phrases: Vec<Vec<String>>,
    pattern: Option<Regex>,
    /// Whether no backend of the pool matches the target.
    idle: bool,
}

/// The routing table.
#[derive(Debug, Clone)]
pub struct RouteTable {
    ready: Vec<Ready>,
}

impl RouteTable {
    /// Maximum number of rules in a table.
    pub const RULES_MAX: usize = 200;
    /// Maximum length of a pattern, in bytes.
    pub const REGEX_BYTES_MAX: usize = 2_000;
    /// Maximum memory of one compiled pattern, in bytes.
    const REGEX_SIZE_BYTES_MAX: usize = 1024 * 1024;

    /// Checks rules and facts, and compiles the table. A rule whose target matches no backend is kept and never applies (see
    /// [`Self::idle`]), so that the same rules work with different pools.
    ///
    /// # Errors
    /// The first invalid backend or rule, with the reason.
    pub fn new(rules: Vec<RouteRule>, facts: &[BackendFacts]) -> Result<Self, RouteTableError> {
        check_facts(facts)?;
        if rules.len() > Self::RULES_MAX {
            return Err(RouteTableError::TooMany { count: rules.len(), max: Self::RULES_MAX });
        }
        let mut names = BTreeSet::new();
        let mut ready = Vec::with_capacity(rules.len());
        for (index, rule) in (1..).zip(rules) {
            let name = if rule.name.trim().is_empty() { format!("number {index}") } else { rule.name.clone() };
            let wrong = |what: String| RouteTableError::Rule { name: name.clone(), what };
            if rule.name.trim().is_empty() {
                return Err(wrong("it has no name".to_owned()));
            }
            if !names.insert(rule.name.clone()) {
                return Err(wrong("there are two of this name".to_owned()));
            }
            ready.push(Ready::new(rule, facts).map_err(wrong)?);
        }
        Ok(Self { ready })
    }

    /// The rules, in their order.
    pub fn rules(&self) -> impl Iterator<Item = &RouteRule> {
        self.ready.iter().map(|r| &r.rule)
    }

    /// Names of the rules whose target matches no backend. They never apply.
    pub fn idle(&self) -> impl Iterator<Item = &str> {
        self.ready.iter().filter(|r| r.idle).map(|r| r.rule.name.as_str())
    }

    /// The first rule that matches.
    pub(super) fn fitting(&self, asked: &Asked<'_>, text: &str) -> Option<&RouteRule> {
        let text = &text[..floor_char_boundary(text, LOOKED_AT_BYTES_MAX)];
        let words = words_of(text);
        self.ready.iter().find(|r| !r.idle && r.fits(asked, text, &words)).map(|r| &r.rule)
    }
}

/// The words of a text in lower case. All other characters separate words.
fn words_of(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '’');
    parts.filter(|w| !w.is_empty()).map(str::to_lowercase).collect()
}

impl Ready {
    fn new(rule: RouteRule, facts: &[BackendFacts]) -> Result<Self, String> {
        if rule.when.is_empty() {
            return Err("`when` is empty: it would fit everything".to_owned());
        }
        let to = &rule.to;
        let is_vague = to.capabilities.is_empty() && to.privacy.is_none();
        if to.backend.is_none() && is_vague {
            return Err("`to` names neither a backend nor what it must be able to do".to_owned());
        }
        if to.backend.is_some() && !is_vague {
            return Err("`to` names a backend and conditions; keep one".to_owned());
        }
        let named = if let Fallback::Names(names) = &rule.fallback { names.as_slice() } else { &[] };
        if let Some(name) = to.backend.iter().chain(named).find(|n| !facts.iter().any(|f| f.name == **n)) {
            let known: Vec<&str> = facts.iter().map(|f| f.name.as_str()).collect();
            return Err(format!("there is no backend `{name}`; there are: {}", known.join(", ")));
        }
        let phrases: Vec<Vec<String>> = rule.when.any_words.iter().map(|w| words_of(w)).collect();
        if let Some((word, _)) = rule.when.any_words.iter().zip(&phrases).find(|(_, p)| p.is_empty()) {
            return Err(format!("any_words has {word:?}, which has no word in it"));
        }
        let pattern = rule.when.regex.as_deref().map(pattern).transpose()?;
        let idle = !facts.iter().any(|f| to.fits(f));
        Ok(Self { rule, phrases, pattern, idle })
    }

    fn fits(&self, asked: &Asked<'_>, text: &str, words: &[String]) -> bool {
        let when = &self.rule.when;
        let has = |phrase: &Vec<String>| words.windows(phrase.len()).any(|part| part == phrase.as_slice());
        let by_text = self.phrases.is_empty() && self.pattern.is_none()
            || self.phrases.iter().any(has)
            || self.pattern.as_ref().is_some_and(|p| p.is_match(text));
        let any = |list: &[String], of: &dyn Fn(&str) -> bool| list.is_empty() || list.iter().any(|one| of(one));
        let domain_of = |skill: &str| skill.split_once('.').map_or(skill, |(domain, _)| domain).to_owned();
        by_text
            && any(&when.sources, &|s| s == asked.source)
            && (when.priorities.is_empty() || when.priorities.contains(&asked.priority))
            && any(&when.skills, &|s| asked.skills.iter().any(|skill| skill == s))
            && any(&when.domains, &|d| asked.skills.iter().any(|skill| domain_of(skill) == d))
    }
}

fn pattern(text: &str) -> Result<Regex, String> {
    if text.is_empty() || text.len() > RouteTable::REGEX_BYTES_MAX {
        return Err(format!("regex needs 1 to {} bytes", RouteTable::REGEX_BYTES_MAX));
    }
    let built = RegexBuilder::new(text).case_insensitive(true).size_limit(RouteTable::REGEX_SIZE_BYTES_MAX).build();
    let regex = built.map_err(|e| format!("regex {text:?} is none: {e}"))?;
    // A pattern that matches the empty text would match every text.
    if regex.is_match("") { Err(format!("regex {text:?} fits every text")) } else { Ok(regex) }
}

fn check_facts(facts: &[BackendFacts]) -> Result<(), RouteTableError> {
    if facts.is_empty() {
        return Err(RouteTableError::NoBackend);
    }
    let (mut names, mut called) = (BTreeSet::new(), BTreeSet::new());
    for backend in facts {
        let wrong = |what: String| RouteTableError::Backend { name: backend.name.clone(), what };
        if let Some(what) = backend.flaw() {
            return Err(wrong(what));
        }
        if !names.insert(backend.name.as_str()) {
            return Err(wrong("there are two of this name".to_owned()));
        }
        if let Some(name) = backend.called.iter().find(|n| !called.insert(n.to_lowercase())) {
            return Err(wrong(format!("{name:?} is what users call another one already")));
        }
    }
    Ok(())
}
