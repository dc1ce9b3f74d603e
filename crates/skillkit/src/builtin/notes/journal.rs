//! Makes writing a note idempotent. Before a note changes, a marker under the intent says what it was and what it will be
//! (as hashes). A repeated run compares: it finds the new text and has nothing to do, finds the old one and writes, or finds
//! a third one and says truthfully that nobody knows.

use annie_core::ids::IntentId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::home::Home;
use crate::error::SkillError;

/// Where markers lie in a user's folder; hidden, so that no title reaches it.
const FOLDER: &str = ".annie/intents";
/// How many markers are kept; intents are repeated soon or never.
const MARKERS_MAX: usize = 512;

#[derive(Serialize, Deserialize)]
struct Marker {
    note: String,
    before: Option<String>,
    after: String,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Applied {
    /// Written now.
    Now,
    /// An earlier run under this intent wrote it.
    Earlier,
    /// There was nothing to write.
    Same,
    /// An earlier run was cut short, and the note has been changed since: nobody knows.
    Unclear,
}

/// Changes a note once per intent. `change` gets the present text and gives the new one, or nothing to leave it.
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

/// The marker of an earlier run; one that cannot be read was never finished, and neither was what follows it.
fn recall(home: &Home, marker: &str, note: &str) -> Result<Option<Marker>, SkillError> {
    let text = home.read(marker)?;
    Ok(text.and_then(|t| serde_json::from_str::<Marker>(&t).ok()).filter(|m| m.note == note))
}

fn hash(text: &str) -> String {
    Sha256::digest(text).iter().map(|b| format!("{b:02x}")).collect()
}

/// Takes the oldest markers away when there are too many.
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
