//! `notes.list`: the titles of the notes, or of those in the trash.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{name::title_of, trash, with_home};
use crate::{
    handler::{Ctx, Handler, Ran},
    text,
    trash::{KEPT, day},
};

pub(crate) struct List;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The deleted notes, which can be restored.
    #[serde(default)]
    deleted: bool,
    /// How many at most.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = 500))]
    limit: usize,
}

const fn fifty() -> usize {
    50
}

impl Handler for List {
    type Args = Args;
    const NAME: &'static str = "notes.list";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let mut lines: Vec<(String, String)> = if args.deleted {
            let trashed = with_home(&ctx, trash::list).await?;
            let line = |deleted: trash::Trashed| {
                let shown = format!("- {} (deleted {})", title_of(&deleted.note), day(&ctx, deleted.deleted_at));
                (deleted.note, shown)
            };
            trashed.into_iter().map(line).collect()
        } else {
            let paths = with_home(&ctx, |home| home.list()).await?;
            paths.into_iter().map(|path| (path.clone(), format!("- {}", title_of(&path)))).collect()
        };
        let total = lines.len();
        lines.truncate(args.limit);
        let (paths, lines): (Vec<String>, Vec<String>) = lines.into_iter().unzip();
        let evidence = json!({"count": paths.len(), "total": total, "paths": paths});
        let (one, many) = if args.deleted { ("deleted note", "deleted notes") } else { ("note", "notes") };
        if lines.is_empty() {
            return Ok(Outcome::success(format!("There are no {many}.")).with_evidence(evidence));
        }
        let shown = if lines.len() < total { format!(" (the first {})", lines.len()) } else { String::new() };
        let mut message = format!("{}{shown}:\n\n{}", text::count(total, one, many), lines.join("\n"));
        if args.deleted {
            message.push_str(&format!("\n\n{KEPT}"));
        }
        Ok(Outcome::success(message).with_evidence(evidence))
    }
}
