//! `tasks.restore`: brings a task back from the trash, by its number or by words that only one title has. Idempotent, because
//! the store keys the change by the intent.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    data::{self, Trashed},
    line, origins,
};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text,
    trash::{self, Choice},
};

pub(crate) struct Restore;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The number of the deleted task.
    #[schemars(range(min = 1), extend("format" = "id"))]
    id: Option<u64>,
    /// Words of its title instead of the number.
    query: Option<String>,
}

impl Handler for Restore {
    type Args = Args;
    const NAME: &'static str = "tasks.restore";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let documents = &*ctx.tools.documents;
        let restored = match trash::wanted(args.id, args.query)? {
            Choice::Number(id) => data::restore(documents, &ctx.call, id).await?.ok_or_else(|| not_deleted(id))?,
            // A repeated call no longer finds in the trash what it has restored.
            Choice::Words(words) => match data::written_before(documents, &ctx.call).await? {
                Some(todo) => todo,
                None => {
                    let in_trash = data::trashed(documents, &ctx.call.user).await?;
                    let origins = text::origins_in(in_trash.iter().flat_map(|trashed| &trashed.todo.tags));
                    let picked = trash::pick(&words, "deleted task", &candidates(in_trash));
                    let id = picked.map_err(|error| error.naming(origins))?;
                    data::restore(documents, &ctx.call, id).await?.ok_or_else(|| not_deleted(id))?
                }
            },
        };
        let message = format!("Restored task {}", line(&restored, &ctx));
        let origins = origins(std::slice::from_ref(&restored));
        Ok(Outcome::success(message).with_evidence(json!({"number": restored.number})).with_origins(origins))
    }
}

fn candidates(in_trash: Vec<Trashed>) -> Vec<(u64, String)> {
    in_trash.into_iter().map(|trashed| (trashed.todo.number, trashed.todo.title)).collect()
}

fn not_deleted(id: u64) -> SkillError {
    let near = vec!["tasks.search --status deleted".to_owned()];
    SkillError::NotFound { what: format!("There is no deleted task #{id}."), near }
}
