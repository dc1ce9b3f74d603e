//! The choice for one request: ordered candidates, with the reasons.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    called::called,
    facts::{BackendFacts, Privacy},
    rules::{Fallback, Preference, RouteRule, Target},
    table::RouteTable,
};
use crate::event::Priority;

/// How far the rules are applied [S3 10.7]. A backend that the user calls by name is used in every mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteMode {
    /// The first backend is used. The choice of the rules is only recorded.
    Shadow,
    /// Like `Shadow`, and the choice of the rules is suggested to the user.
    Suggest,
    /// The choice of the rules is used.
    #[default]
    Automatic,
}

/// The facts about a request that determine its backend.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The user's text.
    pub text: &'a str,
    /// The front end or channel of the message.
    pub source: &'a str,
    /// The scheduling class.
    pub priority: Priority,
    /// The skills that the request may use, if they are already known, as for a sub-agent.
    pub skills: &'a [String],
    /// Estimated size of prompt and answer together, in tokens.
    pub tokens_estimate: u32,
    /// Whether the request is local only.
    pub private: bool,
}

/// The reason why a backend cannot run a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// The request exceeds the backend's context window.
    ContextTooSmall {
        /// The context window, in tokens.
        tokens_max: u32,
        /// The required size, in tokens.
        tokens: u32,
    },
    /// The request is private, and the backend is not local.
    NotLocal,
    /// The backend is a program, and neither a rule nor the user names it.
    NotNamed,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ContextTooSmall { tokens_max, tokens } => {
                write!(f, "its context of {tokens_max} tokens is too small for {tokens}")
            }
            Self::NotLocal => f.write_str("the request is private, and the backend is not marked as local"),
            Self::NotNamed => f.write_str("it is a program, which runs only where a rule or the user names it"),
        }
    }
}

/// No backend may run the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRoute {
    /// The user named a backend that cannot run it.
    #[error("`{backend}` was called by name, but {why}")]
    Called {
        /// The backend.
        backend: String,
        /// The reason.
        why: Unfit,
    },
    /// A rule selects only backends that cannot run it, and allows no fallback.
    #[error("rule `{rule}` wants {target} and allows no fallback: {}", listed(unfit))]
    Rule {
        /// The rule.
        rule: String,
        /// Description of the rule's target.
        target: String,
        /// The backends of the rule, each with the reason.
        unfit: Vec<(String, Unfit)>,
    },
    /// No backend can run it.
    #[error("no backend can take this: {}", listed(unfit))]
    NoneFits {
        /// All backends, each with the reason.
        unfit: Vec<(String, Unfit)>,
    },
}

fn listed(unfit: &[(String, Unfit)]) -> String {
    if unfit.is_empty() {
        return "there is none".to_owned();
    }
    unfit.iter().map(|(name, why)| format!("`{name}`: {why}")).collect::<Vec<_>>().join("; ")
}

/// A routing decision, with its reasons (invariant 19).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The preferred backend, then the fallbacks, in order. Never empty.
    pub candidates: Vec<String>,
    /// The choice of the rules, whatever the mode and whatever backend the user named. Absent if the backends of the rules
    /// cannot run the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// Whether the user called the backend by name.
    #[serde(default)]
    pub is_called: bool,
    /// The text without the backend's name, which the backend gets in place of the original text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripped_text: Option<String>,
    /// The reason, in words.
    pub reason: String,
    /// The other backends, each with the reason why it is not preferred.
    pub alternatives: Vec<String>,
    /// The suggestion for the user, in `suggest` mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// The rule that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

impl Route {
    /// The first candidate.
    #[must_use]
    pub fn primary(&self) -> &str {
        self.candidates.first().map_or("", String::as_str)
    }

    /// Whether the rules choose the backend that is used. This is counted before the rules are applied automatically
    /// [S3 10.7].
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.chosen.as_deref() == Some(self.primary())
    }
}

/// Chooses the candidates. Health, windows and slots are not considered here: [`super::pick`] takes the first candidate that
/// is ready.
///
/// # Errors
/// If no backend may run the request, with the reason for each.
pub fn choose(
    table: &RouteTable,
    facts: &[BackendFacts],
    mode: RouteMode,
    asked: &Asked<'_>,
) -> Result<Route, NoRoute> {
    let call = called(asked.text, facts);
    let text = call.map_or(asked.text, |(_, rest)| rest);
    let rule = table.fitting(asked, text);
    let meant = meant(rule, facts, asked);
    let chosen = meant.first().map(|f| f.name.clone());
    let found = Found { rule, facts, asked, chosen };
    if let Some((backend, rest)) = call {
        if let Some(why) = unfit(backend, asked) {
            return Err(NoRoute::Called { backend: backend.name.clone(), why });
        }
        let reason = format!("the user called `{}` by name", backend.name);
        let route = found.route(&[backend], reason);
        return Ok(Route { is_called: true, stripped_text: Some(rest.to_owned()), ..route });
    }
    if mode == RouteMode::Automatic {
        if meant.is_empty() {
            return Err(found.no_route());
        }
        return Ok(found.route(&meant, found.why()));
    }
    let can = |f: &&BackendFacts| is_ordinary(f, facts) && unfit(f, asked).is_none();
    let Some(first) = facts.iter().find(can) else { return Err(found.no_route()) };
    // A rule that is only recorded does not select a program either.
    let others = meant.iter().copied().filter(|f| f.name != first.name && is_ordinary(f, facts));
    let order: Vec<&BackendFacts> = std::iter::once(first).chain(others).collect();
    let route = found.route(&order, format!("the first backend that can; by the rules: {}", found.why()));
    let suggestion = (mode == RouteMode::Suggest && !route.agrees()).then(|| found.suggestion()).flatten();
    Ok(Route { suggestion, ..route })
}

