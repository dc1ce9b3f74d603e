//! `memory.save`: idempotent, because the store keys the memory by the intent.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    SUMMARY_BYTES_MAX,
    data::{self, Category, READ_IMPORTANCE_MAX, Statement},
};
use crate::{
    handler::{Ctx, Handler, Ran},
    text,
};

/// Length limit for a memory, in characters: a memory is a statement, not a document.
pub(super) const CONTENT_CHARS_MAX: usize = 4_000;

pub(crate) struct Save;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The information to remember, as a clear, standalone statement: 'User prefers Elixir over Ruby for backend work'.
    content: String,
    /// Tags for categorization and retrieval: preference,tech-stack. Lower case, hyphenated.
    #[serde(default)]
    tags: Vec<String>,
    /// What kind of thing it is.
    #[serde(default = "context")]
    category: Category,
    /// How important it is, 0 to 1; higher for explicit instructions and critical preferences.
    #[serde(default = "half")]
    #[schemars(range(min = 0.0, max = 1.0))]
    importance: f64,
}

const fn context() -> Category {
    Category::Context
}

const fn half() -> f64 {
    0.5
}

impl Handler for Save {
    type Args = Args;
    const NAME: &'static str = "memory.save";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let call = &ctx.call;
        // Text by another author is stored as a fact, never as an instruction.
        let is_read = !call.origin.is_empty();
        let is_job_command = is_read && matches!(args.category, Category::Instruction);
        let new = Statement {
            content: text::bounded("content", &args.content, CONTENT_CHARS_MAX)?,
            tags: text::tags_from(&args.tags, &call.origin)?,
            category: if is_job_command { Category::Fact } else { args.category },
            importance: if is_read { args.importance.min(READ_IMPORTANCE_MAX) } else { args.importance },
        };
        let saved = data::save(&*ctx.tools.documents, call, new).await?;
        let summary = text::brief(&saved.memory.statement.content, SUMMARY_BYTES_MAX);
        let message = if saved.is_merged {
            format!("Saved: {summary} (merged with what was already remembered)")
        } else {
            format!("Saved: {summary}")
        };
        let message = if is_job_command {
            let origin = call.origin.join(", ");
            format!(
                "{message}. It was saved as a fact and not as an instruction: the user did not say it in this message, and it may \
                 come from {origin}. If the user wants it as an instruction, they can say it in words of their own."
            )
        } else {
            message
        };
        // A memory with which this one was merged may have others.
        let origins = text::origins_in(&saved.memory.statement.tags);
        let evidence = json!({"number": saved.memory.number, "merged": saved.is_merged});
        Ok(Outcome::success(message).with_evidence(evidence).with_origins(origins))
    }
}
