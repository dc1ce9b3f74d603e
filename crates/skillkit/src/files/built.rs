//! `built:` of a skill file: who had the file written, in which conversation and task. A conversation writes skill files only
//! through `system.build_skill`, which always writes this line, so that a file without it was written by a person.

use annie_core::{
    ids::{ConversationId, IntentId, TaskId, UserId},
    time::Micros,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    frontmatter::{Frontmatter, plain},
    problem::Report,
};

/// The key of the line.
pub(crate) const BUILT: &str = "built";

/// Where a skill file comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Provenance {
    pub(crate) by: UserId,
    pub(crate) conversation: ConversationId,
    pub(crate) task: TaskId,
    /// The call that wrote the file. A repetition of the call recognises its file by it.
    pub(crate) intent: IntentId,
    pub(crate) at: Micros,
}

/// A file that a conversation wrote.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Built {
    pub(crate) provenance: Provenance,
    /// The text of the file, which a person reads before the approval.
    pub(crate) text: String,
    /// The SHA-256 of the text.
    pub(crate) text_hash: String,
}

impl Built {
    /// The provenance of a file; `None` if a person wrote it. A line that cannot be read is an error, because the file must not
    /// count as a person's.
    pub(crate) fn read(front: &Frontmatter, text: &str, report: &mut Report) -> Option<Self> {
        let value = front.get(BUILT)?;
        match serde_yaml_ng::from_value(value.clone()) {
            Ok(provenance) => Some(Self { provenance, text: text.to_owned(), text_hash: hash_of(text.as_bytes()) }),
            Err(error) => {
                let fix = "restore the line, or remove it if a person has read the whole file";
                report.error(front.line_of(BUILT), format!("`built` cannot be read: {error}"), fix);
                None
            }
        }
    }

    /// The provenance in a file's text, whatever else is in the file.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let mut report = Report::new("");
        let front = Frontmatter::read(text, &mut report)?;
        Self::read(&front, text, &mut report)
    }
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub(crate) fn hash_of(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// The text with its provenance as the first line of the head.
pub(crate) fn stamped(text: &str, provenance: &Provenance) -> Result<String, serde_json::Error> {
    let text = plain(text);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    Ok(format!("{first}\n{BUILT}: {}\n{rest}", serde_json::to_string(provenance)?))
}
