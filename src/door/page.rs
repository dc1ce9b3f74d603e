//! Pages of lists, the same through every front end: how many rows, and where the next page begins.

use std::str::FromStr;

use annie_actors::PAGE_MAX;
use annie_core::ports::Before;

use crate::error::Fault;

/// How many rows a page has: unless asked otherwise, and at most.
#[derive(Debug, Clone, Copy)]
pub struct PageSize {
    default: u32,
    max: u32,
}

/// Of lists of rows.
pub const ROWS: PageSize = PageSize { default: 50, max: PAGE_MAX };
/// Of a conversation's log.
pub const EVENTS: PageSize = PageSize { default: 100, max: PAGE_MAX };
/// Of what was said in a conversation.
pub const MESSAGES: PageSize = PageSize { default: 50, max: 200 };
/// Of the tree.
pub const ACTORS: PageSize = PageSize { default: 1_000, max: 5_000 };
/// Of what one call for many dead letters does.
pub const BULK: PageSize = PageSize { default: 100, max: annie_actors::LETTERS_AT_ONCE_MAX };

impl PageSize {
    /// What was asked for, or the default.
    ///
    /// # Errors
    /// If it is not within the range, which the refusal names.
    pub fn of(self, asked: Option<u32>) -> Result<u32, Fault> {
        match asked {
            None => Ok(self.default),
            Some(limit) if (1..=self.max).contains(&limit) => Ok(limit),
            Some(_) => Err(self.refused()),
        }
    }

    /// The same of a text, as a query has it.
    ///
    /// # Errors
    /// As [`Self::of`], and if it is no whole number.
    pub fn of_text(self, asked: Option<&str>) -> Result<u32, Fault> {
        self.of(asked.map(str::parse).transpose().map_err(|_| self.refused())?)
    }

    /// The same of a number of a gRPC message, where 0 is not given.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_number(self, asked: u32) -> Result<u32, Fault> {
        self.of(Some(asked).filter(|asked| *asked != 0))
    }

    fn refused(self) -> Fault {
        Fault::invalid(format!("it must be a whole number from 1 to {}", self.max)).at("limit")
    }
}

/// Where a page begins, as an earlier page said in `next`; an empty text is the beginning.
///
/// # Errors
/// If no page said so.
pub fn place<N: FromStr>(next: Option<&str>) -> Result<Option<N>, Fault> {
    let next = next.filter(|next| !next.is_empty());
    next.map(str::parse).transpose().map_err(|_| no_place())
}

/// The refusal of a `next` that no page gave.
pub fn no_place() -> Fault {
    Fault::invalid("it must be the `next` of an earlier page of this list").at("next")
}

/// Where a page of rows begins that are listed by time, newest first; the newest row without a `next`.
///
/// # Errors
/// As [`place`].
pub fn before(next: Option<&str>) -> Result<Before, Fault> {
    Ok(place(next)?.unwrap_or(Before::NEWEST))
}

/// `next` of a page: where its last row stands; nothing if the list ends with it.
pub fn next_of<T, N: ToString>(rows: &[T], limit: u32, place: impl Fn(&T) -> N) -> Option<String> {
    rows.last().filter(|_| rows.len() >= limit as usize).map(|row| place(row).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_size_outside_of_its_range_is_refused_with_the_range() {
        for wrong in ["0", "501", "-1", "100000", "99999999999999999999", "1.5", "many", ""] {
            let fault = ROWS.of_text(Some(wrong)).unwrap_err();
            assert_eq!(fault.field.as_deref(), Some("limit"), "{wrong}");
            assert_eq!(fault.detail, "it must be a whole number from 1 to 500", "{wrong}");
        }
        assert_eq!((ROWS.of_text(None).unwrap(), ROWS.of_text(Some("500")).unwrap()), (50, 500));
        assert_eq!((ROWS.of_number(0).unwrap(), ROWS.of_number(3).unwrap()), (50, 3));
        assert!(MESSAGES.of_number(201).is_err());
    }

    #[test]
    fn next_is_where_a_full_page_ends() {
        assert_eq!(next_of(&[3, 2], 2, |n| *n), Some("2".to_owned()));
        assert_eq!(next_of(&[3], 2, |n| *n), None);
        assert_eq!((place::<i64>(Some("2")).unwrap(), place::<i64>(Some("")).unwrap()), (Some(2), None));
        assert_eq!(place::<u64>(Some("-2")).unwrap_err().field.as_deref(), Some("next"));
    }
}
