//! How a user is told that work ended which nobody waited for [S3 5.8]: which final words become a notification, and how
//! several are merged into one that can be spoken.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    event::Priority,
    ids::OutboxId,
    inbound::{DEAD_LETTER, OPERATION},
    ports::{OutboxRow, TaskState},
};

/// How much of an answer is told, in characters; the whole is in its conversation.
const TEXT_CHARS_MAX: usize = 400;
/// How much of a task's title is told among others, in characters.
const NAME_CHARS_MAX: usize = 60;
/// How many tasks are told by name.
const NAMES_MAX: usize = 5;

/// How often users are notified, and how long what they were told is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyLimits {
    /// From one notification of a user to the next, in milliseconds [S3 5.8].
    pub every_ms: u64,
    /// How long the first of several words waits for the others, in milliseconds.
    pub gather_ms: u64,
    /// How long notifications and delivered words are kept, in milliseconds.
    pub keep_ms: u64,
}

impl Default for NotifyLimits {
    fn default() -> Self {
        Self { every_ms: 30_000, gather_ms: 250, keep_ms: 30 * 24 * 3_600_000 }
    }
}

/// Whether the user gets a final word in the conversation itself, so that there is nothing to notify of. `heard`: somebody
/// listened when it was said.
#[must_use]
pub fn is_told_there(word: &OutboxRow, heard: bool) -> bool {
    match ending(word) {
        Ending::GivenUp => false,
        // Whoever cancelled it knows.
        Ending::Cancelled => true,
        Ending::Finished | Ending::Failed => heard || (is_waited_for(word.priority) && !comes_by_itself(word)),
    }
}

/// Whether a person waits for work of this class.
const fn is_waited_for(class: Priority) -> bool {
    matches!(class, Priority::Realtime | Priority::High)
}

/// Whether it was begun by time or by somebody outside, at whatever class.
fn comes_by_itself(word: &OutboxRow) -> bool {
    let kind = word.source.split([':', '/']).next().unwrap_or_default();
    kind == DEAD_LETTER || kind == OPERATION
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Finished,
    Failed,
    GivenUp,
    Cancelled,
}

fn ending(word: &OutboxRow) -> Ending {
    if word.id == OutboxId::for_letter(word.task) {
        return Ending::GivenUp;
    }
    match word.state {
        TaskState::Failed => Ending::Failed,
        TaskState::Cancelled => Ending::Cancelled,
        TaskState::Completed | TaskState::Queued | TaskState::Running | TaskState::Suspended => Ending::Finished,
    }
}

