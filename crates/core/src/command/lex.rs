//! Splits a command line into words: quotes, escapes, continued lines. It is used by the extraction (where does a command
//! end?) and by the parser (what are its words?), so that both always agree.
//!
//! The rules are those of a shell without expansions, with three exceptions: an apostrophe between letters is an apostrophe,
//! a quote in the middle of an unquoted word is literal, and typographic quotes are quotes.

use super::CommandError;

/// One word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// The text, with quotes and escapes resolved.
    pub text: String,
    /// Whether the word begins with a quote, so that it is a value whatever it looks like.
    pub quoted: bool,
}

/// The words up to the first line end that is neither quoted nor escaped.
pub(super) struct Line {
    pub words: Vec<Word>,
    /// Number of bytes read, including the line end.
    pub len_bytes: usize,
    /// Position of a quote that is never closed, in bytes.
    pub open_quote: Option<usize>,
}

/// Reads one logical line.
pub(super) fn line(text: &str) -> Line {
    let mut lexer = Lexer { text, at: 0, last_curly: text.rfind(is_curly_double), word: None, words: Vec::new() };
    let mut open_quote = None;
    while let Some(c) = lexer.next() {
        match c {
            '\n' => break,
            c if c.is_whitespace() => lexer.end_word(),
            '\\' => lexer.escape_bare(),
            c if is_quote(c) && lexer.quote_opens_here() => {
                let opened_at = lexer.at - c.len_utf8();
                if !lexer.quoted(c) {
                    open_quote = Some(opened_at);
                    break;
                }
            }
            c => lexer.push(c),
        }
    }
    lexer.end_word();
    Line { words: lexer.words, len_bytes: lexer.at, open_quote }
}

/// All words of a command.
pub(super) fn words(command: &str) -> Result<Vec<Word>, CommandError> {
    let mut words = Vec::new();
    let mut rest = command;
    while !rest.is_empty() {
        let line = line(rest);
        if let Some(at) = line.open_quote {
            return Err(open_quote(command, command.len() - rest.len() + at));
        }
        words.extend(line.words);
        rest = &rest[line.len_bytes..];
    }
    Ok(words)
}

/// Quotes a value on one line, so that [`super::parse`] returns it unchanged.
#[must_use]
pub fn quote(value: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_./:@,+%-".contains(c);
    if !value.is_empty() && !value.starts_with('-') && value.chars().all(plain) {
        return value.to_owned();
    }
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn open_quote(command: &str, at: usize) -> CommandError {
    let (before, after) = command.split_at(at);
    let this_line = before.rsplit('\n').next().unwrap_or_default();
    let column = this_line.chars().count() + 1;
    let lead: String = this_line.chars().skip(column.saturating_sub(41)).collect();
    let tail: String = after.chars().take(20).take_while(|c| *c != '\n').collect();
    CommandError::OpenQuote { line: before.matches('\n').count() + 1, column, near: format!("{lead}{tail}") }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// Position of the last typographic double quote. Before it, a straight quote does not close a typographic one.
    last_curly: Option<usize>,
    word: Option<Building>,
    words: Vec<Word>,
}

#[derive(Default)]
struct Building {
    word: Word,
    /// Whether the word has a quoted part. Then further quotes in it open again, as in `'it'\''s'`.
    has_quotes: bool,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().word.text.push(c);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take().map(|b| b.word));
    }

    /// Whether a quote opens here: at the start of a word, directly after `--flag=`, `name=` or `name:`, or in a word with a
    /// quoted part.
    fn quote_opens_here(&self) -> bool {
        self.word.as_ref().is_none_or(|b| {
            let text = &b.word.text;
            let name = text.strip_suffix(['=', ':']).map(|name| name.trim_start_matches(['-', '—', '–', '−']));
            b.has_quotes || name.is_some_and(is_name)
        })
    }

    /// Skips a line end after a backslash. Returns true if there was one.
    fn continues(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let skip = if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
        self.at += skip;
        skip > 0
    }

    fn escape_bare(&mut self) {
        if self.continues() {
            return;
        }
        match self.peek() {
            Some(c) if c == '\\' || is_quote(c) || c.is_whitespace() => {
                self.at += c.len_utf8();
                self.push(c);
            }
            _ => self.push('\\'),
        }
    }

    /// Reads up to the closing quote. Returns false if there is none.
    fn quoted(&mut self, open: char) -> bool {
        let starts_word = self.word.is_none();
        let building = self.word.get_or_insert_default();
        building.has_quotes = true;
        building.word.quoted |= starts_word;
        while let Some(c) = self.next() {
            if c == '\\' {
                self.escape_quoted(open);
            } else if self.closes(open, c) {
                return true;
            } else {
                self.push(c);
            }
        }
        false
    }

    fn closes(&self, open: char, c: char) -> bool {
        match open {
            '"' => c == '"',
            _ if is_curly_double(open) => {
                is_curly_double(c) || (c == '"' && self.last_curly.is_none_or(|last| last < self.at))
            }
            // Before a letter, the character is an apostrophe: 'it's fine'.
            '\'' => c == '\'' && !self.peek().is_some_and(char::is_alphanumeric),
            _ => is_single(c) && !self.peek().is_some_and(char::is_alphanumeric),
        }
    }

    fn escape_quoted(&mut self, open: char) {
        let next = self.peek();
        let meant = match next {
            Some(c) if is_single(open) => is_single(c).then_some(c),
            Some('n') => Some('\n'),
            Some('t') => Some('\t'),
            Some('r') => Some('\r'),
            Some(c) if c == '\\' || c == '"' || is_curly_double(c) => Some(c),
            _ if self.continues() => return,
            _ => None,
        };
        match (meant, next) {
            (Some(c), Some(raw)) => {
                self.at += raw.len_utf8();
                self.push(c);
            }
            _ => self.push('\\'),
        }
    }
}

/// Whether a text can be the name of a flag.
pub(super) fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.starts_with(char::is_alphabetic) && text.chars().all(fits)
}

const fn is_curly_double(c: char) -> bool {
    matches!(c, '“' | '”' | '„' | '‟')
}

const fn is_single(c: char) -> bool {
    matches!(c, '\'' | '‘' | '’' | '‚' | '‛')
}

const fn is_quote(c: char) -> bool {
    c == '"' || is_curly_double(c) || is_single(c)
}
