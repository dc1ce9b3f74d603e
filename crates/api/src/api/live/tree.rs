//! The actor tree of one viewer: a snapshot, then differences with sequence numbers.

use std::collections::BTreeMap;

use annie_actors::{Crash, Kernel, NodeInfo, OperatedActor};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::{actor_path, page};
use crate::error::ApiError;

/// Which actors a viewer sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TreeFilter {
    /// Only the subtree at this path.
    pub under: String,
    /// Only actors whose path or kind contains this text, in any case.
    pub search: String,
    /// Only actors that handle a message or have waiting ones.
    pub is_busy: bool,
    /// The most actors.
    pub limit: usize,
}

impl TreeFilter {
    /// The filter with these options; absent ones restrict nothing.
    ///
    /// # Errors
    /// If the limit is out of range.
    pub fn of(under: Option<&str>, search: Option<&str>, is_busy: bool, limit: Option<&str>) -> Result<Self, ApiError> {
        Ok(Self {
            under: actor_path(under.unwrap_or_default()).trim_end_matches('/').to_owned(),
            search: search.unwrap_or_default().to_lowercase(),
            is_busy,
            limit: page::ACTORS.of_text(limit).map_err(|e| e.at("actors_max"))? as usize,
        })
    }

    fn shows(&self, actor: &NodeInfo) -> bool {
        let path = actor.path.as_str();
        let is_under =
            self.under.is_empty() || path.strip_prefix(&self.under).is_some_and(|r| r.is_empty() || r.starts_with('/'));
        let is_found =
            self.search.is_empty() || path.to_lowercase().contains(&self.search) || actor.kind.contains(&self.search);
        is_under && is_found && (!self.is_busy || actor.current.is_some() || actor.mailbox_depth > 0)
    }
}

/// A change of the tree, or the whole of it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TreeDiff {
    /// 0 for the snapshot with which a viewer starts, then counted without gaps: a viewer that misses a number starts again.
    pub seq: u64,
    /// Actors that are new or have changed, sorted by path; in a snapshot all of them.
    #[schema(value_type = Vec<Object>)]
    pub changed: Vec<NodeInfo>,
    /// Actors that are no longer there.
    pub gone: Vec<GoneActor>,
    /// The number of actors that the filter shows, also beyond the limit.
    pub total: usize,
    /// The number of all actors.
    pub all: usize,
}

/// An actor that ended, or that the filter no longer shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct GoneActor {
    pub path: String,
    pub incarnation: u64,
    /// The crash, or the operation of an operator; absent if the actor ended in good order or is only hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The operator who ended it, with the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Whether an actor with the same path runs again, as another incarnation.
    pub is_replaced: bool,
}

/// What one viewer knows.
#[derive(Default)]
pub(crate) struct TreeWatch {
    filter: TreeFilter,
    known: BTreeMap<String, NodeInfo>,
    next: u64,
}

impl TreeWatch {
    pub fn new(filter: TreeFilter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// The difference to what the viewer knows; nothing if there is none.
    pub fn diff(&mut self, kernel: &Kernel, tree: &[NodeInfo]) -> Option<TreeDiff> {
        let mut total = 0;
        let mut now = BTreeMap::new();
        for actor in tree.iter().filter(|actor| self.filter.shows(actor)) {
            total += 1;
            if now.len() < self.filter.limit {
                now.insert(actor.path.as_str().to_owned(), actor.clone());
            }
        }
        let changed: Vec<NodeInfo> =
            now.iter().filter(|(path, actor)| self.known.get(*path) != Some(actor)).map(|(_, a)| a.clone()).collect();
        let ended = |(path, before): (&String, &NodeInfo)| {
            let after = now.get(path);
            let is_replaced = after.is_some_and(|after| after.incarnation != before.incarnation);
            (after.is_none() || is_replaced).then(|| (path.clone(), before.incarnation.0, is_replaced))
        };
        let ended: Vec<(String, u64, bool)> = self.known.iter().filter_map(ended).collect();
        let gone = if ended.is_empty() { Vec::new() } else { Self::causes(kernel, ended) };
        self.known = now;
        let is_first = self.next == 0;
        if !is_first && changed.is_empty() && gone.is_empty() {
            return None;
        }
        let seq = self.next;
        self.next += 1;
        Some(TreeDiff { seq, changed, gone, total, all: tree.len() })
    }

    fn causes(kernel: &Kernel, ended: Vec<(String, u64, bool)>) -> Vec<GoneActor> {
        let (crashes, operated) = (kernel.crashes(), kernel.operated());
        let one = |(path, incarnation, is_replaced): (String, u64, bool)| {
            let is_it =
                |at: &annie_actors::Path, n: annie_core::ids::Incarnation| at.as_str() == path && n.0 == incarnation;
            let crash = crashes.iter().rev().find(|c: &&Crash| is_it(&c.path, c.incarnation));
            let operation = operated.iter().rev().find(|o: &&OperatedActor| is_it(&o.path, o.incarnation));
            let cause = operation.map(|o| o.operation.to_owned()).or_else(|| crash.map(|c| c.reason.clone()));
            GoneActor { cause, by: operation.map(|o| o.by.clone()), path, incarnation, is_replaced }
        };
        ended.into_iter().map(one).collect()
    }
}

/// The tree of one viewer as JSON text, or nothing if it has not changed.
pub(crate) fn text(diff: &TreeDiff) -> String {
    serde_json::to_string(diff).unwrap_or_default()
}
