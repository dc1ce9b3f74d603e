//! Answers that are read aloud: without markup, tables, emoji and addresses of pages, and with few sentences. A model is asked for
//! this and does not always do it.
//!
//! [`Aloud`] works on a text that arrives in pieces, word by word, so that the pieces together are the beginning of the whole
//! text as it is spoken, however it is split.

mod words;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use words::{Cleaned, cleaned, ends_sentence, is_ideograph};

/// How much text may stay undecided, in bytes: the label or the address of a link, a word, or the marks at the beginning of a line.
/// What is longer is decided alike in a text that arrives whole, so that drafts are the beginning of the answer.
const LOOK_BYTES_MAX: usize = 4_096;
/// Marks at the beginning of a line.
const MARKS: &str = "#>-*+_=~|:` \t";
/// What is said after the last sentence that is allowed, if there was more.
const MORE: &str = "There is more; ask me to go on.";
/// What is said if nothing of the answer can be said.
const NOTHING: &str = "Okay.";
/// Signs that are a whole answer, and what is said for them.
const SIGNS: [(&[char], &str); 2] =
    [(&['❌', '✗', '✘', '✖', '❎', '👎', '🚫'], "No."), (&['✓', '✔', '✅', '☑', '👍'], "Yes.")];

/// `[voice]`: the form of answers that are read aloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VoiceFormat {
    /// Whether markup, tables, emoji and addresses of pages are left out.
    pub plain: bool,
    /// The maximum number of sentences of an answer of the model. 0 means no limit.
    pub sentences_max: u32,
}

impl Default for VoiceFormat {
    /// The prompt asks for one or two sentences. A list of tasks has more, and eight are about half a minute.
    fn default() -> Self {
        Self { plain: true, sentences_max: 8 }
    }
}

impl VoiceFormat {
    /// Answers as the model wrote them. Turns that were recorded before this format existed have it.
    #[must_use]
    pub const fn off() -> Self {
        Self { plain: false, sentences_max: 0 }
    }

    /// Whether answers stay as the model wrote them. Then nothing is written to the log.
    #[must_use]
    pub fn is_off(&self) -> bool {
        *self == Self::off()
    }

    /// Whether answers are changed.
    #[must_use]
    pub const fn is_on(self) -> bool {
        self.plain || self.sentences_max > 0
    }

    /// The same without a limit on sentences, for what the kernel itself adds.
    #[must_use]
    pub const fn without_limit(self) -> Self {
        Self { sentences_max: 0, ..self }
    }

    /// The text as it is spoken, and what was changed in it.
    #[must_use]
    pub fn spoken(self, text: &str) -> (String, Vec<VoiceChange>) {
        let mut aloud = Aloud::new(self);
        let mut spoken = aloud.push(text);
        spoken.push_str(&aloud.finish());
        if spoken.is_empty() && !text.trim().is_empty() {
            let sign = SIGNS.iter().find(|(signs, _)| text.contains(*signs));
            sign.map_or(NOTHING, |(_, said)| *said).clone_into(&mut spoken);
        }
        (spoken, aloud.changes)
    }
}

/// What was changed in a text that is read aloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoiceChange {
    /// Marks of headings, lists, emphasis and code.
    Markup,
    /// The cells of a table became a list.
    Table,
    /// Emoji.
    Emoji,
    /// The address of a page.
    Url,
    /// Sentences beyond the limit.
    Sentences,
}

impl VoiceChange {
    /// The name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Markup => "markup",
            Self::Table => "table",
            Self::Emoji => "emoji",
            Self::Url => "url",
            Self::Sentences => "sentences",
        }
    }
}

/// What stands between two words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    #[default]
    None,
    Space,
    /// Between cells of a table, and items of a list.
    Cell,
    Line,
}

/// Makes a text that arrives in pieces fit to be read aloud.
#[derive(Debug)]
pub struct Aloud {
    format: VoiceFormat,
    /// Text that is not decided yet.
    pending: String,
    is_line_start: bool,
    /// Whether the line is a row of a table, and whether this line and the one before are items of a list.
    is_row: bool,
    is_item: bool,
    gap: Gap,
    /// The last character that was shown.
    last: Option<char>,
    sentences: u32,
    /// The rest of the text is left out.
    is_over: bool,
    changes: Vec<VoiceChange>,
}

