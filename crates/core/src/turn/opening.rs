//! What a turn starts from: the context its first round sees, and what it may use up.

use serde_json::Value;

use super::{
    conversation::{Conversation, Lane, Paused},
    provenance::Provenance,
    run::RunLimits,
};
use crate::{
    context::{Exchange, Frames, History, Shown, continue_note, tokens_of, turn_context},
    event::{Inbound, Mode, PromptFacts},
    ids::TaskId,
    inbound::{OPERATION, OUTSIDE},
    limits::{MainInterface, TurnLimits},
    message::Message,
    plan::Plan,
    receipt::Receipt,
};

/// A context about to be shown to the model.
pub(super) struct Opening {
    pub messages: Vec<Message>,
    /// How many of those are history.
    pub stable: usize,
    pub plan: Plan,
    /// What the turn was told that it continues.
    pub provenance: Provenance,
    /// What was done already in the turn that it continues.
    pub receipts: Vec<Receipt>,
    /// What may have been done there.
    pub in_doubt: Vec<(String, Value)>,
    /// A program worked there.
    pub programs_ran: bool,
}

/// The context of a new turn, beside so many tokens of system prompt and tools: the paused one's if the user lets it go on, else history and the message.
pub(super) fn open(
    history: &mut History,
    paused: Option<Paused>,
    inbound: &Inbound,
    facts: &PromptFacts,
    limits: &TurnLimits,
    (mode, fixed_tokens, frames): (Mode, u32, &Frames),
) -> Opening {
    let outside = outside_text(inbound, frames);
    let said = outside.as_deref().or(facts.spoken.as_deref()).unwrap_or(&inbound.text);
    let tokens_max = limits.history_tokens_max_beside(fixed_tokens);
    let by_commands = limits.main_interface == MainInterface::Cmd;
    let context = turn_context(facts, frames);
    let mut fresh = |said: String| {
        let last = Message::User { context: context.clone(), text: said };
        fresh(history, last, Shown { private: inbound.private, by_commands, mode }, tokens_max)
    };
    let Some(paused) = paused.filter(|paused| goes_on(paused, inbound)) else {
        return fresh(said.to_owned());
    };
    let said = continue_note(said);
    // Whether its context fits or not: what was done is not done again.
    let (receipts, in_doubt, programs_ran) = (paused.all_receipts(), paused.all_doubts(), paused.programs_ran);
    let opening = go_on(paused, &said, tokens_max).unwrap_or_else(|| fresh(said));
    Opening { receipts, in_doubt, programs_ran, ..opening }
}

/// Whether a message lets a paused turn go on, and may be shown what that was about.
fn goes_on(paused: &Paused, inbound: &Inbound) -> bool {
    (inbound.private || !paused.private) && is_continue(&inbound.text)
}

impl Conversation {
    /// The paused turn that the turn of a message that waits will go on from, if it begins now. The log has it with the
    /// turn's beginning: what was done before the pause is looked up there when the turn is tried again.
    #[must_use]
    pub fn continues(&self, task: TaskId) -> Option<TaskId> {
        let inbound = &self.inbox.iter().find(|pending| pending.task == task)?.inbound;
        let paused = self.paused.as_ref().filter(|_| Lane::of(inbound.priority) == Lane::Front)?;
        paused.task.filter(|_| inbound.thread().is_none() && goes_on(paused, inbound))
    }
}

/// A message of an outside party as a model reads it: the kernel's line, and below it the party's text in a frame. Nothing
/// for the user's own words.
pub(super) fn outside_text(inbound: &Inbound, frames: &Frames) -> Option<String> {
    let (heading, text) = inbound.outside_text()?;
    Some(framed(heading, text, frames))
}

fn framed(heading: &str, text: &str, frames: &Frames) -> String {
    if text.is_empty() {
        return heading.to_owned();
    }
    format!("{heading}\n{}", frames.wrap("result", &[("origin", OPERATION)], text))
}

/// The context of a turn whose caller keeps the conversation: all of it and nothing else. None of it counts as history that
/// may be left out: a caller whose messages do not fit is told so.
pub(super) fn of_thread(messages: Vec<Message>) -> Opening {
    Opening {
        messages,
        stable: 0,
        plan: Plan::default(),
        provenance: Provenance::default(),
        receipts: Vec::new(),
        in_doubt: Vec::new(),
        programs_ran: false,
    }
}

