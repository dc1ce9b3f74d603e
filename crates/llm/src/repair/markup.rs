//! Separates thinking from a text and removes the tokens of chat templates while the text streams. A possible beginning of
//! a marker is withheld until it is decided, so that no part of a marker is ever shown.

use annie_core::outcome::floor_char_boundary;

/// Length limit for the header of a harmony message, in bytes.
const HEADER_BYTES_MAX: usize = 400;
const HARMONY_ENDS: &[&str] = &["<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>"];
/// The first characters of all markers.
const BEGINNINGS: [char; 3] = ['<', '[', '◁'];
const THINK: &[&str] = &["</think>", "</thinking>"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Thinking begins, and ends at one of these markers.
    Think(&'static [&'static str]),
    /// Thinking ends. If it had no begin marker, all text before is thinking: the template had written the begin marker.
    EndThink,
    /// A token of the template, which is removed.
    Drop,
    /// The turn of another speaker: the model continues in another role, so the reply ends here.
    End,
    /// The header of a harmony message begins.
    Header,
    /// Removed as a token at the end of a text, kept as text elsewhere.
    Tail,
}

const MARKERS: [(&str, Act); 46] = [
    ("<think>", Act::Think(THINK)),
    ("<thinking>", Act::Think(THINK)),
    ("[THINK]", Act::Think(&["[/THINK]"])),
    ("<thought>", Act::Think(&["</thought>"])),
    ("<reasoning>", Act::Think(&["</reasoning>"])),
    ("<seed:think>", Act::Think(&["</seed:think>"])),
    ("◁think▷", Act::Think(&["◁/think▷"])),
    ("</think>", Act::EndThink),
    ("</thinking>", Act::EndThink),
    ("[/THINK]", Act::EndThink),
    ("</thought>", Act::EndThink),
    ("</seed:think>", Act::EndThink),
    ("◁/think▷", Act::EndThink),
    ("<|channel|>", Act::Header),
    ("<|start|>", Act::Header),
    ("<|message|>", Act::Drop),
    ("<|constrain|>", Act::Drop),
    ("<|end|>", Act::Drop),
    ("<|return|>", Act::Drop),
    ("<|call|>", Act::Drop),
    ("<|im_end|>", Act::Drop),
    ("<|im_start|>", Act::Drop),
    ("<|im_start|>assistant", Act::Drop),
    ("<|im_start|>user", Act::End),
    ("<|im_start|>system", Act::End),
    ("<|im_start|>tool", Act::End),
    ("<|eot_id|>", Act::Drop),
    ("<|eom_id|>", Act::Drop),
    ("<|begin_of_text|>", Act::Drop),
    ("<|end_of_text|>", Act::Drop),
    ("<|endoftext|>", Act::Drop),
    ("<|python_tag|>", Act::Drop),
    ("<|start_header_id|>assistant<|end_header_id|>", Act::Drop),
    ("<|start_header_id|>user<|end_header_id|>", Act::End),
    ("<|start_header_id|>", Act::Drop),
    ("<|end_header_id|>", Act::Drop),
    ("<|assistant|>", Act::Drop),
    ("<|user|>", Act::End),
    ("<|system|>", Act::End),
    ("<end_of_turn>", Act::Drop),
    ("<start_of_turn>", Act::Drop),
    ("<start_of_turn>model", Act::Drop),
    ("<start_of_turn>user", Act::End),
    ("<eos>", Act::Tail),
    ("<｜end▁of▁sentence｜>", Act::Drop),
    ("</s>", Act::Tail),
];

/// A classified part of the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text for the user.
    Text(String),
    /// Thinking.
    Thought(String),
    /// All text emitted so far was thinking.
    AllWasThinking,
}

#[derive(Debug)]
enum Mode {
    Text,
    Think(&'static [&'static str]),
    Tag(Tag),
    Header,
    Call { name: String, body: String },
    Over,
}

/// A begin marker of thinking in the middle of a line. If its end marker comes, the text between is thinking. Otherwise the
/// answer only mentions the marker. The text after the marker is withheld until then.
#[derive(Debug)]
struct Tag {
    marker: &'static str,
    ends: &'static [&'static str],
    body: String,
    cursor: Cursor,
}

