//! The request for an agentic backend. The backend receives one task instead of the conversation: the persona, the last
//! turns in short form, and the instruction. The conversation stays in the log, so that no second copy of it has to be kept
//! in step.

use std::fmt::Write;

use crate::{context::clip, message::Message};

/// Maximum number of earlier turns included [S3 10.6].
const TURNS_MAX: usize = 4;
/// Minimum length of an included text, in bytes. A shorter piece would be useless.
const TEXT_BYTES_MIN: usize = 96;
/// The rough estimate that the history uses as well: [`crate::context::tokens`].
const BYTES_PER_TOKEN: usize = 4;
/// The facts of this turn (time, memories) may use at most 1/4 of the budget.
const FACTS_PART: usize = 4;

/// Builds one user message for a separate task: the user's last message, preceded by `persona`, this turn's facts and the
/// last four turns, each truncated to its share of `tokens_max`. Work already done within this turn follows the turns. The
/// instruction has priority: it is truncated only if it alone exceeds the whole budget.
#[must_use]
pub fn hand_over(persona: &str, messages: &[Message], tokens_max: u32) -> Vec<Message> {
    let budget_bytes = (tokens_max as usize).saturating_mul(BYTES_PER_TOKEN);
    let last = messages.iter().rposition(|m| matches!(m, Message::User { .. }));
    let (before, now) = messages.split_at(last.unwrap_or(messages.len()));
    let (facts, text) = match now.first() {
        Some(Message::User { context, text }) => (context.as_deref().unwrap_or_default(), text.as_str()),
        _ => ("", ""),
    };
    let text = clip(text, budget_bytes.max(TEXT_BYTES_MIN)).into_owned();
    let mut left = budget_bytes.saturating_sub(text.len());
    let mut context_text = String::new();
    add(&mut context_text, &mut left, "", persona, budget_bytes);
    add(&mut context_text, &mut left, "", facts, budget_bytes / FACTS_PART);
    let done = now.get(1..).unwrap_or_default();
    let lines: Vec<(&str, &str)> = turns(before).iter().chain(done).filter_map(spoken_line).collect();
    if !lines.is_empty() {
        add(&mut context_text, &mut left, "", "What was said before, in short:", budget_bytes);
        let mut open = lines.len();
        for (speaker, line) in lines {
            // Short texts leave their share to the others.
            let share = (left / open).saturating_sub(speaker.len() + 2);
            open -= 1;
            add(&mut context_text, &mut left, speaker, line, share);
        }
    }
    let context = Some(context_text).filter(|t| !t.is_empty());
    vec![Message::User { context, text }]
}

/// The messages of the last few turns, beginning with a user message.
fn turns(before: &[Message]) -> &[Message] {
    let starts = before.iter().enumerate().filter(|(_, m)| matches!(m, Message::User { .. }));
    let start = starts.rev().take(TURNS_MAX).last().map_or(0, |(n, _)| n);
    before.get(start..).unwrap_or_default()
}

/// The speaker and the text of a message; `None` if it has no text.
fn spoken_line(message: &Message) -> Option<(&'static str, &str)> {
    let (speaker, text) = match message {
        Message::User { text, .. } => ("User: ", text),
        Message::Assistant { text, .. } => ("Assistant: ", text),
        Message::Tool { text, .. } => ("Result: ", text),
        Message::Note { text } => ("", text),
    };
    Some((speaker, text.trim())).filter(|(_, text)| !text.is_empty())
}

/// Adds a paragraph of at most `bytes_max`, unless only a uselessly short piece of it would fit.
fn add(context_text: &mut String, left: &mut usize, speaker: &str, text: &str, bytes_max: usize) {
    let frame = speaker.len() + 1;
    let space = bytes_max.min(left.saturating_sub(frame));
    if text.is_empty() || (text.len() > space && space < TEXT_BYTES_MIN) {
        return;
    }
    let text = clip(text, space);
    let _ = writeln!(context_text, "{speaker}{text}");
    *left = left.saturating_sub(frame + text.len());
}
