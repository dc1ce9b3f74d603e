//! `memory.delete`: moves a memory into the trash, by its number or by words that only one memory has. Idempotent, because the
//! store keys the deletion by the intent.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    brief,
    data::{self, Memory, MemoryQuery},
    missing,
};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text,
    trash::{self, Choice},
};

pub(crate) struct Delete;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The memory's number, as memory.list shows it behind the #.
    #[schemars(range(min = 1), extend("format" = "id"))]
    id: Option<u64>,
    /// The words of the user about it instead of the number: 'I like tea'. One memory must have all of them.
    query: Option<String>,
}

impl Handler for Delete {
    type Args = Args;
    const NAME: &'static str = "memory.delete";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let documents = &*ctx.tools.documents;
        let forgotten = match trash::wanted(args.id, args.query)? {
            Choice::Number(id) => data::delete(documents, &ctx.call, id).await?.ok_or_else(|| missing(id))?,
            // A repeated call no longer finds what it has forgotten.
            Choice::Words(words) => match data::written_before(documents, &ctx.call).await? {
                Some(memory) => memory,
                None => {
                    let found = candidates(&ctx, &words).await?;
                    let origins = text::origins_in(found.iter().flat_map(|memory| &memory.statement.tags));
                    let texts: Vec<(u64, String)> =
                        found.into_iter().map(|memory| (memory.number, memory.statement.content)).collect();
                    // An error names the memories.
                    let id = trash::pick(&words, "memory", &texts).map_err(|error| error.naming(origins))?;
                    data::delete(documents, &ctx.call, id).await?.ok_or_else(|| missing(id))?
                }
            },
        };
        let message = format!("Forgot memory {}", brief(&forgotten));
        let origins = text::origins_in(&forgotten.statement.tags);
        Ok(Outcome::success(message).with_evidence(json!({"number": forgotten.number})).with_origins(origins))
    }
}

/// The memories that have any of the words.
async fn candidates(ctx: &Ctx, words: &str) -> Result<Vec<Memory>, SkillError> {
    let query = MemoryQuery { text: words.to_owned(), limit: trash::SHOWN_MAX, ..MemoryQuery::default() };
    let found = data::find(&*ctx.tools.documents, &ctx.call.user, query).await?;
    if found.len() == trash::SHOWN_MAX as usize {
        // One that was not read may have all the words too.
        return Err(SkillError::argument("query", "fits too many memories; give the --id that memory.list shows"));
    }
    Ok(found)
}
