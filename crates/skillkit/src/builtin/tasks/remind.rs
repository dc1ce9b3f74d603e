//! `tasks.remind`: idempotent, because the store keys the new or changed task by the intent.

use annie_core::{outcome::Outcome, reminder::instant, skill::Effect, time::Micros};
use chrono::NaiveTime;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    TITLE_CHARS_MAX,
    data::{self, NewTodo, Priority, Todo, TodoPatch},
    exact, minute, missing, one_line, origin_tags, origins,
};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text,
    when::{self, When},
};

/// The hour of a reminder for a day without a time.
const HOUR: u32 = 9;

pub(crate) struct Remind;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// When to remind: in 10 minutes, tomorrow 9:00, friday 2pm. A day alone means 9:00; `1 hour later` counts from the reminder
    /// that is set; none cancels the reminder of --id.
    #[schemars(extend("format" = "date"))]
    when: String,
    /// What to remind the user of, in a few words.
    title: Option<String>,
    /// Instead of a title: the number of the task that exists already.
    #[schemars(range(min = 1), extend("format" = "id"))]
    id: Option<u64>,
}

impl Handler for Remind {
    type Args = Args;
    const NAME: &'static str = "tasks.remind";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let is_none = args.when.trim().eq_ignore_ascii_case("none");
        match (args.id, args.title) {
            (Some(id), None) if is_none => change(&ctx, id, None).await,
            (Some(id), None) => change(&ctx, id, Some(&args.when)).await,
            (None, Some(_)) if is_none => Err(SkillError::Arguments("--when none goes with --id only".to_owned())),
            (None, Some(title)) => create(&ctx, &title, asked(&ctx, &args.when, None)?).await,
            _ => Err(SkillError::Arguments("exactly one of --title and --id is needed".to_owned())),
        }
    }
}

/// The local time that the text names, and its instant. `1 hour later` counts from the reminder that is set, if it is still to
/// come.
fn asked(ctx: &Ctx, text: &str, set_for: Option<Micros>) -> Result<(When, Micros), SkillError> {
    let refused = |what: String| SkillError::argument("when", what);
    let text = text.replace('_', " ");
    let (text, from) = match text.trim().strip_suffix(" later") {
        Some(span) => {
            let set_for = set_for.filter(|at| *at > ctx.call.now);
            (format!("in {span}"), set_for.map_or_else(|| ctx.now(), |at| at.to_utc().with_timezone(&ctx.zone())))
        }
        None => (text, ctx.now()),
    };
    let found = when::resolve(&text, from).map_err(|e| refused(format!("does not fit: {e}")))?;
    let time = found.time.or_else(|| NaiveTime::from_hms_opt(HOUR, 0, 0)).unwrap_or_default();
    let at = exact(&found).or_else(|| instant(found.date.and_time(time), ctx.zone()));
    let now = ctx.call.now;
    // The text names a minute, and the present one has begun.
    let at = at.filter(|at| at.plus_ms(60_000) > now).map(|at| at.max(now));
    let local = found.date.and_time(time).format("%Y-%m-%d %H:%M");
    let at = at.ok_or_else(|| refused(format!("must not be in the past, and {local} has passed: say a later time")))?;
    Ok((When { time: Some(time), ..found }, at))
}

async fn create(ctx: &Ctx, title: &str, (due, at): (When, Micros)) -> Ran {
    let new = NewTodo {
        title: text::bounded("title", &one_line(title), TITLE_CHARS_MAX)?,
        description: String::new(),
        priority: Priority::Medium,
        due: Some(due.to_string()),
        tags: origin_tags(&ctx.call)?,
        parent: None,
        remind_at: Some(at),
    };
    let made = data::create(&*ctx.tools.documents, &ctx.call, new).await?;
    let todo = made.ok_or_else(|| SkillError::Conflict("the task was deleted since".to_owned()))?;
    Ok(set(ctx, &todo, at))
}

async fn change(ctx: &Ctx, id: u64, when: Option<&str>) -> Ran {
    let before = data::get(&*ctx.tools.documents, &ctx.call.user, id).await?.ok_or_else(|| missing(id))?;
    let at = when.map(|when| asked(ctx, when, before.remind_at)).transpose()?.map(|(_, at)| at);
    if at.is_some() && !before.status.is_open() {
        let status = before.status.as_str();
        return Err(SkillError::Conflict(format!("task #{id} is {status}: reopen it with tasks.update --status todo")));
    }
    let patch = TodoPatch { remind_at: Some(at), ..TodoPatch::default() };
    let todo = data::update(&*ctx.tools.documents, &ctx.call, id, patch).await?.ok_or_else(|| missing(id))?;
    match at {
        Some(at) => Ok(set(ctx, &todo, at)),
        None => {
            let message = format!("No reminder is set any more for task #{id} {}", todo.title);
            let origins = origins(std::slice::from_ref(&todo));
            Ok(Outcome::success(message).with_evidence(json!({"number": id})).with_origins(origins))
        }
    }
}

fn set(ctx: &Ctx, todo: &Todo, at: Micros) -> Outcome {
    let message = format!("Set a reminder for {}: task #{} {}", minute(ctx, at), todo.number, todo.title);
    let evidence = json!({"number": todo.number, "remind_at": at});
    Outcome::success(message).with_evidence(evidence).with_origins(origins(std::slice::from_ref(todo)))
}