/// The last character, and whether the backticks of the current line open a code span.
#[derive(Debug, Clone, Default)]
struct Cursor {
    last: Option<char>,
    in_span: bool,
    /// The current code span contains a begin marker of thinking as text.
    opener_in_span: bool,
    /// The first characters of the line.
    line: String,
}

/// The state of one reply.
#[derive(Debug)]
pub(super) struct Markup {
    mode: Mode,
    /// Input that is not classified yet, from byte `at` on. Classified input is removed once for each piece of the reply.
    pending: String,
    at: usize,
    /// Tokens that are removed if no text follows.
    tail: String,
    /// Text that becomes thinking if an end marker comes.
    held: Option<String>,
    /// Offset in `held` of a begin marker of thinking.
    began_in_held: Option<usize>,
    cursor: Cursor,
    in_fence: bool,
    /// The current fenced block contains a begin marker of thinking as text.
    opener_in_fence: bool,
    /// End markers that are known not to occur in the rest of the reply.
    missing: Vec<&'static [&'static str]>,
    has_thought: bool,
    has_text: bool,
    /// The reply began with the header of a harmony message.
    began_with_header: Option<bool>,
    /// Calls in the harmony format: name and arguments.
    calls: Vec<(String, String)>,
    pub took_thinking: bool,
    pub took_tokens: bool,
    /// Thinking ended without a begin marker: the backend's template writes it.
    pub ended_without_begin: bool,
    /// Text was withheld as possible thinking, and was not thinking.
    pub withheld_needlessly: bool,
    /// The text contains a begin marker of thinking without an end: the text after it may be thinking.
    pub has_open_thinking: bool,
}

impl Markup {
    /// With `begins_thinking`, the template is known to begin thinking: text is withheld until the end marker comes.
    pub const fn new(begins_thinking: bool) -> Self {
        Self {
            mode: Mode::Text,
            pending: String::new(),
            at: 0,
            tail: String::new(),
            held: if begins_thinking { Some(String::new()) } else { None },
            began_in_held: None,
            cursor: Cursor { last: None, in_span: false, opener_in_span: false, line: String::new() },
            in_fence: false,
            opener_in_fence: false,
            missing: Vec::new(),
            has_thought: false,
            has_text: false,
            began_with_header: None,
            calls: Vec::new(),
            took_thinking: false,
            took_tokens: false,
            ended_without_begin: false,
            withheld_needlessly: false,
            has_open_thinking: false,
        }
    }

    /// Records that thinking arrived in a separate field: the text does not begin with thinking.
    pub fn thinking_is_separate(&mut self) {
        self.held.take_if(|held| held.trim().is_empty());
    }

