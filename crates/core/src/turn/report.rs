//! Texts of the kernel for users: progress reports at a limit [S0 5.2] [S4 7.4], results of sub-agents, failures with a reason
//! that a user can act on.

use std::{borrow::Cow, fmt::Write as _};

use super::{
    calls::WITHOUT_PROGRESS,
    conversation::Turn,
    run::{AgentRun, Ending},
    truth,
};
use crate::{
    dead_letter::DeadLetter,
    event::{AnswerOutcome, FinalEvent, ReportStatus},
    message::{Finish, ModelError, ModelErrorKind},
    plan::{NodeState, first_line},
    receipt::Receipt,
    time::Micros,
};

/// The beginning of a cancelled task's final text.
pub(super) const CANCELLED: &str = "Cancelled.";

/// Later turns see this in place of a model's refusal.
const MODEL_DECLINED: &str = "[This request failed: the model declined to answer.]";
/// Appended to an answer that was cut off at the length limit.
const CUT_LENGTH: &str = "[This answer was cut off at the model's length limit.]";
/// Appended to an answer that a content filter cut off.
const CUT_FILTER: &str = "[The content filter of the model's provider cut this answer off.]";
/// Appended to a failure that would be retried automatically if the turn had had no effects.
pub(super) const NEEDS_MANUAL_RETRY: &str = "\n\nA part of it was done or may have been done, so I won't try it again by myself. \
     Retry it from the dead letters, or ask me again for what is missing.";
/// Appended to the answer of a retry if an agentic backend had worked on an earlier attempt.
const PROGRAM_WORKED: &str = "(A program had worked on an earlier try of this request. It is not known what it did then, so please look for doubles.)";
/// The end of the report of a turn that stopped at a limit.
const CONTINUE: &str = "Would you like me to continue?";

/// The answer to a voice user whose hard deadline has passed [S3 5.3.5].
pub(super) const TROUBLE: &str = "I'm having trouble with that right now.";
/// The note to the model when the soft deadline has passed [S3 5.3.5].
pub(super) const WRAP_UP: &str =
    "[Time is nearly up. Come to an end now: answer with what you have, and say what is missing.]";

/// The failure text for a program that requested JSON; the reason follows.
pub(super) const WRONG_FORMAT: &str = "The model gave no answer in the form that was asked for.";

/// A reason as a sentence of its own.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The answer of this turn as later turns see it. A model imitates its earlier answers, so a failure is shown as a note and
/// not as an answer.
pub(super) fn history_text(turn: &Turn, end: FinalEvent<'_>) -> String {
    let is_clean = turn.own_receipts().next().is_none();
    match end {
        FinalEvent::Failed { text, .. } => format!("[This request failed: {text}]"),
        FinalEvent::Cancelled { text } => format!("[This request was cancelled. {text}]"),
        FinalEvent::Answered { text, outcome: AnswerOutcome::GaveUp, .. } => {
            // Effects that happened, or may have happened, must not be repeated by the next turn.
            let shown = if is_clean && turn.doubts().is_empty() { first_line(text) } else { text.to_owned() };
            format!("[This request failed: {shown}]")
        }
        // A list of to-dos may have the words of a refusal.
        FinalEvent::Answered { text, .. } if matches!(turn.main.ending(), Some(Ending::Ready(_))) => text.to_owned(),
        FinalEvent::Answered { text, .. } if is_clean && truth::refuses(text) => MODEL_DECLINED.to_owned(),
        FinalEvent::Answered { text, .. } => text.to_owned(),
    }
}

/// The text of a refused turn as later turns see it. A model that took it for its own words would refuse by itself.
pub(super) fn refused_by_rule(text: &str) -> String {
    format!("[This request was refused by a rule: {text}]")
}

