//! `notes.delete`: moves a note into the trash. Idempotent through the journal.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{journal, name::title_of, trash, unclear_move, with_locked_home};
use crate::handler::{Ctx, Handler, Ran};

pub(crate) struct Delete;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// Which note; in any case, and without its folder if only one has that name.
    title: String,
}

impl Handler for Delete {
    type Args = Args;
    const NAME: &'static str = "notes.delete";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let (title, intent, now) = (args.title.clone(), ctx.call.intent.to_string(), ctx.call.now);
        let moved = with_locked_home(&ctx, move |home| {
            journal::move_once(home, &intent, || {
                let note = home.find(&title)?;
                let place = trash::place(home, &intent, &note, now)?;
                Ok((note, place))
            })
        })
        .await?;
        let Some(moved) = moved else { return Ok(unclear_move("deleted", &args.title)) };
        let message = format!("Deleted note '{}'. It can be restored for 30 days.", title_of(&moved.from));
        Ok(Outcome::success(message).with_evidence(json!({"path": moved.from})))
    }
}
