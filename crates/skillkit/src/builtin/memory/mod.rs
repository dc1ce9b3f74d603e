//! Long-term memory over the `Memories` port [S0 14.3]: statements with category, tags and importance, searched by words
//! and ranked by text match times importance.

pub(crate) mod save;
pub(crate) mod search;

use annie_core::ports::MemoryCategory;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Category {
    Preference,
    Fact,
    Decision,
    Goal,
    Relationship,
    Context,
    Instruction,
}

impl From<Category> for MemoryCategory {
    fn from(category: Category) -> Self {
        match category {
            Category::Preference => Self::Preference,
            Category::Fact => Self::Fact,
            Category::Decision => Self::Decision,
            Category::Goal => Self::Goal,
            Category::Relationship => Self::Relationship,
            Category::Context => Self::Context,
            Category::Instruction => Self::Instruction,
        }
    }
}
