//! Splits text into search words: runs of letters and digits, in lower case, without the diacritics of Latin letters, stemmed.
//! SQLite's `porter unicode61` does the same, so every store finds the same, and skills compare texts as the stores search them.

use crate::stem::stem;

/// The most different words of a text that are used, for searching and for comparing.
pub const WORDS_MAX: usize = 64;

/// The stems of a text, in order, at most [`WORDS_MAX`].
#[must_use]
pub fn stems(text: &str) -> Vec<String> {
    words(text).take(WORDS_MAX).map(|w| stem(&w)).collect()
}

/// All stems of a text, for an index.
pub fn all_stems(text: &str) -> impl Iterator<Item = String> + '_ {
    words(text).map(|w| stem(&w))
}

/// The different stems of a text, in order of first appearance, at most [`WORDS_MAX`].
#[must_use]
pub fn different_stems(text: &str) -> Vec<String> {
    different(text).into_iter().map(|(_, stem)| stem).collect()
}

/// The words of a text, one for each different stem, for an index that stems by itself (stemming a stem may change it again).
#[must_use]
pub fn different_words(text: &str) -> Vec<String> {
    different(text).into_iter().map(|(word, _)| word).collect()
}

fn different(text: &str) -> Vec<(String, String)> {
    let mut seen: Vec<(String, String)> = Vec::new();
    for word in words(text) {
        let stem = stem(&word);
        if seen.iter().all(|(_, other)| *other != stem) {
            seen.push((word, stem));
        }
        if seen.len() == WORDS_MAX {
            break;
        }
    }
    seen
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(|w| w.chars().map(without_diacritic).flat_map(char::to_lowercase).collect())
}

/// A Latin letter without its diacritic; any other character unchanged.
const fn without_diacritic(c: char) -> char {
    match c {
        'À'..='Å' | 'à'..='å' | 'Ā'..='ą' => 'a',
        'Ç' | 'ç' | 'Ć'..='č' => 'c',
        'Ď' | 'ď' => 'd',
        'È'..='Ë' | 'è'..='ë' | 'Ē'..='ě' => 'e',
        'Ĝ'..='ģ' => 'g',
        'Ĥ' | 'ĥ' => 'h',
        'Ì'..='Ï' | 'ì'..='ï' | 'Ĩ'..='į' | 'İ' => 'i',
        'Ĵ' | 'ĵ' => 'j',
        'Ķ' | 'ķ' => 'k',
        'Ĺ'..='ľ' => 'l',
        'Ñ' | 'ñ' | 'Ń'..='ň' => 'n',
        'Ò'..='Ö' | 'ò'..='ö' | 'Ō'..='ő' => 'o',
        'Ŕ'..='ř' => 'r',
        'Ś'..='š' => 's',
        'Ţ'..='ť' => 't',
        'Ù'..='Ü' | 'ù'..='ü' | 'Ũ'..='ų' => 'u',
        'Ŵ' | 'ŵ' => 'w',
        'Ý' | 'ý' | 'ÿ' | 'Ŷ'..='Ÿ' => 'y',
        'Ź'..='ž' => 'z',
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_alphanumerics_in_any_case_without_diacritics() {
        assert_eq!(stems("Müller's PR-42, \"naïve\" OR (x*)"), ["muller", "s", "pr", "42", "naiv", "or", "x"]);
        assert_eq!(stems("🎉 !!"), Vec::<String>::new());
        assert_eq!(different_stems("Agreed mail MAILS mailing post"), ["agre", "mail", "post"]);
        assert_eq!(different_words("Agreed mail MAILS mailing post"), ["agreed", "mail", "post"]);
    }

    #[test]
    fn words_of_a_long_text_are_used_up_to_the_limit() {
        let text: String = (0..1000).map(|n| format!("w{n} ")).collect();
        assert_eq!(different_stems(&text).len(), WORDS_MAX);
        assert_eq!(stems(&text).len(), WORDS_MAX);
    }
}
