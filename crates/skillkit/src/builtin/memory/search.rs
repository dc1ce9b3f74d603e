//! `memory.search`: read-only. That a memory was accessed is recorded in the background, which never delays or fails the
//! answer.

use std::sync::Arc;

use annie_core::{
    outcome::Outcome,
    ports::{MemoryHit, MemoryQuery},
    skill::Effect,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::Category;
use crate::{
    handler::{Ctx, Handler, Ran},
    text,
};

pub(crate) struct Search;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// What to look for, in natural language: 'preferred programming language', 'meeting with Sarah last week'.
    query: String,
    /// Only with at least one of these tags.
    #[serde(default)]
    tags: Vec<String>,
    /// Only of this kind.
    category: Option<Category>,
    /// How many at most.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 20))]
    limit: u32,
    /// Only at least this important, 0 to 1: for high-value memories only.
    #[schemars(range(min = 0.0, max = 1.0))]
    min_importance: Option<f64>,
}

const fn five() -> u32 {
    5
}

impl Handler for Search {
    type Args = Args;
    const NAME: &'static str = "memory.search";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let query = MemoryQuery {
            text: args.query.trim().to_owned(),
            tags: text::tags(&args.tags)?,
            category: args.category.map(Into::into),
            min_importance: args.min_importance,
            limit: args.limit,
        };
        let hits = ctx.tools.memories.find_memories(ctx.call.user.clone(), query).await?;
        if hits.is_empty() {
            let message = format!("No memories found matching '{}'.", args.query.trim());
            return Ok(Outcome::success(message).with_evidence(json!({"count": 0})));
        }
        let numbers: Vec<u64> = hits.iter().map(|hit| hit.memory.number).collect();
        note_access(&ctx, numbers.clone());
        let lines: Vec<String> = hits.iter().map(line).collect();
        let counted = text::count(hits.len(), "memory", "memories");
        let message = format!("Found {counted}:\n\n{}", lines.join("\n\n"));
        Ok(Outcome::success(message).with_evidence(json!({"count": hits.len(), "numbers": numbers})))
    }
}

/// `- Bob prefers email [people, mail] (preference, importance: 0.7)`
fn line(hit: &MemoryHit) -> String {
    let memory = &hit.memory;
    let tags = if memory.tags.is_empty() { String::new() } else { format!(" [{}]", memory.tags.join(", ")) };
    format!("- {}{tags} ({}, importance: {})", memory.content, memory.category.as_str(), memory.importance)
}

/// Records the access in the background; skipped if too many such writes are running.
fn note_access(ctx: &Ctx, numbers: Vec<u64>) {
    let Ok(permit) = Arc::clone(&ctx.tools.touches).try_acquire_owned() else {
        tracing::debug!("memory access not recorded: too many writes are running");
        return;
    };
    let (memories, user, now) = (Arc::clone(&ctx.tools.memories), ctx.call.user.clone(), ctx.call.now);
    #[expect(
        clippy::disallowed_methods,
        reason = "a hint for memory decay: its loss, even by a panic, changes no answer"
    )]
    tokio::spawn(async move {
        if let Err(error) = memories.touch_memories(user, numbers, now).await {
            tracing::debug!(%error, "memory access not recorded");
        }
        drop(permit);
    });
}
