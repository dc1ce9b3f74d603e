//! Drafts that the kernel may have to take back: a call that names nothing, or a result that the model made up, is no answer.
//! What looks like the beginning of one is held back; the stored reply, which follows, decides.

use super::markup::{self, Opening};

/// How long the beginning of a text may stay undecided, in bytes; a call tells by its second key what it is.
const START_BYTES_MAX: usize = 4 * 1024;

/// Lets a round's text through as it comes, up to where it looks like a call or a result. Each byte is looked at a limited
/// number of times, however long the text is.
#[derive(Debug, Default)]
pub struct Withheld {
    /// Not decided yet.
    pending: String,
    /// It is decided that the text as a whole is neither call nor result.
    has_started: bool,
    code: Code,
    /// The rest is held back.
    holds: bool,
}

/// Whether the text that was let through ends within code, as Markdown shows it.
#[derive(Debug, Default)]
struct Code {
    /// Backticks at the end that are not part of a fence yet.
    backticks: usize,
    is_in_fence: bool,
    ends_with_backtick: bool,
}

impl Code {
    const FENCE_BACKTICKS: usize = 3;

    fn follow(&mut self, c: char) {
        self.ends_with_backtick = c == '`';
        self.backticks = if self.ends_with_backtick { self.backticks + 1 } else { 0 };
        if self.backticks == Self::FENCE_BACKTICKS {
            (self.backticks, self.is_in_fence) = (0, !self.is_in_fence);
        }
    }

    const fn may_begin_call(&self) -> bool {
        !self.is_in_fence && !self.ends_with_backtick
    }
}

impl Withheld {
    /// What of this piece, and of what was held back before it, may be shown.
    pub fn push(&mut self, piece: &str) -> String {
        if self.holds {
            return String::new();
        }
        self.pending.push_str(piece);
        if !self.has_started {
            self.holds = markup::begins_as_call_or_result(&self.pending);
            let is_undecided =
                self.pending.len() < START_BYTES_MAX && markup::may_begin_as_call_or_result(&self.pending);
            if self.holds || is_undecided {
                return String::new();
            }
            self.has_started = true;
        }
        let mut until = self.pending.len();
        for (at, c) in self.pending.char_indices() {
            if matches!(c, '<' | '[') && self.code.may_begin_call() {
                let opening = markup::opening_of(&self.pending[at..]);
                self.holds = opening == Opening::Tag;
                if opening != Opening::Other {
                    until = at;
                    break;
                }
            }
            self.code.follow(c);
        }
        let rest = self.pending.split_off(until);
        std::mem::replace(&mut self.pending, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, size: usize) -> String {
        let mut withheld = Withheld::default();
        let chars: Vec<char> = text.chars().collect();
        chars.chunks(size).map(|piece| withheld.push(&piece.iter().collect::<String>())).collect()
    }

    #[test]
    fn work_on_a_draft_grows_with_its_length_and_no_faster() {
        let mut withheld = Withheld::default();
        let mut shown = 0;
        for _ in 0..200_000 {
            shown += withheld.push("and <so> on ").len();
            // What is kept for the next piece is never more than the beginning of a tag.
            assert!(withheld.pending.len() < 32);
        }
        assert_eq!(shown, 200_000 * 12);
    }

    #[test]
    fn calls_and_results_are_held_back_however_the_text_is_cut_and_all_else_is_shown() {
        for (text, want) in [
            ("Hello <b>Ann</b>, 1 < 2.", "Hello <b>Ann</b>, 1 < 2."),
            ("I do it.\n<tool_call>{\"name\": \"x\"}</tool_call>\nDone.", "I do it.\n"),
            ("[TOOL_CALLS][{\"name\": \"x\"}]", ""),
            ("<result-a command=\"x\">ok</result-a>\nDone.", ""),
            ("The <result> was 3.", "The <result> was 3."),
            ("So:\n```html\n<tools>\n```\nDone.", "So:\n```html\n<tools>\n```\nDone."),
            ("Models write `<tool_call>` first.", "Models write `<tool_call>` first."),
        ] {
            for size in 1..9 {
                assert_eq!(shown(text, size), want, "{text:?} in pieces of {size}");
            }
        }
        for call in [
            "{\"name\": \"launch.it\", \"arguments\": {}}",
            "{\"name\": \"launch\", \"arguments\": {\"at\": 1}}",
            "```json\n{\"name\": \"a_b\", \"arguments\": {}}\n```",
        ] {
            for size in 1..9 {
                assert_eq!(shown(call, size), "", "{call} in pieces of {size}");
            }
        }
        for data in ["{\"name\": \"Bob\", \"age\": 7, \"town\": \"Ulm\"}", "[1, 2]", "```json\n{\"a\": 1}\n```"] {
            assert_eq!(shown(data, 3), data);
        }
    }
}
