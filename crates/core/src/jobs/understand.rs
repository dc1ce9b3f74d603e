//! Detects whether a whole message is a job command. Removes forms of address and politeness ("Annie, could you … for now,
//! please?") and passes the rest to the grammar.

use super::{
    JobCommand, JobRequest, SLASH_WORDS, SPOKEN_WORDS_MAX, Target, Verb, grammar, target::target, words::words,
};

/// Maximum length of a spoken command, in bytes. Longer messages are not examined.
const SPOKEN_BYTES_MAX: usize = 200;
/// Punctuation that is spoken as a pause. With other ASCII punctuation, the message is not a spoken command.
const PAUSES: &str = " ,.!?';:-#_";
/// Polite phrases before the command.
const OPENERS: &[&[&str]] = &[
    &["hey"],
    &["hi"],
    &["hello"],
    &["annie"],
    &["ok"],
    &["okay"],
    &["alright"],
    &["yes"],
    &["yeah"],
    &["no"],
    &["oh"],
    &["um"],
    &["uh"],
    &["hmm"],
    &["well"],
    &["so"],
    &["and"],
    &["now"],
    &["then"],
    &["wait"],
    &["sorry"],
    &["hold", "on"],
    &["please"],
    &["can", "you"],
    &["could", "you"],
    &["would", "you"],
    &["will", "you"],
    &["you", "can"],
    &["let", "us"],
    &["i", "want", "you", "to"],
    &["i", "need", "you", "to"],
    &["i", "would", "like", "you", "to"],
    &["can", "you", "tell", "me"],
    &["tell", "me"],
];
/// Polite phrases after the command.
const CLOSERS: &[&[&str]] = &[
    &["please"],
    &["annie"],
    &["now"],
    &["right", "now"],
    &["immediately"],
    &["thanks"],
    &["thank", "you"],
    &["ok"],
    &["okay"],
    &["then"],
    &["too"],
    &["instead"],
    &["again"],
    &["for", "me"],
    &["for", "now"],
    &["for", "later"],
    &["until", "later"],
    &["a", "bit"],
    &["for", "a", "bit"],
    &["for", "a", "while"],
    &["for", "a", "moment"],
    &["for", "a", "minute"],
    &["for", "a", "second"],
    &["for", "the", "moment"],
    &["at", "the", "moment"],
    &["would", "you"],
    &["will", "you"],
    &["could", "you"],
    &["can", "you"],
];
/// Adverbs without influence on the meaning.
const COLOURS: &[&str] =
    &["just", "really", "currently", "still", "actually", "exactly", "very", "super", "extremely", "quickly"];

/// The job command in this message, if the whole message is one. Recognises fixed English phrases without a model, which
/// would take seconds for every message [S3 13]. Pure. Messages of more than 200 bytes are examined only if they begin with
/// a slash.
#[must_use]
pub fn understand(text: &str) -> Option<JobCommand> {
    let text = text.trim();
    if let Some(line) = text.strip_prefix('/') {
        return slash(line);
    }
    let is_spoken = text.len() <= SPOKEN_BYTES_MAX
        && text.split_whitespace().count() <= SPOKEN_WORDS_MAX
        && text.chars().all(|c| !c.is_ascii_punctuation() || PAUSES.contains(c));
    if !is_spoken {
        return None;
    }
    let words = words(text);
    if words.len() > SPOKEN_WORDS_MAX {
        return None;
    }
    let mut words: Vec<&str> = words.iter().map(String::as_str).filter(|w| !COLOURS.contains(w)).collect();
    // Such as "Stop, stop, stop!"
    words.dedup();
    spoken(&words)
}

/// Tries the words as they are, then without the closing phrases, then without the opening phrases.
fn spoken(words: &[&str]) -> Option<JobCommand> {
    let mut rest = words;
    loop {
        let mut core = rest;
        loop {
            if let Some(command) = grammar::command(core) {
                return Some(command);
            }
            match CLOSERS.iter().filter_map(|closer| core.strip_suffix(*closer)).min_by_key(|left| left.len()) {
                Some(shorter) => core = shorter,
                None => break,
            }
        }
        rest = OPENERS.iter().filter_map(|opener| rest.strip_prefix(*opener)).min_by_key(|left| left.len())?;
    }
}

/// Parses a slash command: `/jobs --all`, `/cancel 2`, `/resume task_…`, `/first the research`.
fn slash(line: &str) -> Option<JobCommand> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let name = name.to_lowercase();
    SLASH_WORDS.iter().find(|known| **known == name)?;
    let (flags, rest): (Vec<&str>, Vec<&str>) = rest.split_whitespace().partition(|w| w.starts_with("--"));
    if flags.iter().any(|f| !matches!(*f, "--all" | "--detail" | "--details")) {
        return None;
    }
    let verb =
        [Verb::First, Verb::Urgent, Verb::Cancel, Verb::Pause, Verb::Resume].into_iter().find(|v| v.as_str() == name);
    let request = match verb {
        Some(verb) => JobRequest::Act { verb, target: argument(&rest.join(" ")) },
        None if !rest.is_empty() => return None,
        None if name == "top" => JobRequest::Busy,
        None => JobRequest::List,
    };
    Some(JobCommand { request, is_detailed: !flags.is_empty(), is_certain: true })
}

fn argument(text: &str) -> Target {
    let owned = words(text);
    let words: Vec<&str> = owned.iter().map(String::as_str).collect();
    match target(&words) {
        _ if words.is_empty() => Target::That,
        Some((target, _)) => target,
        None => Target::Words(words.join(" ")),
    }
}
