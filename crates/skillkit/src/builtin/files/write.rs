//! `files.write`: writes a whole file. Idempotent: a repeated run finds the content that it wrote. The former version is kept.

use std::{
    io::{self, Write as _},
    sync::{Arc, PoisonError},
};

use annie_core::{ids::IntentId, outcome::Outcome, skill::Effect, time::Micros};
use cap_std::fs::{Dir, OpenOptions};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{FileRules, place::Place, trash};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    runner::run_blocking,
};

pub(crate) struct Write;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The file, such as documents/letters/a.txt; missing folders are made.
    path: String,
    /// The whole new text of the file.
    content: String,
}

enum Written {
    New,
    /// The former version is kept at this path.
    Replaced(String),
    /// The file had this content already.
    Same,
}

impl Handler for Write {
    type Args = Args;
    const NAME: &'static str = "files.write";
    const EFFECT: Effect = Effect::Idempotent;

    async fn run(ctx: Ctx, Args { path, content }: Args) -> Ran {
        let (tools, user) = (Arc::clone(&ctx.tools), ctx.call.user.clone());
        let (now, intent) = (ctx.call.now, ctx.call.intent);
        let (shown, written) = run_blocking(move || {
            let _only = tools.files.writing.lock().unwrap_or_else(PoisonError::into_inner);
            let place = Place::find(&tools.files.folders(&user)?, &path)?;
            check(&place, &content, &tools.files.rules)?;
            Ok((place.shown(), write(&place, &content, now, intent)?))
        })
        .await?;
        let (text, kept) = match written {
            Written::New => (format!("Wrote the new file {shown}."), None),
            Written::Same => (format!("The file {shown} has this content already."), None),
            Written::Replaced(kept) => {
                (format!("Replaced the file {shown}. Its former version is kept for 30 days as {kept}."), Some(kept))
            }
        };
        Ok(Outcome::success(text).with_evidence(json!({"path": shown, "former": kept})))
    }
}

fn check(place: &Place, content: &str, rules: &FileRules) -> Result<(), SkillError> {
    let shown = place.shown();
    if !place.writes {
        let fix = "The operator can allow it with access = \"write\" in its [[files.folder]].";
        return Err(SkillError::NotAllowed(format!("The folder {} may only be read. {fix}", place.folder)));
    }
    if place.rest.is_empty() {
        return Err(SkillError::argument("path", "names a folder, and no file in it"));
    }
    // Hidden files are settings of other programs, and the former versions.
    if place.rest.split('/').any(|part| part.starts_with('.')) {
        return Err(SkillError::NotAllowed(format!("{shown} is hidden: hidden files are not written.")));
    }
    if content.len() > rules.write_bytes_max {
        let (bytes, bytes_max) = (content.len(), rules.write_bytes_max);
        return Err(SkillError::TooLarge(format!("{shown} would have {bytes} bytes, more than {bytes_max}.")));
    }
    Ok(())
}

fn write(place: &Place, content: &str, now: Micros, intent: IntentId) -> Result<Written, SkillError> {
    let (rest, shown) = (&place.rest, place.shown());
    let failed = |error| place.failure(&shown, rest, error);
    let (folder, name) = rest.rsplit_once('/').unwrap_or((".", rest));
    place.dir.create_dir_all(folder).map_err(|error| match error.kind() {
        // A link that leads out of the folder has the name.
        _ if place.dir.metadata(folder).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied) => {
            place.failure(&shown, folder, io::ErrorKind::PermissionDenied.into())
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            SkillError::Conflict(format!("The folder of {shown} cannot be made: a file has its name."))
        }
        _ => failed(error),
    })?;
    let found = match place.dir.symlink_metadata(rest) {
        Ok(found) => Some(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        return Err(SkillError::Conflict(format!("{shown} is a folder, a link or something else that is no file.")));
    }
    if let Some(found) = &found
        && found.len() == content.len() as u64
        && place.dir.read(rest).map_err(failed)? == content.as_bytes()
    {
        return Ok(Written::Same);
    }
    let folder = place.dir.open_dir(folder).map_err(failed)?;
    let temporary = format!(".{name}.annie-tmp");
    let kept = (|| {
        let mut new = folder.open_with(&temporary, OpenOptions::new().write(true).create(true).truncate(true))?;
        new.write_all(content.as_bytes())?;
        if let Some(found) = &found {
            new.set_permissions(found.permissions())?;
        }
        new.sync_all()?;
        let kept = found.map(|_| trash::keep(&place.dir, rest, now, intent)).transpose()?;
        replace(&folder, &temporary, name)?;
        Ok(kept)
    })();
    let kept = kept.map_err(|error| {
        // It fails only if nothing was written.
        let _ = folder.remove_file(&temporary);
        failed(error)
    })?;
    Ok(kept.map_or(Written::New, |kept| Written::Replaced(place.show(&kept))))
}

/// Replaces a file atomically: after a crash it has either the old or the new text, never a part.
fn replace(folder: &Dir, temporary: &str, name: &str) -> io::Result<()> {
    folder.rename(temporary, folder, name)?;
    // The rename is durable only after the folder is synchronised.
    folder.open(".")?.sync_all()
}