/// Whether a request may go to this backend although nothing names it. A program has effects that cannot be undone, so it
/// never replaces a language model by default. If all backends are programs, the configuration names them.
fn is_ordinary(one: &BackendFacts, facts: &[BackendFacts]) -> bool {
    !one.acts || facts.iter().all(|f| f.acts)
}

/// The reason why this backend cannot run the request, if there is one.
fn unfit(facts: &BackendFacts, asked: &Asked<'_>) -> Option<Unfit> {
    if asked.private && facts.privacy != Privacy::Local {
        return Some(Unfit::NotLocal);
    }
    let tokens = asked.tokens_estimate;
    facts.context_tokens_max.filter(|max| *max < tokens).map(|tokens_max| Unfit::ContextTooSmall { tokens_max, tokens })
}

/// The suitable backends that the rule selects, then its suitable fallbacks.
fn meant<'f>(rule: Option<&RouteRule>, facts: &'f [BackendFacts], asked: &Asked<'_>) -> Vec<&'f BackendFacts> {
    let can = facts.iter().filter(|f| unfit(f, asked).is_none());
    let Some(rule) = rule else { return can.filter(|f| is_ordinary(f, facts)).collect() };
    let (mut order, others): (Vec<&BackendFacts>, Vec<_>) = can.partition(|f| rule.to.fits(f));
    if rule.to.prefer == Preference::Cheapest {
        // The sort is stable: equal prices keep their order.
        order.sort_by(|a, b| a.price_usd().total_cmp(&b.price_usd()));
    }
    match &rule.fallback {
        Fallback::Allow => order.extend(others.into_iter().filter(|f| is_ordinary(f, facts))),
        Fallback::Never => {}
        Fallback::Names(names) => {
            for name in names {
                let named = others.iter().copied().find(|f| f.name == *name);
                order.extend(named.filter(|f| order.iter().all(|o| o.name != f.name)));
            }
        }
    }
    order
}

/// The facts found out about a request.
struct Found<'a> {
    rule: Option<&'a RouteRule>,
    facts: &'a [BackendFacts],
    asked: &'a Asked<'a>,
    chosen: Option<String>,
}

impl Found<'_> {
    fn route(&self, order: &[&BackendFacts], reason: String) -> Route {
        Route {
            candidates: order.iter().map(|f| f.name.clone()).collect(),
            chosen: self.chosen.clone(),
            is_called: false,
            stripped_text: None,
            reason,
            alternatives: self.alternatives(order),
            suggestion: None,
            rule: self.rule.map(|r| r.name.clone()),
        }
    }

    fn why(&self) -> String {
        let Some(rule) = self.rule else { return "no rule fits, the first backend that can".to_owned() };
        let because = if rule.reason.is_empty() { String::new() } else { format!(" ({})", rule.reason) };
        let choice = match &self.chosen {
            Some(name) if self.is_meant(name, &rule.to) => format!("`{name}`"),
            Some(name) => format!("fallback `{name}`"),
            None => "no suitable backend".to_owned(),
        };
        format!("rule `{}` wants {}{because}: {choice}", rule.name, rule.to)
    }

    fn is_meant(&self, name: &str, target: &Target) -> bool {
        self.facts.iter().any(|f| f.name == name && target.fits(f))
    }

    fn alternatives(&self, order: &[&BackendFacts]) -> Vec<String> {
        let one = |f: &BackendFacts| {
            let rank = order.iter().position(|o| o.name == f.name);
            let name = &f.name;
            match (rank, unfit(f, self.asked)) {
                (Some(0), _) => None,
                (Some(_), _) => Some(format!("`{name}` is a fallback")),
                (None, Some(why)) => Some(format!("`{name}`: {why}")),
                (None, None) if !is_ordinary(f, self.facts) => Some(format!("`{name}`: {}", Unfit::NotNamed)),
                (None, None) => Some(format!("`{name}` is not a fallback")),
            }
        };
        self.facts.iter().filter_map(one).collect()
    }

    fn no_route(&self) -> NoRoute {
        let why = |only: Option<&Target>| {
            let looked_at = self.facts.iter().filter(|f| only.is_none_or(|to| to.fits(f)));
            let why = |f: &BackendFacts| {
                let is_named = is_ordinary(f, self.facts) || self.rule.is_some_and(|rule| rule.to.fits(f));
                unfit(f, self.asked).or((!is_named).then_some(Unfit::NotNamed))
            };
            looked_at.filter_map(|f| why(f).map(|u| (f.name.clone(), u))).collect::<Vec<_>>()
        };
        let all = why(None);
        match self.rule {
            Some(rule) if all.len() < self.facts.len() => {
                NoRoute::Rule { rule: rule.name.clone(), target: rule.to.to_string(), unfit: why(Some(&rule.to)) }
            }
            _ => NoRoute::NoneFits { unfit: all },
        }
    }

    /// The suggestion for the user, one sentence.
    fn suggestion(&self) -> Option<String> {
        let name = self.chosen.as_deref()?;
        let called = self.facts.iter().find(|f| f.name == name).and_then(|f| f.called.first());
        let because = self.rule.map(|r| r.reason.as_str()).filter(|r| !r.is_empty());
        let because = because.map(|r| format!(" ({r})")).unwrap_or_default();
        Some(match called {
            Some(word) => {
                let mut word = word.chars();
                let capital: String = word.next().into_iter().flat_map(char::to_uppercase).chain(word).collect();
                format!("I think this is for {name}{because}. Begin with \"{capital},\" and I will pass it on.")
            }
            None => format!("I think this is for {name}{because}."),
        })
    }
}
