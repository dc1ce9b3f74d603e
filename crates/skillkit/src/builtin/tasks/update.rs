//! `tasks.update`: idempotent, because the store keys the change by the intent.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    DESCRIPTION_CHARS_MAX, TITLE_CHARS_MAX, about_open_parts,
    data::{self, Priority, Status, TodoPatch},
    due, exact, line, missing, one_line, origin_tags, origins,
};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text,
};

pub(crate) struct Update;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The task's number, as lists show it behind the #.
    #[schemars(range(min = 1), extend("format" = "id"))]
    id: u64,
    /// A new title.
    title: Option<String>,
    /// A new description; an empty one takes it away.
    description: Option<String>,
    /// Where it stands now; done finishes it.
    status: Option<Status>,
    /// How much it matters now.
    priority: Option<Priority>,
    /// A new date (2026-02-28, tomorrow 14:00, friday, +3d), or none to take it away.
    #[schemars(extend("format" = "date"))]
    due: Option<String>,
    /// New tags in place of the old ones; none takes them away.
    tags: Option<Vec<String>>,
}

impl Handler for Update {
    type Args = Args;
    const NAME: &'static str = "tasks.update";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let id = args.id;
        let patch = patch(&ctx, args)?;
        if patch == TodoPatch::default() {
            let what = "nothing to change: give --title, --description, --status, --priority, --due or --tags";
            return Err(SkillError::Arguments(what.to_owned()));
        }
        let todo = data::update(&*ctx.tools.documents, &ctx.call, id, patch).await?;
        let todo = todo.ok_or_else(|| missing(id))?;
        let mut origins = origins(std::slice::from_ref(&todo));
        let mut message = format!("Updated task {}", line(&todo, &ctx));
        if !todo.status.is_open() {
            let (parts, of_parts) = about_open_parts(&ctx, id).await?;
            message.push_str(&parts);
            origins.extend(of_parts);
        }
        let evidence = json!({"number": id, "status": todo.status, "due": todo.due, "remind_at": todo.remind_at});
        Ok(Outcome::success(message).with_evidence(evidence).with_origins(origins))
    }
}

fn patch(ctx: &Ctx, args: Args) -> Result<TodoPatch, SkillError> {
    let description = args.description.map(|d| d.trim().to_owned());
    if description.as_ref().is_some_and(|d| d.chars().count() > DESCRIPTION_CHARS_MAX) {
        let what = format!("must have at most {DESCRIPTION_CHARS_MAX} characters");
        return Err(SkillError::argument("description", what));
    }
    let due = match args.due.as_deref().map(str::trim) {
        None => None,
        Some(word) if word.is_empty() || word.eq_ignore_ascii_case("none") => Some(None),
        Some(text) => Some(Some(due(ctx, text)?)),
    };
    // A change of a date or of the status stores no text.
    let has_text = args.title.is_some() || description.is_some() || args.tags.is_some();
    let tags = args.tags.map(|mut tags| {
        tags.retain(|tag| !tag.eq_ignore_ascii_case("none"));
        text::tags(&tags)
    });
    Ok(TodoPatch {
        title: args.title.map(|t| text::bounded("title", &one_line(&t), TITLE_CHARS_MAX)).transpose()?,
        description,
        status: args.status,
        priority: args.priority,
        remind_at: due.as_ref().and_then(|due| exact(due.as_ref()?)).filter(|at| *at > ctx.call.now).map(Some),
        due: due.map(|due| due.map(|due| due.to_string())),
        tags: tags.transpose()?,
        origin_tags: if has_text { origin_tags(&ctx.call)? } else { Vec::new() },
    })
}
