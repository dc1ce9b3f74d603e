//! The backends of sub-agents: a dispatch, or the configuration, may prefer another one than the turn does. The routing rules
//! decide which backends a turn may use, so the preferred one is always one of the turn's route.

use super::facts::BackendFacts;

/// The backends that dispatches may name.
#[derive(Debug, Clone, Copy, Default)]
pub struct AgentModels<'a> {
    facts: &'a [BackendFacts],
    preferred: &'a str,
    advisors: &'a [String],
}

impl<'a> AgentModels<'a> {
    /// The backends of the pool, in the order of the configuration, and the name of the one, or the capability, that sub-agents
    /// prefer unless their dispatch says otherwise; empty if there is none.
    #[must_use]
    pub const fn new(facts: &'a [BackendFacts], preferred: &'a str) -> Self {
        Self { facts, preferred, advisors: &[] }
    }

    /// The same with the backends whose model can advise an agent: no planner, and no program.
    #[must_use]
    pub const fn with_advisors(self, advisors: &'a [String]) -> Self {
        Self { advisors, ..self }
    }

    /// The backends that advise the agents of a turn with this route: those that fit the wanted name or capability first. Empty if
    /// none can.
    pub(crate) fn advisors(self, turn_route: &[String], wanted: &str) -> Vec<String> {
        let first = || self.facts.first().map(|facts| facts.name.clone()).into_iter().collect();
        let of_turn: Vec<String> = if turn_route.is_empty() { first() } else { Vec::from(turn_route) };
        let preferred = AgentModels { facts: self.facts, preferred: wanted, advisors: &[] }
            .route(&of_turn, None)
            .unwrap_or_default();
        let mut route = if preferred.is_empty() { of_turn } else { preferred };
        route.retain(|name| self.advisors.contains(name));
        route
    }

    /// The route of an agent of a turn with this route: the backends that fit the wanted name or capability first, and then the
    /// others as fallbacks. Empty means the route of the turn.
    ///
    /// # Errors
    /// If the dispatch names none of them: the text for the model, with those that exist.
    pub fn route(self, turn_route: &[String], wanted: Option<&str>) -> Result<Vec<String>, String> {
        // An empty route means the first backend.
        let first = self.facts.first().map(|facts| facts.name.clone());
        let all: Vec<String> = if turn_route.is_empty() { first.into_iter().collect() } else { turn_route.to_vec() };
        let word = wanted.unwrap_or(self.preferred).trim();
        if word.is_empty() {
            return Ok(Vec::new());
        }
        let named = |name: &String| name.eq_ignore_ascii_case(word);
        let able = |name: &String| self.of(name).is_some_and(|facts| facts.capabilities.iter().any(|c| c == word));
        let (mut route, others): (Vec<String>, Vec<String>) =
            if all.iter().any(named) { all.into_iter().partition(named) } else { all.into_iter().partition(able) };
        if route.is_empty() {
            return match wanted {
                Some(_) => Err(self.unknown(word, &others)),
                // The rules forbid the preferred backend for this turn.
                None => Ok(Vec::new()),
            };
        }
        route.extend(others);
        Ok(if wanted.is_none() && route == turn_route { Vec::new() } else { route })
    }

    fn of(self, name: &str) -> Option<&'a BackendFacts> {
        self.facts.iter().find(|facts| facts.name == name)
    }

    fn unknown(self, word: &str, names: &[String]) -> String {
        let shown = |name: &String| {
            let able = self.of(name).map(|facts| facts.capabilities.iter().cloned().collect::<Vec<_>>());
            match able.filter(|words| !words.is_empty()) {
                Some(words) => format!("{name} ({})", words.join(", ")),
                None => name.clone(),
            }
        };
        let names: Vec<String> = names.iter().map(shown).collect();
        let word: String = word.chars().take(80).collect();
        format!("no model {word:?} may run this. Leave model out, or name one of: {}.", names.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str, capabilities: &[&str]) -> BackendFacts {
        let capabilities = capabilities.iter().map(|&word| word.to_owned()).collect();
        BackendFacts { name: name.to_owned(), capabilities, ..BackendFacts::default() }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn agent_models_prefer_a_name_then_a_capability_within_the_route() {
        let facts = [facts("big", &[]), facts("quick", &["small"]), facts("cloud", &["small"])];
        let (models, all) = (AgentModels::new(&facts, ""), names(&["big", "quick", "cloud"]));
        assert_eq!(models.route(&all, Some("Quick")).unwrap(), names(&["quick", "big", "cloud"]));
        assert_eq!(models.route(&all, Some("small")).unwrap(), names(&["quick", "cloud", "big"]));
        assert_eq!(models.route(&all, None).unwrap(), names(&[]));
        let why = models.route(&names(&["big", "quick"]), Some("cloud")).unwrap_err();
        assert_eq!(why, "no model \"cloud\" may run this. Leave model out, or name one of: big; quick (small).");
        assert_eq!(models.route(&[], Some("big")).unwrap(), names(&["big"]), "an empty route means the first backend");
    }

    #[test]
    fn agent_models_use_the_configured_one_if_the_route_has_it_and_the_dispatch_names_none() {
        let facts = [facts("big", &[]), facts("quick", &["small"])];
        let models = AgentModels::new(&facts, "small");
        assert_eq!(models.route(&names(&["big", "quick"]), None).unwrap(), names(&["quick", "big"]));
        assert_eq!(models.route(&names(&["big"]), None).unwrap(), names(&[]));
        assert_eq!(models.route(&names(&["quick", "big"]), None).unwrap(), names(&[]), "nothing differs from the turn");
        assert_eq!(models.route(&names(&["big", "quick"]), Some("big")).unwrap(), names(&["big", "quick"]));
    }
}
