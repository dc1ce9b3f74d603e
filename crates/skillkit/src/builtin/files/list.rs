//! `files.list`: the allowed folders, or what is in one of them.

use std::sync::Arc;

use annie_core::{outcome::Outcome, skill::Effect, time::Micros};
use cap_std::fs::DirEntry;
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{at, place::names, trash::TRASH};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
};

/// How many entries of a folder are read. More are counted as one text.
const READ_MAX: usize = 20_000;
/// How many entries are shown.
const SHOWN_MAX: usize = 200;

pub(crate) struct List;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The folder, such as documents/letters; without it the allowed folders are listed.
    #[serde(default)]
    path: Option<String>,
}

struct Row {
    is_folder: bool,
    name: String,
    line: String,
}

impl Handler for List {
    type Args = Args;
    const NAME: &'static str = "files.list";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let Some(path) = args.path.filter(|path| !matches!(path.trim(), "" | "." | "/")) else {
            let tools = Arc::clone(&ctx.tools);
            return Ok(Outcome::success(format!("Folders: {}.", names(&tools.files.folders(&ctx.call.user)?))));
        };
        let zone = ctx.zone();
        let day = move |at: DateTime<Utc>| at.with_timezone(&zone).format("%Y-%m-%d").to_string();
        let (shown, rows, is_cut) = at(&ctx, &path, move |place, _| {
            let shown = place.shown();
            let failed = |error| place.failure(&shown, &place.rest, error);
            let entries = place.dir.read_dir(place.relative()).map_err(failed)?;
            let mut rows = Vec::new();
            let mut is_cut = false;
            for entry in entries {
                if rows.len() >= READ_MAX {
                    is_cut = true;
                    break;
                }
                rows.extend(row(&entry.map_err(failed)?, &day));
            }
            Ok::<_, SkillError>((shown, rows, is_cut))
        })
        .await?;
        Ok(shown_rows(&shown, rows, is_cut))
    }
}

/// A line of the list; `None` for the trash, and for what was removed meanwhile.
fn row(entry: &DirEntry, day: &dyn Fn(DateTime<Utc>) -> String) -> Option<Row> {
    let name = entry.file_name().to_string_lossy().into_owned();
    let found = entry.metadata().ok().filter(|_| name != TRASH)?;
    let line = if found.is_dir() {
        format!("{name}/")
    } else if found.is_symlink() {
        format!("{name} (a link)")
    } else {
        let changed = found.modified().map(|at| DateTime::<Utc>::from(at.into_std())).unwrap_or_default();
        format!("{name} ({} bytes, {})", found.len(), day(Micros::from_utc(changed).to_utc()))
    };
    Some(Row { is_folder: found.is_dir(), name, line })
}

fn shown_rows(shown: &str, mut rows: Vec<Row>, is_cut: bool) -> Outcome {
    if rows.is_empty() {
        return Outcome::success(format!("{shown} is an empty folder."));
    }
    rows.sort_by(|a, b| b.is_folder.cmp(&a.is_folder).then_with(|| a.name.cmp(&b.name)));
    let total = rows.len();
    let mut text = format!("{shown} has {}{total} entries:\n", if is_cut { "more than " } else { "" });
    for row in rows.iter().take(SHOWN_MAX) {
        text.push_str(&format!("\n- {}", row.line));
    }
    if total > SHOWN_MAX {
        text.push_str(&format!("\n({} more; files.search finds files by name)", total - SHOWN_MAX));
    }
    Outcome::success(text)
}