impl Aloud {
    /// Begins a text.
    #[must_use]
    pub const fn new(format: VoiceFormat) -> Self {
        Self {
            format,
            pending: String::new(),
            is_line_start: true,
            is_row: false,
            is_item: false,
            gap: Gap::None,
            last: None,
            sentences: 0,
            is_over: false,
            changes: Vec::new(),
        }
    }

    /// Adds a piece of text. Returns what may be shown now.
    pub fn push(&mut self, piece: &str) -> String {
        self.pending.push_str(piece);
        self.advance(false)
    }

    /// Ends the text. Returns the rest.
    pub fn finish(&mut self) -> String {
        self.advance(true)
    }

    fn advance(&mut self, is_end: bool) -> String {
        let mut shown = String::new();
        while !self.pending.is_empty() {
            if self.is_over {
                self.pending.clear();
            } else if !self.step(is_end, &mut shown) {
                break;
            }
        }
        shown
    }

    /// Decides the next part of the pending text. Returns false if that needs more text.
    fn step(&mut self, is_end: bool, shown: &mut String) -> bool {
        if self.is_line_start && self.format.plain {
            return self.line_start(is_end);
        }
        self.is_line_start = false;
        let Some(first) = self.pending.chars().next() else { return false };
        if first == '\n' {
            self.take(1);
            (self.is_line_start, self.is_row) = (true, false);
            self.widen(Gap::Line);
        } else if first.is_whitespace() {
            self.take(first.len_utf8());
            self.widen(Gap::Space);
        } else if self.is_row && first == '|' || self.format.plain && self.pending.starts_with("| ") {
            self.take(1);
            self.note(VoiceChange::Table);
            self.widen(Gap::Cell);
        } else {
            match self.word_end(is_end) {
                Word::Needs => return false,
                Word::Link => {}
                Word::Ends(at) => {
                    let word = self.take(at);
                    self.say(&word, shown);
                }
            }
        }
        true
    }

    /// Removes the marks at the beginning of a line.
    fn line_start(&mut self, is_end: bool) -> bool {
        let blank = self.pending.len() - self.pending.trim_start().len();
        self.take(blank);
        let line_end = self.pending.find('\n');
        let line = &self.pending[..line_end.unwrap_or(self.pending.len())];
        let is_whole = is_end || line_end.is_some() || line.len() >= LOOK_BYTES_MAX;
        if line.is_empty() {
            return false;
        }
        let is_fence = line.starts_with("```") || line.starts_with("~~~");
        let has_only_marks = line.chars().all(|c| MARKS.contains(c));
        let (marks, is_item) = leading_marks(line);
        let may_be_mark = |c: char| MARKS.contains(c) || c.is_ascii_digit() || matches!(c, '.' | ')');
        if !is_whole && (is_fence || line[marks..].chars().all(may_be_mark)) {
            return false;
        }
        if is_fence || has_only_marks {
            self.note(if line.contains('|') { VoiceChange::Table } else { VoiceChange::Markup });
            self.take(line_end.map_or(self.pending.len(), |at| at + 1));
            return true;
        }
        let is_row = line[marks..].starts_with('|');
        if marks > 0 {
            self.note(VoiceChange::Markup);
        }
        if self.gap == Gap::Line && self.is_item && is_item {
            self.gap = Gap::Cell;
        }
        self.take(marks);
        if is_row {
            self.note(VoiceChange::Table);
            self.take(1);
        }
        (self.is_line_start, self.is_item, self.is_row) = (false, is_item, is_row);
        true
    }

