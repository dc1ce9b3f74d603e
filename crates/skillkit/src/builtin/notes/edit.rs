//! `notes.edit`: idempotent through the journal, so that a repeated run never appends a text twice.

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    head_of,
    journal::{self, Applied},
    name::title_of,
    with_locked_home, with_origins,
};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text,
};

pub(crate) struct Edit;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// Which note.
    title: String,
    /// A text to add at the end.
    append: Option<String>,
    /// A text to add at the beginning.
    prepend: Option<String>,
    /// A text that is in the note exactly once, to be replaced by --with.
    replace: Option<String>,
    /// What takes its place; an empty text removes it.
    with: Option<String>,
}

enum Change {
    Append(String),
    Prepend(String),
    Replace { old: String, new: String },
}

impl Handler for Edit {
    type Args = Args;
    const NAME: &'static str = "notes.edit";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let title = args.title.clone();
        let change = change_of(args)?;
        let verb = match &change {
            Change::Append(_) => "Appended to",
            Change::Prepend(_) => "Prepended to",
            Change::Replace { .. } => "Replaced text in",
        };
        let (intent, origin) = (ctx.call.intent, ctx.call.origin.clone());
        let (path, applied) = with_locked_home(&ctx, move |home| {
            let path = home.find(&title)?;
            let applied = journal::apply(home, intent, &path, |present| {
                let present = present.ok_or_else(|| SkillError::not_found(format!("There is no note '{title}'.")))?;
                changed(present, &change).map(|new| Some(with_origins(present, new, &origin)))
            })?;
            Ok((path, applied))
        })
        .await?;
        let title = title_of(&path);
        let evidence = json!({"path": path});
        Ok(match applied {
            Applied::Now | Applied::Earlier | Applied::Same => {
                Outcome::success(format!("{verb} note '{title}'.")).with_evidence(evidence)
            }
            Applied::Unclear => {
                let message = format!(
                    "Whether this change of '{title}' was made is not known: the run was cut short and the note was changed \
                     since. Read it with notes.read before trying again."
                );
                Outcome::unknown(message, evidence)
            }
        })
    }
}

fn change_of(args: Args) -> Result<Change, SkillError> {
    let wrong = |what: &str| Err(SkillError::Arguments(what.to_owned()));
    match (args.append, args.prepend, args.replace, args.with) {
        (Some(text), None, None, None) if !text.trim().is_empty() => Ok(Change::Append(text)),
        (None, Some(text), None, None) if !text.trim().is_empty() => Ok(Change::Prepend(text)),
        (None, None, Some(old), Some(new)) if !old.is_empty() => Ok(Change::Replace { old, new }),
        (None, None, Some(old), _) if old.is_empty() => wrong("--replace must not be empty"),
        (None, None, Some(_), None) => wrong("--replace needs --with: what takes the text's place"),
        (None, None, None, Some(_)) => wrong("--with needs --replace: which text it takes the place of"),
        (Some(_), None, None, None) | (None, Some(_), None, None) => wrong("the text to add must not be empty"),
        _ => wrong("exactly one of --append, --prepend and --replace with --with is needed"),
    }
}

fn changed(present: &str, change: &Change) -> Result<String, SkillError> {
    match change {
        Change::Append(text) => {
            let gap = if present.is_empty() || present.ends_with('\n') { "" } else { "\n" };
            Ok(format!("{present}{gap}{}\n", text.trim_end_matches('\n')))
        }
        Change::Prepend(text) => {
            let at = head_of(present).map_or(0, |(_, at)| at);
            let (head, body) = present.split_at(at);
            let gap = if head.is_empty() { "" } else { "\n" };
            Ok(format!("{head}{gap}{}\n{}", text.trim_end_matches('\n'), body.trim_start_matches('\n')))
        }
        Change::Replace { old, new } => match present.matches(old.as_str()).count() {
            1 => Ok(present.replacen(old.as_str(), new, 1)),
            0 => {
                let what = format!("text {:?} is not in the note; read it with notes.read", text::brief(old, 60));
                Err(SkillError::argument("replace", what))
            }
            n => {
                let what =
                    format!("text {:?} is in the note {n} times; give more of what is around it", text::brief(old, 60));
                Err(SkillError::argument("replace", what))
            }
        },
    }
}
