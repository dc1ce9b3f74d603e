//! `notes.rename`: gives a note another title, which may be in another folder. Idempotent through the journal.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    home::Home,
    journal,
    name::{path_of, title_of},
    unclear_move, with_locked_home,
};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
};

pub(crate) struct Rename;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// Which note; in any case, and without its folder if only one has that name.
    title: String,
    /// The new title, with its folders: work/plan.
    to: String,
}

impl Handler for Rename {
    type Args = Args;
    const NAME: &'static str = "notes.rename";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let to = path_of(&args.to).map_err(|error| match error {
            SkillError::Argument { what, .. } => SkillError::argument("to", what),
            error => error,
        })?;
        let (title, intent) = (args.title.clone(), ctx.call.intent.to_string());
        let moved =
            with_locked_home(&ctx, move |home| journal::move_once(home, &intent, || plan(home, &title, to))).await?;
        let Some(moved) = moved else { return Ok(unclear_move("renamed", &args.title)) };
        let message = format!("Renamed note '{}' to '{}'.", title_of(&moved.from), title_of(&moved.to));
        Ok(Outcome::success(message).with_evidence(json!({"path": moved.to})))
    }
}

/// The old and the new path. The new one must not differ from that of another note only in case.
fn plan(home: &Home, title: &str, to: String) -> Result<(String, String), SkillError> {
    let from = home.find(title)?;
    if home.dir.symlink_metadata(&from).is_ok_and(|found| !found.is_file()) {
        return Err(SkillError::Outside(format!("'{}' is a link or a folder, not a note.", title_of(&from))));
    }
    if from.to_lowercase() == to.to_lowercase() {
        return Err(SkillError::argument(
            "to",
            "must be another title; one that differs only in case names the same note",
        ));
    }
    match home.list()?.iter().find(|path| path.to_lowercase() == to.to_lowercase()) {
        Some(twin) => {
            let what = format!("There is another note '{}' already. Choose another title.", title_of(twin));
            Err(SkillError::Conflict(what))
        }
        None => Ok((from, to)),
    }
}
