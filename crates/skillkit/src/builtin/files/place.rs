//! A path of a skill within an allowed folder.

use std::{
    io::{self, Read as _},
    path::Path,
};

use cap_std::{ambient_authority, fs::Dir};

use super::FileFolder;
use crate::error::SkillError;

/// How much of a file is searched for bytes that no text has, in bytes.
const LOOKED_AT_BYTES_MAX: usize = 8 * 1024;

/// The origin of names in errors: the skill that lists them.
const LIST: &str = "files.list";

/// A path below an allowed folder.
pub(super) struct Place {
    pub(super) dir: Dir,
    /// The name of the folder.
    pub(super) folder: String,
    pub(super) writes: bool,
    /// The path below the folder; empty for the folder itself.
    pub(super) rest: String,
}

impl Place {
    /// Finds the folder of a path: `documents/letters/a.txt` in the folder `documents`, or a whole path below a folder.
    pub(super) fn find(folders: &[&FileFolder], path: &str) -> Result<Self, SkillError> {
        let path = path.trim();
        let (folder, rest) = match path.starts_with('/') {
            true => by_whole_path(folders, path),
            false => by_name(folders, path),
        }
        .ok_or_else(|| not_allowed(folders, path))?;
        let parts: Vec<&str> = rest.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.contains(&"..") {
            return Err(SkillError::Outside(format!("{path} may lead outside its folder: write it without `..`.")));
        }
        let dir = Dir::open_ambient_dir(&folder.path, ambient_authority());
        let dir = dir.map_err(|e| SkillError::io(format!("cannot open the folder {}", folder.name), e))?;
        Ok(Self { dir, folder: folder.name.clone(), writes: folder.writes, rest: parts.join("/") })
    }

    /// The path as skills write it.
    pub(super) fn shown(&self) -> String {
        self.show(&self.rest)
    }

    /// A path below the same folder as skills write it.
    pub(super) fn show(&self, rest: &str) -> String {
        if rest.is_empty() { self.folder.clone() } else { format!("{}/{rest}", self.folder) }
    }

    /// The path for the operating system, relative to the folder.
    pub(super) fn relative(&self) -> &str {
        if self.rest.is_empty() { "." } else { &self.rest }
    }

    /// The text of a file.
    pub(super) fn read(&self, rest: &str, bytes_max: usize) -> Result<String, SkillError> {
        let shown = self.show(rest);
        let failed = |error| self.failure(&shown, rest, error);
        // Checked before the file is opened, because opening a named pipe blocks until it has a writer.
        let found = self.dir.metadata(if rest.is_empty() { "." } else { rest }).map_err(failed)?;
        if found.is_dir() {
            return Err(SkillError::Arguments(format!("{shown} is a folder: files.list shows what is in it.")));
        }
        if !found.is_file() {
            return Err(SkillError::Arguments(format!("{shown} is not a file.")));
        }
        let too_large = || SkillError::TooLarge(format!("{shown} has {} bytes, more than {bytes_max}.", found.len()));
        if found.len() > bytes_max as u64 {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        let file = self.dir.open(rest).map_err(failed)?;
        file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() > bytes_max {
            return Err(too_large());
        }
        let binary =
            || SkillError::NotText(format!("{shown} is not a text file: it has bytes that no UTF-8 text has."));
        if bytes[..bytes.len().min(LOOKED_AT_BYTES_MAX)].contains(&0) {
            return Err(binary());
        }
        let text = String::from_utf8(bytes).map_err(|_| binary())?;
        Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
    }

    /// The error of file work at a path below the folder.
    pub(super) fn failure(&self, shown: &str, rest: &str, error: io::Error) -> SkillError {
        match error.kind() {
            io::ErrorKind::NotFound => {
                let (what, near) = (format!("There is no file or folder {shown}."), self.near(rest));
                let origins = if near.is_empty() { Vec::new() } else { vec![LIST.to_owned()] };
                SkillError::NotFound { what, near }.naming(origins)
            }
            io::ErrorKind::NotADirectory => SkillError::not_found(format!("There is no file or folder {shown}.")),
            io::ErrorKind::PermissionDenied if self.leads_outside(rest) => {
                SkillError::Outside(format!("{shown} is a link that leads outside its folder."))
            }
            _ => SkillError::io(format!("cannot use {shown}"), error),
        }
    }

    /// Names in the same folder that resemble a missing one.
    fn near(&self, rest: &str) -> Vec<String> {
        let (folder, name) = rest.rsplit_once('/').unwrap_or(("", rest));
        let wanted = name.to_lowercase();
        let Ok(entries) = self.dir.read_dir(if folder.is_empty() { "." } else { folder }) else { return Vec::new() };
        let names = entries.take(1_000).flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let stem = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
        let resembles = |own: &String| {
            let (own, short) = (own.to_lowercase(), stem(own));
            own == wanted || short.len() > 2 && (wanted.contains(&short) || own.contains(&stem(&wanted)))
        };
        let join = |name: String| self.show(&if folder.is_empty() { name } else { format!("{folder}/{name}") });
        names.filter(resembles).take(3).map(join).collect()
    }

    fn leads_outside(&self, rest: &str) -> bool {
        let mut path = String::new();
        rest.split('/').any(|part| {
            path.push_str(part);
            let is_link = self.dir.symlink_metadata(&path).map_or(true, |found| found.is_symlink());
            path.push('/');
            is_link
        })
    }
}

fn by_whole_path<'a>(folders: &[&'a FileFolder], path: &str) -> Option<(&'a FileFolder, String)> {
    let found = folders.iter().filter_map(|folder| {
        let rest = Path::new(path).strip_prefix(&folder.path).ok()?;
        Some((*folder, rest.to_str()?.to_owned()))
    });
    found.min_by_key(|(_, rest)| rest.len())
}

fn by_name<'a>(folders: &[&'a FileFolder], path: &str) -> Option<(&'a FileFolder, String)> {
    let (name, rest) = path.split_once('/').unwrap_or((path, ""));
    let named = folders.iter().find(|folder| folder.name == name).map(|folder| (*folder, rest.to_owned()));
    match folders {
        [only] if named.is_none() && !path.is_empty() => Some((only, path.to_owned())),
        _ => named,
    }
}

fn not_allowed(folders: &[&FileFolder], path: &str) -> SkillError {
    SkillError::NotAllowed(format!("{path} is in no allowed folder. Allowed are: {}.", names(folders)))
}

/// The folders with their access.
pub(super) fn names(folders: &[&FileFolder]) -> String {
    if folders.is_empty() {
        return "none for this user".to_owned();
    }
    let access = |writes| if writes { "read and write" } else { "read only" };
    folders.iter().map(|folder| format!("{} ({})", folder.name, access(folder.writes))).collect::<Vec<_>>().join(", ")
}
