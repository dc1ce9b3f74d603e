//! What the kernel itself says: progress reports at a limit (S0 5.2, S4 7.4), sub-agents' endings, failures in words that a
//! user can use.

use std::fmt::Write as _;

use super::{
    conversation::Turn,
    run::{AgentRun, Ending},
};
use crate::{
    event::ReportStatus,
    letter::Letter,
    message::{ModelError, ModelErrorKind},
    plan::{NodeState, first_line},
    time::Micros,
};

/// What a cancelled task's final word begins with.
pub(super) const CANCELLED: &str = "Cancelled.";

/// What somebody who speaks is told when there is no time left (S3 5.3.5).
pub(super) const TROUBLE: &str = "I'm having trouble with that right now.";
/// What a model is told when the soft deadline has passed (S3 5.3.5).
pub(super) const WRAP_UP: &str =
    "[Time is nearly up. Come to an end now: answer with what you have, and say what is missing.]";

/// Said to a program that asked for JSON, before the reason.
pub(super) const FORMLESS: &str = "The model gave no answer in the form that was asked for.";

/// A failure's words, and what becomes of the work (S3 5.9).
pub(super) fn with_letter(text: &str, letter: Option<&Letter>, now: Micros) -> String {
    let Some(letter) = letter.filter(|l| l.tried.len() > 1 || l.retry_at.is_some()) else { return text.to_owned() };
    let mut text = text.to_owned();
    if letter.tried.len() > 1 {
        let _ = write!(text, "\n\nI tried {} times, in different ways.", letter.tried.len());
    }
    if let Some(at) = letter.retry_at {
        let minutes = at.since_ms(now) / 60_000;
        let when = match minutes {
            0 | 1 => "a minute".to_owned(),
            2..90 => format!("{minutes} minutes"),
            _ => format!("{} hours", (minutes + 30) / 60),
        };
        let _ = write!(text, "\n\nI'll try again by myself in {when}.");
    }
    text
}

/// An answer, and below it who would have done it by the rules (S3 10.7, suggest mode).
pub(super) fn with_suggestion(text: &str, suggestion: &str) -> String {
    if suggestion.is_empty() { text.to_owned() } else { format!("{text}\n\n({suggestion})") }
}

/// A sub-agent's status and text.
pub(super) fn of_agent(run: &AgentRun, ending: &Ending) -> (ReportStatus, String) {
    match ending {
        Ending::Said(text) => (ReportStatus::Completed, text.clone()),
        Ending::Tripped(why) => (ReportStatus::Completed, of_run(&format!("{why} Partial work completed."), run)),
        Ending::GaveUp(why) => (ReportStatus::Failed, of_run(why, run)),
        Ending::ModelFailed(error) => (ReportStatus::Failed, of_run(&error.to_string(), run)),
        // Only the agent that answers works for a program.
        Ending::Called(text, _) | Ending::Unfit(text) => (ReportStatus::Failed, of_run(text, run)),
    }
}

/// A sentence, and what one agent did and what it did not.
pub(super) fn of_run(why: &str, run: &AgentRun) -> String {
    let mut progress = Progress::default();
    progress.take_run(run);
    progress.after(why)
}

/// A sentence, and what the turn did and what it did not, if there is anything.
pub(super) fn with_progress(why: &str, turn: &Turn) -> String {
    Progress::of(turn).after(why)
}

/// The "continue?" report of a turn that stopped at a limit (S4 7.4).
pub(super) fn paused(turn: &Turn, why: &str) -> String {
    let progress = Progress::of(turn);
    let opening = if progress.done.is_empty() {
        "I haven't finished your request yet."
    } else {
        "I've made progress on your request but haven't finished yet."
    };
    let mut text = progress.after(&format!("{opening} {why}"));
    text.push_str("\n\nWould you like me to continue?");
    text
}

/// The report of a run that went in circles: truthful, and not an invitation to go on (ruling 8).
pub(super) fn gave_up(turn: &Turn, why: &str) -> String {
    with_progress(&format!("I had to stop: {why}"), turn)
}

/// What was done and what was not, one line each.
#[derive(Default)]
struct Progress {
    done: Vec<String>,
    undone: Vec<String>,
    in_doubt: Vec<String>,
    not_started: Vec<String>,
}

impl Progress {
    fn of(turn: &Turn) -> Self {
        let mut progress = Self::default();
        progress.take_run(&turn.main);
        if turn.main.acts() {
            progress.in_doubt.push("the work of a program (it was under way)".to_owned());
        }
        for node in turn.plan.nodes() {
            let mission = first_line(&node.spec.mission);
            match &node.state {
                NodeState::Reported(r) => {
                    let line = first_line(&r.result);
                    match r.status {
                        ReportStatus::Completed => progress.done.push(format!("{mission}: {line}")),
                        ReportStatus::Skipped => progress.not_started.push(format!("{mission} ({line})")),
                        status => progress.undone.push(format!("{mission} ({}: {line})", status.as_str())),
                    }
                }
                NodeState::Pending => progress.not_started.push(mission),
                NodeState::Running { .. } => progress.in_doubt.push(mission),
            }
        }
        let refused = turn.plan.refused().iter().map(|(_, mission)| format!("{mission} (agent limit reached)"));
        progress.not_started.extend(refused);
        progress
    }

    fn take_run(&mut self, run: &AgentRun) {
        self.done.extend(run.done.iter().cloned());
        self.undone.extend(run.undone.iter().cloned());
        let open = run.open_calls().iter().filter(|o| o.is_in_doubt());
        self.in_doubt.extend(open.map(|o| o.brief("it was under way")));
    }

    fn after(&self, sentence: &str) -> String {
        let mut text = sentence.to_owned();
        let lists = [
            ("Completed:", &self.done),
            ("Not completed:", &self.undone),
            ("May or may not have happened:", &self.in_doubt),
            ("Not yet started:", &self.not_started),
        ];
        for (heading, items) in lists.into_iter().filter(|(_, items)| !items.is_empty()) {
            let _ = write!(text, "\n\n{heading}");
            for item in items {
                let _ = write!(text, "\n- {item}");
            }
        }
        text
    }
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
        ModelErrorKind::InDoubt => (
            "model_in_doubt",
            "A program that worked on this was interrupted. What it did may have taken effect, so I have not started it again.",
        ),
        ModelErrorKind::Protocol => {
            ("model_protocol", "The language model gave an answer that cannot be used. Please try again.")
        }
    }
}
