//! `notes.create`: idempotent through the journal. An existing note with the same content is a success, with other content
//! a conflict.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    home::{Home, NOTES_MAX},
    journal::{self, Applied},
    name::{path_of, title_of},
    with_locked_home,
};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text,
};

pub(crate) struct Create;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The note's title, which is its file name; folders with slashes: work/plan.
    title: String,
    /// The text, in markdown.
    content: String,
    /// Words to find it by.
    #[serde(default)]
    tags: Vec<String>,
}

impl Handler for Create {
    type Args = Args;
    const NAME: &'static str = "notes.create";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let path = path_of(&args.title)?;
        let text = render(&args.content, &text::tags_from(&args.tags, &ctx.call.origin)?);
        let (intent, file) = (ctx.call.intent, path.clone());
        let applied = with_locked_home(&ctx, move |home| {
            let applied = journal::apply(home, intent, &file, |present| match present {
                None => vacant(home, &file).map(|()| Some(text)),
                Some(present) if present == text => Ok(None),
                Some(_) => Err(taken(&file)),
            })?;
            Ok(applied)
        })
        .await?;
        let title = title_of(&path);
        let evidence = json!({"path": path});
        Ok(match applied {
            Applied::Now | Applied::Earlier => Outcome::success(format!("Created note '{title}'.")),
            Applied::Same => Outcome::success(format!("The note '{title}' is there already with this content.")),
            Applied::Unclear => {
                let message = format!("The note '{title}' exists, but it was changed since this run was first tried.");
                return Ok(Outcome::unknown(message, evidence));
            }
        }
        .with_evidence(evidence))
    }
}

/// Refuses a title that differs from another note's only in case, and a note beyond the limit.
fn vacant(home: &Home, path: &str) -> Result<(), SkillError> {
    let paths = home.list()?;
    if let Some(twin) = paths.iter().find(|p| p.to_lowercase() == path.to_lowercase()) {
        return Err(taken(twin));
    }
    if paths.len() >= NOTES_MAX {
        return Err(SkillError::TooLarge(format!("There are {NOTES_MAX} notes already, which is as many as fit.")));
    }
    Ok(())
}

fn taken(path: &str) -> SkillError {
    SkillError::Conflict(format!(
        "There is another note '{}' already. Read it with notes.read, change it with notes.edit, or choose another title.",
        title_of(path)
    ))
}

fn render(content: &str, tags: &[String]) -> String {
    let content = content.trim_end();
    if tags.is_empty() { format!("{content}\n") } else { format!("---\ntags: [{}]\n---\n\n{content}\n", quoted(tags)) }
}

/// Writes tags so that YAML reads them back unchanged, whatever their characters.
fn quoted(tags: &[String]) -> String {
    let plain = |t: &String| t.chars().all(|c| c.is_alphabetic() || c == '-') && t.starts_with(char::is_alphabetic);
    let words = ["true", "false", "null", "yes", "no", "on", "off"];
    let tags = tags.iter().map(|t| if plain(t) && !words.contains(&t.as_str()) { t.clone() } else { format!("{t:?}") });
    tags.collect::<Vec<_>>().join(", ")
}
