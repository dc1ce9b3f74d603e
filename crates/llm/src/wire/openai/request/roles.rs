//! Adapts messages to chat templates with fewer roles: without a system message (Gemma's), or with strictly alternating
//! user and assistant (Mistral's). The refusal of a server shows which adaptation it needs.

use std::borrow::Cow;

use super::{Content, Line, plain};
use crate::wire::{NO_BEGINNING, quirks::Quirks};

/// Adapts the lines to a server with these quirks.
pub(super) fn as_taken(mut lines: Vec<Line<'_>>, quirks: Quirks) -> Vec<Line<'_>> {
    if quirks.no_system {
        fold_system(&mut lines);
    }
    if quirks.must_alternate { alternating(lines) } else { lines }
}

/// Puts the system text before the text of the first message if that is the user's, otherwise into a user message of its
/// own.
fn fold_system(lines: &mut Vec<Line<'_>>) {
    if lines.first().is_none_or(|first| first.role != "system") {
        return;
    }
    let mut first = lines.remove(0);
    first.role = "user";
    match lines.first_mut() {
        Some(next) if next.role == "user" => {
            let text = std::mem::replace(&mut next.content, Content::Nothing(()));
            next.content = joined(first.content, text);
        }
        _ => lines.insert(0, first),
    }
}

/// Joins consecutive messages of one role, and begins with the user.
fn alternating(lines: Vec<Line<'_>>) -> Vec<Line<'_>> {
    let mut turns: Vec<Line<'_>> = Vec::with_capacity(lines.len() + 1);
    for line in lines {
        let is_first = turns.last().is_none_or(|last| last.role == "system");
        if is_first && line.role == "assistant" {
            turns.push(plain("user", Content::Text(NO_BEGINNING.into())));
        }
        match turns.last_mut() {
            Some(last) if last.role == line.role && matches!(line.role, "user" | "assistant") => {
                let before = std::mem::replace(&mut last.content, Content::Nothing(()));
                last.content = joined(before, line.content);
                last.tool_calls.extend(line.tool_calls);
            }
            _ => turns.push(line),
        }
    }
    turns
}

fn joined<'a>(before: Content<'a>, behind: Content<'a>) -> Content<'a> {
    match (before, behind) {
        (Content::Nothing(()), content) | (content, Content::Nothing(())) => content,
        (Content::Text(before), Content::Text(behind)) => Content::Text(format!("{before}\n\n{behind}").into()),
        (Content::Parts(mut before), Content::Parts(behind)) => {
            before.extend(behind);
            Content::Parts(before)
        }
        // Defensive: a server gets either texts or parts, but a reply of the model is always a text.
        (before, behind) => Content::Text(format!("{}\n\n{}", text_of(&before), text_of(&behind)).into()),
    }
}

fn text_of<'c>(content: &'c Content<'_>) -> Cow<'c, str> {
    match content {
        Content::Nothing(()) => Cow::Borrowed(""),
        Content::Text(text) => Cow::Borrowed(text),
        Content::Parts(parts) => parts.iter().map(|part| part.text).collect::<Vec<_>>().join("\n\n").into(),
    }
}
