//! `tasks.get`: all details of some tasks.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    data::{self, Todo, TodoQuery},
    line, missing, numbers, origins,
};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text,
};

/// How many tasks one run shows.
const IDS_MAX: usize = 20;
/// How many tasks are read to find the most recent ones.
const RECENT_SCANNED_MAX: u32 = 1_000;

pub(crate) struct Get;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// One task's number, as lists show it behind the #.
    #[schemars(range(min = 1))]
    id: Option<u64>,
    /// Several numbers: 1,2,5.
    #[serde(default)]
    ids: Vec<String>,
    /// The tasks that were changed last; meant also where no number is given.
    #[serde(default)]
    recent: bool,
    /// How many recent tasks.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 20))]
    limit: u32,
}

const fn five() -> u32 {
    5
}

impl Handler for Get {
    type Args = Args;
    const NAME: &'static str = "tasks.get";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let mut wanted: Vec<u64> = args.id.into_iter().collect();
        wanted.extend(text::numbers("ids", &args.ids)?);
        match (wanted.len(), args.recent) {
            (0, _) => recent(&ctx, args.limit).await,
            (_, true) => Err(SkillError::Arguments("--recent does not go with --id or --ids".to_owned())),
            (n, _) if n > IDS_MAX => {
                Err(SkillError::argument("ids", format!("must be at most {IDS_MAX} numbers, got {n}")))
            }
            _ => by_number(&ctx, wanted).await,
        }
    }
}

async fn by_number(ctx: &Ctx, wanted: Vec<u64>) -> Ran {
    let (mut found, mut gone) = (Vec::new(), Vec::new());
    for number in wanted {
        match data::get(&*ctx.tools.documents, &ctx.call.user, number).await? {
            Some(todo) => found.push(todo),
            None => gone.push(number),
        }
    }
    match (found.is_empty(), gone.as_slice()) {
        (true, [first, ..]) => Err(missing(*first)),
        (_, []) => Ok(shown(Outcome::success(all(&found, ctx)), &found)),
        (false, gone) => {
            let gone: Vec<String> = gone.iter().map(|n| format!("#{n}")).collect();
            let message = format!("{}\n\nNot found: {}", all(&found, ctx), gone.join(", "));
            Ok(shown(Outcome::partial(message), &found))
        }
    }
}

async fn recent(ctx: &Ctx, limit: u32) -> Ran {
    let query = TodoQuery { limit: RECENT_SCANNED_MAX, ..TodoQuery::default() };
    let mut found = data::find(&*ctx.tools.documents, &ctx.call.user, query).await?;
    found.sort_by_key(|todo| (std::cmp::Reverse(todo.updated_at), todo.number));
    found.truncate(limit as usize);
    if found.is_empty() {
        return Ok(Outcome::success("There are no tasks yet.").with_evidence(numbers(&found)));
    }
    Ok(shown(Outcome::success(all(&found, ctx)), &found))
}

fn shown(outcome: Outcome, todos: &[Todo]) -> Outcome {
    outcome.with_evidence(numbers(todos)).with_origins(origins(todos))
}

fn all(todos: &[Todo], ctx: &Ctx) -> String {
    todos.iter().map(|todo| whole(todo, ctx)).collect::<Vec<_>>().join("\n\n")
}

fn whole(todo: &Todo, ctx: &Ctx) -> String {
    let day = |at: annie_core::time::Micros| at.to_utc().format("%Y-%m-%d");
    let mut text = format!("{}\nstatus {}", line(todo, ctx), todo.status.as_str());
    text.push_str(&format!(", created {}, changed {}", day(todo.created_at), day(todo.updated_at)));
    let origins = origins(std::slice::from_ref(todo));
    if !origins.is_empty() {
        text.push_str(&format!(", written after {} was read", origins.join(", ")));
    }
    if !todo.description.is_empty() {
        text.push_str(&format!("\n{}", todo.description));
    }
    text
}
