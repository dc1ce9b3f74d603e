//! The actor tree in bounded pages, optionally restricted to a subtree.

use std::borrow::Cow;

use annie_actors::{Kernel, NodeInfo};

use super::page;
use crate::error::ApiError;

/// The path of an actor as callers write it, with or without the leading slash.
pub fn actor_path(text: &str) -> Cow<'_, str> {
    if text.starts_with('/') || text.is_empty() { text.into() } else { format!("/{text}").into() }
}

/// One page of the tree.
pub struct TreePage {
    /// Sorted by path.
    pub actors: Vec<NodeInfo>,
    /// The number of actors in the subtree, on this page and all others.
    pub total: usize,
    /// The path after which the next page starts; absent at the end.
    pub next: Option<String>,
}

impl TreePage {
    /// The actors at a path and below it, after the path with which the previous page ended. An empty `under` is the root; an
    /// empty `after` is the first page.
    ///
    /// # Errors
    /// If `after` is not a path, or there is no actor at `under` or below it.
    pub fn of(kernel: &Kernel, under: &str, after: &str, limit: u32) -> Result<Self, ApiError> {
        if !after.is_empty() && !after.starts_with('/') {
            return Err(page::invalid_cursor());
        }
        let mut actors = kernel.tree();
        let under = actor_path(under);
        let under = under.trim_end_matches('/');
        if !under.is_empty() {
            actors.retain(|a| {
                a.path.as_str().strip_prefix(under).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
        }
        let total = actors.len();
        if total == 0 && !under.is_empty() && after.is_empty() {
            return Err(ApiError::not_found("actor").at("under"));
        }
        if !after.is_empty() {
            actors.retain(|a| a.path.as_str() > after);
        }
        let limit = limit as usize;
        let is_last = actors.len() <= limit;
        actors.truncate(limit);
        let next = actors.last().filter(|_| !is_last).map(|a| a.path.as_str().to_owned());
        Ok(Self { actors, total, next })
    }
}
