//! `memory.update`: idempotent, because the store keys the change by the intent.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    data::{self, MemoryPatch},
    line, missing,
    save::CONTENT_CHARS_MAX,
};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text,
};

pub(crate) struct Update;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The memory's number, as memory.list shows it behind the #.
    #[schemars(range(min = 1), extend("format" = "id"))]
    id: u64,
    /// The corrected statement, as a whole.
    content: Option<String>,
    /// New tags in place of the old ones; none takes them away.
    tags: Option<Vec<String>>,
    /// How important it is now, 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    importance: Option<f64>,
}

impl Handler for Update {
    type Args = Args;
    const NAME: &'static str = "memory.update";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let Args { id, content, tags, importance } = args;
        let tags = tags.map(|mut tags| {
            tags.retain(|tag| !tag.eq_ignore_ascii_case("none"));
            text::tags(&tags)
        });
        let patch = MemoryPatch {
            content: content.map(|text| text::bounded("content", &text, CONTENT_CHARS_MAX)).transpose()?,
            tags: tags.transpose()?,
            importance,
            origin_tags: Vec::new(),
        };
        if patch == MemoryPatch::default() {
            let what = "nothing to change: give --content, --tags or --importance";
            return Err(SkillError::Arguments(what.to_owned()));
        }
        // Text by another author is remembered as a fact, never as an instruction.
        let patch = MemoryPatch { origin_tags: text::tags_from(&[], &ctx.call.origin)?, ..patch };
        let memory = data::update(&*ctx.tools.documents, &ctx.call, id, patch).await?.ok_or_else(|| missing(id))?;
        let message = format!("Changed memory #{id}: {}", line(&memory));
        let origins = text::origins_in(&memory.statement.tags);
        Ok(Outcome::success(message).with_evidence(json!({"number": id})).with_origins(origins))
    }
}
