//! Long-term memory over the `Documents` port [S0 14.3]: statements with category, tags and importance, searched by words
//! and ranked by text match times importance.

pub(crate) mod data;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod restore;
pub(crate) mod save;
pub(crate) mod search;
mod similar;
pub(crate) mod update;

use crate::{error::SkillError, text};
use data::{Memory, Statement};

/// How much of a memory an answer repeats, in bytes.
const SUMMARY_BYTES_MAX: usize = 200;

/// `Bob prefers email [people, mail] (preference, importance: 0.7)`
fn line(memory: &Memory) -> String {
    let Statement { content, tags, category, importance } = &memory.statement;
    let tags = if tags.is_empty() { String::new() } else { format!(" [{}]", tags.join(", ")) };
    format!("{content}{tags} ({}, importance: {importance})", category.as_str())
}

/// `#3 Bob prefers email`
fn brief(memory: &Memory) -> String {
    format!("#{} {}", memory.number, text::brief(&memory.statement.content, SUMMARY_BYTES_MAX))
}

fn missing(number: u64) -> SkillError {
    SkillError::NotFound { what: format!("There is no memory #{number}."), near: vec!["memory.list".to_owned()] }
}
