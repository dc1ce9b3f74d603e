//! Arguments of a statement.

use sqlx::{Arguments, Encode, Postgres, Type, error::BoxDynError, postgres::PgArguments};
use uuid::Uuid;

use super::texts::kept;
use crate::sql::Cell;

/// Arguments in order, and whether one of them could not be bound.
#[derive(Default)]
pub(super) struct Bound {
    arguments: PgArguments,
    count: usize,
    failed: Option<BoxDynError>,
}

impl Bound {
    pub fn of(cells: Vec<Cell>) -> Self {
        let mut bound = Self::default();
        cells.into_iter().for_each(|cell| bound.cell(cell));
        bound
    }

    /// Binds the next argument and returns its number.
    fn add<'q, T: Encode<'q, Postgres> + Type<Postgres>>(&mut self, value: T) -> usize {
        if let Err(error) = self.arguments.add(value) {
            self.failed.get_or_insert(error);
        }
        self.count += 1;
        self.count
    }

    fn cell(&mut self, cell: Cell) {
        match cell {
            Cell::Id(id) => self.add(id),
            Cell::Number(number) => self.add(number),
            Cell::Real(number) => self.add(number),
            Cell::Flag(flag) => self.add(flag),
            Cell::Text(text) => self.add(kept(text)),
            Cell::Word(word) => self.add(word),
            Cell::Bytes(bytes) => self.add(bytes),
            Cell::NoText => self.add(None::<String>),
            Cell::NoReal => self.add(None::<f64>),
            Cell::Nothing => self.add(None::<i64>),
        };
    }

    /// Binds a list of texts as the next argument.
    pub fn words(mut self, words: &[String]) -> Self {
        self.add(words.iter().cloned().map(kept).collect::<Vec<_>>());
        self
    }

    /// Binds a list of texts that may be missing as the next argument.
    pub fn maybe_words(mut self, words: Vec<Option<String>>) -> Self {
        self.add(words.into_iter().map(|word| word.map(kept)).collect::<Vec<_>>());
        self
    }

    /// Binds a list of ids as the next argument.
    pub fn ids(mut self, ids: Vec<Uuid>) -> Self {
        self.add(ids);
        self
    }

    /// Binds a list of numbers as the next argument.
    pub fn numbers(mut self, numbers: Vec<i64>) -> Self {
        self.add(numbers);
        self
    }

    /// Binds one more argument.
    pub fn with(mut self, cell: impl Into<Cell>) -> Self {
        self.cell(cell.into());
        self
    }

    /// Binds a column of rows as the next argument and returns its number.
    pub fn column(&mut self, column: Column) -> usize {
        match column {
            Column::Ids(ids) => self.add(ids),
            Column::Numbers(numbers) => self.add(numbers),
            Column::Flags(flags) => self.add(flags),
            Column::Texts(texts) => self.add(texts),
            Column::Bytes(bytes) => self.add(bytes),
        }
    }

    pub fn finish(self) -> Result<PgArguments, sqlx::Error> {
        self.failed.map_or(Ok(self.arguments), |error| Err(sqlx::Error::Encode(error)))
    }
}

/// The type of a column of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Ids,
    Numbers,
    Flags,
    Texts,
    Bytes,
}

impl Holds {
    /// PostgreSQL's name for a list of this type.
    pub const fn list(self) -> &'static str {
        match self {
            Self::Ids => "uuid[]",
            Self::Numbers => "bigint[]",
            Self::Flags => "boolean[]",
            Self::Texts => "text[]",
            Self::Bytes => "bytea[]",
        }
    }
}

/// The values of one column of several rows.
#[derive(Clone)]
pub(super) enum Column {
    Ids(Vec<Option<Uuid>>),
    Numbers(Vec<Option<i64>>),
    Flags(Vec<Option<bool>>),
    Texts(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl Column {
    pub fn new(holds: Holds, rows: usize) -> Self {
        match holds {
            Holds::Ids => Self::Ids(Vec::with_capacity(rows)),
            Holds::Numbers => Self::Numbers(Vec::with_capacity(rows)),
            Holds::Flags => Self::Flags(Vec::with_capacity(rows)),
            Holds::Texts => Self::Texts(Vec::with_capacity(rows)),
            Holds::Bytes => Self::Bytes(Vec::with_capacity(rows)),
        }
    }

    /// Adds the next row's value. A value of another type becomes NULL.
    pub fn push(&mut self, cell: Cell) {
        match (self, cell) {
            (Self::Ids(column), Cell::Id(id)) => column.push(Some(id)),
            (Self::Numbers(column), Cell::Number(number)) => column.push(Some(number)),
            (Self::Flags(column), Cell::Number(number)) => column.push(Some(number != 0)),
            (Self::Texts(column), Cell::Text(text)) => column.push(Some(kept(text))),
            (Self::Texts(column), Cell::Word(word)) => column.push(Some(word.to_owned())),
            (Self::Bytes(column), Cell::Bytes(bytes)) => column.push(Some(bytes)),
            (column, cell) => {
                debug_assert!(matches!(cell, Cell::Nothing), "{cell:?} in a column of something else");
                match column {
                    Self::Ids(column) => column.push(None),
                    Self::Numbers(column) => column.push(None),
                    Self::Flags(column) => column.push(None),
                    Self::Texts(column) => column.push(None),
                    Self::Bytes(column) => column.push(None),
                }
            }
        }
    }
}
