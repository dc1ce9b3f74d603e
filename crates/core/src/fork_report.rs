//! Reports of forked tasks: the message that brings the final text of a forked task into the conversation that started the task.
//! The kernel answers the message at once with the text that it carries, as it answers a reminder.

use std::str::FromStr;

use crate::{
    ids::{ConversationId, OutboxId, TaskId},
    outcome::floor_char_boundary,
    ports::{Address, OutboxRow, TaskState},
};

/// The source of the messages that report forked tasks, and the prefix of their ids.
pub const FORK_REPORT: &str = "fork_report";
/// The channel in the address of a forked task. The dash is in no name of an extension, so no channel of an extension and no
/// message of a user has it.
pub const FORK_REPORT_CHANNEL: &str = "fork-report";
/// The longest title of a forked task in its report, in characters.
const TITLE_CHARS_MAX: usize = 60;
/// The longest report, in bytes. Every later turn of the conversation may have it in its context. The whole text is in the
/// conversation of the forked task.
const BYTES_MAX: usize = 32 * 1024;
/// What follows the beginning of a text that was cut.
const CUT: &str = "\n[The rest is in the conversation of the background task.]";

/// What a forked task came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkEnd {
    /// It ended with an answer.
    Finished,
    /// It failed, and may be tried again.
    Failed,
    /// It failed, and is not tried again.
    GivenUp,
    /// It was cancelled.
    Cancelled,
    /// It has not ended, and asks for an approval.
    Asks,
}

impl ForkEnd {
    const ALL: [Self; 5] = [Self::Finished, Self::Failed, Self::GivenUp, Self::Cancelled, Self::Asks];

    /// The end that a final text states.
    #[must_use]
    pub fn of(row: &OutboxRow) -> Self {
        if row.id == OutboxId::for_dead_letter(row.task) {
            return Self::GivenUp;
        }
        if row.id != OutboxId::for_task(row.task) {
            return Self::Asks;
        }
        match row.state {
            TaskState::Failed => Self::Failed,
            TaskState::Cancelled => Self::Cancelled,
            TaskState::Completed | TaskState::Queued | TaskState::Running | TaskState::Suspended => Self::Finished,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Finished => "has finished in the background",
            Self::Failed => "has failed in the background",
            Self::GivenUp => "has been given up in the background",
            Self::Cancelled => "was cancelled in the background",
            Self::Asks => "waits for you in the background",
        }
    }
}

/// The message whose turn started a forked task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkCaller {
    /// Its conversation, which gets the report.
    pub conversation: ConversationId,
    /// Its task. If its message has an address, the report is delivered there.
    pub task: TaskId,
}

impl ForkCaller {
    /// The address of the forked task.
    #[must_use]
    pub fn address(self) -> Address {
        Address { channel: FORK_REPORT_CHANNEL.to_owned(), to: format!("{}/{}", self.conversation, self.task) }
    }

    /// The caller in an address; `None` if it is not the address of a forked task.
    #[must_use]
    pub fn of(address: &Address) -> Option<Self> {
        let (conversation, task) = address.to.split_once('/')?;
        let is_own = address.channel == FORK_REPORT_CHANNEL;
        is_own.then_some(Self {
            conversation: ConversationId::from_str(conversation).ok()?,
            task: TaskId::from_str(task).ok()?,
        })
    }
}

/// The id of the message that reports a final text. The log stores one message with this id, in all processes.
#[must_use]
pub fn message_id(row: &OutboxRow) -> String {
    format!("{FORK_REPORT}:{}", row.id)
}

/// The message that reports a final text, at most `bytes_max` bytes: a line for models, then the answer of the kernel.
#[must_use]
pub fn message_text(row: &OutboxRow, bytes_max: usize) -> String {
    let words = ForkEnd::of(row).words();
    let title = row.title.split_whitespace().collect::<Vec<_>>().join(" ").replace('"', "'");
    let title: String = title.chars().take(TITLE_CHARS_MAX).collect();
    let head = format!("[Report of the background task {}]\n\"{}\" {words}", row.task, title.trim());
    let text = row.text.trim();
    if text.is_empty() {
        return format!("{head}.");
    }
    let room = bytes_max.min(BYTES_MAX).saturating_sub(head.len() + ":\n\n".len());
    let cut = &text[..floor_char_boundary(text, room.saturating_sub(CUT.len()))];
    if text.len() <= room { format!("{head}:\n\n{text}") } else { format!("{head}:\n\n{cut}{CUT}") }
}

