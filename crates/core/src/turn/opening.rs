//! The start of a turn: the context of its first round, and its limits.

use serde_json::Value;

use super::{
    concern::{Lane, Paused},
    conversation::Conversation,
    cut::CutResults,
    provenance::Provenance,
    run::RunLimits,
};
use crate::{
    context::{Exchange, Frames, History, Shown, continue_note, tokens_of, turn_context, with_context},
    event::{Inbound, Mode, PromptFacts},
    ids::TaskId,
    inbound::{OPERATION, OUTSIDE},
    limits::{MainInterface, TurnLimits},
    message::Message,
    plan::Plan,
    receipt::Receipt,
};

/// The context that a turn begins with.
pub(super) struct Opening {
    pub messages: Vec<Message>,
    /// How many leading messages are history.
    pub stable: usize,
    pub plan: Plan,
    /// The channels of the paused turn that it continues.
    pub channels: Vec<String>,
    /// The provenance of the paused turn that it continues.
    pub provenance: Provenance,
    /// The receipts of the paused turn.
    pub receipts: Vec<Receipt>,
    /// The in-doubt effects of the paused turn.
    pub in_doubt: Vec<(String, Value)>,
    /// An agentic backend worked on the paused turn.
    pub programs_ran: bool,
    /// The results of the paused turn of which its context shows only the beginning.
    pub cut_results: CutResults,
}

/// The context of a new turn: that of the paused turn if the user continues it, otherwise history and message. `fixed_tokens`
/// is the size of system prompt and tools.
pub(super) fn open(
    history: &mut History,
    paused: Option<Paused>,
    inbound: &Inbound,
    facts: &PromptFacts,
    limits: &TurnLimits,
    (mode, fixed_tokens, frames): (Mode, u32, &Frames),
) -> Opening {
    let outside = outside_text(inbound, frames);
    let user_text = outside.as_deref().or(facts.spoken.as_deref()).unwrap_or(&inbound.text);
    let tokens_max = limits.history_tokens_max_beside(fixed_tokens);
    let by_commands = limits.main_interface == MainInterface::Cmd;
    let context = turn_context(facts, frames);
    let mut fresh = |user_text: String| {
        let last = Message::User { context: context.clone(), text: user_text };
        fresh(history, last, Shown { private: inbound.private, by_commands, mode }, tokens_max)
    };
    let Some(paused) = paused.filter(|paused| may_resume(paused, inbound)) else {
        return fresh(user_text.to_owned());
    };
    let user_text = continue_note(user_text);
    // Even if the paused context does not fit, its effects are not repeated.
    let (receipts, in_doubt, programs_ran) = (paused.all_receipts(), paused.all_doubts(), paused.programs_ran);
    let channels = paused.channels.clone();
    let opening = resume_paused(paused, &user_text, tokens_max).unwrap_or_else(|| fresh(user_text));
    Opening { channels, receipts, in_doubt, programs_ran, ..opening }
}

/// Whether a message continues a paused turn and has access to its context: a private turn needs a private message.
pub(super) fn may_resume(paused: &Paused, inbound: &Inbound) -> bool {
    (inbound.private || !paused.private) && is_continue(&inbound.text)
}

impl Conversation {
    /// The paused turn that a pending message would continue if its turn began now. The log stores it in the turn's first
    /// event, so that a retry finds the effects from before the pause.
    #[must_use]
    pub fn continues(&self, task: TaskId) -> Option<TaskId> {
        let inbound = &self.inbox.iter().find(|pending| pending.task == task)?.inbound;
        let paused = self.paused.as_ref().filter(|_| Lane::of(inbound.priority) == Lane::Front)?;
        paused.task.filter(|_| inbound.thread().is_none() && may_resume(paused, inbound))
    }
}

/// A message of an outside party as the model sees it: a line of the kernel, followed by the party's text in a frame. `None`
/// for a message of the user.
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

