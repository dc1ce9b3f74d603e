//! Maps titles to paths, and users to folders.

use annie_core::ids::UserId;
use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

use crate::error::SkillError;

/// Length limit for one part of a title, in bytes. File systems allow 255, and a temporary name is longer than the title.
const PART_BYTES_MAX: usize = 120;
/// How many parts a title may have: `work/meetings/2026-02-28` has three.
const PARTS_MAX: usize = 5;
/// How many bytes of a user's name are kept readable in the folder's name.
const FOLDER_BYTES_MAX: usize = 40;

/// The file of a note's title, relative to the user's folder: `Meeting with Bob` is `Meeting with Bob.md`. Characters that
/// some file systems refuse are left out; the mapping is deterministic, so a title always finds its note again.
pub(crate) fn path_of(title: &str) -> Result<String, SkillError> {
    // A single composition of `é`, because two notes must not look the same.
    let title: String = title.nfc().collect();
    let title = title.trim();
    let title = title.strip_suffix(".md").unwrap_or(title);
    if title.starts_with('/') || title.contains('\\') || title.split('/').any(|part| part.trim() == "..") {
        return Err(SkillError::Outside(format!("'{title}' leads outside the notes folder.")));
    }
    let wrong = |what: String| SkillError::argument("title", what);
    if title.chars().any(char::is_control) {
        return Err(wrong("must not hold control characters".to_owned()));
    }
    if title.chars().any(is_direction_override) {
        return Err(wrong("must not hold characters that change the direction of writing".to_owned()));
    }
    let parts: Vec<String> = title.split('/').map(part_of).collect();
    if parts.len() > PARTS_MAX {
        return Err(wrong(format!("must not lie more than {} folders deep", PARTS_MAX - 1)));
    }
    for part in &parts {
        if part.is_empty() || part.starts_with('.') {
            return Err(wrong("must have letters or digits in every part and no dot before them".to_owned()));
        }
        if part.len() > PART_BYTES_MAX {
            return Err(wrong(format!("must have at most {PART_BYTES_MAX} bytes in every part")));
        }
    }
    Ok(format!("{}.md", parts.join("/")))
}

/// Marks that make one title look like another. Right-to-left scripts do not need them.
const fn is_direction_override(c: char) -> bool {
    matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{200E}' | '\u{200F}' | '\u{061C}')
}

fn part_of(part: &str) -> String {
    let kept: String = part.chars().filter(|c| !r#":*?"<>|"#.contains(*c)).collect();
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The title of a note's file.
pub(crate) fn title_of(path: &str) -> &str {
    path.strip_suffix(".md").unwrap_or(path)
}

/// A user's folder: the name itself if it is plain, otherwise its readable part and a hash. No two users share a folder,
/// even on file systems that ignore case.
pub(crate) fn folder_of(user: &UserId) -> String {
    let name = user.as_str();
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.chars().all(is_plain) && name.len() <= FOLDER_BYTES_MAX && !name.contains("--") {
        return name.to_owned();
    }
    let readable: String = name.to_lowercase().chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    let readable = readable.split('-').filter(|p| !p.is_empty()).collect::<Vec<_>>().join("-");
    let digest = Sha256::digest(name);
    let hash: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
    // The double hyphen distinguishes these from plain names.
    format!("{}--{hash}", readable.get(..FOLDER_BYTES_MAX).unwrap_or(&readable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_maps_to_its_file() {
        for (title, path) in [
            ("groceries", "groceries.md"),
            (" Meeting with Bob ", "Meeting with Bob.md"),
            ("work/plan.md", "work/plan.md"),
            ("Q1: what next?", "Q1 what next.md"),
            ("besprechung-ä", "besprechung-ä.md"),
            ("v1.2", "v1.2.md"),
        ] {
            assert_eq!(path_of(title).unwrap(), path);
        }
        assert_eq!(title_of("work/plan.md"), "work/plan");
    }

    #[test]
    fn title_maps_to_one_file_for_every_composition_of_accents() {
        assert_eq!(path_of("cafe\u{301}").unwrap(), path_of("caf\u{e9}").unwrap());
        assert_eq!(path_of("cafe\u{301}").unwrap(), "caf\u{e9}.md");
    }

    #[test]
    fn title_with_direction_override_is_refused_and_right_to_left_script_accepted() {
        for title in ["invoice\u{202E}fdp.exe", "a\u{2066}b", "a\u{200F}b"] {
            assert!(matches!(path_of(title), Err(SkillError::Argument { .. })), "{title:?}");
        }
        assert_eq!(path_of("\u{5e9}\u{5dc}\u{5d5}\u{5dd}").unwrap(), "\u{5e9}\u{5dc}\u{5d5}\u{5dd}.md");
    }

    #[test]
    fn titles_outside_the_folder_are_blocked_and_invalid_ones_explained() {
        for title in ["../x", "a/../../x", "/etc/passwd", "..\\x", "a/.. /x", "..", "C:\\x"] {
            assert!(matches!(path_of(title), Err(SkillError::Outside(_))), "{title}");
        }
        for title in ["", " ", ".hidden", "a//b", "a/.git/x", "x\0y", "???", "a/b/c/d/e/f", ".", &"x".repeat(121)] {
            assert!(matches!(path_of(title), Err(SkillError::Argument { .. })), "{title}");
        }
    }

    #[test]
    fn every_user_has_a_separate_folder() {
        let names = ["bob", "Bob", "BOB", "b/ob", "b-ob", "..", "../bob", "ünï", "a@b.c", &"x".repeat(100), "bob--1"];
        let folders: std::collections::BTreeSet<String> =
            names.iter().map(|n| folder_of(&UserId::new(*n).unwrap())).collect();
        assert_eq!(folders.len(), names.len(), "{folders:?}");
        assert!(
            folders
                .iter()
                .all(|f| f.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b)))
        );
    }
}