/// A part of the budget is left for the message, so that the window does not move with every length of it.
fn fresh(history: &mut History, last: Message, shown: Shown, tokens_max: u32) -> Opening {
    history.fit(tokens_max / 5 * 4);
    let room = tokens_max.saturating_sub(tokens_of(std::slice::from_ref(&last)));
    let mut messages = history.messages(room, shown);
    let stable = messages.len();
    messages.push(last);
    Opening {
        messages,
        stable,
        plan: Plan::default(),
        provenance: Provenance::default(),
        receipts: Vec::new(),
        in_doubt: Vec::new(),
        programs_ran: false,
    }
}

/// The paused context word for word, without the history if that is too long. If it still is, nothing: then the report at
/// the pause, which the history ends with, has to do.
fn go_on(paused: Paused, said: &str, tokens_max: u32) -> Option<Opening> {
    let Paused { mut messages, mut stable, plan, provenance, .. } = paused;
    messages.push(Message::user(said));
    if tokens_of(&messages) > tokens_max {
        messages.drain(..stable);
        stable = 0;
    }
    (tokens_of(&messages) <= tokens_max).then_some(Opening {
        messages,
        stable,
        plan,
        provenance,
        receipts: Vec::new(),
        in_doubt: Vec::new(),
        programs_ran: false,
    })
}

/// What the agent that answers the user may use up. What it calls itself counts in the conversation's window too, of which
/// so much is used or set aside.
pub(super) fn run_limits(mode: Mode, limits: &TurnLimits, window_used: u32) -> RunLimits {
    let rounds_max = match mode {
        Mode::MultiAgent => limits.iterations_max,
        Mode::SingleLoop | Mode::Direct => limits.single_loop_calls_max.saturating_add(2),
    };
    let (calls_max, calls_note) = own_calls(mode, limits, 0, window_used);
    RunLimits { rounds_max, calls_max, calls_note, result_bytes_max: limits.result_bytes_max() }
}

/// How many calls that agent may make altogether which has made so many, and what is said when those are used up.
pub(super) fn own_calls(mode: Mode, limits: &TurnLimits, calls_used: u32, window_used: u32) -> (u32, String) {
    let turn_max = limits.single_loop_calls_max;
    let window_max = calls_used.saturating_add(limits.window_calls_max.saturating_sub(window_used));
    let calls_max = match mode {
        Mode::MultiAgent => 0,
        Mode::SingleLoop | Mode::Direct => turn_max.min(window_max),
    };
    let calls_note = if window_max < turn_max {
        window_note(limits)
    } else {
        format!("Reached the limit of {turn_max} tool calls in a turn.")
    };
    (calls_max, calls_note)
}

/// What is said when the conversation's sliding window is used up.
pub(super) fn window_note(limits: &TurnLimits) -> String {
    format!(
        "Reached the limit of {} skill calls within {} s in this conversation; it takes a while until more can be made.",
        limits.window_calls_max,
        limits.window_ms / 1_000
    )
}

/// Takes in what a stateless front end says came before.
pub(super) fn seed_history(history: &mut History, preamble: &[(String, String)], private: bool, frames: &Frames) {
    let mut user = String::new();
    for (role, text) in preamble {
        if role == "assistant" {
            history.push(Exchange {
                user: std::mem::take(&mut user),
                answer: text.clone(),
                private,
                steps: Vec::new(),
            });
        } else {
            if !user.is_empty() {
                user.push_str("\n\n");
            }
            match text.split_once('\n').filter(|_| role == OUTSIDE) {
                Some((heading, text)) => user.push_str(&framed(heading, text, frames)),
                None => user.push_str(text),
            }
        }
    }
    if !user.is_empty() {
        history.push(Exchange { user, answer: "(no answer)".to_owned(), private, steps: Vec::new() });
    }
}

/// Whether the user lets a paused turn go on: "yes, continue", or similar [S0 5.3].
fn is_continue(text: &str) -> bool {
    const WORDS: [&str; 18] = [
        "continue", "yes", "please", "go", "on", "ahead", "ok", "okay", "sure", "keep", "going", "yep", "yeah",
        "proceed", "do", "it", "resume", "y",
    ];
    let text = text.to_lowercase();
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).peekable();
    words.peek().is_some() && words.clone().count() <= 5 && words.all(|w| WORDS.contains(&w))
}
