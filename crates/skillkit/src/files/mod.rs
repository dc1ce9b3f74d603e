//! Skill files: their locations, their formats, and their problems.

mod arguments;
mod command;
mod frontmatter;
mod load;
mod problem;
mod prompt;
mod script;
mod substitute;
mod times;
mod tree;
mod validate;

pub(crate) use frontmatter::split;
pub(crate) use load::{Entry, Item, Kind, Layer, load};
pub(crate) use problem::Report;
pub use problem::{Problem, Severity};
pub(crate) use script::{Script, placeholders};
pub(crate) use substitute::substitute;
pub(crate) use tree::{Bundled, FILE_BYTES_MAX, FolderTree, Tree, read_text};
pub use validate::validate;
