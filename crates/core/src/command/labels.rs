//! Parses flags written with a colon, as in YAML, among the words of a command: `title: "Buy milk" due: friday`.

use super::{lex::is_name, parse::Loose};
use crate::skill::{ArgSpec, Found, edit_distance, find_argument};

/// Minimum length of a name that is treated as a misspelt flag, in bytes. Shorter words resemble each other by chance.
const MISSPELT_BYTES_MIN: usize = 4;

/// The result of parsing the words.
#[derive(Debug, Default)]
pub(super) struct Labelled<'a> {
    /// The words before the first flag.
    pub before: &'a [Loose],
    /// The flags, with their values.
    pub flags: Vec<Flag<'a>>,
    /// The words after a quoted value, which belong to no flag.
    pub behind: Vec<&'a str>,
}

/// A flag written with a colon.
#[derive(Debug)]
pub(super) struct Flag<'a> {
    /// The name as it was written.
    pub name: &'a str,
    /// The matching argument, or the most similar one.
    pub arg: &'a ArgSpec,
    /// Whether the name is misspelt.
    pub is_near: bool,
    /// The value, if there is one.
    pub value: Option<String>,
}

/// Finds the flags among the words of a command. A word that names no flag of the skill is part of a text.
pub(super) fn labelled<'a>(args: &'a [ArgSpec], domain: &str, words: &'a [Loose]) -> Labelled<'a> {
    let label = |word: &'a Loose| label(args, domain, word);
    let first = words.iter().position(|word| label(word).is_some()).unwrap_or(words.len());
    let mut read = Labelled { before: &words[..first], ..Labelled::default() };
    let mut at = first;
    while let Some((mut flag, rest)) = words.get(at).and_then(label) {
        let values = &words[at + 1..];
        let mut end = values.iter().position(|word| label(word).is_some()).unwrap_or(values.len());
        at += 1 + end;
        // A quoted value is complete. White space in the word shows that `title:"Buy milk"` was quoted.
        let is_whole = rest.contains(char::is_whitespace);
        let whole =
            if is_whole { 0 } else { usize::from(rest.is_empty() && values.first().is_some_and(|v| v.is_quoted)) };
        if is_whole || whole > 0 {
            read.behind.extend(values[whole..end].iter().map(|word| word.text.as_str()));
            end = whole;
        }
        let texts =
            Some(rest).filter(|rest| !rest.is_empty()).into_iter().chain(values[..end].iter().map(|v| v.text.as_str()));
        let texts: Vec<&str> = texts.collect();
        if !texts.is_empty() {
            let value = texts.join(" ");
            let is_followed = at < words.len();
            // For `title: Buy milk, due: friday`.
            let value = value.strip_suffix([',', ';']).filter(|_| is_followed).map_or(value.clone(), str::to_owned);
            flag.value = Some(value);
        }
        read.flags.push(flag);
    }
    read
}

/// The flag that a word names before its colon, and the text after the colon.
fn label<'a>(args: &'a [ArgSpec], domain: &str, word: &'a Loose) -> Option<(Flag<'a>, &'a str)> {
    let (name, rest) = word.text.split_once(':').filter(|(name, _)| !word.is_quoted && is_name(name))?;
    let flag = |arg, is_near| Flag { name, arg, is_near, value: None };
    match find_argument(args, domain, name) {
        Found::Is(arg) => Some((flag(arg, false), rest)),
        Found::Near(arg) if rest.is_empty() && is_misspelt(name, &arg.name) => Some((flag(arg, true), rest)),
        Found::Near(_) | Found::No => None,
    }
}

/// Whether a word is a name with one error in it: `titel`, `tilte`, `titles`.
fn is_misspelt(word: &str, name: &str) -> bool {
    let word = word.to_lowercase();
    let sorted = |text: &str| {
        let mut dead_letters: Vec<char> = text.chars().collect();
        dead_letters.sort_unstable();
        dead_letters
    };
    word.len() >= MISSPELT_BYTES_MIN && (edit_distance(&word, name) <= 1 || sorted(&word) == sorted(name))
}
