//! Takes thinking and the tokens of chat templates out of a text while it streams. What may become a marker is held back
//! until it is one or not, so that no part of a marker is ever shown.

/// The longest header of a harmony message, in bytes.
const HEADER_BYTES_MAX: usize = 400;
const HARMONY_ENDS: &[&str] = &["<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>"];
const THINK: &[&str] = &["</think>", "</thinking>"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Thinking begins, and ends at one of these.
    Think(&'static [&'static str]),
    /// Thinking ends. Without a beginning, all before it was thinking: the template had written the beginning.
    EndThink,
    /// A token of the template.
    Drop,
    /// Another speaker: the model goes on for somebody else.
    End,
    /// The header of a harmony message begins.
    Header,
    /// A token at the end of a text, and something else in its middle.
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

/// What a text turns out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Said to the user.
    Text(String),
    /// Thought.
    Thought(String),
    /// All text so far was thinking.
    Unsaid,
}

#[derive(Debug)]
enum Mode {
    Text,
    Think(&'static [&'static str]),
    Header,
    Call { name: String, body: String },
    Over,
}

/// The state of one reply.
#[derive(Debug)]
pub(super) struct Markup {
    mode: Mode,
    /// Not decided yet.
    pending: String,
    /// Tokens that are dropped if nothing follows.
    tail: String,
    /// Text that is thinking if an end of thinking comes.
    held: Option<String>,
    /// The last character given out, and whether a code fence is open.
    last: Option<char>,
    line: String,
    in_fence: bool,
    /// A beginning of thinking was shown as what it is: text. Its end is text too.
    has_literal_opener: bool,
    has_thought: bool,
    has_text: bool,
    /// Calls in harmony's own form: name and arguments.
    pub calls: Vec<(String, String)>,
    pub took_thinking: bool,
    pub took_tokens: bool,
    /// Thinking ended that had not begun: this backend's template begins it.
    pub ended_unbegun: bool,
}

impl Markup {
    /// `begins_thinking` where the template is known to begin thinking: text is held back then until its end comes.
    pub const fn new(begins_thinking: bool) -> Self {
        Self {
            mode: Mode::Text,
            pending: String::new(),
            tail: String::new(),
            held: if begins_thinking { Some(String::new()) } else { None },
            last: None,
            line: String::new(),
            in_fence: false,
            has_literal_opener: false,
            has_thought: false,
            has_text: false,
            calls: Vec::new(),
            took_thinking: false,
            took_tokens: false,
            ended_unbegun: false,
        }
    }

