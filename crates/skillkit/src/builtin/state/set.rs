//! `state.set`: idempotent, because the store keys the change by the intent.

use annie_core::{
    outcome::Outcome,
    skill::Effect,
    state::{StateEntry, StateScope, StateText, check_value},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{author, key, place, refused};
use crate::handler::{Ctx, Handler, Ran};

pub(crate) struct Set;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The key: temp:name for this turn, name for this conversation, user:name for all conversations of the user.
    key: String,
    /// The value, a text of at most 8 KiB.
    value: String,
}

impl Handler for Set {
    type Args = Args;
    const NAME: &'static str = "state.set";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let key = key(&args.key)?;
        key.check_writable().map_err(|error| refused("key", &error))?;
        let value = Value::from(args.value);
        check_value(&value).map_err(|error| refused("value", &error))?;
        let (before, after) = if key.scope == StateScope::Temp {
            let text = value.as_str().unwrap_or_default().to_owned();
            let new = StateText { text, origin: ctx.call.origin.clone() };
            let before = ctx.tools.temp.set(ctx.call.task, &key, new).map_err(|error| refused("key", &error))?;
            (before.map_or(Value::Null, |before| before.text.into()), value)
        } else {
            let place = place(key.scope, &ctx.call)?;
            let written = ctx.tools.documents.write_document(place.set(&key, &value, &author(&ctx))).await?;
            let entry = written.document.as_ref().map(StateEntry::of).transpose()?.flatten();
            let entry = entry.ok_or_else(|| refused("key", &place.full()))?;
            entry.last_change().map_or((Value::Null, value), |last| (last.before.clone(), last.after.clone()))
        };
        let evidence = json!({"key": key.to_string(), "before": before, "after": after});
        Ok(Outcome::success(format!("Set {key}.")).with_evidence(evidence))
    }
}
