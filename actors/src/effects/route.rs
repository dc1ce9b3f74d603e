//! Which backends may run a turn's rounds, worked out once when it begins and recorded with the reasons.

use annie_core::{
    caller::Thread,
    context::tokens,
    event::{EventBody, Inbound},
    route::{Asked, choose},
};

use crate::wiring::Wiring;

/// The backends of a turn.
#[derive(Debug, Default)]
pub(crate) struct Routed {
    /// The one meant first, then who may stand in. Empty if nobody may take it.
    pub candidates: Vec<String>,
    /// The message without the name of a backend that the user called.
    pub stripped: Option<String>,
    /// What was decided, for the log; nothing where there is no choice.
    pub decided: Option<EventBody>,
    /// What the user is told below the answer, in suggest mode.
    pub suggestion: String,
    /// Why nobody may take it, for the user.
    pub refused: Option<String>,
}

pub(crate) fn route(wiring: &Wiring, inbound: &Inbound) -> Routed {
    let routing = &wiring.routing;
    let asked = Asked {
        text: &inbound.text,
        source: &inbound.source,
        priority: inbound.priority,
        skills: &[],
        tokens_estimate: tokens(inbound.thread().map_or(inbound.text.len(), Thread::len_bytes)),
        private: inbound.private,
    };
    // What works by itself takes neither tools nor a form for its answer.
    let needs_a_model = inbound.thread().is_some() || inbound.format().is_some();
    let mut facts = wiring.known_facts();
    facts.retain(|facts| !(needs_a_model && facts.acts));
    match choose(&routing.table, &facts, routing.mode, &asked) {
        Ok(route) => {
            metrics::counter!("annie_routes_total", "backend" => route.primary().to_owned()).increment(1);
            let decided = (routing.facts.len() > 1 || inbound.private).then(|| EventBody::Decided {
                component: "route".to_owned(),
                decision: decision(&route.candidates),
                reasoning: reasoning(&route.reason, route.rule.as_deref(), route.suggestion.as_deref()),
                alternatives: route.alternatives.clone(),
            });
            let suggestion = route.suggestion.unwrap_or_default();
            Routed { candidates: route.candidates, stripped: route.stripped_text, decided, suggestion, refused: None }
        }
        Err(why) => {
            metrics::counter!("annie_routes_refused_total").increment(1);
            let decided = EventBody::Decided {
                component: "route".to_owned(),
                decision: "no backend".to_owned(),
                reasoning: why.to_string(),
                alternatives: Vec::new(),
            };
            let refused = format!("No language model here may take this: {why}.");
            Routed { decided: Some(decided), refused: Some(refused), ..Routed::default() }
        }
    }
}

fn decision(candidates: &[String]) -> String {
    match candidates {
        [] => "no backend".to_owned(),
        [only] => format!("run on {only}"),
        [first, others @ ..] => format!("run on {first}, else on {}", others.join(", ")),
    }
}

fn reasoning(reason: &str, rule: Option<&str>, suggestion: Option<&str>) -> String {
    let mut text = reason.to_owned();
    if let Some(rule) = rule {
        text.push_str(&format!(" (rule `{rule}`)"));
    }
    if let Some(suggestion) = suggestion {
        text.push_str(&format!(". {suggestion}"));
    }
    text
}
