//! Notifications about completed background work [S3 5.8]: which final texts become a notification, and how several of them
//! are merged into one that can be spoken.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    event::Priority,
    fork_report::{self, FORK_REPORT, FORK_REPORT_CHANNEL, ForkEnd},
    ids::OutboxId,
    inbound::{DEAD_LETTER, OPERATION},
    ports::{Address, Diverted, OutboxRow, TaskState},
    reminder::{self, REMINDER},
};

/// Maximum length of an answer in a notification, in characters. The whole answer is in its conversation.
const TEXT_CHARS_MAX: usize = 400;
/// Maximum length of an answer among several in a notification, in characters.
const LINE_CHARS_MAX: usize = 200;
/// Maximum length of a task's title in a notification, in characters.
const NAME_CHARS_MAX: usize = 60;
/// Maximum number of tasks listed by name.
const NAMES_MAX: usize = 5;

/// How often users are notified, and how long notifications are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyLimits {
    /// Minimum time between two notifications of a user, in milliseconds [S3 5.8].
    pub every_ms: u64,
    /// How long the first of several final texts waits for the others, in milliseconds.
    pub gather_ms: u64,
    /// Retention of notifications and delivered texts, in milliseconds.
    pub keep_ms: u64,
}

impl Default for NotifyLimits {
    fn default() -> Self {
        Self { every_ms: 30_000, gather_ms: 250, keep_ms: 30 * 24 * 3_600_000 }
    }
}

/// Whether the user gets a final text in the conversation itself, so that no notification is needed. `was_listening` says
/// that a client was connected when the text was sent.
#[must_use]
pub fn is_delivered_in_conversation(final_text: &OutboxRow, was_listening: bool) -> bool {
    match ending(final_text) {
        Ending::GivenUp => false,
        Ending::Asks => was_listening,
        // The user who cancelled the task knows about it.
        Ending::Cancelled => true,
        Ending::Reminds => was_listening,
        Ending::Finished | Ending::Failed => {
            was_listening || (is_waited_for(final_text.priority) && !is_started_automatically(final_text))
        }
    }
}

/// Whether a person waits for work of this class.
const fn is_waited_for(class: Priority) -> bool {
    matches!(class, Priority::Realtime | Priority::High)
}

/// Whether the work was started by a schedule or by an external event, whatever its class.
fn is_started_automatically(final_text: &OutboxRow) -> bool {
    let kind = final_text.source.split([':', '/']).next().unwrap_or_default();
    kind == DEAD_LETTER || kind == OPERATION || kind == REMINDER || kind == FORK_REPORT
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Finished,
    Failed,
    GivenUp,
    Cancelled,
    /// The task has not ended: the text asks for an approval.
    Asks,
    /// The text reminds the user of a to-do.
    Reminds,
}

fn ending(final_text: &OutboxRow) -> Ending {
    if final_text.id == OutboxId::for_dead_letter(final_text.task) {
        return Ending::GivenUp;
    }
    if final_text.id != OutboxId::for_task(final_text.task) {
        return Ending::Asks;
    }
    if final_text.source == REMINDER {
        return Ending::Reminds;
    }
    // The report itself never fails. The user wants to know what the reported task came to.
    if final_text.source == FORK_REPORT {
        return match fork_report::parts(&final_text.text).1 {
            ForkEnd::Finished => Ending::Finished,
            ForkEnd::Failed => Ending::Failed,
            ForkEnd::GivenUp => Ending::GivenUp,
            ForkEnd::Cancelled => Ending::Cancelled,
            ForkEnd::Asks => Ending::Asks,
        };
    }
    match final_text.state {
        TaskState::Failed => Ending::Failed,
        TaskState::Cancelled => Ending::Cancelled,
        TaskState::Completed | TaskState::Queued | TaskState::Running | TaskState::Suspended => Ending::Finished,
    }
}

/// The text of one notification for one or more final texts of a user, oldest first.
#[must_use]
pub fn notice(final_texts: &[OutboxRow]) -> String {
    match final_texts {
        [one] => {
            let lost = undelivered(one, &format!("\"{}\"", name(one)));
            [single_notice(one)].into_iter().chain(lost).collect::<Vec<_>>().join("\n")
        }
        many => merged_notice(many),
    }
}

/// The sentence about a text that did not reach its address, or may not have.
fn undelivered(final_text: &OutboxRow, what: &str) -> Option<String> {
    let to = final_text.reply_to.as_ref();
    if to.is_some_and(|address| address.channel == FORK_REPORT_CHANNEL) {
        return final_text.diverted.map(|_| format!("I could not report {what} in the conversation that started it."));
    }
    let to = to.map(|Address { channel, to }| format!(" to {to} (channel {channel})")).unwrap_or_default();
    Some(match final_text.diverted? {
        Diverted::InDoubt => format!("I do not know whether I delivered {what}{to}: the attempt broke off."),
        Diverted::Refused => format!("I could not deliver {what}{to}: the channel refused it."),
        Diverted::GivenUp => format!("I could not deliver {what}{to}: the channel failed for too long."),
        Diverted::NoChannel => format!("I could not deliver {what}{to}: no channel has this name any more."),
    })
}

