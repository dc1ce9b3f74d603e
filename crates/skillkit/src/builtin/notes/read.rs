//! `notes.read`: a note's text, in portions if it is long.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{name::title_of, tags_of, with_home};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text,
};

pub(crate) struct Read;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// Which note; in any case, and without its folder if only one has that name.
    title: String,
    /// The first line to show.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    from_line: usize,
    /// How many lines at most.
    #[serde(default = "lines")]
    #[schemars(range(min = 1, max = 1000))]
    lines: usize,
}

const fn one() -> usize {
    1
}

const fn lines() -> usize {
    300
}

impl Handler for Read {
    type Args = Args;
    const NAME: &'static str = "notes.read";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let title = args.title.clone();
        let (path, text) = with_home(&ctx, move |home| {
            let path = home.find(&title)?;
            let text = home.read(&path)?;
            let text = text.ok_or_else(|| SkillError::not_found(format!("There is no note '{title}'.")))?;
            Ok((path, text))
        })
        .await?;
        let total = text.lines().count();
        let shown: Vec<&str> = text.lines().skip(args.from_line - 1).take(args.lines).collect();
        let evidence = json!({"path": path, "lines": total});
        let last = args.from_line - 1 + shown.len();
        let mut shown_text = format!("# {}\n\n{}", title_of(&path), shown.join("\n"));
        if args.from_line > 1 || last < total {
            shown_text.push_str(&format!("\n\n[lines {} to {last} of {total}]", args.from_line));
        }
        let origins = text::origins_in(&tags_of(&text));
        Ok(Outcome::success(shown_text).with_evidence(evidence).with_origins(origins))
    }
}