    pub fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.pending.push_str(text);
        while self.step(false, out) {}
    }

    pub fn finish(&mut self, out: &mut Vec<Piece>) {
        while self.step(true, out) {}
        self.took_tokens |= !self.tail.trim().is_empty();
        if let Some(held) = self.held.take() {
            self.give(&held, out);
        }
        if let Mode::Call { name, body } = std::mem::replace(&mut self.mode, Mode::Over) {
            self.calls.push((name, body));
        }
    }

    /// One step; false if there is nothing to do until more text comes.
    fn step(&mut self, is_last: bool, out: &mut Vec<Piece>) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        match &self.mode {
            Mode::Text => self.text(is_last, out),
            Mode::Think(ends) => {
                let ends = *ends;
                self.until(ends, is_last, |_, thought, out| out.push(Piece::Thought(thought)), out)
            }
            Mode::Call { .. } => self.until(HARMONY_ENDS, is_last, |this, more, _| this.call_grows(&more), out),
            Mode::Header => self.header(is_last),
            Mode::Over => {
                self.pending.clear();
                false
            }
        }
    }

    fn call_grows(&mut self, more: &str) {
        if let Mode::Call { body, .. } = &mut self.mode {
            body.push_str(more);
        }
    }

    /// Takes the text up to one of these ends; the ends of harmony that begin something stay.
    fn until(
        &mut self,
        ends: &[&str],
        is_last: bool,
        take: impl FnOnce(&mut Self, String, &mut Vec<Piece>),
        out: &mut Vec<Piece>,
    ) -> bool {
        let found = ends.iter().filter_map(|end| self.pending.find(end).map(|at| (at, *end))).min();
        let cut = match found {
            Some((at, _)) => at,
            None if is_last => self.pending.len(),
            None => self.pending.len() - unfinished(&self.pending, ends),
        };
        let taken: String = self.pending.drain(..cut).collect();
        if !taken.is_empty() {
            take(self, taken, out);
        }
        let Some((_, end)) = found else { return false };
        if let Mode::Call { name, body } = std::mem::replace(&mut self.mode, Mode::Text) {
            self.calls.push((name, body));
        }
        if !matches!(end, "<|start|>" | "<|channel|>") {
            self.pending.drain(..end.len());
        }
        true
    }

    fn header(&mut self, is_last: bool) -> bool {
        const END: &str = "<|message|>";
        let Some(at) = self.pending.find(END) else {
            let is_none = is_last || self.pending.len() > HEADER_BYTES_MAX;
            if is_none {
                // No header after all: what follows the role is text.
                let role = self.pending.strip_prefix("assistant").map(str::to_owned);
                self.pending = role.unwrap_or_else(|| std::mem::take(&mut self.pending));
                self.mode = Mode::Text;
            }
            return is_none;
        };
        let header: String = self.pending.drain(..at + END.len()).collect();
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
        let Some(at) = self.pending.find(['<', '[', '◁']) else {
            let text = std::mem::take(&mut self.pending);
            self.say(&text, out);
            return false;
        };
        if at > 0 {
            let text: String = self.pending.drain(..at).collect();
            self.say(&text, out);
        }
        let may_grow = MARKERS.iter().any(|(m, _)| m.len() > self.pending.len() && m.starts_with(&self.pending));
        if may_grow && !is_last {
            return false;
        }
        let whole = MARKERS.iter().filter(|(m, _)| self.pending.starts_with(m)).max_by_key(|(m, _)| m.len());
        let Some((marker, act)) = whole.copied() else {
            // The beginning of a marker at the end of a reply that was cut off is no text either.
            let is_cut = may_grow && self.pending.len() > 2;
            let first = self.pending.chars().next().map_or(0, char::len_utf8);
            let text: String = self.pending.drain(..if is_cut { self.pending.len() } else { first }).collect();
            if is_cut {
                self.took_tokens = true;
            } else {
                self.say(&text, out);
            }
            return true;
        };
        self.pending.drain(..marker.len());
        self.act(marker, act, out);
        true
    }

    fn act(&mut self, marker: &str, act: Act, out: &mut Vec<Piece>) {
        let is_quoted = self.last == Some('`');
        match act {
            Act::Think(_) if is_quoted || self.in_fence => {
                self.has_literal_opener = true;
                self.say(marker, out);
            }
            Act::EndThink if is_quoted || self.has_literal_opener => {
                self.has_literal_opener &= is_quoted;
                self.say(marker, out);
            }
            _ if is_quoted => self.say(marker, out),
            Act::Think(ends) => {
                if let Some(held) = self.held.take() {
                    self.give(&held, out);
                }
                self.took_thinking = true;
                self.has_thought = true;
                self.mode = Mode::Think(ends);
            }
            Act::EndThink => self.thinking_ended(out),
            Act::Tail => self.tail.push_str(marker),
            // What a fenced example shows is only dropped where nothing follows it.
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

    /// An end of thinking without its beginning.
    fn thinking_ended(&mut self, out: &mut Vec<Piece>) {
        self.took_thinking = true;
        if self.has_thought {
            return;
        }
        self.has_thought = true;
        self.ended_unbegun = true;
        (self.in_fence, self.has_text, self.last) = (false, false, None);
        self.line.clear();
        match self.held.take() {
            Some(thought) if !thought.is_empty() => out.push(Piece::Thought(thought)),
            Some(_) => {}
            None => out.push(Piece::Unsaid),
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

    /// Follows lines and fences.
    fn note(&mut self, text: &str) {
        for c in text.chars() {
            if c == '\n' {
                self.line.clear();
            } else if self.line.len() < 3 && !(self.line.is_empty() && c.is_whitespace()) {
                self.line.push(c);
                self.in_fence ^= self.line == "```";
            }
            self.last = Some(c);
        }
    }

    fn put(&mut self, text: &str, out: &mut Vec<Piece>) {
        if let Some(held) = &mut self.held {
            held.push_str(text);
        } else {
            self.give(text, out);
        }
    }

    fn give(&mut self, text: &str, out: &mut Vec<Piece>) {
        // The blank lines between thinking and the answer belong to neither.
        let text = if self.has_thought && !self.has_text { text.trim_start() } else { text };
        if !text.is_empty() {
            self.has_text |= !text.trim().is_empty();
            out.push(Piece::Text(text.to_owned()));
        }
    }
}

/// How many bytes at the end of a text may be the beginning of one of these.
fn unfinished(text: &str, ends: &[&str]) -> usize {
    let starts = text.char_indices().map(|(at, _)| at).filter(|at| text.len() - at < 24);
    starts.map(|at| &text[at..]).find(|tail| ends.iter().any(|end| end.starts_with(tail))).map_or(0, str::len)
}

#[cfg(test)]
mod tests;
