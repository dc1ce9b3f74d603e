//! The tree as the doors show it: a part of it, in bounded pages.

use std::borrow::Cow;

use annie_actors::{Kernel, NodeInfo};

use super::page;
use crate::error::Fault;

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
    /// Behind which path the next page begins; nothing at the end.
    pub next: Option<String>,
}

impl TreePage {
    /// What stands at a path or below it, behind the path with which an earlier page ended. An empty path is the root, and
    /// the beginning.
    ///
    /// # Errors
    /// If no page ended with `after`: it is no path.
    pub fn of(kernel: &Kernel, under: &str, after: &str, limit: u32) -> Result<Self, Fault> {
        if !after.is_empty() && !after.starts_with('/') {
            return Err(page::no_place());
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
