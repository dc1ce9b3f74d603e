//! Parses the target of a command: "that", "number 2", "everything", "the video summary".

use super::{
    Target,
    words::{figures, number},
};

/// Maximum length of a title in a spoken command, in words.
const TITLE_WORDS_MAX: usize = 6;
/// Last words of phrases that do not name a job but an object handled by skills: "cancel the meeting", "pause the music".
const WORLDLY: &str = "\
    alarm alarms timer timers reminder reminders meeting meetings appointment appointments event events call \
    calls subscription subscriptions membership order orders delivery flight flights trip booking bookings \
    reservation reservations hotel ticket tickets music song songs playlist album podcast radio movie film tv \
    show game light lights lamp heating fan vacuum washing laundry dishes dishwasher homework shopping groceries \
    cleaning cooking chores car door recording playback server service build process computer story conversation \
    chat discussion sentence list lists party dinner lunch class lesson payment transfer contract noise rest \
    past";
/// Words that do not occur in a title within a command. A phrase with one of them says more than the name of a job.
const NEVER: &str = "\
    a an my me i you he she we they him her us them his our their at with from to in by for if when while until \
    unless because before after since and or but then not no is are was were be will would that this which who \
    what how where why today tomorrow tonight yesterday now later soon monday tuesday wednesday thursday friday \
    saturday sunday week month year morning evening afternoon noon please thanks annie instead else too again \
    immediately asap actually ok okay urgent first next last previous all everything cancel stop pause resume \
    aside back up hold";

fn is_in(list: &str, word: &str) -> bool {
    list.split(' ').any(|w| w == word)
}

/// The target that these words name, and whether the words have no other meaning.
pub(super) fn target(words: &[&str]) -> Option<(Target, bool)> {
    if is_that(words) {
        // "Stop it" may refer to other things, such as the music.
        return Some((Target::That, words != ["it"]));
    }
    if is_all(words) {
        // The user's own tasks are not jobs.
        return Some((Target::All, !words.contains(&"tasks")));
    }
    numbered(words).or_else(|| titled(words))
}

fn is_that(words: &[&str]) -> bool {
    matches!(
        words,
        ["that" | "this" | "it"]
            | ["that" | "this", "one" | "job" | "task" | "thing" | "request"]
            | ["the", "current", "one" | "job" | "task"]
            | ["what", "you", "are", "doing"]
            | ["what", "you", "are", "working", "on"]
    )
}

fn is_all(words: &[&str]) -> bool {
    matches!(
        words,
        ["everything" | "all"]
            | ["all", "of", "it" | "them" | "that" | "this"]
            | ["all", "that" | "this"]
            | ["them" | "it" | "that", "all"]
            | ["all", "jobs" | "tasks"]
            | ["all", "the" | "your", "jobs" | "tasks"]
            | ["all", "of", "the" | "your", "jobs" | "tasks"]
    )
}

fn numbered(words: &[&str]) -> Option<(Target, bool)> {
    let named = |n: &str, is_certain| number(n).map(|n| (Target::Number(n), is_certain));
    match words {
        [n] => match figures(n) {
            Some(n) => Some((Target::Number(n), true)),
            None => n.parse().ok().map(|id| (Target::Id(id), true)),
        },
        ["task" | "job", id] if id.contains('_') => id.parse().ok().map(|id| (Target::Id(id), true)),
        ["number" | "no" | "nr" | "job" | "item", n] | ["job", "number", n] | ["the", n, "one" | "job" | "thing"] => {
            named(n, true)
        }
        // The user's own tasks have numbers too.
        ["task", n] | ["task", "number", n] | ["the", n, "task"] => named(n, false),
        _ => None,
    }
}

fn titled(words: &[&str]) -> Option<(Target, bool)> {
    let ["the" | "that" | "this" | "your", title @ ..] = words else { return None };
    let (title, is_job) = match title.split_last() {
        Some((&("job" | "task" | "one" | "thing" | "request"), title)) if !title.is_empty() => (title, true),
        _ => (title, false),
    };
    let head = title.last()?;
    let is_time = |w: &&str| w.starts_with(|c: char| c.is_ascii_digit()) && w.ends_with('m');
    let is_more = title.len() > TITLE_WORDS_MAX || title.iter().any(|w| is_in(NEVER, w) || is_time(w));
    let is_worldly = !is_job && is_in(WORLDLY, head);
    (!is_more && !is_worldly).then(|| (Target::Words(title.join(" ")), false))
}
