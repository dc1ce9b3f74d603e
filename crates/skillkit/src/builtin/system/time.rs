//! `system.time`: the current time in a time zone.

use annie_core::{outcome::Outcome, skill::Effect};
use chrono::Datelike;
use chrono_tz::Tz;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
};

pub(crate) struct Time;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// An IANA name such as Europe/Berlin or America/New_York; without it the user's own zone.
    timezone: Option<String>,
}

impl Handler for Time {
    type Args = Args;
    const NAME: &'static str = "system.time";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let zone = match args.timezone.as_deref().map(str::trim).filter(|z| !z.is_empty()) {
            None => ctx.zone(),
            Some(name) => named(name)?,
        };
        let now = ctx.call.now.to_utc().with_timezone(&zone);
        let message = format!(
            "{} in {} (UTC{}, week {})",
            now.format("%A, %Y-%m-%d %H:%M"),
            zone.name(),
            now.format("%:z"),
            now.iso_week().week()
        );
        Ok(Outcome::success(message).with_evidence(json!({"local": now.to_rfc3339(), "timezone": zone.name()})))
    }
}

/// A zone by its name in any case, with spaces for underscores, or by its city.
fn named(name: &str) -> Result<Tz, SkillError> {
    let wanted = name.replace(' ', "_");
    let city = |zone: &&Tz| zone.name().rsplit('/').next().is_some_and(|c| c.eq_ignore_ascii_case(&wanted));
    chrono_tz::TZ_VARIANTS
        .iter()
        .find(|zone| zone.name().eq_ignore_ascii_case(&wanted))
        .or_else(|| chrono_tz::TZ_VARIANTS.iter().find(city))
        .copied()
        .ok_or_else(|| {
            SkillError::argument("timezone", format!("must be an IANA name such as Europe/Berlin, got {name:?}"))
        })
}
