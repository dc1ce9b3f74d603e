//! Notes: a folder of markdown files for each user. Every path is checked, and the folder is also opened as a capability,
//! so that neither a title nor a symbolic link can reach outside it. Files are replaced atomically, never written in place,
//! and a journal of intents makes repeated writes harmless.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod edit;
mod home;
mod journal;
pub(crate) mod list;
mod name;
mod private;
pub(crate) mod read;
pub(crate) mod rename;
pub(crate) mod restore;
pub(crate) mod search;
mod trash;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use annie_core::{ids::UserId, outcome::Outcome, skill::ORIGIN_TAG};
use cap_std::{ambient_authority, fs::Dir};
use home::Home;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    error::SkillError,
    files::split,
    handler::Ctx,
    runner::{Tools, run_blocking},
};

/// How many tags of a note are read: its own tags, and the tags that record the origin of its text.
const TAGS_READ_MAX: usize = 10 * crate::text::TAGS_MAX;
/// The key of a frontmatter that lists the origins of later texts of the note.
const ORIGINS: &str = "origins";
/// How many user locks there are; users that share one wait for each other.
const LOCKS: usize = 16;

/// The notes of all users.
pub(crate) struct Notes {
    folder: PathBuf,
    is_here: bool,
    /// Excludes other writers of the same user between a read and the write that follows.
    locks: [Mutex<()>; LOCKS],
}

impl Notes {
    pub(crate) fn new(folder: PathBuf, is_here: bool) -> Self {
        Self { folder, is_here, locks: Default::default() }
    }

    /// Opens one user's folder, and creates it if it is missing.
    fn home(&self, user: &UserId) -> Result<Home, SkillError> {
        if !self.is_here {
            let what = "The notes are in another folder, which this process of Annie cannot reach. Nothing was read or \
                        changed. The operator can share the notes folder between the processes.";
            return Err(SkillError::Elsewhere(what.to_owned()));
        }
        let failed = |e| SkillError::io("cannot open the notes folder", e);
        private::make_root(&self.folder).map_err(failed)?;
        let all = Dir::open_ambient_dir(&self.folder, ambient_authority()).map_err(failed)?;
        let own = name::folder_of(user);
        private::make_folder(&all, &own).map_err(failed)?;
        if let Err(error) = private::close(&all, &own) {
            tracing::warn!(%error, folder = own, "notes are open to other users of this machine");
        }
        Ok(Home::new(all.open_dir(&own).map_err(failed)?))
    }

    fn lock(&self, user: &UserId) -> MutexGuard<'_, ()> {
        let slot = usize::from(Sha256::digest(user.as_str())[0]) % LOCKS;
        self.locks[slot].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs file work on the user's folder, off the asynchronous threads.
async fn with_home<T: Send + 'static>(
    ctx: &Ctx,
    work: impl FnOnce(&Home) -> Result<T, SkillError> + Send + 'static,
) -> Result<T, SkillError> {
    let (tools, user): (Arc<Tools>, _) = (Arc::clone(&ctx.tools), ctx.call.user.clone());
    run_blocking(move || work(&tools.notes.home(&user)?)).await
}

/// The same, with exclusive write access.
async fn with_locked_home<T: Send + 'static>(
    ctx: &Ctx,
    work: impl FnOnce(&Home) -> Result<T, SkillError> + Send + 'static,
) -> Result<T, SkillError> {
    let (tools, user): (Arc<Tools>, _) = (Arc::clone(&ctx.tools), ctx.call.user.clone());
    run_blocking(move || {
        let _only = tools.notes.lock(&user);
        let home = tools.notes.home(&user)?;
        // Another process may share the folder.
        let _only_process = home.lock()?;
        work(&home)
    })
    .await
}

/// The outcome of a move that was interrupted and after which the notes were changed.
fn unclear_move(verb: &str, title: &str) -> Outcome {
    let message = format!(
        "Whether '{title}' was {verb} is not known: the run was cut short and the notes were changed since. Look with notes.list \
         before trying again."
    );
    Outcome::unknown(message, json!({"title": title}))
}

/// A note's frontmatter, if it has one, and the offset of its text.
fn head_of(text: &str) -> Option<(&str, usize)> {
    split(text).map(|(head, body)| (head, text.len() - body.len()))
}

/// The tags in a note's frontmatter: a list, or one text with commas.
fn tags_of(text: &str) -> Vec<String> {
    let head = head_of(text).and_then(|(head, _)| serde_yaml_ng::from_str::<serde_yaml_ng::Value>(head).ok());
    let listed = |key: &str| -> Vec<String> {
        match head.as_ref().and_then(|head| head.get(key)) {
            Some(serde_yaml_ng::Value::Sequence(items)) => {
                items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
            }
            Some(serde_yaml_ng::Value::String(words)) => {
                words.split([',', ' ']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        }
    };
    let mut tags = listed("tags");
    tags.truncate(TAGS_READ_MAX);
    for origin in listed(ORIGINS).into_iter().take(TAGS_READ_MAX) {
        let tag = format!("{ORIGIN_TAG}{origin}");
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    // A frontmatter written by hand may contain tags that a flag would refuse; only those are left out.
    let kept = |tag: &String| match tag.starts_with(ORIGIN_TAG) {
        true => vec![tag.clone()],
        false => crate::text::tags(std::slice::from_ref(tag)).unwrap_or_default(),
    };
    tags.iter().flat_map(kept).collect()
}

/// The new text of a note that recorded the origins of the old one, and in which a text of these origins was written: its
/// frontmatter names all of them.
fn with_origins(old: &str, new: String, added: &[String]) -> String {
    let recorded = |text: &str| crate::text::origins_in(&tags_of(text));
    let mut origins = recorded(old);
    origins.extend(added.iter().filter(|origin| !origins.contains(origin)).cloned().collect::<Vec<_>>());
    let has_all = |text: &str| {
        let recorded = recorded(text);
        origins.iter().all(|origin| recorded.contains(origin))
    };
    if has_all(&new) {
        return new;
    }
    let line = format!("{ORIGINS}: [{}]\n", origins.iter().map(|o| format!("{o:?}")).collect::<Vec<_>>().join(", "));
    let in_head = head_of(&new).and_then(|(head, _)| {
        let at = new.find(head)?;
        let is_own = |line: &&str| line.starts_with(&format!("{ORIGINS}: ["));
        let kept: String = head.split_inclusive('\n').filter(|line| !is_own(line)).collect();
        Some(format!("{}{kept}{line}{}", &new[..at], &new[at + head.len()..]))
    });
    match in_head {
        Some(text) if has_all(&text) => text,
        // There is no frontmatter, or one that cannot be read.
        _ => format!("---\n{line}---\n\n{new}"),
    }
}

#[cfg(test)]
mod tests;
