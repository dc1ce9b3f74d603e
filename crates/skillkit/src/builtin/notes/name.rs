//! From titles to paths, and from users to folders.

use annie_core::ids::UserId;
use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

use crate::error::SkillError;

/// The longest part of a title, in bytes; file systems take 255, and a temporary name is longer.
const PART_BYTES_MAX: usize = 120;
/// How many parts a title may have: `work/meetings/2026-02-28` has three.
const PARTS_MAX: usize = 5;
/// How much of a user's name is readable in the folder's, in bytes.
const FOLDER_BYTES_MAX: usize = 40;

/// A note's file for its title, relative to the user's folder: `Meeting with Bob` is `Meeting with Bob.md`. Characters that
/// some file systems refuse are left out, so that a title always finds its own note again.
pub(crate) fn path_of(title: &str) -> Result<String, SkillError> {
    // One way to write `é`: two notes must not look the same.
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

/// Marks that make a title look like another one. Right-to-left scripts need none of them.
const fn is_direction_override(c: char) -> bool {
    matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{200E}' | '\u{200F}' | '\u{061C}')
}

fn part_of(part: &str) -> String {
    let kept: String = part.chars().filter(|c| !r#":*?"<>|"#.contains(*c)).collect();
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A note's title for its file.
pub(crate) fn title_of(path: &str) -> &str {
    path.strip_suffix(".md").unwrap_or(path)
}

/// A user's folder: the name itself if it is plain, otherwise what is readable of it and a hash, so that no two users share
/// one, also where file systems ignore case.
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
    // The double hyphen keeps these apart from plain names.
    format!("{}--{hash}", readable.get(..FOLDER_BYTES_MAX).unwrap_or(&readable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_its_file() {
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
    fn title_is_one_file_however_its_accents_are_composed() {
        assert_eq!(path_of("cafe\u{301}").unwrap(), path_of("caf\u{e9}").unwrap());
        assert_eq!(path_of("cafe\u{301}").unwrap(), "caf\u{e9}.md");
    }

    #[test]
    fn title_with_a_direction_override_is_refused_and_right_to_left_scripts_are_not() {
        for title in ["invoice\u{202E}fdp.exe", "a\u{2066}b", "a\u{200F}b"] {
            assert!(matches!(path_of(title), Err(SkillError::Argument { .. })), "{title:?}");
        }
        assert_eq!(path_of("\u{5e9}\u{5dc}\u{5d5}\u{5dd}").unwrap(), "\u{5e9}\u{5dc}\u{5d5}\u{5dd}.md");
    }

    #[test]
    fn titles_that_lead_outside_are_blocked_and_others_explained() {
        for title in ["../x", "a/../../x", "/etc/passwd", "..\\x", "a/.. /x", "..", "C:\\x"] {
            assert!(matches!(path_of(title), Err(SkillError::Outside(_))), "{title}");
        }
        for title in ["", " ", ".hidden", "a//b", "a/.git/x", "x\0y", "???", "a/b/c/d/e/f", ".", &"x".repeat(121)] {
            assert!(matches!(path_of(title), Err(SkillError::Argument { .. })), "{title}");
        }
    }

    #[test]
    fn every_user_has_a_folder_of_their_own() {
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
