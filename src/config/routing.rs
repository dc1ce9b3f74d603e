//! `[routing]` and `[[route]]`: the backend of a message. The rules are documented in [`annie_core::route`].

use annie_core::route::{
    BackendFacts, Fallback, Privacy, RouteMode, RouteRule, RouteTable, RouteTableError, default_rules,
};
use serde::{Deserialize, Serialize};

use super::{settings::Config, typed::KeyError};

/// The name of the built-in backend that is used if none is configured.
pub const OFFLINE: &str = "offline";
/// Concurrent rounds of the planner, which uses only the processor.
const OFFLINE_SLOTS: u32 = 8;

/// The pool without a configured backend: the offline planner. It needs no other service, and has no capability that a rule
/// could require, so every message is routed to it.
pub(super) fn planner() -> BackendFacts {
    BackendFacts { name: OFFLINE.to_owned(), privacy: Privacy::Local, slots: OFFLINE_SLOTS, ..BackendFacts::default() }
}

/// `[routing]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Routing {
    /// How the result of the rules is used.
    pub mode: RouteMode,
    /// Whether the built-in rules are appended to those of the configuration.
    pub default_rules: bool,
}

impl Default for Routing {
    fn default() -> Self {
        Self { mode: RouteMode::default(), default_rules: true }
    }
}

impl Config {
    /// The rules of the configuration, followed by the built-in ones. A configured rule replaces the built-in rule of the same
    /// name.
    fn rules(&self) -> Vec<RouteRule> {
        let usual = if self.routing.default_rules { default_rules() } else { Vec::new() };
        let is_new = |rule: &RouteRule| self.route.iter().all(|own| own.name != rule.name);
        self.route.iter().cloned().chain(usual.into_iter().filter(is_new)).collect()
    }

    /// The route table of these backends.
    ///
    /// # Errors
    /// Names the first rule or backend that is not valid.
    pub fn route_table(&self, facts: &[BackendFacts]) -> Result<RouteTable, RouteTableError> {
        RouteTable::new(self.rules(), facts)
    }

    /// The configured rules that no backend can satisfy.
    #[must_use]
    pub fn idle_rules(&self, facts: &[BackendFacts]) -> Vec<String> {
        let table = RouteTable::new(self.route.clone(), facts);
        table.map(|table| table.idle().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Checks the rules against these backends.
    pub(super) fn check_routes(&self, facts: &[BackendFacts]) -> Result<(), KeyError> {
        let fits =
            |count: usize| RouteTable::new(self.route.get(..count).unwrap_or_default().to_vec(), facts).map(drop);
        // If the first `n` rules are valid, so is every shorter prefix. Therefore binary search finds the first invalid rule.
        let counts: Vec<usize> = (1..=self.route.len()).collect();
        let at = counts.partition_point(|count| fits(*count).is_ok());
        let all = || self.route_table(facts).map(drop);
        let Err(error) = counts.get(at).map_or_else(all, |count| fits(*count)) else { return self.check_strict(facts) };
        let index = at.to_string();
        match error {
            RouteTableError::Rule { what, .. } => {
                let fix = "see `annie config sample` for an example of a rule";
                Err(KeyError::value(&["route", &index], &what, fix))
            }
            error @ RouteTableError::TooMany { .. } => Err(KeyError::value(
                &["route"],
                &error.to_string(),
                "leave some out, or set routing.default_rules = false",
            )),
            error => Err(KeyError::value(&["backend"], &error.to_string(), "see `annie config sample` for an example")),
        }
    }

    /// A rule that forbids or limits fallback backends is a guarantee. If no backend can satisfy it, its messages would be
    /// routed to the first backend as if there were no rule; therefore such a configuration is refused. The built-in rules
    /// apply to every pool and guarantee nothing.
    fn check_strict(&self, facts: &[BackendFacts]) -> Result<(), KeyError> {
        if self.backend.is_empty() || self.routing.mode != RouteMode::Automatic {
            return Ok(());
        }
        let is_broken =
            |rule: &RouteRule| rule.fallback != Fallback::Allow && !facts.iter().any(|backend| rule.to.fits(backend));
        let Some((index, rule)) = self.route.iter().enumerate().find(|(_, rule)| is_broken(rule)) else {
            return Ok(());
        };
        let what = format!("it wants {} and restricts `fallback`, but there is no such backend", rule.to);
        let fix = "give a backend what `to` asks for, or leave `fallback` out";
        Err(KeyError::value(&["route", &index.to_string()], &what, fix))
    }
}
