//! `state.get`: the value of one key. Read-only.

use annie_core::{outcome::Outcome, skill::Effect, state::StateText};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{key, missing, value};
use crate::handler::{Ctx, Handler, Ran};

pub(crate) struct Get;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The key, such as topic, user:name, app:motto or temp:draft.
    key: String,
}

impl Handler for Get {
    type Args = Args;
    const NAME: &'static str = "state.get";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let key = key(&args.key)?;
        let found = value(&ctx.tools, &ctx.call, &key).await?;
        let StateText { text, origin } = found.ok_or_else(|| missing(&key))?;
        Ok(Outcome::success(text).with_evidence(json!({"key": key.to_string()})).with_origins(origin))
    }
}
