//! What the kernel itself says: progress reports at a limit [S0 5.2] [S4 7.4], sub-agents' endings, failures in words that a
//! user can use.

use std::{borrow::Cow, fmt::Write as _};

use super::{
    conversation::Turn,
    run::{AgentRun, Ending},
    truth,
};
use crate::{
    event::{AnswerOutcome, EventBody, ReportStatus},
    letter::Letter,
    message::{Finish, ModelError, ModelErrorKind},
    plan::{NodeState, first_line},
    receipt::Receipt,
    time::Micros,
};

/// What a cancelled task's final word begins with.
pub(super) const CANCELLED: &str = "Cancelled.";

/// What later turns see in place of a model's refusal.
const REFUSED: &str = "[This request failed: the model declined to answer.]";
/// Below an answer that was cut off.
const CUT_LENGTH: &str = "[This answer was cut off at the model's length limit.]";
/// See `CUT_LENGTH`.
const CUT_FILTER: &str = "[The content filter of the model's provider cut this answer off.]";
/// Below a failure that would be tried again if it had not had effects.
pub(super) const WAITS_FOR_A_PERSON: &str = "\n\nA part of it was done or may have been done, so I won't try it again by myself. \
     Retry it from the dead letters, or ask me again for what is missing.";
/// Below the answer to a new try of what a program had worked on.
const PROGRAM_WORKED: &str = "(A program had worked on an earlier try of this request. It is not known what it did then, so please look for doubles.)";
/// Ends the report of a turn that stopped at a limit.
const CONTINUE: &str = "Would you like me to continue?";

/// What somebody who speaks is told when there is no time left [S3 5.3.5].
pub(super) const TROUBLE: &str = "I'm having trouble with that right now.";
/// What a model is told when the soft deadline has passed [S3 5.3.5].
pub(super) const WRAP_UP: &str =
    "[Time is nearly up. Come to an end now: answer with what you have, and say what is missing.]";

/// Said to a program that asked for JSON, before the reason.
pub(super) const FORMLESS: &str = "The model gave no answer in the form that was asked for.";
/// What later turns are shown of this one's end. A model goes on as it sees itself begin: what failed is a note and no answer
/// to follow.
pub(super) fn remembered(turn: &Turn, body: &EventBody, text: &str) -> String {
    let is_clean = turn.own_receipts().next().is_none();
    match body {
        EventBody::Failed { .. } => format!("[This request failed: {text}]"),
        EventBody::Cancelled { .. } => format!("[This request was cancelled. {text}]"),
        EventBody::Answered { outcome: AnswerOutcome::GaveUp, .. } => format!("[This request failed: {text}]"),
        EventBody::Answered { .. } if is_clean && truth::refuses(text) => REFUSED.to_owned(),
        _ => text.to_owned(),
    }
}

/// A failure's words, and what becomes of the work [S3 5.9].
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

/// An answer, and below it who would have done it by the rules: suggest mode [S3 10.7].
pub(super) fn with_suggestion(text: &str, suggestion: &str) -> String {
    if suggestion.is_empty() { text.to_owned() } else { format!("{text}\n\n({suggestion})") }
}

/// A sub-agent's status and text.
pub(super) fn of_agent(run: &AgentRun, ending: &Ending) -> (ReportStatus, String) {
    match ending {
        Ending::Said(text) if run.has_done_nothing(text) => (ReportStatus::NoAction, text.clone()),
        Ending::Said(text) => (ReportStatus::Completed, with_cut(&words_of(run, text), run.finish)),
        Ending::Tripped(why) if run.ran.is_empty() => (ReportStatus::NoAction, of_run(why, run)),
        Ending::Tripped(why) => (ReportStatus::Completed, of_run(&format!("{why} Partial work completed."), run)),
        Ending::Silent(why) if run.receipts.is_empty() => (ReportStatus::Failed, of_run(why, run)),
        Ending::Silent(_) => (ReportStatus::Completed, words_of(run, "")),
        Ending::GaveUp(why) => (ReportStatus::Failed, of_run(why, run)),
        Ending::ModelFailed(error) => (ReportStatus::Failed, of_run(&error.to_string(), run)),
        // Only the agent that answers works for a program.
        Ending::Called(text, _) | Ending::Unfit(text) => (ReportStatus::Failed, of_run(text, run)),
    }
}

