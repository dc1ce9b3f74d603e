//! `memory.restore`: brings a memory back from the trash, by its number or by words that only one of them has. Idempotent,
//! because the store keys the change by the intent.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{brief, data};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text,
    trash::{self, Choice},
};

pub(crate) struct Restore;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The number of the forgotten memory, as memory.list --deleted shows it.
    #[schemars(range(min = 1), extend("format" = "id"))]
    id: Option<u64>,
    /// Words of it instead of the number.
    query: Option<String>,
}

impl Handler for Restore {
    type Args = Args;
    const NAME: &'static str = "memory.restore";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let documents = &*ctx.tools.documents;
        let restored = match trash::wanted(args.id, args.query)? {
            Choice::Number(id) => data::restore(documents, &ctx.call, id).await?.ok_or_else(|| not_forgotten(id))?,
            // A repeated call no longer finds in the trash what it has restored.
            Choice::Words(words) => match data::written_before(documents, &ctx.call).await? {
                Some(memory) => memory,
                None => {
                    let in_trash = data::trashed(documents, &ctx.call.user).await?;
                    let origins = text::origins_in(in_trash.iter().flat_map(|(memory, _)| &memory.statement.tags));
                    let candidates: Vec<(u64, String)> =
                        in_trash.into_iter().map(|(memory, _)| (memory.number, memory.statement.content)).collect();
                    let picked = trash::pick(&words, "forgotten memory", &candidates);
                    let id = picked.map_err(|error| error.naming(origins))?;
                    data::restore(documents, &ctx.call, id).await?.ok_or_else(|| not_forgotten(id))?
                }
            },
        };
        let message = format!("Restored memory {}", brief(&restored));
        let origins = text::origins_in(&restored.statement.tags);
        Ok(Outcome::success(message).with_evidence(json!({"number": restored.number})).with_origins(origins))
    }
}

fn not_forgotten(id: u64) -> SkillError {
    let near = vec!["memory.list --deleted".to_owned()];
    SkillError::NotFound { what: format!("There is no forgotten memory #{id}."), near }
}
