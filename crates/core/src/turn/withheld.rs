//! Drafts that the kernel may have to take back: a call that names nothing, or a result that the model made up, is no answer.
//! What looks like the beginning of one is held back; the stored reply, which follows, decides.

use super::markup;

/// Lets a round's text through as it comes, up to where it looks like a call or a result.
#[derive(Debug, Default)]
pub struct Withheld {
    text: String,
    /// How much of it was let through, in bytes.
    shown: usize,
    /// The rest is held back.
    holds: bool,
}

impl Withheld {
    /// What of this piece, and of what was held back before it, may be shown.
    pub fn push(&mut self, piece: &str) -> String {
        if self.holds {
            return String::new();
        }
        self.text.push_str(piece);
        let until = match markup::begins_at(&self.text) {
            Some(at) => {
                self.holds = true;
                at
            }
            None => self.text.len() - markup::opening_bytes_at_end(&self.text),
        };
        let from = self.shown.min(until);
        self.shown = until.max(self.shown);
        self.text[from..until].to_owned()
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
