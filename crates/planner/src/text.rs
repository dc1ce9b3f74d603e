//! Splits a text into words with the punctuation between them: enough to find verbs, dates and titles without losing a
//! character of the user's text.

use std::ops::Range;

/// The punctuation after a word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mark {
    /// A space or nothing.
    #[default]
    Space,
    /// A comma.
    Comma,
    /// A colon.
    Colon,
    /// A semicolon.
    Semicolon,
    /// The end of a sentence.
    Stop,
    /// The end of a line.
    Line,
}

/// One word. A contraction gives two: `what's` is `what` and `is`, the second with an empty range in the text.
#[derive(Debug, Clone)]
pub(super) struct Word {
    /// In lower case, without surrounding punctuation.
    pub lower: String,
    /// The word's range in the text, without punctuation.
    pub at: Range<usize>,
    /// The punctuation after the word.
    pub mark: Mark,
    /// The word is inside quotes: it is a value, never a verb or a date.
    pub quoted: bool,
    /// The word begins a line, after a bullet or a number.
    pub bullet: bool,
}

/// A text split into words. The time to read it is linear in its length.
#[derive(Debug, Clone)]
pub(super) struct Text<'a> {
    pub source: &'a str,
    pub words: Vec<Word>,
    /// Ranges of quoted values, without the quotes.
    pub quotes: Vec<Range<usize>>,
}

/// Longer words are not verbs.
const WORD_BYTES_MAX: usize = 64;

impl<'a> Text<'a> {
    /// Splits a text.
    pub fn new(source: &'a str) -> Self {
        let quotes = quotes(source);
        let mut text = Self { source, words: Vec::new(), quotes };
        let mut quote = 0;
        let mut bullet = false;
        for (line_break, raw) in chunks(source) {
            let fresh_line = line_break || text.words.is_empty();
            if line_break && let Some(last) = text.words.last_mut() {
                last.mark = Mark::Line;
            }
            if fresh_line && is_bullet(&source[raw.clone()]) {
                bullet = true;
                continue;
            }
            while text.quotes.get(quote).is_some_and(|q| q.end <= raw.start) {
                quote += 1;
            }
            let quoted = text.quotes.get(quote).is_some_and(|q| q.start < raw.end && raw.start < q.end);
            text.push(raw, quoted, std::mem::take(&mut bullet));
        }
        text
    }

    fn push(&mut self, raw: Range<usize>, quoted: bool, bullet: bool) {
        let chunk = &self.source[raw.clone()];
        let bare = chunk.trim_matches(|c: char| !is_word_char(c));
        let bare = if bare.is_empty() { chunk } else { bare };
        // `bare` is a slice of `chunk`, so the difference of the addresses is its offset.
        let start = raw.start + (bare.as_ptr() as usize - chunk.as_ptr() as usize);
        let at = start..start + bare.len();
        let mark = mark_after(&self.source[at.end..raw.end]);
        let lower =
            if bare.len() > WORD_BYTES_MAX { String::new() } else { bare.to_lowercase().replace(['’', '‘'], "'") };
        match expanded(&lower).filter(|_| !quoted) {
            Some((first, second)) => {
                let end = at.end;
                self.words.push(Word { lower: first.to_owned(), at, mark: Mark::Space, quoted, bullet });
                self.words.push(Word { lower: second.to_owned(), at: end..end, mark, quoted, bullet: false });
            }
            None => self.words.push(Word { lower, at, mark, quoted, bullet }),
        }
    }

    /// The first word of the payload: everything after the first colon or line break outside quotes. The payload is data
    /// and never treated as a request. Without a payload, the number of words.
    pub fn payload_at(&self) -> usize {
        let carried = |at: &usize| {
            let (before, here) = (&self.words[at - 1], &self.words[*at]);
            matches!(before.mark, Mark::Colon | Mark::Line) && !(before.quoted && here.quoted)
        };
        (1..self.words.len()).find(carried).unwrap_or(self.words.len())
    }

    /// Whether the text has several lines.
    pub fn has_lines(&self) -> bool {
        self.words.iter().rev().skip(1).any(|w| w.mark == Mark::Line)
    }

