//! Characters that cannot be seen, or that change the order in which others are shown. With them a text looks like another text.

/// Whether a character is one of them. Joiners, which emoji and some scripts need, are among them; the selectors of variants are not.
#[must_use]
pub const fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The first hidden character of a text, and its line from 1.
#[must_use]
pub fn first_hidden(text: &str) -> Option<(usize, char)> {
    let mut lines = text.lines().enumerate();
    lines.find_map(|(n, line)| line.chars().find(|c| is_hidden(*c)).map(|c| (n + 1, c)))
}

/// What stands for a hidden character where a person must see it.
#[must_use]
pub fn shown(c: char) -> String {
    format!("<U+{:04X}>", u32::from(c))
}

/// The text with every hidden character shown.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) { visible.push_str(&shown(c)) } else { visible.push(c) }
    }
    visible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_found_and_shown_and_others_stay() {
        assert_eq!(visible("rm \u{202e}txt.a\u{2069} ok"), "rm <U+202E>txt.a<U+2069> ok");
        assert_eq!(visible("Füße ☎\u{fe0f} 日本"), "Füße ☎\u{fe0f} 日本");
        assert_eq!(first_hidden("a\nb\u{200b}c"), Some((2, '\u{200b}')));
        assert_eq!(first_hidden("plain"), None);
    }

    #[test]
    fn page_shows_the_same_hidden_characters() {
        let page = include_str!("../../../web/lib/format.js");
        let class =
            page.split_once("text.replace(/[").and_then(|(_, rest)| rest.split_once("]/gu")).expect("the class").0;
        let mut chars = class.split('\\').skip(1).map(|one| {
            let digits: String =
                one.trim_start_matches(['u', '{']).chars().take_while(char::is_ascii_hexdigit).collect();
            (u32::from_str_radix(&digits, 16).expect("a number"), one.ends_with('-'))
        });
        let mut listed = std::collections::BTreeSet::new();
        while let Some((first, is_range)) = chars.next() {
            let last = if is_range { chars.next().expect("the end of a range").0 } else { first };
            listed.extend(first..=last);
        }
        let hidden = (0..=u32::from(char::MAX)).filter(|code| char::from_u32(*code).is_some_and(is_hidden)).collect();
        assert_eq!(listed, hidden);
    }
}
