//! Cursors for pages of lists.

use std::{fmt, str::FromStr};

use uuid::Uuid;

use super::{ConversationRow, DeadLetterRow, OperationRow, TaskRow};
use crate::time::Micros;

/// The start of a page in a list that is ordered from newest to oldest: after the row with this time and id. The id orders
/// rows with equal times, so that a page may end between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Before {
    /// The time that orders the list.
    pub at: Micros,
    /// The id that orders rows with equal times. The nil id comes before all others.
    pub id: Uuid,
}

impl Before {
    /// The start of a list.
    pub const NEWEST: Self = Self { at: Micros(i64::MAX), id: Uuid::nil() };

    /// Whether the row with this time and id is on the page that starts here, or on a later page.
    #[must_use]
    pub fn takes(self, at: Micros, id: Uuid) -> bool {
        Self { at, id } < self
    }
}

/// The rows before an instant.
impl From<Micros> for Before {
    fn from(at: Micros) -> Self {
        Self { at, id: Uuid::nil() }
    }
}

impl fmt::Display for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.at.0, self.id.simple())
    }
}

/// The text is not a valid page start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no place of a list")]
pub struct NotAPageStart;

impl FromStr for Before {
    type Err = NotAPageStart;
    fn from_str(text: &str) -> Result<Self, NotAPageStart> {
        let (at, id) = text.split_once('_').ok_or(NotAPageStart)?;
        Ok(Self { at: Micros(at.parse().map_err(|_| NotAPageStart)?), id: id.parse().map_err(|_| NotAPageStart)? })
    }
}

impl ConversationRow {
    /// The page start after this row in a list of conversations.
    #[must_use]
    pub fn page_start(&self) -> Before {
        Before { at: self.updated_at, id: self.id.uuid() }
    }
}

impl TaskRow {
    /// The page start after this row in a list of tasks.
    #[must_use]
    pub fn page_start(&self) -> Before {
        Before { at: self.received_at, id: self.id.uuid() }
    }
}

impl DeadLetterRow {
    /// The page start after this row in a list of dead letters.
    #[must_use]
    pub fn page_start(&self) -> Before {
        Before { at: self.failed_at, id: self.task.uuid() }
    }
}

impl OperationRow {
    /// The page start after this row in a list of operations.
    #[must_use]
    pub fn page_start(&self) -> Before {
        Before { at: self.opened_at, id: self.id.uuid() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_start_round_trips_through_text_and_separates_rows_of_equal_time() {
        let page_start = Before { at: Micros(-7), id: Uuid::from_u128(2) };
        assert_eq!(page_start.to_string().parse(), Ok(page_start));
        for wrong in ["", "7", "7_", "_7", "x_00000000000000000000000000000002", "7_xyz"] {
            assert_eq!(wrong.parse::<Before>(), Err(NotAPageStart), "{wrong}");
        }
        let takes = |at, id| page_start.takes(Micros(at), Uuid::from_u128(id));
        assert_eq!(
            [takes(-8, 9), takes(-7, 1), takes(-7, 2), takes(-7, 3), takes(-6, 1)],
            [true, true, false, false, false]
        );
        assert!(!Before::from(Micros(5)).takes(Micros(5), Uuid::nil()));
    }
}
