//! `files.search`: files by a part of their name, and lines of text files by words.

use std::{io, sync::Arc};

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;

use super::place::Place;
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    runner::run_blocking,
    text::brief,
};

/// How many files and folders are looked at.
const ENTRIES_MAX: usize = 50_000;
/// How deep folders are searched.
const DEPTH_MAX: usize = 16;
/// How much text is read, in bytes.
const READ_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How much of a line is shown, in bytes.
const LINE_BYTES_MAX: usize = 200;

pub(crate) struct Search;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// Text that a line has, in any case.
    #[serde(default)]
    query: Option<String>,
    /// A part of the file's name, in any case, such as .md or report.
    #[serde(default)]
    name: Option<String>,
    /// The folder to search; without it all allowed folders.
    #[serde(default)]
    path: Option<String>,
    /// How many results at most.
    #[serde(default = "limit")]
    #[schemars(range(min = 1, max = 200))]
    limit: usize,
}

const fn limit() -> usize {
    50
}

impl Handler for Search {
    type Args = Args;
    const NAME: &'static str = "files.search";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let lowered = |text: Option<String>| text.map(|t| t.trim().to_lowercase()).filter(|t| !t.is_empty());
        let (query, name) = (lowered(args.query), lowered(args.name));
        if query.is_none() && name.is_none() {
            return Err(SkillError::Arguments("--query or --name is needed".to_owned()));
        }
        let (tools, user, path, limit) = (Arc::clone(&ctx.tools), ctx.call.user.clone(), args.path, args.limit);
        let walk = run_blocking(move || {
            let folders = tools.files.folders(&user)?;
            let bytes_max = tools.files.rules.read_bytes_max;
            let mut walk = Walk { query, name, limit, bytes_max, ..Walk::default() };
            let paths = path.map_or_else(|| folders.iter().map(|f| f.name.clone()).collect(), |path| vec![path]);
            for path in paths {
                let place = Place::find(&folders, &path)?;
                let failed = |error| place.failure(&place.shown(), &place.rest, error);
                walk.folder(&place, &place.rest, 0).map_err(failed)?;
            }
            Ok(walk)
        })
        .await?;
        let mut end = String::new();
        if walk.is_cut {
            end.push_str("\n(The search ended early: give --path or more of the name for the rest.)");
        }
        if walk.found.is_empty() {
            let what = format!("Nothing fits in {} files.{end}", walk.files);
            return Ok(Outcome::permanent("empty_result", what));
        }
        Ok(Outcome::success(format!("Found in {} files:\n\n{}{end}", walk.files, walk.found.join("\n"))))
    }
}

#[derive(Default)]
struct Walk {
    query: Option<String>,
    name: Option<String>,
    limit: usize,
    bytes_max: usize,
    entries: usize,
    files: usize,
    read_bytes: usize,
    is_cut: bool,
    found: Vec<String>,
}

impl Walk {
    /// Searches a folder. Links are not followed: they could lead in circles. Hidden files are left out.
    fn folder(&mut self, place: &Place, folder: &str, depth: usize) -> io::Result<()> {
        let mut names: Vec<(String, bool)> = Vec::new();
        for entry in place.dir.read_dir(if folder.is_empty() { "." } else { folder })? {
            let entry = entry?;
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                self.is_cut = true;
                break;
            }
            let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
            if !name.starts_with('.') && name != "node_modules" && (kind.is_dir() || kind.is_file()) {
                names.push((name, kind.is_dir()));
            }
        }
        names.sort();
        for (name, is_folder) in names {
            if self.found.len() >= self.limit {
                self.is_cut = true;
            }
            if self.is_cut && self.found.len() >= self.limit {
                return Ok(());
            }
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if !is_folder {
                self.file(place, &path, &name);
            } else if depth < DEPTH_MAX && self.entries <= ENTRIES_MAX {
                // A folder that cannot be listed is left out.
                if self.folder(place, &path, depth + 1).is_err() {
                    self.is_cut = true;
                }
            } else {
                self.is_cut = true;
            }
        }
        Ok(())
    }

    fn file(&mut self, place: &Place, path: &str, name: &str) {
        self.files += 1;
        if self.name.as_ref().is_some_and(|wanted| !name.to_lowercase().contains(wanted)) {
            return;
        }
        let Some(query) = self.query.clone() else {
            self.found.push(format!("- {}", place.show(path)));
            return;
        };
        if self.read_bytes > READ_BYTES_MAX {
            self.is_cut = true;
            return;
        }
        // A file that is no text or too large is left out.
        let Ok(text) = place.read(path, self.bytes_max) else { return };
        self.read_bytes += text.len();
        for (number, line) in (1..).zip(text.lines()) {
            if self.found.len() < self.limit && line.to_lowercase().contains(&query) {
                self.found.push(format!("- {}:{number}: {}", place.show(path), brief(line, LINE_BYTES_MAX)));
            }
        }
    }
}
