//! `memory.list`: what is remembered, with the numbers by which other commands call it. Read-only.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    data::{self, MemoryQuery},
    line,
};
use crate::{
    handler::{Ctx, Handler, Ran},
    text, trash,
};

pub(crate) struct List;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The forgotten memories, which can be restored.
    #[serde(default)]
    deleted: bool,
    /// How many at most.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
}

const fn twenty() -> u32 {
    20
}

impl Handler for List {
    type Args = Args;
    const NAME: &'static str = "memory.list";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        if args.deleted {
            return deleted(&ctx, &args).await;
        }
        let query = MemoryQuery { limit: args.limit, ..MemoryQuery::default() };
        let found = data::find(&*ctx.tools.documents, &ctx.call.user, query).await?;
        let numbers: Vec<u64> = found.iter().map(|memory| memory.number).collect();
        let evidence = json!({"count": found.len(), "numbers": numbers});
        if found.is_empty() {
            return Ok(Outcome::success("Nothing is remembered.").with_evidence(evidence));
        }
        let lines: Vec<String> = found.iter().map(|memory| format!("- #{} {}", memory.number, line(memory))).collect();
        let counted = text::count(found.len(), "memory", "memories");
        let more = if found.len() == args.limit as usize { " (there may be more)" } else { "" };
        let message = format!("{counted}{more}, the most important first:\n\n{}", lines.join("\n"));
        let origins = text::origins_in(found.iter().flat_map(|memory| &memory.statement.tags));
        Ok(Outcome::success(message).with_evidence(evidence).with_origins(origins))
    }
}

async fn deleted(ctx: &Ctx, args: &Args) -> Ran {
    let mut found = data::trashed(&*ctx.tools.documents, &ctx.call.user).await?;
    found.truncate(args.limit as usize);
    let numbers: Vec<u64> = found.iter().map(|(memory, _)| memory.number).collect();
    let evidence = json!({"count": found.len(), "numbers": numbers});
    if found.is_empty() {
        return Ok(Outcome::success("No memories were forgotten.").with_evidence(evidence));
    }
    let show = |(memory, at): &(data::Memory, annie_core::time::Micros)| {
        format!("- #{} {} (forgotten {})", memory.number, memory.statement.content, trash::day(ctx, *at))
    };
    let lines: Vec<String> = found.iter().map(show).collect();
    let counted = text::count(found.len(), "forgotten memory", "forgotten memories");
    let message = format!("{counted}:\n\n{}\n\n{}", lines.join("\n"), trash::KEPT);
    let origins = text::origins_in(found.iter().flat_map(|(memory, _)| &memory.statement.tags));
    Ok(Outcome::success(message).with_evidence(evidence).with_origins(origins))
}
