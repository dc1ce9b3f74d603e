//! `tasks.delete`: `once`, because a repeated run would find no task and report a success as a failure. A lost receipt is
//! resolved by checking whether the task still exists.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{data, missing};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
};

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
    const EFFECT: Effect = Effect::Once;

    async fn run(ctx: Ctx, Args { id }: Args) -> Ran {
        let todo = data::delete(&*ctx.tools.documents, &ctx.call, id).await?.ok_or_else(|| missing(id))?;
        let message = format!("Deleted task #{id} {}", todo.title);
        Ok(Outcome::success(message).with_evidence(json!({"number": id})))
    }

    async fn reconcile(ctx: Ctx, Args { id }: Args) -> Result<Option<Outcome>, SkillError> {
        let found = data::get(&*ctx.tools.documents, &ctx.call.user, id).await?;
        Ok(Some(match found {
            None => Outcome::success(format!("Task #{id} is not in the list any more."))
                .with_evidence(json!({"number": id, "reconciled": true})),
            Some(todo) => {
                let message = format!("Task #{id} {} was not deleted: the run was cut short before that.", todo.title);
                Outcome::transient("interrupted", message).with_evidence(json!({"number": id, "reconciled": true}))
            }
        }))
    }
}
