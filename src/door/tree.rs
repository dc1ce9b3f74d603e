//! The tree as the doors show it: a part of it, in bounded pages.

use std::borrow::Cow;

use annie_actors::{Kernel, NodeInfo};

/// Actors on a page at most.
const ACTORS_MAX: usize = 5_000;
/// Actors on a page unless asked otherwise.
const ACTORS_DEFAULT: usize = 1_000;

/// An actor's path as callers write it: with or without the slash before it.
pub fn actor_path(text: &str) -> Cow<'_, str> {
    if text.starts_with('/') || text.is_empty() { text.into() } else { format!("/{text}").into() }
}

/// A part of the tree.
pub struct TreePage {
    /// Sorted by path.
    pub actors: Vec<NodeInfo>,
    /// How many there are, whether or not they fitted.
    pub total: usize,
}

impl TreePage {
    /// What stands at a path or below it; nothing means the root, 0 the default number.
    pub fn of(kernel: &Kernel, under: &str, limit: usize) -> Self {
        let mut actors = kernel.tree();
        let under = actor_path(under);
        let under = under.trim_end_matches('/');
        if !under.is_empty() {
            actors.retain(|a| {
                a.path.as_str().strip_prefix(under).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
        }
        let total = actors.len();
        actors.truncate(if limit == 0 { ACTORS_DEFAULT } else { limit.min(ACTORS_MAX) });
        Self { actors, total }
    }
}
