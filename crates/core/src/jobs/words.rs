//! Splits a text into words: lower case, no punctuation, contractions expanded. Also computes stems of words, for comparing
//! titles.

/// Contractions without their apostrophe, and other spellings.
const SPELLINGS: &[(&str, &[&str])] = &[
    ("whats", &["what", "is"]),
    ("whatre", &["what", "are"]),
    ("hows", &["how", "is"]),
    ("thats", &["that", "is"]),
    ("its", &["it", "is"]),
    ("theres", &["there", "is"]),
    ("youre", &["you", "are"]),
    ("im", &["i", "am"]),
    ("id", &["i", "would"]),
    ("lets", &["let", "us"]),
    ("dont", &["do", "not"]),
    ("isnt", &["is", "not"]),
    ("cant", &["cannot"]),
    ("nevermind", &["never", "mind"]),
    ("prioritize", &["prioritise"]),
    ("summarize", &["summarise"]),
];
/// Endings that do not change the meaning of a word, longest first.
const ENDINGS: &[&str] = &[
    "isation", "ization", "ions", "ings", "ising", "izing", "ised", "ized", "ise", "ize", "ies", "ion", "ing", "is",
    "ed", "es", "s", "y", "e",
];
/// Minimum length of a stem, in characters.
const STEM_CHARS_MIN: usize = 3;
/// Words that carry no information about the subject of a job.
const EMPTY: &[&str] = &[
    "a", "an", "the", "this", "that", "those", "these", "your", "my", "me", "i", "you", "we", "it", "of", "on", "in",
    "into", "about", "for", "to", "and", "or", "with", "job", "task", "thing", "stuff", "one", "request", "please",
    "some",
];

/// The words of a text.
pub(crate) fn words(text: &str) -> Vec<String> {
    let plain: String = text.chars().filter(|c| !matches!(c, '\'' | '\u{2019}')).flat_map(char::to_lowercase).collect();
    let mut words = Vec::new();
    for word in plain.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()) {
        match SPELLINGS.iter().find(|(short, _)| *short == word) {
            Some((_, long)) => words.extend(long.iter().map(|w| (*w).to_owned())),
            None => words.push(word.to_owned()),
        }
    }
    words
}

/// The stem of a word, which is common to all its forms: `summar` of "summary", "summaries" and "summarising".
pub(crate) fn stem(word: &str) -> String {
    let cut = |ending: &&str| word.strip_suffix(*ending).filter(|rest| rest.chars().count() >= STEM_CHARS_MIN);
    let Some(rest) = ENDINGS.iter().find_map(cut) else { return word.to_owned() };
    let mut back = rest.chars().rev();
    let is_doubled = match (back.next(), back.next()) {
        (Some(a), Some(b)) => a == b && !matches!(a, 'a' | 'e' | 'i' | 'o' | 'u' | 'l' | 's'),
        _ => false,
    };
    let end = rest.len() - if is_doubled { rest.chars().next_back().map_or(0, char::len_utf8) } else { 0 };
    rest.get(..end).unwrap_or(rest).to_owned()
}

/// The stems of the words that describe the subject of a text.
pub(crate) fn stems(text: &str) -> Vec<String> {
    words(text).iter().filter(|w| !EMPTY.contains(&w.as_str())).map(|w| stem(w)).collect()
}

/// Parses a number in figures or in words: `2`, `two`, `second`, `2nd`.
pub(crate) fn number(word: &str) -> Option<usize> {
    const NAMES: [[&str; 3]; 12] = [
        ["one", "first", "1st"],
        ["two", "second", "2nd"],
        ["three", "third", "3rd"],
        ["four", "fourth", "4th"],
        ["five", "fifth", "5th"],
        ["six", "sixth", "6th"],
        ["seven", "seventh", "7th"],
        ["eight", "eighth", "8th"],
        ["nine", "ninth", "9th"],
        ["ten", "tenth", "10th"],
        ["eleven", "eleventh", "11th"],
        ["twelve", "twelfth", "12th"],
    ];
    NAMES.iter().position(|names| names.contains(&word)).map(|at| at + 1).or_else(|| figures(word))
}

/// Parses a number in figures, from 1 to 999. Lists are not longer, and larger numbers are years and amounts.
pub(crate) fn figures(word: &str) -> Option<usize> {
    word.parse().ok().filter(|n| (1..1_000).contains(n) && word.bytes().all(|b| b.is_ascii_digit()))
}
