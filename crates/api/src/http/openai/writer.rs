//! Merges drafts and the final answer into one text, for a protocol in which sent text cannot be withdrawn. No text is sent
//! twice. As long as a draft repeats the sent text, nothing is sent. If it continues the sent text, only the rest is sent. If
//! it differs, it is sent whole after a blank line.

use annie_core::event::{Event, EventBody};

use crate::api::is_cut_off;

/// The text that was sent, and the text that arrives.
#[derive(Debug, Default)]
pub struct AnswerWriter {
    /// The text sent since the last blank line that was inserted, trimmed.
    sent: String,
    /// The current attempt at the answer, without leading white space.
    incoming: String,
    /// Whether the incoming text starts with the sent text.
    aligned: bool,
    round: u32,
    drafted: bool,
    /// Whether the next round continues the sent text. Its text is held back until the final text shows how the two are joined.
    held: bool,
}

impl AnswerWriter {
    /// Adds a piece of a round that is being generated. Returns the text to send now.
    pub fn draft(&mut self, round: u32, piece: &str) -> Option<String> {
        if round != self.round {
            self.round = round;
            self.restart();
        }
        if self.held {
            return None;
        }
        let piece = if self.incoming.is_empty() { piece.trim_start() } else { piece };
        self.drafted |= !piece.is_empty();
        self.incoming.push_str(piece);
        self.show()
    }

    /// Processes a stored event that affects the rounds.
    pub fn event(&mut self, event: &Event) {
        // The round is retried, or a new incarnation of the Engine resumes the turn: its text is generated again.
        let is_repeated = matches!(event.body, EventBody::ModelFailed { .. } | EventBody::Resumed { .. });
        if is_repeated && event.agent.is_orchestrator() {
            self.restart();
        } else {
            self.held |= is_cut_off(event);
        }
    }

    /// Prepares for the text of a new round, or of a retried one.
    fn restart(&mut self) {
        self.incoming.clear();
        self.aligned = false;
        self.drafted = false;
    }

    /// Whether this round had a draft.
    pub const fn has_drafted(&self, round: u32) -> bool {
        self.drafted && self.round == round
    }

    /// Processes the final text. Returns the text that is still to be sent.
    pub fn finish(&mut self, text: &str) -> Option<String> {
        self.restart();
        text.trim().clone_into(&mut self.incoming);
        if self.incoming.len() < self.sent.len() && !self.incoming.is_empty() {
            // The final text may be a prefix of the sent text, but then the sent text was a different answer.
            return Some(self.replace());
        }
        self.show()
    }

    fn show(&mut self) -> Option<String> {
        let text = self.incoming.trim_end();
        if !self.aligned {
            if text.len() < self.sent.len() && self.sent.starts_with(text) {
                return None;
            }
            if !text.starts_with(&self.sent) {
                return Some(self.replace());
            }
            self.aligned = true;
        }
        let rest = text[self.sent.len()..].to_owned();
        self.sent.push_str(&rest);
        Some(rest).filter(|r| !r.is_empty())
    }

    /// Sends the incoming text as a different answer than the sent one.
    fn replace(&mut self) -> String {
        self.aligned = true;
        self.incoming.trim_end().clone_into(&mut self.sent);
        format!("\n\n{}", self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that a client has at the end.
    fn read(drafts: &[(u32, &str)], last: &str) -> String {
        let mut writer = AnswerWriter::default();
        let mut text: String = drafts.iter().filter_map(|(round, piece)| writer.draft(*round, piece)).collect();
        text.extend(writer.finish(last));
        text
    }

    #[test]
    fn writer_emits_drafts_of_the_answer_once() {
        assert_eq!(read(&[(1, "Hel"), (1, "lo "), (1, "Ann.")], "Hello Ann."), "Hello Ann.");
        assert_eq!(read(&[(1, "Hel")], "Hello Ann."), "Hello Ann.", "missing drafts are replaced by the final text");
        assert_eq!(read(&[], "Hello Ann."), "Hello Ann.");
        assert_eq!(read(&[(1, "\n Hello "), (1, " \n")], "Hello"), "Hello", "white space at the ends is ignored");
    }

    #[test]
    fn writer_keeps_tool_round_text_and_appends_answer() {
        assert_eq!(
            read(&[(1, "Let me look."), (2, "It is"), (2, " due.")], "It is due."),
            "Let me look.\n\nIt is due."
        );
        assert_eq!(read(&[(1, "Let me look.")], "It is due."), "Let me look.\n\nIt is due.");
    }

    #[test]
    fn writer_does_not_repeat_text_of_retried_round() {
        let mut writer = AnswerWriter::default();
        assert_eq!(writer.draft(1, "One two").as_deref(), Some("One two"));
        writer.restart();
        assert_eq!(writer.draft(1, "One"), None);
        assert_eq!(writer.draft(1, " two"), None);
        assert_eq!(writer.draft(1, " three").as_deref(), Some(" three"));
        assert_eq!(writer.finish("One two three"), None);
    }

    #[test]
    fn writer_emits_different_text_whole_even_with_common_prefix() {
        assert_eq!(read(&[(1, "No problem."), (2, "No")], "No"), "No problem.\n\nNo");
        assert_eq!(read(&[(1, "Done already"), (2, "Done"), (2, " now.")], "Done now."), "Done already\n\nDone now.");
        assert_eq!(read(&[(1, "First"), (2, "Second"), (3, "Thi"), (3, "rd")], "Third"), "First\n\nSecond\n\nThird");
    }

    #[test]
    fn writer_emits_answer_continued_in_next_round_once() {
        let mut writer = AnswerWriter::default();
        assert_eq!(writer.draft(1, "Once upon a").as_deref(), Some("Once upon a"));
        writer.held = true;
        assert_eq!(writer.draft(2, "time"), None);
        assert_eq!(writer.finish("Once upon a time").as_deref(), Some(" time"));
    }

    #[test]
    fn writer_does_not_split_multibyte_characters() {
        assert_eq!(read(&[(1, "Grü"), (1, "ße"), (2, "Grö")], "Größe"), "Grüße\n\nGröße");
    }

    #[test]
    fn writer_emits_nothing_for_empty_answer() {
        assert_eq!(read(&[(1, "  ")], ""), "");
        assert_eq!(read(&[(1, "text")], ""), "text");
    }

    #[test]
    fn writer_output_always_ends_with_whole_answer() {
        let words = ["", "a", "ab", "abc", "b", "ba", "a b"];
        for first in words {
            for second in words {
                for last in words {
                    let text = read(&[(1, first), (2, second)], last);
                    assert!(text.ends_with(last), "{first:?} {second:?} {last:?} gave {text:?}");
                }
            }
        }
    }
}
