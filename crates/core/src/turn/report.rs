//! What the kernel itself says: progress reports at a limit (S0 5.2, S4 7.4), sub-agents' endings, failures in words that a
//! user can use.

use std::fmt::Write as _;

use super::{
    conversation::Turn,
    run::{AgentRun, Ending},
};
use crate::{
    event::ReportStatus,
    message::{ModelError, ModelErrorKind},
    plan::{NodeState, first_line},
};

/// A sub-agent's status and text.
pub(super) fn of_agent(run: &AgentRun, ending: &Ending) -> (ReportStatus, String) {
    match ending {
        Ending::Said(text) => (ReportStatus::Completed, text.clone()),
        Ending::Tripped(why) => {
            (ReportStatus::Completed, with_progress(&format!("{why} Partial work completed."), run))
        }
        Ending::GaveUp(why) => (ReportStatus::Failed, with_progress(why, run)),
        Ending::ModelFailed(error) => (ReportStatus::Failed, with_progress(&error.to_string(), run)),
    }
}

/// A sentence, and what was done and what was not.
pub(super) fn with_progress(why: &str, run: &AgentRun) -> String {
    let mut text = why.to_owned();
    list(&mut text, "Done:", run.done.iter().map(String::as_str));
    list(&mut text, "Not done:", run.undone.iter().map(String::as_str));
    text
}

fn list<'a>(text: &mut String, heading: &str, items: impl Iterator<Item = &'a str>) {
    let mut first = true;
    for item in items {
        if std::mem::take(&mut first) {
            let _ = write!(text, "\n\n{heading}");
        }
        let _ = write!(text, "\n- {item}");
    }
}

/// The "continue?" report of a turn that stopped at a limit.
pub(super) fn paused(turn: &Turn, why: &str) -> String {
    let mut done: Vec<String> = turn.main.done.clone();
    let mut undone: Vec<String> = turn.main.undone.clone();
    for node in turn.plan.nodes() {
        let mission = first_line(&node.spec.mission);
        match &node.state {
            NodeState::Reported(r) if r.status == ReportStatus::Completed => {
                done.push(format!("{mission}: {}", first_line(&r.result)));
            }
            NodeState::Reported(r) => {
                undone.push(format!("{mission} ({}: {})", r.status.as_str(), first_line(&r.result)))
            }
            NodeState::Pending | NodeState::Running { .. } => undone.push(mission),
        }
    }
    undone.extend(
        turn.plan.refused().iter().map(|(_, mission)| format!("{} (agent limit reached)", first_line(mission))),
    );
    let mut text = format!("I've made progress but haven't finished yet. {why}");
    list(&mut text, "Done so far:", done.iter().map(String::as_str));
    list(&mut text, "Not done yet:", undone.iter().map(String::as_str));
    text.push_str("\n\nWould you like me to continue?");
    text
}

/// The report of a run that went in circles: truthful, and not an invitation to go on (ruling 8).
pub(super) fn gave_up(turn: &Turn, why: &str) -> String {
    let mut text = format!("I had to stop: {why}");
    list(&mut text, "Done:", turn.main.done.iter().map(String::as_str));
    list(&mut text, "Not done:", turn.main.undone.iter().map(String::as_str));
    text
}

/// A model failure in the user's words; the code is the stable word for programs.
pub(super) fn model_failed(error: &ModelError) -> (&'static str, &'static str) {
    match error.kind {
        ModelErrorKind::RateLimited => (
            "model_rate_limited",
            "The language model is handling too many requests right now. Please try again in a moment.",
        ),
        ModelErrorKind::Overflow => (
            "context_overflow",
            "This message does not fit into the model's context, even without our earlier conversation. Please send a shorter one.",
        ),
        ModelErrorKind::Auth => {
            ("model_auth", "The language model refused Annie's key. The operator has to correct it.")
        }
        ModelErrorKind::Payment => (
            "model_payment",
            "The account at the language model's provider has run out of credit. The operator has to top it up.",
        ),
        ModelErrorKind::Content => ("model_content", "The language model's provider declined to answer this."),
        ModelErrorKind::Timeout => ("model_timeout", "The language model took too long to answer. Please try again."),
        ModelErrorKind::Truncated => ("model_truncated", "The language model's answer broke off. Please try again."),
        ModelErrorKind::Unavailable => {
            ("model_unavailable", "The language model cannot be reached right now. Please try again later.")
        }
        ModelErrorKind::InvalidRequest => (
            "model_invalid_request",
            "The language model's provider did not accept the request. The operator has to look into it.",
        ),
        ModelErrorKind::Protocol => {
            ("model_protocol", "The language model gave an answer that cannot be used. Please try again.")
        }
    }
}
