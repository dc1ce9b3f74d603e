//! Single words of a text that is read aloud.

use super::VoiceChange;

/// What is said in place of the address of a page.
const LINK: &str = "a link";
/// Words that end with a full stop and end no sentence, without it.
const ABBREVIATIONS: [&str; 22] = [
    "e.g", "i.e", "dr", "mr", "mrs", "ms", "prof", "st", "vs", "approx", "no", "nr", "z.b", "d.h", "bzw", "ca", "evtl",
    "ggf", "usw", "inkl", "a.m", "p.m",
];

/// A word without what is not said.
pub(super) struct Cleaned {
    pub text: String,
    pub changes: Vec<VoiceChange>,
}

pub(super) fn cleaned(word: &str) -> Cleaned {
    let mut changes = Vec::new();
    if word == "*" {
        // The sign of a product. At the beginning of a line it was removed as the mark of an item.
        return Cleaned { text: word.to_owned(), changes };
    }
    let word = match without_url(word) {
        Some(text) => {
            changes.push(VoiceChange::Url);
            text
        }
        None => word.to_owned(),
    };
    let chars: Vec<char> = word.chars().collect();
    let mut text = String::with_capacity(word.len());
    for (at, c) in chars.iter().copied().enumerate() {
        let before = at.checked_sub(1).and_then(|at| chars.get(at));
        let after = chars.get(at + 1);
        let is_between = |is: fn(&char) -> bool| before.is_some_and(is) && after.is_some_and(is);
        let is_mark = match c {
            '`' => true,
            '*' => !is_between(char::is_ascii_digit),
            '_' => !is_between(|c| c.is_alphanumeric()),
            '~' => before == Some(&'~') || after == Some(&'~'),
            _ => false,
        };
        if is_mark {
            changes.push(VoiceChange::Markup);
        } else if is_emoji(c) {
            changes.push(VoiceChange::Emoji);
        } else {
            text.push(c);
        }
    }
    Cleaned { text, changes }
}

/// The word with `a link` in place of an address of a page.
fn without_url(word: &str) -> Option<String> {
    let lower = word.to_ascii_lowercase();
    let at = ["https://", "http://", "www."].iter().filter_map(|begin| lower.find(begin)).min()?;
    let is_around = |c: char| ".,;:!?)>]\"'*_`”’|".contains(c);
    let kept = word.trim_end_matches(is_around).len().max(at);
    let before = word[..at].trim_end_matches('<');
    let after = word[kept..].replace('>', "");
    Some(format!("{before}{LINK}{after}"))
}

/// Pictures, their modifiers, and the signs that join them.
pub(super) const fn is_emoji(c: char) -> bool {
    matches!(
        c,
        '\u{200d}' | '\u{20e3}' | '\u{fe0e}' | '\u{fe0f}'
            | '\u{2300}'..='\u{23ff}'
            | '\u{2600}'..='\u{27bf}'
            | '\u{2b00}'..='\u{2bff}'
            | '\u{1f000}'..='\u{1faff}'
            | '\u{e0020}'..='\u{e007f}'
    )
}

/// A character of a script without spaces between words.
pub(super) const fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' | '\u{ff00}'..='\u{ffef}')
}

/// Whether a sentence ends with this word. A number with a full stop may be an ordinal.
pub(super) fn ends_sentence(word: &str) -> bool {
    let word = word.trim_end_matches(|c: char| "\"')]}”’»".contains(c));
    let Some(stem) = word.strip_suffix('.') else { return word.ends_with(['!', '?', '…', '。', '！', '？']) };
    let stem = stem.trim_start_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let is_short = stem.chars().count() <= 1 && !stem.is_empty();
    let is_number = !stem.is_empty() && stem.chars().all(|c| c.is_ascii_digit());
    !is_short && !is_number && !ABBREVIATIONS.contains(&stem.as_str())
}
