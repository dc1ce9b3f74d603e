//! `files.read`: the text of a file, in portions if it is long.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::at;
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
};

pub(crate) struct Read;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The file, such as documents/letters/a.txt.
    path: String,
    /// The first line to show.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    from_line: usize,
    /// How many lines at most.
    #[serde(default = "lines")]
    #[schemars(range(min = 1, max = 1_000))]
    lines: usize,
}

const fn one() -> usize {
    1
}

/// Fits into the default limit of results, 8,000 bytes, if lines have 40 bytes.
const fn lines() -> usize {
    200
}

impl Handler for Read {
    type Args = Args;
    const NAME: &'static str = "files.read";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, Args { path, from_line, lines }: Args) -> Ran {
        let (shown, text) =
            at(&ctx, &path, |place, rules| Ok((place.shown(), place.read(&place.rest, rules.read_bytes_max)?))).await?;
        let total = text.lines().count();
        if total == 0 {
            return Ok(Outcome::permanent("empty_result", format!("{shown} is empty.")));
        }
        if from_line > total {
            return Err(SkillError::argument("from_line", format!("is {from_line}, but {shown} has {total} lines")));
        }
        let portion: Vec<&str> = text.lines().skip(from_line - 1).take(lines).collect();
        let last = from_line - 1 + portion.len();
        let mut data = format!("Text of the file {shown}:\n");
        // Before the text: the end of a long result is cut.
        if from_line > 1 || last < total {
            data.push_str(&format!("[lines {from_line} to {last} of {total}]\n"));
        }
        data.push_str(&format!("\n{}", portion.join("\n")));
        Ok(Outcome::success(data).with_evidence(json!({"path": shown, "lines": total})))
    }
}