/// The text of one notification for one or several final words of a user, oldest first.
#[must_use]
pub fn notice(words: &[OutboxRow]) -> String {
    if let [word] = words {
        return alone(word);
    }
    let named = |wanted: Ending| -> Vec<String> {
        let mut seen = BTreeSet::new();
        let of_kind = words.iter().filter(|w| ending(w) == wanted).map(name);
        // Equal work that was done once is told once.
        of_kind.filter(|name| seen.insert(name.clone())).collect()
    };
    let sentences = [
        sentence("I finished", &named(Ending::Finished)),
        sentence("I could not do", &named(Ending::Failed)),
        sentence("I have given up", &named(Ending::GivenUp)),
        sentence("Cancelled:", &named(Ending::Cancelled)),
    ];
    sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn alone(word: &OutboxRow) -> String {
    let (title, text) = (clipped(&word.title, NAME_CHARS_MAX), clipped(&word.text, TEXT_CHARS_MAX));
    let says_itself = word.source == OPERATION;
    match ending(word) {
        Ending::GivenUp => format!("I could not do \"{title}\". {text}"),
        Ending::Finished | Ending::Failed if says_itself => text,
        Ending::Finished => format!("I finished \"{title}\": {text}"),
        Ending::Failed => format!("About \"{title}\": {text}"),
        Ending::Cancelled => format!("\"{title}\" was cancelled."),
    }
}

/// What a task is called among others. What an operation's message says of itself is for models.
fn name(word: &OutboxRow) -> String {
    let words = if word.source == OPERATION { &word.text } else { &word.title };
    clipped(words.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default(), NAME_CHARS_MAX)
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

/// The beginning of a text, which says that it goes on.
fn clipped(text: &str, chars_max: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((at, _)) => format!("{} …", text[..at].trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{
        ids::{ConversationId, TaskId, UserId},
        time::Micros,
    };

    fn word(n: u8, title: &str, state: TaskState, priority: Priority, source: &str) -> OutboxRow {
        let task = TaskId::from_uuid(Uuid::new_v8([n; 16]));
        OutboxRow {
            id: OutboxId::for_task(task),
            user: UserId::new("ann").unwrap(),
            task,
            conversation: ConversationId::from_uuid(Uuid::nil()),
            title: title.to_owned(),
            priority,
            source: source.to_owned(),
            state,
            text: format!("the answer to {title}"),
            at: Micros(0),
        }
    }

    fn done(n: u8, title: &str) -> OutboxRow {
        word(n, title, TaskState::Completed, Priority::Normal, "http")
    }

    fn given_up(n: u8, title: &str) -> OutboxRow {
        let failed = word(n, title, TaskState::Failed, Priority::Normal, "http");
        OutboxRow { id: OutboxId::for_letter(failed.task), text: "It is given up.".to_owned(), ..failed }
    }

    #[test]
    fn what_a_person_waits_for_is_told_in_the_conversation_and_the_rest_in_a_notification() {
        use Priority::{Background, High, Low, Normal, Realtime};
        let finished = |priority, source| word(1, "x", TaskState::Completed, priority, source);
        for class in [Realtime, High] {
            assert!(is_told_there(&finished(class, "http"), false));
            assert!(!is_told_there(&finished(class, "dead_letter"), false), "it was tried again by itself");
            assert!(!is_told_there(&finished(class, "operation"), false), "it came from outside");
            assert!(is_told_there(&finished(class, "operation"), true));
        }
        for class in [Normal, Low, Background] {
            assert!(!is_told_there(&finished(class, "http"), false));
            assert!(is_told_there(&finished(class, "http"), true), "somebody listens");
        }
        assert!(is_told_there(&word(1, "x", TaskState::Cancelled, Normal, "http"), false), "who cancelled it knows");
        assert!(!is_told_there(&given_up(1, "x"), true), "nothing in the conversation says so");
    }

    #[test]
    fn one_ending_is_told_with_its_answer() {
        assert_eq!(notice(&[done(1, "heat pumps")]), "I finished \"heat pumps\": the answer to heat pumps");
        let failed = word(1, "call Bob", TaskState::Failed, Priority::Normal, "http");
        assert_eq!(notice(&[failed]), "About \"call Bob\": the answer to call Bob");
        assert_eq!(notice(&[given_up(1, "call Bob")]), "I could not do \"call Bob\". It is given up.");
        let operation = word(1, "[The x that …", TaskState::Completed, Priority::Normal, "operation");
        assert_eq!(notice(&[operation]), "the answer to [The x that …");
        let long = OutboxRow { text: "é".repeat(1_000), ..done(1, "long") };
        assert!(notice(&[long]).ends_with("é …"));
    }

    #[test]
    fn several_endings_become_one_text_short_enough_to_be_spoken() {
        let failed = word(3, "call Bob", TaskState::Failed, Priority::Normal, "http");
        let text = notice(&[done(1, "a"), done(2, "b"), failed, done(4, "c"), given_up(5, "d")]);
        assert_eq!(
            text,
            "I finished 3 things: \"a\", \"b\" and \"c\". I could not do \"call Bob\". I have given up \"d\"."
        );
        let many: Vec<OutboxRow> = (0..9).map(|n| done(n, &format!("{n}"))).collect();
        assert_eq!(notice(&many), "I finished 9 things: \"0\", \"1\", \"2\", \"3\", \"4\" and 4 more.");
        assert_eq!(notice(&[done(1, "same"), done(2, "same")]), "I finished \"same\".", "done once for both");
    }
}
