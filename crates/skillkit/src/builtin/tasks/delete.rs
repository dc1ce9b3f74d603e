//! `tasks.delete`: moves a task into the trash. Idempotent, because the store keys the deletion by the intent.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{about_open_parts, data, missing, origins};
use crate::handler::{Ctx, Handler, Ran};

pub(crate) struct Delete;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The task's number, as lists show it behind the #.
    #[schemars(range(min = 1), extend("format" = "id"))]
    id: u64,
}

impl Handler for Delete {
    type Args = Args;
    const NAME: &'static str = "tasks.delete";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, Args { id }: Args) -> Ran {
        let todo = data::delete(&*ctx.tools.documents, &ctx.call, id).await?.ok_or_else(|| missing(id))?;
        let (parts, of_parts) = about_open_parts(&ctx, id).await?;
        let message = format!("Deleted task #{id} {}{parts}", todo.title);
        let mut origins = origins(std::slice::from_ref(&todo));
        origins.extend(of_parts);
        Ok(Outcome::success(message).with_evidence(json!({"number": id})).with_origins(origins))
    }
}
