//! Skills that read web pages. They exist only if the operator has enabled requests to other machines.

pub(crate) mod fetch;
mod html;
mod robots;
pub(crate) mod search;

pub(crate) use fetch::{page_text, reply_text};
pub(crate) use robots::Robots;
pub use search::{SearchKind, SearchRules};
