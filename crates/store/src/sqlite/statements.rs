//! Statements that go to the connection's thread in one trip, and their arguments.

use sqlx::{Arguments, Encode, Sqlite, Type, error::BoxDynError, sqlite::SqliteArguments};

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

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub fn finish(self) -> Result<(String, SqliteArguments), sqlx::Error> {
        Ok((self.text, self.bound.finish()?))
    }
}