/// The parts of a report as the kernel answers it: the title of the forked task, its end, and its text.
#[must_use]
pub fn parts(answer: &str) -> (&str, ForkEnd, &str) {
    let (head, text) = answer.split_once("\n\n").unwrap_or((answer, ""));
    let (title, end) = head.trim_start_matches('"').rsplit_once('"').unwrap_or((head, ""));
    let end = end.trim_matches([' ', ':', '.']);
    let end = ForkEnd::ALL.into_iter().find(|known| known.words() == end);
    (title, end.unwrap_or(ForkEnd::Finished), text)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{event::Priority, ids::UserId, time::Micros};

    fn row(title: &str, state: TaskState, text: &str) -> OutboxRow {
        let task = TaskId::from_uuid(Uuid::new_v8([1; 16]));
        OutboxRow {
            id: OutboxId::for_task(task),
            user: UserId::new("ann").unwrap(),
            task,
            conversation: ConversationId::from_uuid(Uuid::nil()),
            title: title.to_owned(),
            priority: Priority::Normal,
            source: "fork:audit".to_owned(),
            state,
            text: text.to_owned(),
            at: Micros(0),
            reply_to: None,
            diverted: None,
        }
    }

    /// The answer that the message carries.
    fn answer(row: &OutboxRow) -> String {
        message_text(row, 1_000).split_once('\n').unwrap().1.to_owned()
    }

    #[test]
    fn fork_report_says_what_the_task_came_to() {
        let done = row("/audit the \"attic\"", TaskState::Completed, "Two findings.\n\nMore.");
        assert_eq!(answer(&done), "\"/audit the 'attic'\" has finished in the background:\n\nTwo findings.\n\nMore.");
        assert_eq!(parts(&answer(&done)), ("/audit the 'attic'", ForkEnd::Finished, "Two findings.\n\nMore."));
        for (state, end) in [(TaskState::Failed, ForkEnd::Failed), (TaskState::Cancelled, ForkEnd::Cancelled)] {
            assert_eq!(parts(&answer(&row("/audit", state, ""))), ("/audit", end, ""));
        }
        let asks = OutboxRow { id: OutboxId::for_approval(done.task, 1), ..done.clone() };
        let given_up = OutboxRow { id: OutboxId::for_dead_letter(done.task), ..done.clone() };
        assert_eq!((parts(&answer(&asks)).1, parts(&answer(&given_up)).1), (ForkEnd::Asks, ForkEnd::GivenUp));
        let ids = [&done, &asks, &given_up].map(message_id);
        assert!(ids[0] != ids[1] && ids[1] != ids[2], "each text is reported once: {ids:?}");
    }

    #[test]
    fn fork_report_that_is_too_long_is_cut_and_says_where_the_rest_is() {
        let long = row("/audit", TaskState::Completed, &"ä".repeat(100_000));
        for bytes_max in [300, 1_001, 1_000_000] {
            let text = message_text(&long, bytes_max);
            assert!(text.len() <= bytes_max.min(BYTES_MAX) && text.ends_with(CUT), "{bytes_max}: {}", text.len());
        }
    }

    #[test]
    fn fork_caller_is_read_back_from_its_address_only() {
        let caller = ForkCaller {
            conversation: ConversationId::from_uuid(Uuid::new_v8([2; 16])),
            task: TaskId::from_uuid(Uuid::new_v8([3; 16])),
        };
        let address = caller.address();
        assert!(address.is_well_formed());
        assert_eq!(ForkCaller::of(&address), Some(caller));
        assert_eq!(ForkCaller::of(&Address { channel: "mail".to_owned(), ..address.clone() }), None);
        assert_eq!(ForkCaller::of(&Address { to: "conv_1".to_owned(), ..address }), None);
    }
}
