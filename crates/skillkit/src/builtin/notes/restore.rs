//! `notes.restore`: brings a note back from the trash. Idempotent through the journal.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{journal, name::title_of, trash, unclear_move, with_locked_home};
use crate::handler::{Ctx, Handler, Ran};

pub(crate) struct Restore;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// Which deleted note; of several with the same title the one that was deleted last.
    title: String,
}

impl Handler for Restore {
    type Args = Args;
    const NAME: &'static str = "notes.restore";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let (title, intent) = (args.title.clone(), ctx.call.intent.to_string());
        let moved = with_locked_home(&ctx, move |home| {
            let moved = journal::move_once(home, &intent, || trash::way_back(home, &trash::find(home, &title)?))?;
            if let Some(moved) = &moved {
                trash::forget_entry(home, &moved.from)?;
            }
            Ok(moved)
        })
        .await?;
        let Some(moved) = moved else { return Ok(unclear_move("restored", &args.title)) };
        let message = format!("Restored note '{}'.", title_of(&moved.to));
        Ok(Outcome::success(message).with_evidence(json!({"path": moved.to})))
    }
}