/// A run's last words; where it has none, or denies what it did, what its receipts show.
fn words_of(run: &AgentRun, text: &str) -> String {
    with_receipts(text, run.receipts.iter())
}

fn with_receipts<'a>(text: &str, receipts: impl Iterator<Item = &'a Receipt>) -> String {
    let mut receipts = receipts.peekable();
    if receipts.peek().is_none() || !(text.is_empty() || truth::denies(text)) {
        return text.to_owned();
    }
    let done = truth::done_in_this_turn(receipts);
    if text.is_empty() { done } else { format!("{text}\n\n{done}") }
}

/// A text, and below it that it is not whole.
fn with_cut(text: &str, finish: Finish) -> String {
    match finish {
        Finish::Length => format!("{text}\n\n{CUT_LENGTH}"),
        Finish::ContentFilter => format!("{text}\n\n{CUT_FILTER}"),
        Finish::Stop | Finish::ToolCalls => text.to_owned(),
    }
}

/// What a turn is answered with whose model said this at the end: no more than its receipts show, and no less (invariant 21).
pub(super) fn last_words(turn: &Turn, text: &str) -> (String, AnswerOutcome) {
    if turn.main.declined && !text.is_empty() {
        // It says itself what it did and what it did not.
        return (text.to_owned(), AnswerOutcome::Declined);
    }
    let text = with_receipts(text, turn.own_receipts());
    // A model that only repeats what was done before a pause has no words of its own.
    let text = if text.is_empty() { truth::done_before(turn.known_receipts()) } else { text };
    let earlier = turn.main.of_earlier_turns();
    let is_free = turn.may_have_changed() || truth::asks_for_prose(&turn.inbound.text);
    let untrue = if is_free { None } else { truth::untrue_claim(&text, turn.has_run(), &earlier) };
    let doubted = with_doubts(text, turn);
    let text = if untrue.is_some() { doubted } else { with_failures(doubted, turn) };
    let text = with_cut(&text, turn.main.finish);
    if let Some(line) = untrue {
        return (format!("{text}\n\n{line}"), AnswerOutcome::NoAction);
    }
    let shown = turn.own_receipts().chain(turn.known_receipts()).chain(earlier.receipts);
    match truth::promised_reminder(&text, &turn.inbound.text, shown).filter(|_| !turn.has_unseen_work()) {
        Some(line) => (format!("{text}\n\n{line}"), AnswerOutcome::Done),
        None => (text, AnswerOutcome::Done),
    }
}

/// An answer, and below it what may have happened, unless it says so itself.
fn with_doubts(text: String, turn: &Turn) -> String {
    let mut skills: Vec<String> = turn.doubts().into_iter().map(|(skill, _)| skill).collect();
    skills.sort_unstable();
    skills.dedup();
    let by_program = turn.inbound.retry.as_ref().is_some_and(|retry| retry.programs_ran);
    let text = if by_program { format!("{text}\n\n{PROGRAM_WORKED}") } else { text };
    let untold = truth::untold_doubts(&text, &skills);
    if untold.is_empty() {
        return text;
    }
    format!("{text}\n\n(It is not known whether this happened: {}.)", untold.join(", "))
}

/// An answer, and below it which of the effects that it claims failed, or were never asked for.
fn with_failures(text: String, turn: &Turn) -> String {
    let doubts = turn.doubts();
    let shown = turn.own_receipts().chain(turn.known_receipts()).map(|receipt| receipt.skill.as_str());
    let shown: Vec<&str> = shown.chain(doubts.iter().map(|(skill, _)| skill.as_str())).collect();
    let ran: Vec<&str> = turn.skills_run().collect();
    let failed: Vec<&str> = ran.iter().filter_map(|run| run.split_once(" (error").map(|(skill, _)| skill)).collect();
    let untrue = truth::claimed_failures(&text, &failed, &shown);
    if !untrue.is_empty() {
        return format!("{text}\n\n(Not done: {} failed.)", untrue.join(", "));
    }
    if shown.is_empty() || turn.has_unseen_work() {
        return text;
    }
    let unbacked = truth::unbacked_kinds(&text, &shown, &turn.main.of_earlier_turns());
    let unbacked: Vec<&str> = unbacked.into_iter().map(truth::Kind::done).collect();
    if unbacked.is_empty() {
        text
    } else {
        format!("{text}\n\n(Nothing was {} for this request.)", unbacked.join(" or "))
    }
}

