//! `tasks.create`: idempotent, because the store keys the new task by the intent.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    DESCRIPTION_CHARS_MAX, TITLE_CHARS_MAX,
    data::{self, NewTodo, Priority},
    due, exact, line, missing, one_line, origin_tags,
};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text,
};

pub(crate) struct Create;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// What is to be done, in a few words.
    title: String,
    /// More about it: steps, links, context.
    description: Option<String>,
    /// When it is due; also +3d, in 2 weeks, end of month. With a time of day the user is reminded then.
    #[schemars(extend("format" = "date"))]
    due: Option<String>,
    /// How much it matters.
    #[serde(default = "medium")]
    priority: Priority,
    /// Words to find it by.
    #[serde(default)]
    tags: Vec<String>,
    /// The number of the task that this one is a part of, as lists show it behind the #.
    #[schemars(range(min = 1), extend("format" = "id"))]
    parent: Option<u64>,
}

const fn medium() -> Priority {
    Priority::Medium
}

impl Handler for Create {
    type Args = Args;
    const NAME: &'static str = "tasks.create";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let description = args.description.as_deref().map(str::trim).filter(|d| !d.is_empty());
        let due = args.due.as_deref().map(|text| due(&ctx, text)).transpose()?;
        let mut tags = text::tags_from(&args.tags, &[])?;
        tags.extend(origin_tags(&ctx.call)?);
        let new = NewTodo {
            title: text::bounded("title", &one_line(&args.title), TITLE_CHARS_MAX)?,
            description: description
                .map(|d| text::bounded("description", d, DESCRIPTION_CHARS_MAX))
                .transpose()?
                .unwrap_or_default(),
            priority: args.priority,
            remind_at: due.as_ref().and_then(|due| {
                let at = exact(due).filter(|at| *at > ctx.call.now);
                at.or_else(|| data::reminder_of(&due.to_string(), &ctx.call))
            }),
            due: due.map(|due| due.to_string()),
            tags,
            parent: args.parent,
        };
        let Some(todo) = data::create(&*ctx.tools.documents, &ctx.call, new).await? else {
            return Err(no_place(&ctx, args.parent).await?);
        };
        let message = format!("Created task {}", line(&todo, &ctx));
        let evidence = json!({"number": todo.number, "due": todo.due, "remind_at": todo.remind_at});
        Ok(Outcome::success(message).with_evidence(evidence))
    }
}

/// Why a task cannot be a part of this one.
async fn no_place(ctx: &Ctx, parent: Option<u64>) -> Result<SkillError, SkillError> {
    let parent = parent.unwrap_or_default();
    let whole = data::get(&*ctx.tools.documents, &ctx.call.user, parent).await?;
    Ok(match whole.and_then(|todo| todo.parent) {
        Some(whole) => {
            let what = format!("must not be #{parent}, which is itself a part of #{whole}; give --parent {whole}");
            SkillError::argument("parent", what)
        }
        None => missing(parent),
    })
}
