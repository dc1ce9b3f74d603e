//! Long-term memory over the `Documents` port [S0 14.3]: statements with category, tags and importance, searched by words
//! and ranked by text match times importance.

pub(crate) mod data;
pub(crate) mod save;
pub(crate) mod search;
mod similar;
