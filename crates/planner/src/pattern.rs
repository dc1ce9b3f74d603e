//! A small language for phrases: `mark|set * as? done`. Each element matches words: `|` separates alternatives, `?` marks
//! an element as optional, `*` matches any words (recorded as gaps), `~` matches up to four filler words such as `a new
//! urgent`, `#` matches a number. A pattern is matched at the beginning; the caller processes the rest of the clause.

use std::ops::Range;

use super::text::Word;

/// How many words a `*` may match.
const GAP_WORDS_MAX: usize = 14;
/// How many words a `~` may match.
const FILLER_WORDS_MAX: usize = 4;
/// Words before a noun that do not change the meaning of the request.
const FILLERS: &str = "a an the my our your this that these those another one two three new more some any all all-new \
                       following urgent important quick quickly small big short long high low medium critical top normal \
                       priority high-priority low-priority personal open please of me us existing current recurring repeating repeated daily weekly monthly yearly";

#[derive(Debug)]
enum Element {
    Words { any: Vec<&'static str>, optional: bool },
    Gap,
    Filler,
    Number { optional: bool },
}

/// A parsed pattern.
#[derive(Debug)]
pub(super) struct Pattern(Vec<Element>);

/// A match of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fit {
    /// The first word after the match.
    pub end: usize,
    /// The words of the gaps.
    pub gaps: Vec<Range<usize>>,
}

impl Pattern {
    /// Parses a pattern.
    pub fn new(source: &'static str) -> Self {
        let read = |token: &'static str| {
            let (token, optional) = token.strip_suffix('?').map_or((token, false), |t| (t, true));
            match token {
                "*" => Element::Gap,
                "~" => Element::Filler,
                "#" => Element::Number { optional },
                words => Element::Words { any: words.split('|').collect(), optional },
            }
        };
        Self(source.split_whitespace().map(read).collect())
    }

    /// Matches the pattern against the words from `start` on.
    pub fn fit(&self, words: &[Word], start: usize) -> Option<Fit> {
        fit(&self.0, words, start, &[])
    }
}

fn fit(pattern: &[Element], words: &[Word], at: usize, gaps: &[Range<usize>]) -> Option<Fit> {
    let Some((first, rest)) = pattern.split_first() else {
        return Some(Fit { end: at, gaps: gaps.to_vec() });
    };
    let here = words.get(at).filter(|w| !w.quoted);
    let one = |taken: bool, optional: bool| {
        let on = taken.then(|| fit(rest, words, at + 1, gaps)).flatten();
        on.or_else(|| optional.then(|| fit(rest, words, at, gaps)).flatten())
    };
    match first {
        Element::Words { any, optional } => one(here.is_some_and(|w| any.contains(&w.lower.as_str())), *optional),
        Element::Number { optional } => one(here.is_some_and(|w| number(&w.lower).is_some()), *optional),
        Element::Filler => (0..=FILLER_WORDS_MAX)
            .take_while(|n| *n == 0 || words.get(at + n - 1).is_some_and(is_filler))
            .find_map(|n| fit(rest, words, at + n, gaps)),
        Element::Gap => (0..=GAP_WORDS_MAX.min(words.len().saturating_sub(at))).find_map(|n| {
            let mut gaps = gaps.to_vec();
            gaps.push(at..at + n);
            fit(rest, words, at + n, &gaps)
        }),
    }
}

fn is_filler(word: &Word) -> bool {
    !word.quoted && (number(&word.lower).is_some() || FILLERS.split_whitespace().any(|f| f == word.lower))
}

/// The number that a word is: `3`, `#3`.
pub(super) fn number(word: &str) -> Option<u64> {
    let digits = word.strip_prefix('#').unwrap_or(word);
    (!digits.is_empty() && digits.len() <= 9 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::{super::text::Text, *};

    fn rest_and_gap(pattern: &'static str, source: &str) -> Option<(String, String)> {
        let text = Text::new(source);
        Pattern::new(pattern).fit(&text.words, 0).map(|fit| {
            let gap = fit.gaps.first().map(|g| text.slice(g.clone())).unwrap_or_default();
            (text.slice(fit.end..text.words.len()).to_owned(), gap.to_owned())
        })
    }

    #[test]
    fn pattern_matches_the_beginning_and_leaves_the_rest() {
        let fits = |p, s| rest_and_gap(p, s);
        assert_eq!(
            fits("create|add ~ task to?", "Add a new urgent task to call Bob"),
            Some(("call Bob".into(), String::new()))
        );
        assert_eq!(
            fits("add * to my list", "add milk and eggs to my list"),
            Some((String::new(), "milk and eggs".into()))
        );
        assert_eq!(fits("task #", "task #12 is done"), Some(("is done".into(), String::new())));
        assert_eq!(fits("help *", "help"), Some((String::new(), String::new())));
        assert_eq!(fits("create ~ task", "create the big blue house task"), None);
        assert_eq!(fits("create", "please create"), None);
    }

    #[test]
    fn quoted_words_are_never_verbs() {
        assert_eq!(rest_and_gap("delete task", "\"delete task\""), None);
    }

    #[test]
    fn numbers_are_small_whole_and_may_have_a_hash() {
        assert_eq!([number("3"), number("#42"), number("#"), number("3rd")], [Some(3), Some(42), None, None]);
        assert_eq!(number("99999999999999999999"), None);
    }
}