/// What a turn is answered with whose model said nothing at the end: all that it did, and what it did not or may have done.
pub(super) fn silent(turn: &Turn, why: &str) -> (String, AnswerOutcome) {
    if turn.own_receipts().next().is_some() {
        let mut progress = Progress::of(turn);
        // The receipts show it, but not a program's work.
        if !turn.has_unseen_work() {
            progress.done.clear();
        }
        let text = progress.after(&with_receipts("", turn.own_receipts()));
        return (with_doubts(text, turn), AnswerOutcome::Done);
    }
    (with_progress(&format!("I have no answer: {why}"), turn), AnswerOutcome::GaveUp)
}

/// An answer in a turn in which a limit kept agents from beginning [S4 7.4].
pub(super) fn kept_back(turn: &Turn, text: &str) -> Option<String> {
    let missions: Vec<String> = turn.plan.kept_back().map(|mission| format!("\n- {mission}")).collect();
    (!missions.is_empty()).then(|| format!("{text}\n\nNot yet started:{}\n\n{CONTINUE}", missions.concat()))
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

/// The "continue?" report of a turn that stopped at a limit [S4 7.4].
pub(super) fn paused(turn: &Turn, why: &str) -> String {
    let progress = Progress::of(turn);
    let opening = if progress.done.is_empty() {
        "I haven't finished your request yet."
    } else {
        "I've made progress on your request but haven't finished yet."
    };
    let mut text = progress.after(&format!("{opening} {why}"));
    text.push_str("\n\n");
    text.push_str(CONTINUE);
    text
}

/// The report of a run that went in circles: truthful, and not an invitation to go on.
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
        for open in run.open_calls().iter().filter(|open| open.has_open_effect()) {
            if run.may_have_begun(open) {
                self.in_doubt.push(open.brief("it was under way"));
            } else {
                self.not_started.push(open.brief("not run"));
            }
        }
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
            for item in grouped(items) {
                let _ = write!(text, "\n- {item}");
            }
        }
        text
    }
}

/// Each line once, with how often it came.
fn grouped(items: &[String]) -> Vec<String> {
    let is_first = |at: usize| !items[..at].contains(&items[at]);
    let times = |item: &String| items.iter().filter(|other| *other == item).count();
    let firsts = items.iter().enumerate().filter(|(at, _)| is_first(*at));
    firsts
        .map(|(_, item)| if times(item) > 1 { format!("{item} ({} times)", times(item)) } else { item.clone() })
        .collect()
}

/// A model failure in the user's words; the code is the stable word for programs.
pub(super) fn model_failed(error: &ModelError) -> (&'static str, Cow<'static, str>) {
    /// A provider that says to wait for longer than this is not busy for a moment, in milliseconds.
    const MOMENT_MS_MAX: u64 = 60_000;
    if error.kind == ModelErrorKind::RateLimited
        && let Some(ms) = error.retry_after_ms.filter(|ms| *ms > MOMENT_MS_MAX)
    {
        let text = format!("The language model takes no requests for the next {}. Please try again then.", about(ms));
        return ("model_rate_limited", text.into());
    }
    let (code, text) = failure_words(error.kind);
    (code, text.into())
}

/// A time in words, rounded up.
fn about(ms: u64) -> String {
    const MINUTE_MS: u64 = 60_000;
    const HOUR_MS: u64 = 60 * MINUTE_MS;
    if ms <= 120 * MINUTE_MS {
        format!("{} minutes", ms.div_ceil(MINUTE_MS))
    } else {
        format!("{} hours", ms.div_ceil(HOUR_MS))
    }
}

const fn failure_words(kind: ModelErrorKind) -> (&'static str, &'static str) {
    match kind {
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
        ModelErrorKind::ToolsUnsupported => (
            "model_tools_unsupported",
            "The language model does not take tools, so it could not work on this. The operator has to choose another interface or model.",
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
