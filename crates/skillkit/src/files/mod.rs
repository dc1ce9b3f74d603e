//! Skill files: their locations, their formats, and their problems.

mod arguments;
mod built;
mod command;
mod draft;
mod frontmatter;
mod load;
mod problem;
mod prompt;
mod request;
mod response;
mod script;
mod substitute;
mod template;
mod times;
mod tree;
mod validate;

pub(crate) use arguments::read as arguments;
pub(crate) use built::{BUILT, Built, Provenance, hash_of, stamped};
pub(crate) use draft::draft;
pub(crate) use frontmatter::{Frontmatter, split};
#[cfg(test)]
pub(crate) use load::load_text;
pub(crate) use load::{Entry, Item, Kind, Layer, load};
pub(crate) use problem::Report;
pub use problem::{Problem, Severity};
pub(crate) use script::{Script, placeholders};
pub(crate) use substitute::{substitute, words};
pub use template::SkillTemplate;
pub(crate) use tree::{Bundled, FILE_BYTES_MAX, FolderTree, Tree, read_text};
pub use validate::validate;
