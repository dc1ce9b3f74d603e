//! `system.await`: waits for something outside to report back. It starts nothing: it opens an operation, and
//! whoever has its key brings the result. The key is a secret, so it is in no outcome: its owner asks for it.

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

/// The longest description of what is awaited, in characters.
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
    // The operation's id is made of the run's, so another run opens the same one.
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let what = text::bounded("what", &args.what, WHAT_CHARS_MAX)?;
        let grant = &ctx.call.operation;
        let expires_at = ctx.call.now.plus_ms(i64::from(args.hours.clamp(1, 720)) * HOUR_MS);
        let until = expires_at.to_utc().with_timezone(&ctx.zone());
        let said = format!(
            "Waiting for {what} until {} ({}). Whoever brings the result sends it to POST {}, with the key that `annie \
             operations key {}` shows to you alone.",
            until.format("%Y-%m-%d %H:%M"),
            ctx.zone().name(),
            grant.path,
            grant.id
        );
        Ok(Outcome::pending(Operation { id: grant.id, expires_at }, said))
    }
}