/// A failure text, followed by how the work is retried [S3 5.9].
pub(super) fn with_dead_letter(text: &str, dead_letter: Option<&DeadLetter>, now: Micros) -> String {
    let Some(dead_letter) = dead_letter.filter(|l| l.tried.len() > 1 || l.retry_at.is_some()) else {
        return text.to_owned();
    };
    let mut text = text.to_owned();
    if dead_letter.tried.len() > 1 {
        let _ = write!(text, "\n\nI tried {} times.", dead_letter.tried.len());
    }
    if let Some(at) = dead_letter.retry_at {
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

/// An answer, followed in suggest mode by the backend that the routing rules would have chosen [S3 10.7].
pub(super) fn with_suggestion(text: &str, suggestion: &str) -> String {
    if suggestion.is_empty() { text.to_owned() } else { format!("{text}\n\n({suggestion})") }
}

/// The status and the text of a sub-agent's report.
pub(super) fn of_agent(run: &AgentRun, ending: &Ending) -> (ReportStatus, String) {
    match ending {
        Ending::Output(text) if run.has_done_nothing(text) => (ReportStatus::NoAction, text.clone()),
        // The text is JSON that fits, and words beside it would make it unfit.
        Ending::Output(text) if run.report_format.is_some() => (ReportStatus::Completed, text.clone()),
        Ending::Output(text) => (ReportStatus::Completed, with_cut_note(&text_with_effects(run, text), run.finish)),
        Ending::Tripped(why) | Ending::Silent(why) if run.report_format.is_some() => {
            (ReportStatus::Failed, of_run(&format!("{why} There is no report that fits output_schema."), run))
        }
        Ending::Tripped(why) if run.ran.is_empty() => (ReportStatus::NoAction, of_run(why, run)),
        Ending::Tripped(why) => (ReportStatus::Completed, of_run(&format!("{why} Partial work completed."), run)),
        Ending::Silent(why) if run.receipts.is_empty() => (ReportStatus::Failed, of_run(why, run)),
        Ending::Silent(_) => (ReportStatus::Completed, text_with_effects(run, "")),
        Ending::GaveUp(why) => (ReportStatus::Failed, of_run(why, run)),
        Ending::ModelFailed(error) => (ReportStatus::Failed, of_run(&error.to_string(), run)),
        // Only the main agent runs for a program, and only its calls are an answer.
        Ending::Ready(text) | Ending::Called(text, _) | Ending::Unfit(text) | Ending::StepFailed(text) => {
            (ReportStatus::Failed, of_run(text, run))
        }
    }
}

/// A run's final text. If that is empty or denies what the run did, the effects from its receipts are added.
fn text_with_effects(run: &AgentRun, text: &str) -> String {
    with_receipts(text, run.receipts.iter())
}

fn with_receipts<'a>(text: &str, receipts: impl Iterator<Item = &'a Receipt>) -> String {
    let mut receipts = receipts.peekable();
    if receipts.peek().is_none() || !(text.is_empty() || truth::denies(text)) {
        return text.to_owned();
    }
    if text.is_empty() {
        return truth::done_without_words(receipts);
    }
    format!("{text}\n\n{}", truth::done_in_this_turn(receipts))
}

/// A text, followed by a note if it was cut off.
fn with_cut_note(text: &str, finish: Finish) -> String {
    match finish {
        Finish::Length => format!("{text}\n\n{CUT_LENGTH}"),
        Finish::ContentFilter => format!("{text}\n\n{CUT_FILTER}"),
        Finish::Stop | Finish::ToolCalls => text.to_owned(),
    }
}

/// The answer of a turn with this final text of its model. The answer claims no more and no less than the receipts show
/// (invariant 21).
pub(super) fn final_answer(turn: &Turn, text: &str) -> (String, AnswerOutcome) {
    if turn.main.declined && !text.is_empty() {
        // The text itself says what was done and what was not.
        return (text.to_owned(), AnswerOutcome::Declined);
    }
    if text.is_empty() {
        if turn.own_receipts().next().is_some() {
            return no_answer(turn, "");
        }
        // The model only repeated effects from before a pause.
        let mut progress = Progress::of(turn);
        progress.done.clear();
        let done = progress.after(&truth::done_before(turn.known_receipts()));
        return (with_doubts(done, turn), AnswerOutcome::Done);
    }
    if turn.main.workflow.is_some() {
        // The author of the file wrote the text, and a step that failed does not lead to it unless the author wants that.
        return (with_doubts(text.to_owned(), turn), AnswerOutcome::Done);
    }
    let text = with_receipts(text, turn.own_receipts());
    let earlier = turn.main.of_earlier_turns();
    let is_free = turn.may_have_changed() || truth::asks_for_prose(&turn.inbound.text);
    let untrue = if is_free { None } else { truth::untrue_claim(&text, turn.has_run(), &earlier) };
    if let Some(line) = untrue {
        if turn.main.reminded_to_act && !turn.has_run() && truth::only_claims(&text) {
            // The model was told that nothing was done, and nothing of what it says is true.
            let line = line.trim_start_matches('(').trim_end_matches(')');
            return (with_doubts(line.to_owned(), turn), AnswerOutcome::NoAction);
        }
        let text = with_cut_note(&with_doubts(text, turn), turn.main.finish);
        return (format!("{text}\n\n{line}"), AnswerOutcome::NoAction);
    }
    let text = with_cut_note(&with_failures(with_doubts(text, turn), turn), turn.main.finish);
    let shown = turn.own_receipts().chain(turn.known_receipts()).chain(earlier.receipts);
    match truth::promised_reminder(&text, &turn.inbound.text, shown).filter(|_| !turn.has_unseen_work()) {
        Some(line) => (format!("{text}\n\n{line}"), AnswerOutcome::Done),
        None => (text, AnswerOutcome::Done),
    }
}

/// The answer of a turn that shows the texts of its skills as they are.
pub(super) fn ready_answer(turn: &Turn, text: &str) -> String {
    with_suggestion(&with_doubts(text.to_owned(), turn), &turn.facts.suggestion)
}

/// An answer, followed by the in-doubt effects that it does not mention itself.
fn with_doubts(text: String, turn: &Turn) -> String {
    let mut skills: Vec<String> = turn.doubts().into_iter().map(|(skill, _)| skill).collect();
    skills.sort_unstable();
    skills.dedup();
    let by_program = turn.inbound.retry.as_ref().is_some_and(|retry| retry.programs_ran);
    let text = if by_program { format!("{text}\n\n{PROGRAM_WORKED}") } else { text };
    let undisclosed = truth::undisclosed_doubts(&text, &skills);
    if undisclosed.is_empty() {
        return text;
    }
    format!("{text}\n\n(It is not known whether this happened: {}.)", undisclosed.join(", "))
}

/// An answer, followed by the effects that it claims although they failed or were never requested.
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

/// The answer of a turn without a final text of its model: what was done, what was not done, and what is in doubt.
pub(super) fn no_answer(turn: &Turn, why: &str) -> (String, AnswerOutcome) {
    if turn.own_receipts().next().is_some() {
        let mut progress = Progress::of(turn);
        // The receipts already show what was done, except for the work of an agentic backend.
        if !turn.has_unseen_work() {
            progress.done.clear();
        }
        let receipts = turn.own_receipts();
        let done =
            if progress.is_empty() { truth::done_without_words(receipts) } else { truth::done_in_this_turn(receipts) };
        let text = progress.after(&done);
        return (with_doubts(text, turn), AnswerOutcome::Done);
    }
    (with_doubts(with_progress(&format!("I have no answer: {why}"), turn), turn), AnswerOutcome::GaveUp)
}

/// An answer, followed by the missions of agents that a limit kept from starting; `None` if there are none [S4 7.4]. A workflow knows
/// from the results of its steps which agents did not start, and no model is to continue it.
pub(super) fn missions_not_started(turn: &Turn, text: &str) -> Option<String> {
    if turn.main.workflow.is_some() {
        return None;
    }
    let missions: Vec<String> =
        turn.agents.plan.missions_not_started().map(|mission| format!("\n- {mission}")).collect();
    (!missions.is_empty()).then(|| format!("{text}\n\nNot yet started:{}\n\n{CONTINUE}", missions.concat()))
}

/// A sentence, followed by what one agent did and did not do.
pub(super) fn of_run(why: &str, run: &AgentRun) -> String {
    let mut progress = Progress::default();
    progress.take_run(run);
    progress.after(why)
}

/// A sentence, followed by what the turn did and did not do, if there is anything.
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

/// The answer of a turn that repeated itself without progress. It does not ask whether to continue. If the user only asked, and
/// the model only read the same thing again and again, that thing is the answer.
pub(super) fn gave_up(turn: &Turn, why: &str) -> (String, AnswerOutcome) {
    let main = &turn.main;
    let stopped = with_doubts(with_progress(&format!("I had to stop: {why}"), turn), turn);
    let Some(read) = &main.last_read else { return (stopped, AnswerOutcome::GaveUp) };
    let blocked = format!("{} ({WITHOUT_PROGRESS})", read.skill);
    let only_read = read.is_only
        && main.undone.iter().all(|line| *line == blocked)
        && turn.agents.plan.nodes().is_empty()
        && turn.own_receipts().next().is_none();
    if main.asks_only && only_read {
        (read.text.clone(), AnswerOutcome::Done)
    } else {
        (format!("{stopped}\n\nThe last result of {}:\n\n{}", read.skill, read.text), AnswerOutcome::GaveUp)
    }
}

/// The progress of a turn or of an agent, one line per item.
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
        for node in turn.agents.plan.nodes() {
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
        let refused = turn.agents.plan.refused().iter().map(|(_, mission)| format!("{mission} (agent limit reached)"));
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

    const fn is_empty(&self) -> bool {
        self.done.is_empty() && self.undone.is_empty() && self.in_doubt.is_empty() && self.not_started.is_empty()
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

/// Each line once, with its number of occurrences.
fn grouped(items: &[String]) -> Vec<String> {
    let is_first = |at: usize| !items[..at].contains(&items[at]);
    let times = |item: &String| items.iter().filter(|other| *other == item).count();
    let firsts = items.iter().enumerate().filter(|(at, _)| is_first(*at));
    firsts
        .map(|(_, item)| if times(item) > 1 { format!("{item} ({} times)", times(item)) } else { item.clone() })
        .collect()
}

/// The code of a model failure, which is stable for programs, and the text for the user.
pub(super) fn model_failed(error: &ModelError) -> (&'static str, Cow<'static, str>) {
    /// If the provider asks for a longer wait than this, in milliseconds, the user is not asked to retry "in a moment".
    const MOMENT_MS_MAX: u64 = 60_000;
    if error.kind == ModelErrorKind::RateLimited
        && let Some(ms) = error.retry_after_ms.filter(|ms| *ms > MOMENT_MS_MAX)
    {
        let text = format!("The language model takes no requests for the next {}. Please try again then.", about(ms));
        return ("model_rate_limited", text.into());
    }
    if matches!(error.kind, ModelErrorKind::SpendCap | ModelErrorKind::CallCap) {
        return (error.kind.as_str(), error.detail.clone().into());
    }
    let (code, text) = failure_words(error.kind);
    (code, text.into())
}

/// A duration in words, rounded up.
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
            ("model_unavailable", "The language model is not available right now. Please try again later.")
        }
        ModelErrorKind::InvalidRequest => (
            "model_invalid_request",
            "The language model's provider did not accept the request. The operator has to look into it.",
        ),
        ModelErrorKind::ToolsUnsupported => (
            "model_tools_unsupported",
            "The language model does not take tools, so it could not work on this. The operator has to choose another interface or model.",
        ),
        ModelErrorKind::MalformedCall => (
            "model_malformed_call",
            "The language model wrote a call that its server could not read. Please try again, or say it in other words.",
        ),
        ModelErrorKind::InDoubt => (
            "model_in_doubt",
            "A program that worked on this was interrupted. What it did may have taken effect, so I have not started it again.",
        ),
        ModelErrorKind::TurnSpendCap | ModelErrorKind::SpendCap => {
            ("spend_cap", "A limit on what may be spent stopped this.")
        }
        ModelErrorKind::CallCap => ("call_cap", "A limit on model calls stopped this."),
        ModelErrorKind::Protocol => {
            ("model_protocol", "The language model gave an answer that cannot be used. Please try again.")
        }
    }
}
