//! Columns into values. Whatever cannot be read is `Corrupt` and says which column.

use annie_core::{
    ids::{Epoch, Seq, UserId},
    ports::StoreError,
    time::Micros,
};
use serde::{
    Serialize,
    de::{DeserializeOwned, IntoDeserializer, value::Error as WordError},
};
use sqlx::{Decode, Row, Sqlite, Type, sqlite::SqliteRow};
use uuid::Uuid;

use super::errors::{corrupt, failed};

const WHAT: &str = "reading a row";

/// A row read from left to right.
pub(super) struct Columns<'a> {
    row: &'a SqliteRow,
    next: usize,
}

impl<'a> Columns<'a> {
    pub const fn of(row: &'a SqliteRow) -> Self {
        Self { row, next: 0 }
    }

    /// The next column.
    pub fn take<T: Decode<'a, Sqlite> + Type<Sqlite>>(&mut self) -> Result<T, StoreError> {
        let value = self.row.try_get(self.next).map_err(failed(WHAT))?;
        self.next += 1;
        Ok(value)
    }

    /// An id.
    pub fn id<T>(&mut self, wrap: impl FnOnce(Uuid) -> T) -> Result<T, StoreError> {
        self.take::<Uuid>().map(wrap)
    }

    /// An id that may be missing.
    pub fn maybe_id<T>(&mut self, wrap: impl FnOnce(Uuid) -> T) -> Result<Option<T>, StoreError> {
        Ok(self.take::<Option<Uuid>>()?.map(wrap))
    }

    /// A number that is never negative.
    pub fn count(&mut self) -> Result<u64, StoreError> {
        let number: i64 = self.take()?;
        u64::try_from(number).map_err(|_| corrupt(WHAT, format!("column {} holds {number}", self.next - 1)))
    }

    /// A small number that is never negative.
    pub fn small(&mut self) -> Result<u32, StoreError> {
        let number: i64 = self.take()?;
        u32::try_from(number).map_err(|_| corrupt(WHAT, format!("column {} holds {number}", self.next - 1)))
    }

    /// A shape's version.
    pub fn version(&mut self) -> Result<u16, StoreError> {
        let number = self.small()?;
        u16::try_from(number).map_err(|_| corrupt(WHAT, format!("version {number}")))
    }

    pub fn sha256(&mut self) -> Result<[u8; 32], StoreError> {
        let bytes: &[u8] = self.take()?;
        bytes.try_into().map_err(|_| corrupt(WHAT, format!("{} bytes where a SHA-256 should be", bytes.len())))
    }

    pub fn seq(&mut self) -> Result<Seq, StoreError> {
        self.count().map(Seq)
    }

    pub fn epoch(&mut self) -> Result<Epoch, StoreError> {
        self.count().map(Epoch)
    }

    pub fn at(&mut self) -> Result<Micros, StoreError> {
        self.take().map(Micros)
    }

    pub fn maybe_at(&mut self) -> Result<Option<Micros>, StoreError> {
        Ok(self.take::<Option<i64>>()?.map(Micros))
    }

    pub fn user(&mut self) -> Result<UserId, StoreError> {
        UserId::new(self.take::<String>()?).map_err(|e| corrupt(WHAT, e))
    }

    /// One of an enum's words.
    pub fn word<T: DeserializeOwned>(&mut self) -> Result<T, StoreError> {
        let text: &str = self.take()?;
        T::deserialize(text.into_deserializer()).map_err(|e: WordError| corrupt(WHAT, e))
    }

    /// JSON text.
    pub fn json<T: DeserializeOwned>(&mut self) -> Result<T, StoreError> {
        let text: &str = self.take()?;
        serde_json::from_str(text).map_err(|e| corrupt(WHAT, e))
    }

    /// JSON text that may be missing.
    pub fn maybe_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>, StoreError> {
        let text: Option<&str> = self.take()?;
        text.map(|text| serde_json::from_str(text).map_err(|e| corrupt(WHAT, e))).transpose()
    }
}

/// A value as JSON text.
pub(super) fn json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError {
        kind: annie_core::ports::StoreErrorKind::Internal,
        what: "writing JSON",
        detail: e.to_string(),
    })
}

/// A count as SQLite keeps numbers; what is beyond its range becomes its largest.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