/// A summary that can be spoken, and a line for each text: a name alone does not say what came out, and equal names do not say
/// which of them was not delivered.
fn merged_notice(final_texts: &[OutboxRow]) -> String {
    let names_of_kind = |wanted: Ending| -> Vec<String> {
        let mut seen = BTreeSet::new();
        let of_kind = final_texts.iter().filter(|w| ending(w) == wanted).map(name);
        // Equal tasks that shared one execution are named once.
        of_kind.filter(|name| seen.insert(name.clone())).collect()
    };
    let sentences = [
        sentence("I finished", &names_of_kind(Ending::Finished)),
        sentence("I could not do", &names_of_kind(Ending::Failed)),
        sentence("I have given up", &names_of_kind(Ending::GivenUp)),
        sentence("Cancelled:", &names_of_kind(Ending::Cancelled)),
        sentence("I need your approval for", &names_of_kind(Ending::Asks)),
        sentence("I remind you of", &names_of_kind(Ending::Reminds)),
    ];
    let mut lines = vec![sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")];
    let mut seen = BTreeSet::new();
    for final_text in final_texts {
        let line = line_of(final_text);
        if let Some(line) = line.filter(|line| seen.len() < NAMES_MAX && !seen.contains(line)) {
            seen.insert(line.clone());
            lines.push(line);
        } else if final_text.diverted.is_some() {
            lines.extend(undelivered(final_text, &format!("\"{}\"", name(final_text))));
        }
    }
    lines.join("\n")
}

/// What came out of one of several tasks, on one line. Reminders and cancelled tasks have nothing more to say than their names.
fn line_of(final_text: &OutboxRow) -> Option<String> {
    let says_more = match ending(final_text) {
        Ending::Finished | Ending::Failed | Ending::GivenUp | Ending::Asks => final_text.source != OPERATION,
        Ending::Cancelled | Ending::Reminds => false,
    };
    let text = body(final_text).split_whitespace().collect::<Vec<_>>().join(" ");
    let lost = undelivered(final_text, "it").map(|lost| format!(" ({lost})")).unwrap_or_default();
    (says_more && !text.is_empty())
        .then(|| format!("\"{}\": {}{lost}", name(final_text), clipped(&text, LINE_CHARS_MAX)))
}

fn single_notice(final_text: &OutboxRow) -> String {
    let is_report = final_text.source == FORK_REPORT;
    let title = if is_report { name(final_text) } else { clipped(&final_text.title, NAME_CHARS_MAX) };
    let text = clipped(body(final_text), TEXT_CHARS_MAX);
    let is_operation = final_text.source == OPERATION;
    match ending(final_text) {
        Ending::GivenUp => format!("I could not do \"{title}\". {text}"),
        Ending::Reminds => text,
        Ending::Finished | Ending::Failed | Ending::Asks if is_operation => text,
        Ending::Finished => format!("I finished \"{title}\": {text}"),
        Ending::Failed => format!("About \"{title}\": {text}"),
        Ending::Cancelled => format!("\"{title}\" was cancelled."),
        Ending::Asks => format!("I need your approval for \"{title}\": {text}"),
    }
}

/// The text of a task. A report names the reported task beside its text.
fn body(final_text: &OutboxRow) -> &str {
    if final_text.source == FORK_REPORT { fork_report::parts(&final_text.text).2 } else { &final_text.text }
}

/// The short name of a task in a list. The titles of the messages of operations, reminders and reports are written for models, so
/// their texts are used instead.
fn name(final_text: &OutboxRow) -> String {
    let text = match final_text.source.as_str() {
        OPERATION => &final_text.text,
        REMINDER => reminder::title_of(&final_text.text),
        FORK_REPORT => fork_report::parts(&final_text.text).0,
        _ => &final_text.title,
    };
    clipped(text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default(), NAME_CHARS_MAX)
}

fn sentence(verb: &str, names: &[String]) -> Option<String> {
    let quoted = |name: &String| format!("\"{name}\"");
    match names {
        [] => None,
        [one] => Some(format!("{verb} {}.", quoted(one))),
        many => {
            let mut shown: Vec<String> = many.iter().take(NAMES_MAX).map(quoted).collect();
            let more = many.len() - shown.len();
            let last = if more > 0 { format!("{more} more") } else { shown.pop().unwrap_or_default() };
            Some(format!("{verb} {} things: {} and {last}.", many.len(), shown.join(", ")))
        }
    }
}

/// The beginning of a text, with an ellipsis if it was shortened.
fn clipped(text: &str, chars_max: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((at, _)) => format!("{} …", text[..at].trim_end()),
    }
}

#[cfg(test)]
mod tests;
