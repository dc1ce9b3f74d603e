//! Text helpers that several handlers share.

use annie_core::{outcome::floor_char_boundary, skill::ORIGIN_TAG};

use crate::error::SkillError;

/// How many tags one item may have.
pub(crate) const TAGS_MAX: usize = 20;
/// Length limit for a tag, in characters.
pub(crate) const TAG_CHARS_MAX: usize = 50;

/// Normalised tags, with a tag for each origin of the author's text. Tags by the caller that imitate an origin tag are
/// removed.
pub(crate) fn tags_from(given: &[String], origin: &[String]) -> Result<Vec<String>, SkillError> {
    let mut tags = tags(given)?;
    tags.retain(|tag| !tag.starts_with(ORIGIN_TAG));
    tags.extend(origin.iter().map(|source| format!("{ORIGIN_TAG}{source}")));
    Ok(tags)
}

/// The origins that tags record, each once.
pub(crate) fn origins_in<'a>(tags: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut origins: Vec<String> = Vec::new();
    for origin in tags.into_iter().filter_map(|tag| tag.strip_prefix(ORIGIN_TAG)) {
        if !origins.iter().any(|known| known == origin) {
            origins.push(origin.to_owned());
        }
    }
    origins
}

/// Normalises tags: lower case, hyphens for spaces, no `#`, no duplicates, in the given order.
pub(crate) fn tags(given: &[String]) -> Result<Vec<String>, SkillError> {
    let mut tags: Vec<String> = Vec::new();
    for tag in given {
        let tag = tag.trim().trim_start_matches('#').to_lowercase();
        let tag = tag.split_whitespace().collect::<Vec<_>>().join("-");
        if tag.chars().count() > TAG_CHARS_MAX || tag.chars().any(char::is_control) {
            return Err(SkillError::argument("tags", format!("must be words of at most {TAG_CHARS_MAX} characters")));
        }
        if !tag.is_empty() && !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    if tags.len() > TAGS_MAX {
        return Err(SkillError::argument("tags", format!("must be at most {TAGS_MAX}, got {}", tags.len())));
    }
    Ok(tags)
}

/// The text without surrounding space; an error if it is empty or too long.
pub(crate) fn bounded(flag: &str, text: &str, chars_max: usize) -> Result<String, SkillError> {
    let text = text.trim();
    match text.chars().count() {
        0 => Err(SkillError::argument(flag, "must not be empty")),
        n if n > chars_max => {
            Err(SkillError::argument(flag, format!("must have at most {chars_max} characters, got {n}")))
        }
        _ => Ok(text.to_owned()),
    }
}

/// The text in one line, cut with an ellipsis.
pub(crate) fn brief(text: &str, bytes_max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() <= bytes_max {
        return line;
    }
    format!("{}…", line[..floor_char_boundary(&line, bytes_max)].trim_end())
}

/// `1 task`, `2 tasks`.
pub(crate) fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Parses numbers such as `3` or `#3`.
pub(crate) fn numbers(flag: &str, given: &[String]) -> Result<Vec<u64>, SkillError> {
    given
        .iter()
        .map(|text| {
            let digits = text.trim().trim_start_matches('#');
            digits.parse().map_err(|_| SkillError::argument(flag, format!("wants numbers such as 1,2, got {text:?}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_normalised_to_one_spelling() {
        let given = ["#Work", " tech stack ", "work", ""].map(str::to_owned);
        assert_eq!(tags(&given).unwrap(), ["work", "tech-stack"]);
        assert!(tags(&["x".repeat(51)]).is_err());
        assert!(tags(&(0..21).map(|n| n.to_string()).collect::<Vec<_>>()).is_err());
    }

    #[test]
    fn brief_text_is_one_line_and_never_splits_a_character() {
        assert_eq!(brief("a\n b", 10), "a b");
        assert_eq!(brief("üüüü", 5), "üü…");
    }

    #[test]
    fn numbers_may_carry_a_hash() {
        assert_eq!(numbers("ids", &["#3".to_owned(), "4".to_owned()]).unwrap(), [3, 4]);
        assert!(numbers("ids", &["three".to_owned()]).unwrap_err().to_string().contains("\"three\""));
    }
}
