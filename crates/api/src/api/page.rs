//! Pagination, the same on every front end: the page size, and the cursor of the next page.

use std::str::FromStr;

use annie_actors::PAGE_MAX;
use annie_core::ports::Before;

use crate::error::ApiError;

/// The default and the maximum number of rows of a page.
#[derive(Debug, Clone, Copy)]
pub struct PageSize {
    default: u32,
    max: u32,
}

/// Page size of lists of rows.
pub const ROWS: PageSize = PageSize { default: 50, max: PAGE_MAX };
/// Page size of a conversation's log.
pub const EVENTS: PageSize = PageSize { default: 100, max: PAGE_MAX };
/// Page size of a conversation's messages.
pub const MESSAGES: PageSize = PageSize { default: 50, max: 200 };
/// Page size of the actor tree.
pub const ACTORS: PageSize = PageSize { default: 1_000, max: 5_000 };
/// The number of dead letters that one bulk command processes.
pub const BULK: PageSize = PageSize { default: 100, max: annie_actors::DEAD_LETTERS_AT_ONCE_MAX };

impl PageSize {
    /// The requested size, or the default.
    ///
    /// # Errors
    /// If it is out of range; the error names the range.
    pub fn of(self, asked: Option<u32>) -> Result<u32, ApiError> {
        match asked {
            None => Ok(self.default),
            Some(limit) if (1..=self.max).contains(&limit) => Ok(limit),
            Some(_) => Err(self.refused()),
        }
    }

    /// Like [`Self::of`], for the text of a query parameter.
    ///
    /// # Errors
    /// As [`Self::of`], and if the text is not a whole number.
    pub fn of_text(self, asked: Option<&str>) -> Result<u32, ApiError> {
        self.of(asked.map(str::parse).transpose().map_err(|_| self.refused())?)
    }

    /// Like [`Self::of`], for a number of a gRPC message, where 0 means not given.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_number(self, asked: u32) -> Result<u32, ApiError> {
        self.of(Some(asked).filter(|asked| *asked != 0))
    }

    fn refused(self) -> ApiError {
        ApiError::invalid(format!("it must be a whole number from 1 to {}", self.max)).at("limit")
    }
}

/// Parses the cursor `next` of an earlier page. An empty or missing cursor means the first page.
///
/// # Errors
/// If the text is not a cursor of this list.
pub fn cursor<N: FromStr>(next: Option<&str>) -> Result<Option<N>, ApiError> {
    let next = next.filter(|next| !next.is_empty());
    next.map(str::parse).transpose().map_err(|_| invalid_cursor())
}

/// The error for a `next` that no page returned.
pub fn invalid_cursor() -> ApiError {
    ApiError::invalid("it must be the `next` of an earlier page of this list").at("next")
}

/// The position after which a page starts, for rows in descending order of time. Without a cursor it is the newest row.
///
/// # Errors
/// As [`cursor`].
pub fn before(next: Option<&str>) -> Result<Before, ApiError> {
    Ok(cursor(next)?.unwrap_or(Before::NEWEST))
}

/// The `limit` of a gRPC message as the text of a query parameter; 0 means not given.
pub fn text_of(limit: u32) -> Option<String> {
    Some(limit).filter(|limit| *limit != 0).map(|limit| limit.to_string())
}

/// A page of a list.
pub struct Page<T> {
    pub rows: Vec<T>,
    /// The cursor of the next page; absent at the end.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// The page with these rows, of which there are at most `limit`.
    pub fn of<N: ToString>(rows: Vec<T>, limit: u32, cursor: impl Fn(&T) -> N) -> Self {
        let next = next_of(&rows, limit, cursor);
        Self { rows, next }
    }
}

/// The cursor `next` of a page: the position of its last row; nothing if the list ends with this page.
pub fn next_of<T, N: ToString>(rows: &[T], limit: u32, cursor: impl Fn(&T) -> N) -> Option<String> {
    rows.last().filter(|_| rows.len() >= limit as usize).map(|row| cursor(row).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_size_out_of_range_is_refused_with_the_range() {
        for wrong in ["0", "501", "-1", "100000", "99999999999999999999", "1.5", "many", ""] {
            let error = ROWS.of_text(Some(wrong)).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("limit"), "{wrong}");
            assert_eq!(error.detail, "it must be a whole number from 1 to 500", "{wrong}");
        }
        assert_eq!((ROWS.of_text(None).unwrap(), ROWS.of_text(Some("500")).unwrap()), (50, 500));
        assert_eq!((ROWS.of_number(0).unwrap(), ROWS.of_number(3).unwrap()), (50, 3));
        assert!(MESSAGES.of_number(201).is_err());
    }

    #[test]
    fn next_cursor_is_last_row_of_full_page() {
        assert_eq!(next_of(&[3, 2], 2, |n| *n), Some("2".to_owned()));
        assert_eq!(next_of(&[3], 2, |n| *n), None);
        assert_eq!((cursor::<i64>(Some("2")).unwrap(), cursor::<i64>(Some("")).unwrap()), (Some(2), None));
        assert_eq!(cursor::<u64>(Some("-2")).unwrap_err().field.as_deref(), Some("next"));
    }
}
