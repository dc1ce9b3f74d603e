//! `schedules.create`: idempotent, because the store keys the new schedule by the intent.

use annie_core::{
    outcome::Outcome,
    schedule::{NewSchedule, NumberedSchedule, ScheduleError},
    skill::Effect,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{line, refused};
use crate::handler::{Ctx, Handler, Ran};

pub(crate) struct Create;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// When, in words (every weekday at 8) or as a cron expression.
    when: String,
    /// What is to be done each time, as the user would ask for it.
    message: String,
    /// An IANA zone, if it is not the user's own.
    timezone: Option<String>,
}

impl Handler for Create {
    type Args = Args;
    const NAME: &'static str = "schedules.create";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        // Each occurrence is a message of the user. A text of an outside party would become the user's word.
        let untrusted = ctx.untrusted_origins();
        if !untrusted.is_empty() {
            let why = format!(
                "No schedule was created, because this turn has read texts of others ({}). The user can ask for the schedule \
                 in a new message.",
                untrusted.join(", ")
            );
            return Ok(Outcome::blocked("outside_text", why));
        }
        let new = NewSchedule {
            text: args.message,
            when: args.when,
            timezone: args.timezone.unwrap_or_else(|| ctx.call.timezone.clone()),
            conversation: Some(ctx.call.conversation),
            reply_to: None,
            file: None,
        };
        let write = new.write(ctx.call.user.clone(), ctx.call.intent, ctx.call.now).map_err(|e| refused(&e))?;
        let written = ctx.tools.documents.write_document(write).await?;
        let document = written.document.ok_or_else(|| refused(&ScheduleError::TooMany))?;
        let created = NumberedSchedule::of(&document)?;
        let message = format!("Created schedule {}", line(&created, ctx.zone()));
        Ok(Outcome::success(message).with_evidence(json!({"number": created.number, "next": created.schedule.due_at})))
    }
}