    pub fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.pending.push_str(text);
        while self.step(false, out) {}
        self.pending.drain(..self.at);
        self.at = 0;
    }

    /// Classifies the rest. With `is_cut` the reply did not end by itself: withheld text is then thinking without its end.
    pub fn finish(&mut self, is_cut: bool, out: &mut Vec<Piece>) {
        while self.step(true, out) {}
        while matches!(self.mode, Mode::Tag(_)) {
            if let Mode::Tag(tag) = std::mem::replace(&mut self.mode, Mode::Text) {
                self.close_unended(tag, is_cut, out);
            }
            while self.step(true, out) {}
        }
        self.took_tokens |= !self.tail.trim().is_empty();
        if let Some(mut held) = self.held.take() {
            let text_bytes = if is_cut { 0 } else { self.began_in_held.unwrap_or(held.len()) };
            let thought = held.split_off(text_bytes);
            self.withheld_needlessly = !is_cut && !held.trim().is_empty();
            self.give(&held, out);
            if !thought.is_empty() {
                self.took_thinking = true;
                out.push(Piece::Thought(thought));
            }
        }
        if let Mode::Call { name, body } = std::mem::replace(&mut self.mode, Mode::Over) {
            self.calls.push((name, body));
        }
    }

    /// At the end of the reply: the text after the marker is text and may mention other markers; in a cut reply it is
    /// thinking.
    fn close_unended(&mut self, tag: Tag, is_cut: bool, out: &mut Vec<Piece>) {
        if is_cut {
            self.thought(tag.body, out);
            return;
        }
        self.missing.push(tag.ends);
        self.has_open_thinking = true;
        self.pending = tag.body;
        self.at = 0;
        self.cursor = tag.cursor;
        self.say(tag.marker, out);
    }

    fn thought(&mut self, thought: String, out: &mut Vec<Piece>) {
        (self.took_thinking, self.has_thought) = (true, true);
        if !thought.is_empty() {
            out.push(Piece::Thought(thought));
        }
    }

    /// Calls in the harmony format, if the reply began in it: other models only quote such calls.
    pub fn calls(&self) -> &[(String, String)] {
        if self.began_with_header == Some(true) { &self.calls } else { &[] }
    }

    fn undecided(&self) -> &str {
        &self.pending[self.at..]
    }

    /// Takes this many bytes of the unclassified input.
    fn taken(&mut self, bytes: usize) -> String {
        let from = self.at;
        self.at += bytes;
        self.pending[from..self.at].to_owned()
    }

    /// One step. Returns false if no progress is possible until more text arrives.
    fn step(&mut self, is_last: bool, out: &mut Vec<Piece>) -> bool {
        if self.undecided().is_empty() {
            return false;
        }
        match &self.mode {
            Mode::Text => self.text(is_last, out),
            Mode::Think(ends) => {
                let ends = *ends;
                self.until(ends, is_last, |_, thought, out| out.push(Piece::Thought(thought)), out)
            }
            Mode::Tag(tag) => {
                let ends = tag.ends;
                self.until(ends, is_last, |this, more, _| this.tag_grows(&more), out)
            }
            Mode::Call { .. } => self.until(HARMONY_ENDS, is_last, |this, more, _| this.call_grows(&more), out),
            Mode::Header => self.header(is_last),
            Mode::Over => {
                self.at = self.pending.len();
                false
            }
        }
    }

    fn tag_grows(&mut self, more: &str) {
        if let Mode::Tag(tag) = &mut self.mode {
            tag.body.push_str(more);
        }
    }

    fn call_grows(&mut self, more: &str) {
        if let Mode::Call { body, .. } = &mut self.mode {
            body.push_str(more);
        }
    }

    /// Takes the text up to one of these end markers. Harmony markers that also begin a message are not consumed.
    fn until(
        &mut self,
        ends: &[&str],
        is_last: bool,
        take: impl FnOnce(&mut Self, String, &mut Vec<Piece>),
        out: &mut Vec<Piece>,
    ) -> bool {
        let may_quote = ends != HARMONY_ENDS;
        let (cut, end) = self.end_of(ends, is_last, may_quote);
        let taken = self.taken(cut);
        if !taken.is_empty() {
            self.follow(&taken);
            take(self, taken, out);
        }
        let Some(end) = end else { return false };
        match std::mem::replace(&mut self.mode, Mode::Text) {
            Mode::Call { name, body } => self.calls.push((name, body)),
            Mode::Tag(tag) => self.thought(tag.body, out),
            _ => {}
        }
        if !matches!(end, "<|start|>" | "<|channel|>") {
            self.at += end.len();
        }
        self.new_line();
        true
    }

    /// Returns the position and the text of the first end marker. Without one, returns the length of the text that cannot
    /// belong to an end marker. A quoted end marker, `</think>` between backticks, does not count.
    fn end_of<'e>(&self, ends: &[&'e str], is_last: bool, may_quote: bool) -> (usize, Option<&'e str>) {
        let text = self.undecided();
        let (mut in_span, mut seen) = (self.cursor.in_span, 0);
        for (at, end) in occurrences(text, ends) {
            in_span = span_after(in_span, text[..seen].chars().next_back().or(self.cursor.last), &text[seen..at]);
            seen = at;
            let behind = &text[at + end.len()..];
            if may_quote && in_span && text[..at].ends_with('`') {
                if behind.is_empty() && !is_last {
                    return (at - 1, None);
                }
                if behind.starts_with('`') {
                    continue;
                }
            }
            return (at, Some(end));
        }
        if is_last {
            return (text.len(), None);
        }
        let certain = text.len() - unfinished(text, ends);
        (certain - usize::from(may_quote && text[..certain].ends_with('`')), None)
    }

    fn header(&mut self, is_last: bool) -> bool {
        const END: &str = "<|message|>";
        // A longer header is invalid. The limit makes the result independent of how the reply was split.
        let text = self.undecided();
        let window = &text[..floor_char_boundary(text, HEADER_BYTES_MAX + END.len())];
        let Some(at) = window.find(END) else {
            let is_none = is_last || text.len() >= HEADER_BYTES_MAX + END.len();
            if is_none {
                // The text after the role is shown.
                let role = if text.starts_with("assistant") { "assistant".len() } else { 0 };
                self.at += role;
                self.mode = Mode::Text;
            }
            return is_none;
        };
        let header = self.taken(at + END.len());
        let header = header[..at].replace("<|start|>", " ").replace("<|channel|>", " ").replace("<|constrain|>", " ");
        let to = header.split_whitespace().find_map(|word| word.strip_prefix("to="));
        let role = header.split_whitespace().next().unwrap_or_default();
        self.mode = if matches!(role, "user" | "system" | "developer" | "tool") || role.starts_with("functions.") {
            Mode::Over
        } else if let Some(name) = to {
            Mode::Call { name: name.to_owned(), body: String::new() }
        } else if header.contains("analysis") {
            self.took_thinking = true;
            self.has_thought = true;
            Mode::Think(HARMONY_ENDS)
        } else {
            Mode::Text
        };
        true
    }

    fn text(&mut self, is_last: bool, out: &mut Vec<Piece>) -> bool {
        let Some(at) = self.undecided().find(BEGINNINGS) else {
            let text = self.undecided().to_owned();
            self.at = self.pending.len();
            self.say(&text, out);
            return false;
        };
        if at > 0 {
            let text = self.taken(at);
            self.say(&text, out);
        }
        let begun = self.undecided();
        let may_grow = MARKERS.iter().any(|(m, _)| m.len() > begun.len() && m.starts_with(begun));
        if may_grow && !is_last {
            return false;
        }
        let whole = MARKERS.iter().filter(|(m, _)| begun.starts_with(m)).max_by_key(|(m, _)| m.len());
        let Some((marker, act)) = whole.copied() else {
            // An unfinished marker at the end of a cut reply is not text either.
            let is_cut = may_grow && begun.len() > 2;
            let bytes = if is_cut { begun.len() } else { begun.chars().next().map_or(0, char::len_utf8) };
            let text = self.taken(bytes);
            if is_cut {
                self.took_tokens = true;
            } else {
                self.say(&text, out);
            }
            return true;
        };
        self.at += marker.len();
        self.act(marker, act, out);
        true
    }

    fn act(&mut self, marker: &'static str, act: Act, out: &mut Vec<Piece>) {
        let is_quoted = self.cursor.in_span && self.cursor.last == Some('`');
        if !matches!(act, Act::Drop | Act::Tail) {
            self.began_with_header.get_or_insert(act == Act::Header && !is_quoted);
        }
        match act {
            Act::Think(_) if is_quoted || self.in_fence => {
                self.cursor.opener_in_span = is_quoted;
                self.opener_in_fence |= self.in_fence;
                self.say(marker, out);
            }
            // An end marker is text if it is quoted, or if its begin marker is text in the same code span or fence.
            Act::EndThink if is_quoted || self.cursor.opener_in_span || (self.in_fence && self.opener_in_fence) => {
                self.say(marker, out);
            }
            _ if is_quoted => self.say(marker, out),
            Act::Think(_) if self.held.as_ref().is_some_and(|held| !held.trim().is_empty()) => {
                // Either thinking that mentions its own marker, or an answer followed by thinking: the end of the reply
                // decides.
                let begun = self.held.as_ref().map(String::len);
                self.began_in_held = self.began_in_held.or(begun);
                self.say(marker, out);
            }
            Act::Think(ends) if self.missing.contains(&ends) => self.say(marker, out),
            Act::Think(ends) if !self.cursor.line.is_empty() => {
                let cursor = self.cursor.clone();
                self.mode = Mode::Tag(Tag { marker, ends, body: String::new(), cursor });
                self.new_line();
            }
            Act::Think(ends) => {
                self.withheld_needlessly |= self.held.take().is_some();
                self.took_thinking = true;
                self.has_thought = true;
                self.mode = Mode::Think(ends);
                self.new_line();
            }
            Act::EndThink => self.thinking_ended(out),
            Act::Tail => self.tail.push_str(marker),
            // Inside a fence a marker is text, unless no text follows it.
            _ if self.in_fence => self.tail.push_str(marker),
            Act::Drop => self.took_tokens = true,
            Act::End => {
                self.took_tokens = true;
                self.mode = Mode::Over;
            }
            Act::Header => {
                self.took_tokens = true;
                self.mode = Mode::Header;
            }
        }
    }

    /// Handles an end marker of thinking. The first one without a begin marker makes all text before it thinking.
    fn thinking_ended(&mut self, out: &mut Vec<Piece>) {
        self.took_thinking = true;
        if self.has_thought {
            return;
        }
        self.has_thought = true;
        self.ended_without_begin = true;
        (self.in_fence, self.opener_in_fence, self.has_text) = (false, false, false);
        self.new_line();
        match self.held.take() {
            Some(thought) if !thought.is_empty() => out.push(Piece::Thought(thought)),
            Some(_) => {}
            None => out.push(Piece::AllWasThinking),
        }
    }

    fn say(&mut self, text: &str, out: &mut Vec<Piece>) {
        if !self.tail.is_empty() {
            if text.trim().is_empty() {
                self.tail.push_str(text);
                return;
            }
            let tail = std::mem::take(&mut self.tail);
            self.note(&tail);
            self.put(&tail, out);
        }
        self.note(text);
        self.put(text, out);
    }

    /// Tracks lines, fences and code spans of the text.
    fn note(&mut self, text: &str) {
        for c in text.chars() {
            if c == '\n' {
                self.cursor.line.clear();
            } else if self.cursor.line.len() < 3 && !(self.cursor.line.is_empty() && c.is_whitespace()) {
                self.cursor.line.push(c);
                if self.cursor.line == "```" {
                    self.in_fence = !self.in_fence;
                    self.opener_in_fence = false;
                }
            }
        }
        if !text.trim().is_empty() {
            self.began_with_header.get_or_insert(false);
        }
        self.follow(text);
    }

    /// Tracks code spans, in text and in thinking alike.
    fn follow(&mut self, text: &str) {
        self.cursor.in_span = span_after(self.cursor.in_span, self.cursor.last, text);
        self.cursor.opener_in_span &= !text.contains(['`', '\n']);
        self.cursor.last = text.chars().next_back().or(self.cursor.last);
    }

    fn new_line(&mut self) {
        (self.cursor.in_span, self.cursor.opener_in_span, self.cursor.last) = (false, false, None);
        self.cursor.line.clear();
    }

    fn put(&mut self, text: &str, out: &mut Vec<Piece>) {
        if let Some(held) = &mut self.held {
            held.push_str(text);
        } else {
            self.give(text, out);
        }
    }

    fn give(&mut self, text: &str, out: &mut Vec<Piece>) {
        // The blank lines between thinking and the answer are dropped.
        let text = if self.has_thought && !self.has_text { text.trim_start() } else { text };
        if !text.is_empty() {
            self.has_text |= !text.trim().is_empty();
            out.push(Piece::Text(text.to_owned()));
        }
    }
}

/// Whether a code span is open after this text, which follows the character `last`. A run of backticks opens or closes a
/// span, and a line end closes it.
fn span_after(in_span: bool, last: Option<char>, text: &str) -> bool {
    let mut before = last;
    text.chars().fold(in_span, |in_span, c| {
        let begins_run = c == '`' && before.replace(c) != Some('`');
        before = Some(c);
        c != '\n' && (in_span ^ begins_run)
    })
}

/// The positions of these markers in a text, in order.
fn occurrences<'t, 'e>(text: &'t str, markers: &'t [&'e str]) -> impl Iterator<Item = (usize, &'e str)> + 't {
    text.match_indices(BEGINNINGS)
        .filter_map(|(at, _)| Some((at, *markers.iter().find(|marker| text[at..].starts_with(**marker))?)))
}

/// How many bytes at the end of a text may be the beginning of one of these markers.
fn unfinished(text: &str, ends: &[&str]) -> usize {
    let starts = text.char_indices().map(|(at, _)| at).filter(|at| text.len() - at < 24);
    starts.map(|at| &text[at..]).find(|tail| ends.iter().any(|end| end.starts_with(tail))).map_or(0, str::len)
}

#[cfg(test)]
mod tests;