/// The context of a turn whose caller keeps the conversation: exactly the caller's messages. None of them is history that may
/// be dropped; if they do not fit, the caller receives an error.
pub(super) fn of_thread(messages: Vec<Message>) -> Opening {
    Opening {
        messages,
        stable: 0,
        plan: Plan::default(),
        channels: Vec::new(),
        provenance: Provenance::default(),
        receipts: Vec::new(),
        in_doubt: Vec::new(),
        programs_ran: false,
        cut_results: CutResults::default(),
    }
}

/// The context from history and message. A fifth of the budget is reserved for the message, so that the history window does
/// not depend on the length of each message.
fn fresh(history: &mut History, last: Message, shown: Shown, tokens_max: u32) -> Opening {
    history.fit(tokens_max / 5 * 4);
    let tokens_left = tokens_max.saturating_sub(tokens_of(std::slice::from_ref(&last)));
    let mut messages = history.messages(tokens_left, shown);
    let stable = messages.len();
    let mut last = last;
    if !matches!(messages.first(), Some(Message::User { .. })) {
        with_context(&mut last, history.summary_text(tokens_left));
    }
    messages.push(last);
    Opening {
        messages,
        stable,
        plan: Plan::default(),
        channels: Vec::new(),
        provenance: Provenance::default(),
        receipts: Vec::new(),
        in_doubt: Vec::new(),
        programs_ran: false,
        cut_results: CutResults::default(),
    }
}

/// The paused context word for word, without the history if it is too long. `None` if it is still too long: then the report
/// of the pause, at the end of the history, has to suffice.
fn resume_paused(paused: Paused, user_text: &str, tokens_max: u32) -> Option<Opening> {
    let Paused { mut messages, mut stable, plan, provenance, cut_results, .. } = paused;
    messages.push(Message::user(user_text));
    if tokens_of(&messages) > tokens_max {
        messages.drain(..stable);
        stable = 0;
    }
    (tokens_of(&messages) <= tokens_max).then_some(Opening {
        messages,
        stable,
        plan,
        channels: Vec::new(),
        provenance,
        receipts: Vec::new(),
        in_doubt: Vec::new(),
        programs_ran: false,
        cut_results,
    })
}

/// The limits of the main agent. Its own calls also count in the conversation's window, of which `window_used` calls are used
/// or reserved.
pub(super) fn run_limits(mode: Mode, limits: &TurnLimits, window_used: u32) -> RunLimits {
    let rounds_max = match mode {
        Mode::MultiAgent => limits.iterations_max,
        Mode::SingleLoop | Mode::Direct => limits.single_loop_calls_max.saturating_add(2),
    };
    let (calls_max, calls_note) = own_calls(mode, limits, 0, window_used);
    RunLimits { rounds_max, calls_max, calls_note, result_bytes_max: limits.result_bytes_max() }
}

/// The maximum number of calls of the main agent, which has made `calls_used`, and the message once they are used.
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

/// The message once the conversation's sliding window is used up.
pub(super) fn window_note(limits: &TurnLimits) -> String {
    format!(
        "Reached the limit of {} skill calls within {} s in this conversation; more can be made when the first of them are {1} s \
         old (`turn.window_calls_max`).",
        limits.window_calls_max,
        limits.window_ms / 1_000
    )
}

/// Fills the history from the earlier messages that a stateless front end sends along.
pub(super) fn seed_history(history: &mut History, preamble: &[(String, String)], private: bool, frames: &Frames) {
    let mut user = String::new();
    for (role, text) in preamble {
        if role == "assistant" {
            history.push(Exchange::plain(std::mem::take(&mut user), text.clone(), private));
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
        history.push(Exchange::plain(user, "(no answer)".to_owned(), private));
    }
}

/// Whether a text asks to continue a paused turn: "yes, continue", or similar [S0 5.3].
fn is_continue(text: &str) -> bool {
    const WORDS: [&str; 18] = [
        "continue", "yes", "please", "go", "on", "ahead", "ok", "okay", "sure", "keep", "going", "yep", "yeah",
        "proceed", "do", "it", "resume", "y",
    ];
    let text = text.to_lowercase();
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).peekable();
    words.peek().is_some() && words.clone().count() <= 5 && words.all(|w| WORDS.contains(&w))
}