    /// Where the next word ends. A link is replaced by its label first.
    fn word_end(&mut self, is_end: bool) -> Word {
        let pending = self.pending.as_str();
        let is_row = self.is_row;
        let ends = |c: char| c.is_whitespace() || is_row && c == '|';
        let end = pending.find(ends);
        let word = &pending[..end.unwrap_or(pending.len())];
        if let Some(open) = word.find('[').filter(|_| self.format.plain) {
            let needs = |from: usize| !is_end && pending.len() - from < LOOK_BYTES_MAX;
            let near = |from: usize, mark| pending[from..].find(mark).filter(|at| *at < LOOK_BYTES_MAX);
            let close = near(open, ']').map(|at| open + at);
            let after = close.map(|close| pending[close + 1..].chars().next());
            match (close, after.flatten()) {
                (None, _) if needs(open) => return Word::Needs,
                (Some(close), None) if needs(close) => return Word::Needs,
                (Some(close), Some('(')) => match near(close, ')').map(|at| close + at) {
                    Some(until) => {
                        let begin = if pending[..open].ends_with('!') { open - 1 } else { open };
                        let label = pending[open + 1..close].replace(['\n', '['], " ");
                        let rest = format!("{}{label}{}", &pending[..begin], &pending[until + 1..]);
                        self.pending = rest;
                        self.note(VoiceChange::Url);
                        return Word::Link;
                    }
                    None if needs(close) => return Word::Needs,
                    None => {}
                },
                (None | Some(_), _) => {}
            }
        }
        // Some scripts have no spaces between words.
        let mut chars = word.char_indices();
        let first = chars.next().map_or('\0', |(_, c)| c);
        if is_ideograph(first) {
            return Word::Ends(first.len_utf8());
        }
        if let Some((at, _)) = chars.find(|(_, c)| is_ideograph(*c)) {
            return Word::Ends(at);
        }
        match end {
            _ if word.len() >= LOOK_BYTES_MAX => Word::Ends(word.floor_char_boundary(LOOK_BYTES_MAX)),
            Some(at) => Word::Ends(at),
            None if is_end => Word::Ends(word.len()),
            None => Word::Needs,
        }
    }

    /// Shows a word, unless nothing of it is left or there are enough sentences.
    fn say(&mut self, word: &str, shown: &mut String) {
        let word = if self.format.plain {
            let Cleaned { text, changes } = cleaned(word);
            changes.into_iter().for_each(|change| self.note(change));
            text
        } else {
            word.to_owned()
        };
        if word.is_empty() {
            return;
        }
        let gap = std::mem::take(&mut self.gap);
        let is_stopped = |last: char| ".!?…:;,。！？".contains(last);
        let between = match (gap, self.last) {
            (Gap::None, _) | (_, None) => "",
            (Gap::Line, Some(_)) if !self.format.plain => "\n",
            (Gap::Space, Some(_)) => " ",
            (Gap::Cell | Gap::Line, Some(last)) if is_stopped(last) => " ",
            (Gap::Cell, Some(_)) => ", ",
            (Gap::Line, Some(_)) => {
                self.sentences = self.sentences.saturating_add(1);
                ". "
            }
        };
        if self.format.sentences_max > 0 && self.sentences >= self.format.sentences_max {
            self.note(VoiceChange::Sentences);
            self.is_over = true;
            shown.push_str(if between == ". " { ". " } else { " " });
            shown.push_str(MORE);
            return;
        }
        shown.push_str(between);
        shown.push_str(&word);
        self.last = word.chars().next_back();
        self.sentences = self.sentences.saturating_add(u32::from(ends_sentence(&word)));
    }

    fn widen(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
    }

    fn note(&mut self, change: VoiceChange) {
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }

    /// Removes the beginning of the pending text.
    fn take(&mut self, until: usize) -> String {
        let rest = self.pending.split_off(until);
        std::mem::replace(&mut self.pending, rest)
    }
}

/// The end of the next word.
enum Word {
    /// More text is needed.
    Needs,
    /// A link was replaced by its label.
    Link,
    /// The word ends here.
    Ends(usize),
}

/// The length of the marks at the beginning of a line, and whether it is an item of a list. The number of an item is not a mark: it
/// may be a part of the sentence, as in "42. That is the answer."
fn leading_marks(line: &str) -> (usize, bool) {
    let (mut rest, mut is_item) = (line, false);
    loop {
        let heading = rest.trim_start_matches('#');
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = rest.len() - number.len();
        rest = if let Some(quoted) = rest.strip_prefix('>') {
            quoted.trim_start()
        } else if heading.len() < rest.len() && heading.starts_with(' ') {
            heading.trim_start()
        } else if let Some(item) =
            rest.strip_prefix(['-', '*', '+', '•']).and_then(|item| item.strip_prefix([' ', '\t']))
        {
            is_item = true;
            let item = item.trim_start();
            ["[ ] ", "[x] ", "[X] "].iter().find_map(|tick| item.strip_prefix(tick)).unwrap_or(item)
        } else if (1..=3).contains(&digits) && (number.starts_with(". ") || number.starts_with(") ")) {
            return (line.len() - rest.len(), true);
        } else {
            return (line.len() - rest.len(), is_item);
        };
    }
}
