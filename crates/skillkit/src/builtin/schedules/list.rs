//! `schedules.list`: all schedules of the user.

use annie_core::{
    outcome::Outcome,
    ports::StoreError,
    schedule::{NumberedSchedule, SCHEDULES, all},
    skill::Effect,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::line;
use crate::handler::{Ctx, Handler, Ran};

pub(crate) struct List;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {}

impl Handler for List {
    type Args = Args;
    const NAME: &'static str = "schedules.list";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, Args {}: Args) -> Ran {
        let hits = ctx.tools.documents.find_documents(ctx.call.user.clone(), &SCHEDULES, all()).await?;
        let mut found: Vec<NumberedSchedule> =
            hits.iter().map(|hit| NumberedSchedule::of(&hit.document)).collect::<Result<_, StoreError>>()?;
        found.sort_by_key(|schedule| schedule.number);
        if found.is_empty() {
            return Ok(Outcome::success("There are no schedules.").with_evidence(json!({"count": 0})));
        }
        let lines: Vec<String> = found.iter().map(|schedule| format!("- {}", line(schedule, ctx.zone()))).collect();
        let numbers: Vec<u64> = found.iter().map(|schedule| schedule.number).collect();
        Ok(Outcome::success(lines.join("\n")).with_evidence(json!({"count": numbers.len(), "numbers": numbers})))
    }
}
