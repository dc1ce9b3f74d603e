//! Filters drafts. A call of something that does not exist, or a result that the model invented, must not be shown as an
//! answer. Text that looks like the beginning of one is withheld from the draft; the stored reply, which follows, decides.

use super::markup::{self, Opening};

/// How long the beginning of a text may stay undecided, in bytes. The second key of a JSON object shows whether it is a call.
const START_BYTES_MAX: usize = 4 * 1024;

/// Passes the text of a round through up to the point where it looks like a call or a result. Each byte is examined a
/// bounded number of times, however long the text is.
#[derive(Debug, Default)]
pub struct Withheld {
    /// Text that is not decided yet.
    pending: String,
    /// The text as a whole is neither a call nor a result.
    has_started: bool,
    code: Code,
    /// The rest of the text is withheld.
    holds: bool,
}

/// Whether the text that was passed through ends within Markdown code.
#[derive(Debug, Default)]
struct Code {
    /// The number of backticks at the end that are not part of a fence yet.
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
    /// Adds a piece of text. Returns the part of it, and of undecided earlier text, that may be shown.
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
    fn withheld_work_on_draft_is_linear_in_its_length() {
        let mut withheld = Withheld::default();
        let mut shown = 0;
        for _ in 0..200_000 {
            shown += withheld.push("and <so> on ").len();
            // The text kept for the next piece is at most the beginning of a tag.
            assert!(withheld.pending.len() < 32);
        }
        assert_eq!(shown, 200_000 * 12);
    }

    #[test]
    fn withheld_hides_calls_and_results_for_every_split_and_shows_other_text() {
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
