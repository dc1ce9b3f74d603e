//! The backends that may run a turn's rounds: decided once when the turn begins, and recorded with the reasons.

use annie_core::{
    caller::Thread,
    context::tokens,
    event::{EventBody, Inbound, PlannedSkill},
    route::{Asked, choose},
    skill::SkillFormat,
};

use crate::wiring::Wiring;

/// The route of a turn.
#[derive(Debug, Default)]
pub(crate) struct Routed {
    /// The preferred backend first, then the fallbacks. Empty if no backend may run the turn.
    pub candidates: Vec<String>,
    /// The message without the backend's name with which the user addressed it.
    pub stripped: Option<String>,
    /// The decision for the log; `None` where there is no choice.
    pub decided: Option<EventBody>,
    /// The text shown below the answer in suggest mode.
    pub suggestion: String,
    /// Why no backend may run the turn, for the user.
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
    // An agentic backend accepts neither tools nor an answer format.
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
                hook: None,
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
                hook: None,
            };
            let refused = format!("No language model here may take this: {why}.");
            Routed { decided: Some(decided), refused: Some(refused), ..Routed::default() }
        }
    }
}

/// Prefers the backend that a prompt skill requests, if it is one of those that may run the turn. The operator decides which
/// these are, and for a private request only local ones are among them.
pub(crate) fn prefer_requested(wiring: &Wiring, routed: &mut Routed, called: Option<&PlannedSkill>) {
    let skills = wiring.catalog.skills();
    let Some(spec) = called.and_then(|called| skills.get(&called.skill)) else { return };
    let SkillFormat::Prompt { model: Some(backend), .. } = &spec.format else { return };
    let skill = &spec.name;
    let Some(at) = routed.candidates.iter().position(|candidate| candidate == backend) else {
        if routed.candidates.len() > 1 {
            tracing::warn!(skill, backend, "the backend that a skill requests may not run the turn");
        }
        return;
    };
    let preferred = routed.candidates.remove(at);
    routed.candidates.insert(0, preferred);
    routed.decided = Some(EventBody::Decided {
        component: "route".to_owned(),
        decision: decision(&routed.candidates),
        reasoning: format!("the skill {skill} requests {backend}"),
        alternatives: Vec::new(),
        hook: None,
    });
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
