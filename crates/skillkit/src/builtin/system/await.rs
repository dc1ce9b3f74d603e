//! `system.await`: waits for an external event. It starts no work: it opens an operation, and the holder of the operation's
//! key sends the result. The key is a secret, so it is in no outcome: the operation's user queries it separately.

use annie_core::{
    outcome::{Operation, Outcome},
    skill::Effect,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    handler::{Ctx, Handler, Ran},
    text,
};

/// Length limit for the description of the event, in characters.
const WHAT_CHARS_MAX: usize = 200;
const HOUR_MS: i64 = 3_600_000;

pub(crate) struct Await;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// What is awaited, in a few words.
    what: String,
    /// After so many hours nobody waits any more.
    #[serde(default = "a_day")]
    #[schemars(range(min = 1, max = 720))]
    hours: u32,
}

const fn a_day() -> u32 {
    24
}

impl Handler for Await {
    type Args = Args;
    const NAME: &'static str = "system.await";
    // The operation's id is derived from the run's intent, so a repeated run opens the same operation.
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let what = text::bounded("what", &args.what, WHAT_CHARS_MAX)?;
        let grant = &ctx.call.operation;
        let expires_at = ctx.call.now.plus_ms(i64::from(args.hours.clamp(1, 720)) * HOUR_MS);
        let until = expires_at.to_utc().with_timezone(&ctx.zone());
        let message = format!(
            "Waiting for {what} until {} ({}). Whoever brings the result sends it to POST {}, with the key that `annie \
             operations key {}` shows to you alone.",
            until.format("%Y-%m-%d %H:%M"),
            ctx.zone().name(),
            grant.path,
            grant.id
        );
        Ok(Outcome::pending(Operation { id: grant.id, expires_at }, message))
    }
}
