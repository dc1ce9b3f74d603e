//! Makes one text out of drafts and a final answer, for a protocol that cannot take a word back. Nothing is given twice: as
//! long as a draft says what was already given, it is held back; when it says more, the more is given; when it says something
//! else, that is given whole behind a blank line.

use annie_core::event::{Event, EventBody};

use crate::door::is_cut_off;

/// What was given, and what is coming in.
#[derive(Debug, Default)]
pub struct AnswerWriter {
    /// What was given since the last blank line of ours, without white space at its ends.
    given: String,
    /// The present attempt at the answer, without white space at its beginning.
    incoming: String,
    /// The incoming text begins with what was given.
    aligned: bool,
    round: u32,
    drafted: bool,
    /// What follows goes on with what was given: it is shown once the final text says how.
    held: bool,
}

impl AnswerWriter {
    /// A piece of a round that is being written: what of it is to be given now.
    pub fn draft(&mut self, round: u32, piece: &str) -> Option<String> {
        if round != self.round {
            self.round = round;
            self.again();
        }
        if self.held {
            return None;
        }
        let piece = if self.incoming.is_empty() { piece.trim_start() } else { piece };
        self.drafted |= !piece.is_empty();
        self.incoming.push_str(piece);
        self.show()
    }

    /// What a stored event says of the rounds that are written.
    pub fn event(&mut self, event: &Event) {
        match &event.body {
            // The round is tried again, or another life takes the turn up: its text comes anew.
            EventBody::ModelFailed { .. } | EventBody::Resumed { .. } if event.agent.is_orchestrator() => self.again(),
            _ => self.held |= is_cut_off(event),
        }
    }

    /// The round is written anew, or the next one begins.
    fn again(&mut self) {
        self.incoming.clear();
        self.aligned = false;
        self.drafted = false;
    }

    /// Whether anything of this round came as a draft.
    pub const fn has_drafted(&self, round: u32) -> bool {
        self.drafted && self.round == round
    }

    /// The final text: what is still to be given.
    pub fn finish(&mut self, text: &str) -> Option<String> {
        self.again();
        text.trim().clone_into(&mut self.incoming);
        if self.incoming.len() < self.given.len() && !self.incoming.is_empty() {
            // It may be how the given text began, but then that text was another.
            return Some(self.other());
        }
        self.show()
    }

    fn show(&mut self) -> Option<String> {
        let text = self.incoming.trim_end();
        if !self.aligned {
            if text.len() < self.given.len() && self.given.starts_with(text) {
                return None;
            }
            if !text.starts_with(&self.given) {
                return Some(self.other());
            }
            self.aligned = true;
        }
        let rest = text[self.given.len()..].to_owned();
        self.given.push_str(&rest);
        Some(rest).filter(|r| !r.is_empty())
    }

    /// Gives the incoming text as another than the given one.
    fn other(&mut self) -> String {
        self.aligned = true;
        self.incoming.trim_end().clone_into(&mut self.given);
        format!("\n\n{}", self.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader has in the end.
    fn read(drafts: &[(u32, &str)], last: &str) -> String {
        let mut writer = AnswerWriter::default();
        let mut text: String = drafts.iter().filter_map(|(round, piece)| writer.draft(*round, piece)).collect();
        text.extend(writer.finish(last));
        text
    }

    #[test]
    fn drafts_that_are_the_answer_are_given_once() {
        assert_eq!(read(&[(1, "Hel"), (1, "lo "), (1, "Ann.")], "Hello Ann."), "Hello Ann.");
        assert_eq!(read(&[(1, "Hel")], "Hello Ann."), "Hello Ann.", "lost drafts are made up for");
        assert_eq!(read(&[], "Hello Ann."), "Hello Ann.");
        assert_eq!(read(&[(1, "\n Hello "), (1, " \n")], "Hello"), "Hello", "white space at the ends is no difference");
    }

    #[test]
    fn what_a_tool_round_said_stays_and_the_answer_follows_it() {
        assert_eq!(
            read(&[(1, "Let me look."), (2, "It is"), (2, " due.")], "It is due."),
            "Let me look.\n\nIt is due."
        );
        assert_eq!(read(&[(1, "Let me look.")], "It is due."), "Let me look.\n\nIt is due.");
    }

    #[test]
    fn a_round_that_is_written_anew_is_not_given_anew() {
        let mut writer = AnswerWriter::default();
        assert_eq!(writer.draft(1, "One two").as_deref(), Some("One two"));
        writer.again();
        assert_eq!(writer.draft(1, "One"), None);
        assert_eq!(writer.draft(1, " two"), None);
        assert_eq!(writer.draft(1, " three").as_deref(), Some(" three"));
        assert_eq!(writer.finish("One two three"), None);
    }

    #[test]
    fn another_text_comes_whole_even_if_it_begins_alike() {
        assert_eq!(read(&[(1, "No problem."), (2, "No")], "No"), "No problem.\n\nNo");
        assert_eq!(read(&[(1, "Done already"), (2, "Done"), (2, " now.")], "Done now."), "Done already\n\nDone now.");
        assert_eq!(read(&[(1, "First"), (2, "Second"), (3, "Thi"), (3, "rd")], "Third"), "First\n\nSecond\n\nThird");
    }

    #[test]
    fn answer_that_goes_on_in_another_round_is_given_once() {
        let mut writer = AnswerWriter::default();
        assert_eq!(writer.draft(1, "Once upon a").as_deref(), Some("Once upon a"));
        writer.held = true;
        assert_eq!(writer.draft(2, "time"), None);
        assert_eq!(writer.finish("Once upon a time").as_deref(), Some(" time"));
    }

    #[test]
    fn letters_of_several_bytes_are_not_split() {
        assert_eq!(read(&[(1, "Grü"), (1, "ße"), (2, "Grö")], "Größe"), "Grüße\n\nGröße");
    }

    #[test]
    fn an_empty_answer_adds_nothing() {
        assert_eq!(read(&[(1, "  ")], ""), "");
        assert_eq!(read(&[(1, "text")], ""), "text");
    }

    #[test]
    fn a_reader_always_ends_with_the_whole_answer() {
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
