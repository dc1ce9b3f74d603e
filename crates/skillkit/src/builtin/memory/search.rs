//! `memory.search`: read-only. That a memory was accessed is recorded in the background, which never delays or fails the
//! answer.

use std::sync::Arc;

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    data::{self, Category, MemoryQuery},
    line,
};
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
            category: args.category,
            min_importance: args.min_importance,
            limit: args.limit,
            decay: Some((ctx.tools.memory_decay, ctx.call.now)),
        };
        let found = data::find(&*ctx.tools.documents, &ctx.call.user, query).await?;
        if found.is_empty() {
            let message = format!("No memories found matching '{}'.", args.query.trim());
            return Ok(Outcome::success(message).with_evidence(json!({"count": 0})));
        }
        let numbers: Vec<u64> = found.iter().map(|memory| memory.number).collect();
        note_access(&ctx, numbers.clone());
        let lines: Vec<String> = found.iter().map(|memory| format!("- {}", line(memory))).collect();
        let counted = text::count(found.len(), "memory", "memories");
        let message = format!("Found {counted}:\n\n{}", lines.join("\n\n"));
        let origins = text::origins_in(found.iter().flat_map(|memory| &memory.statement.tags));
        let evidence = json!({"count": found.len(), "numbers": numbers});
        Ok(Outcome::success(message).with_evidence(evidence).with_origins(origins))
    }
}

/// Records the access in the background; skipped if too many such writes are running.
fn note_access(ctx: &Ctx, numbers: Vec<u64>) {
    let Ok(permit) = Arc::clone(&ctx.tools.touches).try_acquire_owned() else {
        tracing::debug!("memory access not recorded: too many writes are running");
        return;
    };
    let (documents, user, now) = (Arc::clone(&ctx.tools.documents), ctx.call.user.clone(), ctx.call.now);
    #[expect(
        clippy::disallowed_methods,
        reason = "a hint for memory decay: its loss, even by a panic, changes no answer"
    )]
    tokio::spawn(async move {
        if let Err(error) = data::touch(&*documents, user, numbers, now).await {
            tracing::debug!(%error, "memory access not recorded");
        }
        drop(permit);
    });
}
