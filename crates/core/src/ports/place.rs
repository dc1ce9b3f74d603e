//! Where a page of a list begins.

use std::{fmt, str::FromStr};

use uuid::Uuid;

use super::{ConversationRow, LetterRow, OperationRow, TaskRow};
use crate::time::Micros;

/// Where a page of a list begins that has the newest rows first: behind the row of this time and id. The id tells rows of one
/// instant apart, so that a page may end between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Before {
    /// The time by which the list is ordered.
    pub at: Micros,
    /// The id by which rows of the same time are ordered. The nil id stands before all of them.
    pub id: Uuid,
}

impl Before {
    /// The beginning of a list.
    pub const NEWEST: Self = Self { at: Micros(i64::MAX), id: Uuid::nil() };

    /// Whether a row of this time and id comes on the page that begins here, or on a later one.
    #[must_use]
    pub fn takes(self, at: Micros, id: Uuid) -> bool {
        Self { at, id } < self
    }
}

/// All rows before an instant.
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

/// A text that is no place of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no place of a list")]
pub struct NoPlace;

impl FromStr for Before {
    type Err = NoPlace;
    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let (at, id) = text.split_once('_').ok_or(NoPlace)?;
        Ok(Self { at: Micros(at.parse().map_err(|_| NoPlace)?), id: id.parse().map_err(|_| NoPlace)? })
    }
}

impl ConversationRow {
    /// Its place in a list of conversations.
    #[must_use]
    pub fn place(&self) -> Before {
        Before { at: self.updated_at, id: self.id.uuid() }
    }
}

impl TaskRow {
    /// Its place in a list of tasks.
    #[must_use]
    pub fn place(&self) -> Before {
        Before { at: self.received_at, id: self.id.uuid() }
    }
}

impl LetterRow {
    /// Its place in a list of dead letters.
    #[must_use]
    pub fn place(&self) -> Before {
        Before { at: self.failed_at, id: self.task.uuid() }
    }
}

impl OperationRow {
    /// Its place in a list of operations.
    #[must_use]
    pub fn place(&self) -> Before {
        Before { at: self.opened_at, id: self.id.uuid() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_read_as_it_is_shown_and_stands_between_rows_of_one_instant() {
        let place = Before { at: Micros(-7), id: Uuid::from_u128(2) };
        assert_eq!(place.to_string().parse(), Ok(place));
        for wrong in ["", "7", "7_", "_7", "x_00000000000000000000000000000002", "7_xyz"] {
            assert_eq!(wrong.parse::<Before>(), Err(NoPlace), "{wrong}");
        }
        let takes = |at, id| place.takes(Micros(at), Uuid::from_u128(id));
        assert_eq!(
            [takes(-8, 9), takes(-7, 1), takes(-7, 2), takes(-7, 3), takes(-6, 1)],
            [true, true, false, false, false]
        );
        assert!(!Before::from(Micros(5)).takes(Micros(5), Uuid::nil()));
    }
}