    /// The text of these words, without spaces and separating punctuation at both ends.
    pub fn slice(&self, words: Range<usize>) -> &'a str {
        let Some(first) = self.words.get(words.start).filter(|_| words.start < words.end) else { return "" };
        let end = match self.words.get(words.end) {
            Some(next) => self.opening(next.at.start),
            None => self.source.len(),
        };
        let start = self.opening(first.at.start);
        self.source.get(start..end.max(start)).unwrap_or_default().trim_matches(is_separator).trim()
    }

    /// The start of a word with the quote or bracket that it opens.
    fn opening(&self, start: usize) -> usize {
        let before = self.source[..start].trim_end_matches(|c: char| "\"“„‟«'‘‚([{`$€£@".contains(c));
        before.len()
    }

    /// The first quoted value that begins at or after a word.
    pub fn quote_from(&self, word: usize) -> Option<&'a str> {
        let from = self.words.get(word)?.at.start;
        self.quotes.iter().find(|q| q.end > from).map(|q| &self.source[q.clone()])
    }
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '#' | '_' | '+')
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | ';' | ':' | '-' | '–' | '—')
}

/// `-`, `*`, `•`, `1.`, `2)` at the beginning of a line.
fn is_bullet(chunk: &str) -> bool {
    let number = chunk.strip_suffix(['.', ')']).unwrap_or("");
    matches!(chunk, "-" | "*" | "•" | "–" | "+" | "[]")
        || (!number.is_empty() && number.len() <= 3 && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Chunks between white space, and whether a line ended before each.
fn chunks(source: &str) -> impl Iterator<Item = (bool, Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &source[at..];
        let skipped = rest.len() - rest.trim_start().len();
        let line_break = rest[..skipped].contains('\n');
        let start = at + skipped;
        let len = source[start..].find(char::is_whitespace).unwrap_or(source.len() - start);
        at = start + len;
        (len > 0).then_some((line_break, start..start + len))
    })
}

fn mark_after(punctuation: &str) -> Mark {
    punctuation
        .chars()
        .find_map(|c| match c {
            ',' => Some(Mark::Comma),
            ':' => Some(Mark::Colon),
            ';' => Some(Mark::Semicolon),
            '.' | '!' | '?' | '…' => Some(Mark::Stop),
            _ => None,
        })
        .unwrap_or_default()
}

/// Splits contractions that occur with verbs and questions.
fn expanded(lower: &str) -> Option<(&str, &'static str)> {
    const NOT: [(&str, &str); 8] = [
        ("don't", "do"),
        ("can't", "can"),
        ("won't", "will"),
        ("isn't", "is"),
        ("doesn't", "does"),
        ("didn't", "did"),
        ("mustn't", "must"),
        ("haven't", "have"),
    ];
    const IS: [&str; 10] = ["what", "who", "when", "where", "how", "it", "that", "there", "which", "here"];
    if let Some((_, verb)) = NOT.iter().find(|(short, _)| *short == lower) {
        return Some((verb, "not"));
    }
    let (head, tail) = lower.split_once('\'')?;
    match (head, tail) {
        ("let", "s") => Some(("let", "us")),
        (head, "s") if IS.contains(&head) => Some((head, "is")),
        ("i" | "you" | "we" | "they", "ve") => Some((head, "have")),
        ("i", "m") => Some((head, "am")),
        ("i" | "you" | "we" | "he" | "she", "d") => Some((head, "would")),
        ("i" | "you" | "we" | "it", "ll") => Some((head, "will")),
        ("you" | "we" | "they", "re") => Some((head, "are")),
        _ => None,
    }
}

