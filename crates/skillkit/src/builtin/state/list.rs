//! `state.list`: the keys with their values. Read-only.

use annie_core::{
    outcome::Outcome,
    skill::Effect,
    state::{StateScope, shown},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{entries, place};
use crate::{
    handler::{Ctx, Handler, Ran},
    text,
};

/// How much of a value a list shows, in bytes.
const VALUE_BYTES_MAX: usize = 200;

pub(crate) struct List;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Prefix {
    Temp,
    Session,
    User,
    App,
}

impl Prefix {
    const fn scope(self) -> StateScope {
        match self {
            Self::Temp => StateScope::Temp,
            Self::Session => StateScope::Session,
            Self::User => StateScope::User,
            Self::App => StateScope::App,
        }
    }
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// Only keys with this prefix; session means those of this conversation.
    prefix: Option<Prefix>,
}

impl Handler for List {
    type Args = Args;
    const NAME: &'static str = "state.list";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let only = args.prefix.map(Prefix::scope);
        let (mut lines, mut origins) = (Vec::new(), Vec::new());
        for scope in StateScope::ALL.into_iter().filter(|scope| only.is_none_or(|only| only == *scope)) {
            let found: Vec<(String, String, Vec<String>)> = if scope == StateScope::Temp {
                let values = ctx.tools.temp.all(ctx.call.task).into_iter();
                values.map(|(name, value)| (format!("temp:{name}"), value.text, value.origin)).collect()
            } else {
                let found = entries(&*ctx.tools.documents, &place(scope, &ctx.call)?).await?;
                found.into_iter().map(|e| (e.key.to_string(), shown(&e.value), e.origin)).collect()
            };
            for (key, value, origin) in found {
                lines.push(format!("- {key}: {}", text::brief(&value, VALUE_BYTES_MAX)));
                origins.extend(origin);
            }
        }
        origins.sort_unstable();
        origins.dedup();
        let evidence = json!({"count": lines.len()});
        let message = if lines.is_empty() { "Nothing is set.".to_owned() } else { lines.join("\n") };
        Ok(Outcome::success(message).with_evidence(evidence).with_origins(origins))
    }
}
