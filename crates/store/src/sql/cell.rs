//! A value that is bound to a statement.

use annie_core::time::Micros;
use uuid::Uuid;

/// A bound value: a column of a row that is written, or a parameter of a query.
#[derive(Debug, Clone)]
pub enum Cell {
    Id(Uuid),
    Number(i64),
    Real(f64),
    Flag(bool),
    Text(String),
    Word(&'static str),
    Bytes(Vec<u8>),
    /// NULL in place of a text.
    NoText,
    /// NULL in place of a number with a fraction.
    NoReal,
    /// NULL in a column whose type the table determines.
    Nothing,
}

impl Cell {
    /// A text that may be missing.
    pub fn maybe_text(text: Option<String>) -> Self {
        text.map_or(Self::NoText, Self::Text)
    }

    /// A word that may be missing.
    pub fn maybe_word(word: Option<&'static str>) -> Self {
        word.map_or(Self::NoText, Self::Word)
    }

    /// A number with a fraction that may be missing.
    pub fn maybe_real(number: Option<f64>) -> Self {
        number.map_or(Self::NoReal, Self::Real)
    }

    /// A time that may be missing.
    pub fn maybe_at(at: Option<Micros>) -> Self {
        at.map_or(Self::Nothing, |at| Self::Number(at.0))
    }
}

impl From<Uuid> for Cell {
    fn from(id: Uuid) -> Self {
        Self::Id(id)
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<Micros> for Cell {
    fn from(at: Micros) -> Self {
        Self::Number(at.0)
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&'static str> for Cell {
    fn from(word: &'static str) -> Self {
        Self::Word(word)
    }
}

impl From<&annie_core::ids::UserId> for Cell {
    fn from(user: &annie_core::ids::UserId) -> Self {
        Self::Text(user.as_str().to_owned())
    }
}
