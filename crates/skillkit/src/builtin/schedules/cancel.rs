//! `schedules.cancel`: idempotent, because the store keys the end of the schedule by the intent.

use annie_core::{
    outcome::Outcome,
    schedule::{NumberedSchedule, ScheduleChange},
    skill::Effect,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
};

pub(crate) struct Cancel;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The schedule's number, as lists show it behind the #.
    #[schemars(range(min = 1), extend("format" = "id"))]
    id: u64,
}

impl Handler for Cancel {
    type Args = Args;
    const NAME: &'static str = "schedules.cancel";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, Args { id }: Args) -> Ran {
        let write = ScheduleChange::Remove.write(ctx.call.user.clone(), id, ctx.call.intent, ctx.call.now);
        let written = ctx.tools.documents.write_document(write).await?;
        let Some(document) = written.document else {
            let near = vec!["schedules.list".to_owned()];
            return Err(SkillError::NotFound { what: format!("There is no schedule #{id}."), near });
        };
        let text = NumberedSchedule::of(&document)?.schedule.text;
        let message = format!("Cancelled schedule #{id} \"{text}\"");
        Ok(Outcome::success(message).with_evidence(json!({"number": id})))
    }
}
