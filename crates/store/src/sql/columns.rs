//! Converts columns into values. An unreadable column is a `Corrupt` error that names the column.

use std::borrow::Cow;

use annie_core::{
    ids::{Epoch, Seq, UserId},
    ports::StoreError,
    time::Micros,
};
use serde::de::{DeserializeOwned, IntoDeserializer, value::Error as WordError};
use sqlx::Error;
use uuid::Uuid;

use super::corrupt;

const WHAT: &str = "reading a row";

/// A row of any database: its columns by index.
pub trait Cells: Sync {
    fn id(&self, column: usize) -> Result<Option<Uuid>, Error>;
    fn number(&self, column: usize) -> Result<Option<i64>, Error>;
    fn real(&self, column: usize) -> Result<Option<f64>, Error>;
    fn flag(&self, column: usize) -> Result<Option<bool>, Error>;
    fn text(&self, column: usize) -> Result<Option<Cow<'_, str>>, Error>;
    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, Error>;
}

/// Implements `Cells` for a driver's row type; `$text` converts a stored text.
macro_rules! cells_of {
    ($row:ty, $text:expr) => {
        impl $crate::sql::Cells for $row {
            fn id(&self, column: usize) -> Result<Option<uuid::Uuid>, sqlx::Error> {
                sqlx::Row::try_get(self, column)
            }
            fn number(&self, column: usize) -> Result<Option<i64>, sqlx::Error> {
                sqlx::Row::try_get(self, column)
            }
            fn real(&self, column: usize) -> Result<Option<f64>, sqlx::Error> {
                sqlx::Row::try_get(self, column)
            }
            fn flag(&self, column: usize) -> Result<Option<bool>, sqlx::Error> {
                sqlx::Row::try_get(self, column)
            }
            fn text(&self, column: usize) -> Result<Option<std::borrow::Cow<'_, str>>, sqlx::Error> {
                Ok(sqlx::Row::try_get::<Option<&str>, _>(self, column)?.map($text))
            }
            fn bytes(&self, column: usize) -> Result<Option<&[u8]>, sqlx::Error> {
                sqlx::Row::try_get(self, column)
            }
        }
    };
}
pub(crate) use cells_of;

/// A row, read from left to right.
pub struct Columns<'a> {
    row: &'a dyn Cells,
    next: usize,
}

impl<'a> Columns<'a> {
    pub fn of(row: &'a dyn Cells) -> Self {
        Self { row, next: 0 }
    }

    fn take<T>(&mut self, read: impl FnOnce(&'a dyn Cells, usize) -> Result<Option<T>, Error>) -> Taken<T> {
        let value = read(self.row, self.next).map_err(|error| corrupt(WHAT, error))?;
        self.next += 1;
        Ok(value)
    }

    fn must<T>(
        &mut self,
        read: impl FnOnce(&'a dyn Cells, usize) -> Result<Option<T>, Error>,
    ) -> Result<T, StoreError> {
        self.take(read)?.ok_or_else(|| corrupt(WHAT, format!("column {} holds nothing", self.next - 1)))
    }

    /// An id.
    pub fn id<T>(&mut self, wrap: impl FnOnce(Uuid) -> T) -> Result<T, StoreError> {
        self.must(|row, n| row.id(n)).map(wrap)
    }

    /// An id that may be missing.
    pub fn maybe_id<T>(&mut self, wrap: impl FnOnce(Uuid) -> T) -> Taken<T> {
        Ok(self.take(|row, n| row.id(n))?.map(wrap))
    }

    /// A number.
    pub fn number(&mut self) -> Result<i64, StoreError> {
        self.must(|row, n| row.number(n))
    }

    /// A number that is never negative.
    pub fn count(&mut self) -> Result<u64, StoreError> {
        let number = self.number()?;
        u64::try_from(number).map_err(|_| corrupt(WHAT, format!("column {} holds {number}", self.next - 1)))
    }

    /// A small number that is never negative.
    pub fn small(&mut self) -> Result<u32, StoreError> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| corrupt(WHAT, format!("column {} holds {number}", self.next - 1)))
    }

    /// The version of a stored format.
    pub fn version(&mut self) -> Result<u16, StoreError> {
        let number = self.small()?;
        u16::try_from(number).map_err(|_| corrupt(WHAT, format!("version {number}")))
    }

    /// A number with a fraction.
    pub fn real(&mut self) -> Result<f64, StoreError> {
        self.must(|row, n| row.real(n))
    }

    pub fn flag(&mut self) -> Result<bool, StoreError> {
        self.must(|row, n| row.flag(n))
    }

    pub fn text(&mut self) -> Result<String, StoreError> {
        self.must(|row, n| row.text(n)).map(Cow::into_owned)
    }

    /// A text that may be missing.
    pub fn maybe_text(&mut self) -> Taken<String> {
        Ok(self.take(|row, n| row.text(n))?.map(Cow::into_owned))
    }

    /// A text that is borrowed from the row.
    pub fn str(&mut self) -> Result<Cow<'a, str>, StoreError> {
        self.must(|row, n| row.text(n))
    }

    pub fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        self.must(|row, n| row.bytes(n)).map(<[u8]>::to_vec)
    }

    pub fn sha256(&mut self) -> Result<[u8; 32], StoreError> {
        let bytes = self.must(|row, n| row.bytes(n))?;
        bytes.try_into().map_err(|_| corrupt(WHAT, format!("{} bytes where a SHA-256 should be", bytes.len())))
    }

    /// A SHA-256 that may be missing.
    pub fn maybe_sha256(&mut self) -> Taken<[u8; 32]> {
        let wrong = |bytes: &[u8]| corrupt(WHAT, format!("{} bytes where a SHA-256 should be", bytes.len()));
        self.take(|row, n| row.bytes(n))?.map(|bytes| bytes.try_into().map_err(|_| wrong(bytes))).transpose()
    }

    pub fn seq(&mut self) -> Result<Seq, StoreError> {
        self.count().map(Seq)
    }

    pub fn maybe_seq(&mut self) -> Taken<Seq> {
        Ok(self.maybe_at()?.map(|seq| Seq(seq.0.max(0).unsigned_abs())))
    }

    pub fn epoch(&mut self) -> Result<Epoch, StoreError> {
        self.count().map(Epoch)
    }

    pub fn at(&mut self) -> Result<Micros, StoreError> {
        self.number().map(Micros)
    }

    pub fn maybe_at(&mut self) -> Taken<Micros> {
        Ok(self.take(|row, n| row.number(n))?.map(Micros))
    }

    pub fn user(&mut self) -> Result<UserId, StoreError> {
        UserId::new(self.text()?).map_err(|e| corrupt(WHAT, e))
    }

    /// A value of an enum by its name.
    pub fn word<T: DeserializeOwned>(&mut self) -> Result<T, StoreError> {
        T::deserialize((&*self.str()?).into_deserializer()).map_err(|e: WordError| corrupt(WHAT, e))
    }

    /// JSON text.
    pub fn json<T: DeserializeOwned>(&mut self) -> Result<T, StoreError> {
        serde_json::from_str(&self.str()?).map_err(|e| corrupt(WHAT, e))
    }

    /// JSON text that may be missing.
    pub fn maybe_json<T: DeserializeOwned>(&mut self) -> Taken<T> {
        let text = self.take(|row, n| row.text(n))?;
        text.map(|text| serde_json::from_str(&text).map_err(|e| corrupt(WHAT, e))).transpose()
    }
}

/// A value that may be missing.
type Taken<T> = Result<Option<T>, StoreError>;
