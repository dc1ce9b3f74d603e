//! A line that is edited with the keys of Emacs and of every shell, and the lines before it. Pure.

use unicode_segmentation::UnicodeSegmentation;

use super::keys::Key;

/// What a key did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// The line may have changed.
    Edited,
    /// The line is complete.
    Submitted(String),
    /// The end of the input.
    Ended,
    /// Several commands begin like this.
    Candidates(Vec<String>),
    /// The screen is to be cleared.
    Cleared,
}

/// An edited line.
#[derive(Debug, Default)]
pub struct Line {
    text: String,
    /// In bytes, always between two graphemes.
    cursor: usize,
    /// The text that was cut last.
    cut: String,
    /// Earlier lines, oldest first.
    history: Vec<String>,
    /// The shown line of the history, and the line that was typed before.
    recalled: Option<(usize, String)>,
}

impl Line {
    /// An empty line after these.
    #[must_use]
    pub fn after(history: Vec<String>) -> Self {
        Self { history, ..Self::default() }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The position of the cursor, in bytes.
    #[must_use]
    pub const fn cursor(&self) -> usize {
        self.cursor
    }

    /// Adds a line to the history, unless it is the last one.
    pub fn remember(&mut self, line: &str) {
        if self.history.last().is_none_or(|last| last != line) {
            self.history.push(line.to_owned());
        }
    }

    /// Handles a key. `commands` are the names that Tab completes.
    pub fn press(&mut self, key: Key, commands: &[String]) -> Done {
        match key {
            Key::Enter => return Done::Submitted(self.taken()),
            Key::Control('d') if self.text.is_empty() => return Done::Ended,
            Key::Control('l') => return Done::Cleared,
            Key::Tab => return self.complete(commands),
            Key::Text(text) => self.insert(&text),
            Key::Left | Key::Control('b') => self.cursor = self.before(),
            Key::Right | Key::Control('f') => self.cursor = self.behind(),
            Key::Home | Key::Control('a') => self.cursor = self.line_start(),
            Key::End | Key::Control('e') => self.cursor = self.line_end(),
            Key::WordLeft | Key::Alt('b') => self.cursor = self.word_before(),
            Key::WordRight | Key::Alt('f') => self.cursor = self.word_behind(),
            Key::Backspace => self.remove(self.before(), self.cursor),
            Key::Delete | Key::Control('d') => self.remove(self.cursor, self.behind()),
            Key::Control('k') => self.cut(self.cursor, self.line_end()),
            Key::Control('u') => self.cut(self.line_start(), self.cursor),
            Key::Control('w') => self.cut(self.word_before(), self.cursor),
            Key::Alt('d') => self.cut(self.cursor, self.word_behind()),
            Key::Control('y') => self.insert(&self.cut.clone()),
            Key::Up | Key::Control('p') => self.recall_older(),
            Key::Down | Key::Control('n') => self.recall_newer(),
            Key::Control(_) | Key::Alt(_) => {}
        }
        Done::Edited
    }

    fn taken(&mut self) -> String {
        self.cursor = 0;
        self.recalled = None;
        std::mem::take(&mut self.text)
    }

    fn insert(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
        // Inserted marks may have joined the character before them.
        let is_between = |at| self.text.grapheme_indices(true).any(|(start, _)| start == at) || at == self.text.len();
        if !is_between(self.cursor) {
            self.cursor = self.behind();
        }
    }

    fn remove(&mut self, from: usize, to: usize) {
        self.text.replace_range(from..to, "");
        self.cursor = from;
    }

    fn cut(&mut self, from: usize, to: usize) {
        if from < to {
            self.text[from..to].clone_into(&mut self.cut);
            self.remove(from, to);
        }
    }

    fn before(&self) -> usize {
        self.text[..self.cursor].grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    fn behind(&self) -> usize {
        let mut starts = self.text.grapheme_indices(true).map(|(at, _)| at);
        starts.find(|at| *at > self.cursor).unwrap_or(self.text.len())
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    fn word_before(&self) -> usize {
        let before = self.text[..self.cursor].trim_end_matches(|c: char| !c.is_alphanumeric());
        before.trim_end_matches(char::is_alphanumeric).len()
    }

    fn word_behind(&self) -> usize {
        let rest = self.text[self.cursor..].trim_start_matches(|c: char| !c.is_alphanumeric());
        self.text.len() - rest.trim_start_matches(char::is_alphanumeric).len()
    }

    fn recall_older(&mut self) {
        let at = self.recalled.as_ref().map_or(self.history.len(), |(at, _)| *at);
        let Some(older) = at.checked_sub(1) else { return };
        let Some(line) = self.history.get(older).cloned() else { return };
        let typed = std::mem::replace(&mut self.text, line);
        let typed = self.recalled.take().map_or(typed, |(_, first)| first);
        self.recalled = Some((older, typed));
        self.cursor = self.text.len();
    }

    fn recall_newer(&mut self) {
        let Some((at, typed)) = self.recalled.take() else { return };
        match self.history.get(at + 1) {
            Some(newer) => {
                self.text.clone_from(newer);
                self.recalled = Some((at + 1, typed));
            }
            None => self.text = typed,
        }
        self.cursor = self.text.len();
    }

    /// Completes the command at the start of the line.
    fn complete(&mut self, commands: &[String]) -> Done {
        let typed = &self.text[..self.cursor];
        if !typed.starts_with('/') || typed.contains(char::is_whitespace) {
            return Done::Edited;
        }
        let mut found: Vec<&String> = commands.iter().filter(|name| name.starts_with(typed)).collect();
        found.sort_unstable();
        found.dedup();
        let Some((first, others)) = found.split_first() else { return Done::Edited };
        let common = others.iter().fold(first.as_str(), |common, name| {
            let same = common.char_indices().zip(name.chars()).find(|((_, a), b)| a != b);
            &common[..same.map_or(common.len().min(name.len()), |((at, _), _)| at)]
        });
        let missing = common.strip_prefix(typed).unwrap_or_default().to_owned();
        if others.is_empty() {
            let space = if self.text[self.cursor..].starts_with(' ') { "" } else { " " };
            self.insert(&(missing + space));
        } else if missing.is_empty() {
            return Done::Candidates(found.into_iter().cloned().collect());
        } else {
            self.insert(&missing);
        }
        Done::Edited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::editor::keys::Decoder;

    /// Types bytes, and shows the line with its cursor.
    fn typed(line: &mut Line, bytes: &[u8]) -> String {
        for key in Decoder::default().keys(bytes) {
            line.press(key, &[]);
        }
        let (before, behind) = line.text().split_at(line.cursor());
        format!("{before}|{behind}")
    }

    #[test]
    fn keys_edit_at_the_cursor() {
        let of = |bytes: &[u8]| typed(&mut Line::default(), bytes);
        assert_eq!(of(b"abc\x1b[D\x1b[DX"), "aX|bc");
        assert_eq!(of("日本é\x1b[D\x7f".as_bytes()), "日|é");
        assert_eq!(of(b"one two\x01\x1bf!"), "one!| two");
        assert_eq!(of(b"one two\x17\x01\x19"), "two|one ");
        assert_eq!(of(b"one\x1b[D\x0b\x01\x19\x04"), "e|n");
        assert_eq!(of(b"one\x15x"), "x|");
        assert_eq!(of(b"\x1b[200~a\nbc\x1b[201~\x1b[H\x1b[3~"), "a\n|c");
        assert_eq!(of(b"\x7f\x1b[3~\x1b[D\x1b[C\x17\x0b"), "|");
        // A combining mark belongs to the character before it.
        assert_eq!(of("e\u{301}\x7f".as_bytes()), "|");
    }

    #[test]
    fn arrows_recall_earlier_lines_and_the_one_being_typed() {
        let mut line = Line::after(vec!["one".to_owned()]);
        line.remember("two");
        line.remember("two");
        assert_eq!(typed(&mut line, b"thr\x1b[A"), "two|");
        assert_eq!(typed(&mut line, b"\x1b[A\x1b[A"), "one|");
        assert_eq!(typed(&mut line, b"\x1b[B\x1b[B\x1b[B"), "thr|");
        assert_eq!(typed(&mut line, b"\x1b[A!"), "two!|");
        assert_eq!(line.press(Key::Enter, &[]), Done::Submitted("two!".to_owned()));
        assert_eq!(typed(&mut line, b"\x1b[A"), "two|");
    }

    #[test]
    fn tab_completes_commands_at_the_start_of_the_line_only() {
        let names = ["/status", "/standup", "/help", "/steer"].map(str::to_owned);
        let mut line = Line::default();
        typed(&mut line, b"/he");
        assert_eq!(line.press(Key::Tab, &names), Done::Edited);
        assert_eq!(line.text(), "/help ");
        assert_eq!(line.press(Key::Tab, &names), Done::Edited);
        assert_eq!(line.text(), "/help ");
        typed(&mut line, b"\x15/s");
        assert_eq!(line.press(Key::Tab, &names), Done::Edited);
        assert_eq!(line.text(), "/st");
        let all = ["/standup", "/status", "/steer"].map(str::to_owned).to_vec();
        assert_eq!(line.press(Key::Tab, &names), Done::Candidates(all));
        typed(&mut line, b"\x15hello");
        assert_eq!(line.press(Key::Tab, &names), Done::Edited);
        assert_eq!(line.text(), "hello");
    }

    #[test]
    fn control_d_ends_an_empty_line_only() {
        let mut line = Line::default();
        typed(&mut line, b"a\x01");
        assert_eq!(line.press(Key::Control('d'), &[]), Done::Edited);
        assert_eq!(line.press(Key::Control('d'), &[]), Done::Ended);
    }
}