/// Quoted values: pairs of straight or typographic double quotes, and of single quotes at the edges of words, which
/// distinguishes them from apostrophes.
fn quotes(source: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut open: Option<(char, usize)> = None;
    let mut before = ' ';
    let mut chars = source.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let after = chars.peek().map_or(' ', |(_, c)| *c);
        match open {
            None => {
                let opens = match c {
                    // `5"` is a measure.
                    '"' => !before.is_alphanumeric(),
                    '“' | '„' | '‟' | '`' | '«' => true,
                    '\'' | '‘' | '‚' => !before.is_alphanumeric() && after.is_alphanumeric(),
                    _ => false,
                };
                if opens {
                    open = Some((c, at + c.len_utf8()));
                }
            }
            Some((kind, start)) => {
                let closes = match kind {
                    '"' | '`' => c == kind,
                    '«' => c == '»',
                    '“' | '„' | '‟' => matches!(c, '”' | '“' | '"'),
                    _ => matches!(c, '\'' | '’') && !after.is_alphanumeric(),
                };
                if closes {
                    if start < at {
                        found.push(start..at);
                    }
                    open = None;
                } else if c == '\n' && is_single(kind) {
                    open = None;
                }
            }
        }
        before = c;
    }
    // An unclosed quotation extends to the end of the text, because its content may be by another author.
    if let Some((_, start)) = open.filter(|(kind, start)| !is_single(*kind) && *start < source.len()) {
        found.push(start..source.len());
    }
    found
}

const fn is_single(quote: char) -> bool {
    matches!(quote, '\'' | '‘' | '‚')
}

/// Capitalises the first character.
pub(super) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Removes quotes that surround the whole text.
pub(super) fn unquoted(text: &str) -> &str {
    let text = text.trim();
    for (open, close) in [("\"", "\""), ("“", "”"), ("„", "“"), ("«", "»"), ("'", "'"), ("‘", "’"), ("`", "`")]
    {
        if let Some(inner) = text.strip_prefix(open).and_then(|t| t.strip_suffix(close))
            && !inner.contains(open)
            && !inner.is_empty()
        {
            return inner;
        }
    }
    text
}

/// Cuts a text to this many characters, and appends an ellipsis if it was longer.
pub(super) fn shortened(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lower(source: &str) -> Vec<String> {
        Text::new(source).words.into_iter().map(|w| w.lower).collect()
    }

    #[test]
    fn words_are_lower_case_and_contractions_are_split() {
        assert_eq!(lower("What's due, Bob's PR #42?"), ["what", "is", "due", "bob's", "pr", "#42"]);
        assert_eq!(lower("Don’t forget"), ["do", "not", "forget"]);
        assert_eq!(lower("… — ok"), ["…", "—", "ok"]);
        assert!(lower("   \n\t ").is_empty());
    }

    #[test]
    fn marks_record_punctuation_after_words() {
        let marks: Vec<Mark> = Text::new("a, b; c: d. e\nf").words.iter().map(|w| w.mark).collect();
        assert_eq!(marks, [Mark::Comma, Mark::Semicolon, Mark::Colon, Mark::Stop, Mark::Line, Mark::Space]);
    }

    #[test]
    fn quoted_values_are_found_and_apostrophes_are_not() {
        let source = "note “shopping list” with 'milk and eggs', it's Bob's \"so called\" idea";
        let text = Text::new(source);
        let values: Vec<&str> = text.quotes.iter().map(|q| &source[q.clone()]).collect();
        assert_eq!(values, ["shopping list", "milk and eggs", "so called"]);
        let quoted: Vec<&str> = text.words.iter().filter(|w| w.quoted).map(|w| w.lower.as_str()).collect();
        assert_eq!(quoted, ["shopping", "list", "milk", "and", "eggs", "so", "called"]);
    }

    #[test]
    fn slice_keeps_the_text_of_the_user() {
        let text = Text::new("add a task: call “Bob” (today), please!");
        assert_eq!(text.slice(3..6), "call “Bob” (today)");
        assert_eq!(text.slice(4..5), "“Bob”");
        assert_eq!(text.slice(6..7), "please!");
        assert_eq!(text.slice(7..9), "");
    }

    #[test]
    fn bullets_are_not_words() {
        let text = Text::new("add tasks:\n- milk\n2) eggs\n* bread");
        let bullets: Vec<&str> = text.words.iter().filter(|w| w.bullet).map(|w| w.lower.as_str()).collect();
        assert_eq!(bullets, ["milk", "eggs", "bread"]);
    }

    #[test]
    fn quotes_around_the_whole_text_are_removed() {
        assert_eq!(unquoted("\"a b\""), "a b");
        assert_eq!(unquoted("“a”"), "a");
        assert_eq!(unquoted("\"a\" and \"b\""), "\"a\" and \"b\"");
        assert_eq!(shortened("žluťoučký kůň", 4), "žluť…");
        assert_eq!(capitalised("éa"), "Éa");
    }
}
