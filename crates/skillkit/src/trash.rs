//! The trash of skills: what a user deletes can be restored for 30 days, and a chore purges it afterwards.

use std::sync::Arc;

use annie_core::{
    ports::{Chore, Fut},
    time::Micros,
    words::different_stems,
};

use crate::{
    error::SkillError,
    handler::Ctx,
    runner::{Tools, run_blocking},
    text,
};

/// How long the trash keeps a thing, in days: a month to notice a mistake.
const KEPT_DAYS: i64 = 30;
const DAY_MS: i64 = 24 * 3_600_000;
/// What lists of the trash end with.
pub(crate) const KEPT: &str = "Deleted things can be restored for 30 days.";
/// The most things in the trash that a list or a search by words reads, the last deleted ones.
pub(crate) const SHOWN_MAX: u32 = 1_000;
/// The most documents that one statement purges.
const PURGED_AT_ONCE_MAX: u32 = 500;
/// How many things an answer names if words fit several.
const NAMED_MAX: usize = 5;
/// Length limit for such a name, in bytes.
const NAME_BYTES_MAX: usize = 80;

/// Words without a meaning of their own when a person names a thing.
const FILLERS: &[&str] = &[
    "a", "an", "the", "that", "this", "these", "those", "i", "me", "my", "mine", "you", "your", "he", "she", "it",
    "its", "we", "our", "they", "their", "user", "is", "are", "was", "were", "am", "be", "do", "does", "did", "to",
    "of", "in", "on", "at", "for", "about", "and", "s", "t", "m", "ve", "re", "ll", "d",
];

/// Words that reverse a statement: a text that has one of them is never found by words without it, nor the other way round.
pub(crate) const TURNING: [&str; 16] = [
    "not", "no", "never", "nor", "cannot", "without", "don", "doesn", "didn", "isn", "aren", "wasn", "weren", "won",
    "shouldn", "couldn",
];

/// How a caller names one thing.
pub(crate) enum Choice {
    Number(u64),
    Words(String),
}

/// The one thing that the flags `--id` and `--query` name.
pub(crate) fn wanted(id: Option<u64>, query: Option<String>) -> Result<Choice, SkillError> {
    match (id, query.map(|words| words.trim().to_owned()).filter(|words| !words.is_empty())) {
        (Some(id), None) => Ok(Choice::Number(id)),
        (None, Some(words)) => Ok(Choice::Words(words)),
        _ => Err(SkillError::Arguments("exactly one of --id and --query is needed".to_owned())),
    }
}

/// The number of the only candidate that has all the words of a query. If several have them, the caller has to ask which one is
/// meant, because nothing is changed on a guess.
pub(crate) fn pick(query: &str, kind: &str, candidates: &[(u64, String)]) -> Result<u64, SkillError> {
    let wanted = telling(query);
    if wanted.is_empty() {
        return Err(SkillError::argument("query", "has no word that names a thing"));
    }
    let fitting: Vec<&(u64, String)> = candidates.iter().filter(|(_, text)| fits(&wanted, text)).collect();
    match fitting.as_slice() {
        [(number, _)] => Ok(*number),
        [] => {
            let shares_a_word = |text: &str| telling(text).iter().any(|word| wanted.contains(word));
            let near = candidates.iter().filter(|(_, text)| shares_a_word(text)).take(NAMED_MAX).map(named).collect();
            Err(SkillError::NotFound { what: format!("No {kind} has all the words of '{query}'."), near })
        }
        several => {
            let names: Vec<String> = several.iter().take(NAMED_MAX).map(|candidate| named(candidate)).collect();
            let more = if several.len() > NAMED_MAX { "; and more" } else { "" };
            let what = format!(
                "fits several of the kind {kind}: {}{more}. Nothing was changed. Ask the user which one, then give its --id",
                names.join("; ")
            );
            Err(SkillError::argument("query", what))
        }
    }
}

fn named((number, text): &(u64, String)) -> String {
    format!("#{number} {}", text::brief(text, NAME_BYTES_MAX))
}

/// The stems of the words of a text that have a meaning of their own.
fn telling(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty() && !FILLERS.contains(word)).collect();
    different_stems(&words.join(" "))
}

/// Whether a text has all wanted words, and turns none of them around.
fn fits(wanted: &[String], text: &str) -> bool {
    let own = telling(text);
    let turns = |word: &&String| TURNING.contains(&word.as_str());
    wanted.iter().all(|word| own.contains(word)) && own.iter().filter(turns).all(|word| wanted.contains(word))
}

/// The day of a time in the user's time zone.
pub(crate) fn day(ctx: &Ctx, at: Micros) -> String {
    at.to_utc().with_timezone(&ctx.zone()).format("%Y-%m-%d").to_string()
}

/// Purges what has been in the trash for 30 days, of all users: documents, notes if their folder is here, and former versions of files.
pub(crate) struct Purge(pub(crate) Arc<Tools>);

impl Chore for Purge {
    fn name(&self) -> &'static str {
        "trash"
    }

    fn pass(&self, now: Micros) -> Fut<'_, Result<Option<Micros>, String>> {
        Box::pin(async move {
            let before = now.plus_ms(-KEPT_DAYS * DAY_MS);
            let mut purged = 0;
            loop {
                let more = self.0.documents.purge_documents(before, PURGED_AT_ONCE_MAX).await;
                let more = more.map_err(|error| error.to_string())?;
                purged += more;
                if more < u64::from(PURGED_AT_ONCE_MAX) {
                    break;
                }
            }
            let tools = Arc::clone(&self.0);
            let files = move || Ok(tools.notes.purge(before)? + tools.files.purge(before));
            purged += run_blocking(files).await.map_err(|error| error.to_string())?;
            if purged > 0 {
                tracing::info!(purged, "the trash was purged of what was deleted 30 days ago");
            }
            Ok(Some(now.plus_ms(DAY_MS)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(query: &str, texts: &[&str]) -> Result<u64, String> {
        let candidates: Vec<(u64, String)> = (1..).zip(texts.iter().map(|text| (*text).to_owned())).collect();
        pick(query, "memory", &candidates).map_err(|error| error.to_string())
    }

    #[test]
    fn trash_picks_the_only_thing_that_has_all_words() {
        let texts = ["User likes green tea", "Bob likes coffee", "The user does not like beer"];
        assert_eq!(picked("that I like green teas", &texts), Ok(1));
        assert_eq!(picked("coffee", &texts), Ok(2));
        assert_eq!(picked("I don't like beer", &["User don't like beer"]), Ok(1));
    }

    #[test]
    fn trash_asks_if_words_fit_several_things_or_turn_one_around() {
        let texts = ["User likes green tea", "Bob likes tea", "The user does not like beer"];
        let several = picked("tea", &texts).unwrap_err();
        assert!(
            several.contains("#1 User likes green tea; #2 Bob likes tea") && several.contains("Nothing"),
            "{several}"
        );
        assert!(picked("I like beer", &texts).unwrap_err().starts_with("No memory has"));
        assert!(picked("not tea", &texts).is_err());
        assert!(picked("that I do", &texts).unwrap_err().contains("no word"));
        assert!(picked("", &texts).is_err() && picked("tea", &[]).is_err());
    }

    #[test]
    fn trash_wants_a_number_or_words() {
        assert!(matches!(wanted(Some(3), None), Ok(Choice::Number(3))));
        assert!(matches!(wanted(None, Some(" tea ".into())), Ok(Choice::Words(words)) if words == "tea"));
        assert!(wanted(None, None).is_err() && wanted(Some(1), Some("tea".into())).is_err());
        assert!(wanted(None, Some("  ".into())).is_err());
    }
}
