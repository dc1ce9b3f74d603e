//! Statements that go to the connection's thread in one trip, and their arguments.

use sqlx::{Arguments, Encode, Sqlite, Type, error::BoxDynError, sqlite::SqliteArguments};
use uuid::Uuid;

/// Arguments of a statement, in order.
pub(super) fn arguments() -> Bound {
    Bound::default()
}

/// Arguments, and whether one of them could not be bound.
#[derive(Default)]
pub(super) struct Bound {
    arguments: SqliteArguments,
    failed: Option<BoxDynError>,
}

impl Bound {
    /// Binds the next one.
    pub fn with<'q, T: Encode<'q, Sqlite> + Type<Sqlite>>(mut self, value: T) -> Self {
        self.add(value);
        self
    }

    fn add<'q, T: Encode<'q, Sqlite> + Type<Sqlite>>(&mut self, value: T) {
        if let Err(error) = self.arguments.add(value) {
            self.failed.get_or_insert(error);
        }
    }

    pub fn finish(self) -> Result<SqliteArguments, sqlx::Error> {
        self.failed.map_or(Ok(self.arguments), |error| Err(sqlx::Error::Encode(error)))
    }
}

/// A value of a row that is written together with others.
#[derive(Debug, Clone)]
pub(super) enum Cell {
    Id(Uuid),
    Number(i64),
    Text(String),
    Word(&'static str),
    Bytes(Vec<u8>),
    Nothing,
}

/// Several statements in one text. The text is made of fixed pieces only, so that the same kind of work is the same text
/// and its prepared statements are found again; whatever comes from outside is bound.
#[derive(Default)]
pub(super) struct Statements {
    text: String,
    bound: Bound,
}

impl Statements {
    /// Begins a transaction that may write.
    pub fn begin() -> Self {
        let mut statements = Self::default();
        statements.say("BEGIN IMMEDIATE;");
        statements
    }

    /// Adds a piece of SQL.
    pub fn say(&mut self, sql: &'static str) -> &mut Self {
        self.text.push_str(sql);
        self
    }

    /// Adds `piece` once, then `, piece` until it stands there `count` times.
    pub fn say_list(&mut self, piece: &'static str, count: usize) -> &mut Self {
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
        match cell {
            Cell::Id(id) => self.bound.add(id),
            Cell::Number(number) => self.bound.add(number),
            Cell::Text(text) => self.bound.add(text),
            Cell::Word(word) => self.bound.add(word),
            Cell::Bytes(bytes) => self.bound.add(bytes),
            Cell::Nothing => self.bound.add(None::<i64>),
        }
    }

    pub fn finish(self) -> Result<(String, SqliteArguments), sqlx::Error> {
        Ok((self.text, self.bound.finish()?))
    }
}
