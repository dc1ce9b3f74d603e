//! Makes writing a note idempotent. Before a note changes, a marker under the intent records its old and its new content
//! (as hashes). A repeated run compares: with the new content nothing remains to be done, with the old content it writes,
//! and with any other content it reports that the outcome is unknown.

use annie_core::ids::IntentId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{home::Home, name::title_of};
use crate::error::SkillError;

/// Folder of the markers in a user's folder; hidden, so that no title can name it.
const FOLDER: &str = ".annie/intents";
/// How many markers are kept: an intent is repeated soon or never.
const MARKERS_MAX: usize = 512;

#[derive(Serialize, Deserialize)]
struct Marker {
    note: String,
    before: Option<String>,
    after: String,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Applied {
    /// Written by this run.
    Now,
    /// An earlier run of this intent wrote it.
    Earlier,
    /// No change was necessary.
    Same,
    /// An earlier run was interrupted and the note has been changed since, so the outcome is unknown.
    Unclear,
}

/// Changes a note once per intent. `change` gets the current text, and returns the new text, or `None` for no change.
pub(super) fn apply(
    home: &Home,
    intent: IntentId,
    path: &str,
    change: impl FnOnce(Option<&str>) -> Result<Option<String>, SkillError>,
) -> Result<Applied, SkillError> {
    let marker_path = format!("{FOLDER}/{intent}.json");
    let text = home.read(path)?;
    let now = text.as_deref().map(hash);
    if let Some(marker) = recall(home, &marker_path, path)? {
        if now.as_ref() == Some(&marker.after) {
            return Ok(Applied::Earlier);
        }
        if now != marker.before {
            return Ok(Applied::Unclear);
        }
    }
    let Some(new) = change(text.as_deref())? else { return Ok(Applied::Same) };
    let marker = Marker { note: path.to_owned(), before: now, after: hash(&new) };
    let json = serde_json::to_string(&marker).map_err(|e| SkillError::io("cannot write the marker", e.into()))?;
    prune(home)?;
    home.replace(&marker_path, &json)?;
    home.replace(path, &new)?;
    Ok(Applied::Now)
}

/// A move of a note, as its marker records it.
#[derive(Serialize, Deserialize)]
pub(super) struct Move {
    pub(super) from: String,
    pub(super) to: String,
    /// The content that was moved, as a hash.
    moved: String,
    is_done: bool,
}

/// Moves a note once per intent. `plan` names the old and the new path; a repeated run does not ask it again. Returns `None`
/// if an earlier run was interrupted and the notes were changed since, so that the outcome is unknown.
pub(super) fn move_once(
    home: &Home,
    intent: &str,
    plan: impl FnOnce() -> Result<(String, String), SkillError>,
) -> Result<Option<Move>, SkillError> {
    let mut planned = match recall_move(home, intent)? {
        Some(earlier) => earlier,
        None => {
            let (from, to) = plan()?;
            let text = home.read(&from)?;
            let text = text.ok_or_else(|| SkillError::not_found(format!("There is no note '{}'.", title_of(&from))))?;
            let planned = Move { from, to, moved: hash(&text), is_done: false };
            prune(home)?;
            record_move(home, intent, &planned)?;
            planned
        }
    };
    if planned.is_done {
        return Ok(Some(planned));
    }
    let has_it =
        |path: &str| Ok::<_, SkillError>(home.read(path)?.as_deref().map(hash).as_ref() == Some(&planned.moved));
    if has_it(&planned.from)? {
        home.rename(&planned.from, &planned.to)?;
    } else if !has_it(&planned.to)? {
        return Ok(None);
    }
    planned.is_done = true;
    record_move(home, intent, &planned)?;
    Ok(Some(planned))
}

/// Records that the move of this intent has taken place: what was moved is about to be moved back.
pub(super) fn finish_move(home: &Home, intent: &str) -> Result<(), SkillError> {
    match recall_move(home, intent)? {
        Some(planned) if !planned.is_done => record_move(home, intent, &Move { is_done: true, ..planned }),
        _ => Ok(()),
    }
}

fn recall_move(home: &Home, intent: &str) -> Result<Option<Move>, SkillError> {
    let text = home.read(&format!("{FOLDER}/{intent}.json"))?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}

fn record_move(home: &Home, intent: &str, planned: &Move) -> Result<(), SkillError> {
    let json = serde_json::to_string(planned).map_err(|e| SkillError::io("cannot write the marker", e.into()))?;
    home.replace(&format!("{FOLDER}/{intent}.json"), &json)
}

/// The marker of an earlier run. An unreadable marker was not written completely, so the note was not changed under it
/// either.
fn recall(home: &Home, marker: &str, note: &str) -> Result<Option<Marker>, SkillError> {
    let text = home.read(marker)?;
    Ok(text.and_then(|t| serde_json::from_str::<Marker>(&t).ok()).filter(|m| m.note == note))
}

fn hash(text: &str) -> String {
    Sha256::digest(text).iter().map(|b| format!("{b:02x}")).collect()
}

/// Removes the oldest markers if there are too many.
fn prune(home: &Home) -> Result<(), SkillError> {
    let failed = |e| SkillError::io("cannot tidy the notes journal", e);
    let Ok(folder) = home.dir.open_dir(FOLDER) else { return Ok(()) };
    let mut markers = Vec::new();
    for entry in folder.entries().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let modified = entry.metadata().and_then(|m| m.modified()).map_err(failed)?;
        markers.push((modified, entry.file_name()));
    }
    if markers.len() < MARKERS_MAX {
        return Ok(());
    }
    markers.sort();
    for (_, name) in markers.iter().take(markers.len() + 1 - MARKERS_MAX) {
        folder.remove_file(name).map_err(failed)?;
    }
    Ok(())
}
