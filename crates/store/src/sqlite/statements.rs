//! Statements that are sent to the connection's thread in one trip, and their arguments.

use sqlx::{Arguments, Encode, Sqlite, Type, error::BoxDynError, sqlite::SqliteArguments};

use crate::sql::Cell;

/// Arguments, and whether one of them could not be bound.
#[derive(Default)]
pub(super) struct Bound {
    arguments: SqliteArguments,
    failed: Option<BoxDynError>,
}

impl Bound {
    fn add<'q, T: Encode<'q, Sqlite> + Type<Sqlite>>(&mut self, value: T) {
        if let Err(error) = self.arguments.add(value) {
            self.failed.get_or_insert(error);
        }
    }

    /// The arguments for these values.
    pub fn of(cells: Vec<Cell>) -> Self {
        let mut bound = Self::default();
        cells.into_iter().for_each(|cell| bound.cell(cell));
        bound
    }

    fn cell(&mut self, cell: Cell) {
        match cell {
            Cell::Id(id) => self.add(id),
            Cell::Number(number) => self.add(number),
            Cell::Real(number) => self.add(number),
            Cell::Flag(flag) => self.add(flag),
            Cell::Text(text) => self.add(text),
            Cell::Word(word) => self.add(word),
            Cell::Bytes(bytes) => self.add(bytes),
            Cell::NoText | Cell::NoReal | Cell::Nothing => self.add(None::<i64>),
        }
    }

    pub fn finish(self) -> Result<SqliteArguments, sqlx::Error> {
        self.failed.map_or(Ok(self.arguments), |error| Err(sqlx::Error::Encode(error)))
    }
}

/// Several statements in one text. The text consists of fixed pieces only, so that the same kind of work has the same text and
/// finds its prepared statements; all outside values are bound.
#[derive(Default)]
pub(super) struct Statements {
    text: String,
    bound: Bound,
}

impl Statements {
    /// Begins a transaction that may write.
    pub fn begin() -> Self {
        let mut statements = Self::default();
        statements.push("BEGIN IMMEDIATE;");
        statements
    }

    /// One statement and its arguments.
    pub fn one(sql: &'static str, cells: Vec<Cell>) -> Self {
        Self { text: sql.to_owned(), bound: Bound::of(cells) }
    }

    /// Adds a piece of SQL.
    pub fn push(&mut self, sql: &'static str) -> &mut Self {
        self.text.push_str(sql);
        self
    }

    /// Adds `piece` `count` times, separated by commas.
    pub fn push_list(&mut self, piece: &'static str, count: usize) -> &mut Self {
        for n in 0..count {
            if n > 0 {
                self.text.push_str(", ");
            }
            self.text.push_str(piece);
        }
        self
    }

    /// Binds the next `?`.
    pub fn with<'q, T: Encode<'q, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> &mut Self {
        self.bound.add(value);
        self
    }

    /// Binds the next `?`.
    pub fn cell(&mut self, cell: Cell) {
        self.bound.cell(cell);
    }

    pub fn finish(self) -> Result<(String, SqliteArguments), sqlx::Error> {
        Ok((self.text, self.bound.finish()?))
    }
}
