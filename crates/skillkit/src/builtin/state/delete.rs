//! `state.delete`: idempotent, because the store keys the change by the intent.

use annie_core::{
    outcome::Outcome,
    skill::Effect,
    state::{StateEntry, StateScope},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{author, key, missing, place, refused};
use crate::handler::{Ctx, Handler, Ran};

pub(crate) struct Delete;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The key.
    key: String,
}

impl Handler for Delete {
    type Args = Args;
    const NAME: &'static str = "state.delete";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let key = key(&args.key)?;
        key.check_writable().map_err(|error| refused("key", &error))?;
        let before = if key.scope == StateScope::Temp {
            ctx.tools.temp.delete(ctx.call.task, &key).map(|before| Value::from(before.text))
        } else {
            let write = place(key.scope, &ctx.call)?.delete(&key, &author(&ctx));
            let written = ctx.tools.documents.write_document(write).await?;
            written.document.as_ref().map(StateEntry::of).transpose()?.flatten().map(|entry| entry.value)
        };
        let before = before.ok_or_else(|| missing(&key))?;
        let evidence = json!({"key": key.to_string(), "before": before, "after": Value::Null});
        Ok(Outcome::success(format!("Deleted {key}.")).with_evidence(evidence))
    }
}
