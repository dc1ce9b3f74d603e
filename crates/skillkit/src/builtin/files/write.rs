//! `files.write`: writes a whole file. Idempotent: a repeated run finds the record of its intent and writes nothing, so that what was
//! written after the first run stays. The former version is kept.

use std::{
    io::{self, Write as _},
    sync::{Arc, PoisonError},
};

use annie_core::{ids::IntentId, outcome::Outcome, skill::Effect, time::Micros};
use cap_std::fs::{Dir, Metadata, OpenOptions, OpenOptionsExt as _};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    FileRules,
    place::Place,
    trash::{self, Record},
};
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

#[derive(Debug, PartialEq)]
pub(super) enum Written {
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
            Ok((place.shown(), write(&place, &content, now, intent, synced)?))
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

/// `sync` makes the names in a folder durable.
pub(super) fn write(
    place: &Place,
    content: &str,
    now: Micros,
    intent: IntentId,
    sync: fn(&Dir, &str) -> io::Result<()>,
) -> Result<Written, SkillError> {
    let (rest, shown) = (&place.rest, place.shown());
    let failed = |error| place.failure(&shown, rest, error);
    let folder = rest.rsplit_once('/').map_or(".", |(folder, _)| folder);
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
    let temporary = temporary(folder, intent);
    if let Some(record) = trash::find(&place.dir, intent).map_err(failed)? {
        match place.dir.symlink_metadata(&temporary) {
            // The temporary file became the file in the run that was interrupted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(written(place, record)),
            Err(error) => return Err(failed(error)),
            // The interruption was before that. The file may have changed since.
            Ok(_) => trash::remove(&place.dir, intent).map_err(failed)?,
        }
    }
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
        // Left by a run of the same intent that was interrupted.
        let _ = place.dir.remove_file(&temporary);
        return trash::record_same(&place.dir, now, intent).map(|record| written(place, record)).map_err(failed);
    }
    let recorded = fill(&place.dir, &temporary, content, found.as_ref())
        .and_then(|()| trash::record(&place.dir, rest, found.is_none(), now, intent))
        .and_then(|record| place.dir.rename(&temporary, &place.dir, rest).map(|()| record));
    match recorded {
        Ok(record) => {
            // The rename is durable only after the folder is synchronised. If that fails, the file is written all the same, and its
            // record is the only copy of the former version.
            if let Err(error) = sync(&place.dir, folder) {
                tracing::warn!(%error, file = shown, "a written file may be lost if the power fails now");
            }
            Ok(written(place, record))
        }
        Err(error) => {
            // The record goes first: alone it would say that the file was written.
            let _ = trash::remove(&place.dir, intent);
            let _ = place.dir.remove_file(&temporary);
            Err(failed(error))
        }
    }
}

fn synced(dir: &Dir, folder: &str) -> io::Result<()> {
    dir.open(folder)?.sync_all()
}

fn written(place: &Place, record: Record) -> Written {
    match record {
        Record::New => Written::New,
        Record::Same => Written::Same,
        Record::Former(kept) => Written::Replaced(place.show(&kept)),
    }
}

/// The path of the file that becomes the new version: in the same folder, because a rename does not leave a file system.
fn temporary(folder: &str, intent: IntentId) -> String {
    format!("{folder}/.annie-{intent}.tmp")
}

/// Writes the new version. Only its owner can read it until it has the permissions of the former version.
fn fill(dir: &Dir, temporary: &str, content: &str, found: Option<&Metadata>) -> io::Result<()> {
    // Left by a run of the same intent that was interrupted.
    if let Err(error) = dir.remove_file(temporary)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if found.is_some() {
        options.mode(0o600);
    }
    let mut new = dir.open_with(temporary, &options)?;
    new.write_all(content.as_bytes())?;
    if let Some(found) = found {
        new.set_permissions(found.permissions())?;
    }
    new.sync_all()
}
