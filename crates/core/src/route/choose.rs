//! The choice for one request: candidates in their order, and why.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    called::called,
    facts::{BackendFacts, Privacy},
    rules::{Fallback, Preference, RouteRule, Target},
    table::RouteTable,
};
use crate::event::Priority;

/// How far the rules are trusted [S3 10.7]. A backend that the user calls by name is taken in every mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteMode {
    /// The first backend does the work; what the rules would choose is only recorded.
    Shadow,
    /// The same, and the user is told what the rules would choose.
    Suggest,
    /// The rules decide.
    #[default]
    Automatic,
}

/// What is known of a request when its backend is chosen.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The user's words.
    pub text: &'a str,
    /// Which door or channel it came through.
    pub source: &'a str,
    /// Its class.
    pub priority: Priority,
    /// The skills it may use, where that is known already: a sub-agent's.
    pub skills: &'a [String],
    /// How long prompt and answer may become together, in tokens.
    pub tokens_estimate: u32,
    /// It must not leave the house.
    pub private: bool,
}

/// Why a backend cannot take a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// The request is too long for it.
    ContextTooSmall {
        /// What it can hold, in tokens.
        tokens_max: u32,
        /// What is needed, in tokens.
        tokens: u32,
    },
    /// The request is private, and it is not in the house.
    NotLocal,
    /// It is a program, and neither a rule nor the user names it.
    NotNamed,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ContextTooSmall { tokens_max, tokens } => {
                write!(f, "its context of {tokens_max} tokens is too small for {tokens}")
            }
            Self::NotLocal => f.write_str("the request is private and must stay in the house"),
            Self::NotNamed => f.write_str("it is a program, which runs only where a rule or the user names it"),
        }
    }
}

/// A request that nobody may take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRoute {
    /// The user called for one that cannot.
    #[error("`{backend}` was called by name, but {why}")]
    Called {
        /// The backend.
        backend: String,
        /// Why it cannot.
        why: Unfit,
    },
    /// A rule means only backends that cannot, and lets nobody stand in.
    #[error("rule `{rule}` wants {target} and nobody else: {}", listed(unfit))]
    Rule {
        /// The rule.
        rule: String,
        /// What it wants, in words.
        target: String,
        /// Why each of them cannot.
        unfit: Vec<(String, Unfit)>,
    },
    /// None can.
    #[error("no backend can take this: {}", listed(unfit))]
    Nobody {
        /// Why each cannot.
        unfit: Vec<(String, Unfit)>,
    },
}

fn listed(unfit: &[(String, Unfit)]) -> String {
    if unfit.is_empty() {
        return "there is none".to_owned();
    }
    unfit.iter().map(|(name, why)| format!("`{name}`: {why}")).collect::<Vec<_>>().join("; ")
}

/// A decision, with its reasons (invariant 19).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Who does it, then who may stand in, in their order. Never empty.
    pub candidates: Vec<String>,
    /// Whom the rules mean, whatever the mode and whoever was called; nothing if those cannot take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// The user called the backend by name.
    #[serde(default)]
    pub is_called: bool,
    /// What the backend is to be given in place of the text: the text without the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripped_text: Option<String>,
    /// Why, in words.
    pub reason: String,
    /// What else there was, each with why it is not the first.
    pub alternatives: Vec<String>,
    /// What to tell the user, in `suggest` mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// The rule that fitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

impl Route {
    /// The first candidate.
    #[must_use]
    pub fn primary(&self) -> &str {
        self.candidates.first().map_or("", String::as_str)
    }

    /// Whether the rules mean the one that is used: to be counted before the rules are trusted [S3 10.7].
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.chosen.as_deref() == Some(self.primary())
    }
}

/// Chooses. Health, windows and slots do not count here: [`super::pick`] takes the first candidate that is ready.
///
/// # Errors
/// If no backend may take it, with the reason for each.
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
            return Err(found.nobody());
        }
        return Ok(found.route(&meant, found.why()));
    }
    let can = |f: &&BackendFacts| is_ordinary(f, facts) && unfit(f, asked).is_none();
    let Some(first) = facts.iter().find(can) else { return Err(found.nobody()) };
    // A rule that is only recorded names no program either.
    let others = meant.iter().copied().filter(|f| f.name != first.name && is_ordinary(f, facts));
    let order: Vec<&BackendFacts> = std::iter::once(first).chain(others).collect();
    let route = found.route(&order, format!("the first backend that can; by the rules: {}", found.why()));
    let suggestion = (mode == RouteMode::Suggest && !route.agrees()).then(|| found.suggestion()).flatten();
    Ok(Route { suggestion, ..route })
}

/// Whether a request may go to this one though nothing names it. A program acts, and its work cannot be taken back: it never
/// stands in for a language model by itself. Where there is nothing but programs, they are what the configuration names.
fn is_ordinary(one: &BackendFacts, facts: &[BackendFacts]) -> bool {
    !one.acts || facts.iter().all(|f| f.acts)
}

/// Why this one cannot take the request at all.
fn unfit(facts: &BackendFacts, asked: &Asked<'_>) -> Option<Unfit> {
    if asked.private && facts.privacy != Privacy::Local {
        return Some(Unfit::NotLocal);
    }
    let tokens = asked.tokens_estimate;
    facts.context_tokens_max.filter(|max| *max < tokens).map(|tokens_max| Unfit::ContextTooSmall { tokens_max, tokens })
}

/// Those that the rule means and that can, then those that may stand in and can.
fn meant<'f>(rule: Option<&RouteRule>, facts: &'f [BackendFacts], asked: &Asked<'_>) -> Vec<&'f BackendFacts> {
    let can = facts.iter().filter(|f| unfit(f, asked).is_none());
    let Some(rule) = rule else { return can.filter(|f| is_ordinary(f, facts)).collect() };
    let (mut order, others): (Vec<&BackendFacts>, Vec<_>) = can.partition(|f| rule.to.fits(f));
    if rule.to.prefer == Preference::Cheapest {
        // The sort is stable: the first of equals stays the first.
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

/// What was found out about a request.
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
        let whom = match &self.chosen {
            Some(name) if self.is_meant(name, &rule.to) => format!("`{name}`"),
            Some(name) => format!("`{name}` stands in"),
            None => "nobody can".to_owned(),
        };
        format!("rule `{}` wants {}{because}: {whom}", rule.name, rule.to)
    }

    fn is_meant(&self, name: &str, target: &Target) -> bool {
        self.facts.iter().any(|f| f.name == name && target.fits(f))
    }

    fn alternatives(&self, order: &[&BackendFacts]) -> Vec<String> {
        let one = |f: &BackendFacts| {
            let place = order.iter().position(|o| o.name == f.name);
            let name = &f.name;
            match (place, unfit(f, self.asked)) {
                (Some(0), _) => None,
                (Some(_), _) => Some(format!("`{name}` may stand in")),
                (None, Some(why)) => Some(format!("`{name}`: {why}")),
                (None, None) if !is_ordinary(f, self.facts) => Some(format!("`{name}`: {}", Unfit::NotNamed)),
                (None, None) => Some(format!("`{name}` may not stand in")),
            }
        };
        self.facts.iter().filter_map(one).collect()
    }

    fn nobody(&self) -> NoRoute {
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
            _ => NoRoute::Nobody { unfit: all },
        }
    }

    /// One sentence for the user.
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
