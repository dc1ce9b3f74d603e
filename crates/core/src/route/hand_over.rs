//! What a backend is told that works by itself. It is given one task, not the conversation: who speaks, the last
//! turns in short, and the instruction. The conversation stays in the log, and no two models have to be kept in step.

use std::fmt::Write;

use crate::{context::clip, message::Message};

/// How many earlier turns are told [S3 10.6].
const TURNS_MAX: usize = 4;
/// The least that is worth telling of one text, in bytes.
const TEXT_BYTES_MIN: usize = 96;
/// By the rough count that the history uses: [`crate::context::tokens`].
const BYTES_PER_TOKEN: usize = 4;
/// Of the budget, what the facts of this turn (time, memories) may take: one part in so many.
const FACTS_PART: usize = 4;

/// One user message for a task of its own: the last thing that the user said, and before it, as far as `tokens_max` goes,
/// `persona`, this turn's facts and the last four turns, each clipped to its share. What was done within this turn already
/// follows the turns. The instruction comes first: only one that is longer than the whole budget is clipped itself.
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
    let mut told = String::new();
    add(&mut told, &mut left, "", persona, budget_bytes);
    add(&mut told, &mut left, "", facts, budget_bytes / FACTS_PART);
    let done = now.get(1..).unwrap_or_default();
    let lines: Vec<(&str, &str)> = turns(before).iter().chain(done).filter_map(said).collect();
    if !lines.is_empty() {
        add(&mut told, &mut left, "", "What was said before, in short:", budget_bytes);
        let mut open = lines.len();
        for (who, line) in lines {
            // Short texts leave their share to the others.
            let share = (left / open).saturating_sub(who.len() + 2);
            open -= 1;
            add(&mut told, &mut left, who, line, share);
        }
    }
    let context = Some(told).filter(|t| !t.is_empty());
    vec![Message::User { context, text }]
}

/// The last turns of a list of messages: from the last but few user messages on.
fn turns(before: &[Message]) -> &[Message] {
    let starts = before.iter().enumerate().filter(|(_, m)| matches!(m, Message::User { .. }));
    let start = starts.rev().take(TURNS_MAX).last().map_or(0, |(n, _)| n);
    before.get(start..).unwrap_or_default()
}

/// Who says what; nothing for a message without words.
fn said(message: &Message) -> Option<(&'static str, &str)> {
    let (who, text) = match message {
        Message::User { text, .. } => ("User: ", text),
        Message::Assistant { text, .. } => ("Assistant: ", text),
        Message::Tool { text, .. } => ("Result: ", text),
        Message::Note { text } => ("", text),
    };
    Some((who, text.trim())).filter(|(_, text)| !text.is_empty())
}

/// Adds a paragraph of at most so many bytes, if anything sensible of it fits.
fn add(told: &mut String, left: &mut usize, who: &str, text: &str, bytes_max: usize) {
    let frame = who.len() + 1;
    let room = bytes_max.min(left.saturating_sub(frame));
    if text.is_empty() || (text.len() > room && room < TEXT_BYTES_MIN) {
        return;
    }
    let text = clip(text, room);
    let _ = writeln!(told, "{who}{text}");
    *left = left.saturating_sub(frame + text.len());
}
