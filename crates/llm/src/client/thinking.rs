//! The thinking that the listeners of one call see. Thinking is shown as it arrives. If a reply breaks off while the model
//! thinks, the call is repeated; thinking that the repeated attempt produces again is not shown again.

use std::sync::{Arc, Mutex, PoisonError};

use annie_core::ports::{Draft, DraftSink};

/// Separates the thinking of two attempts that differ.
const BETWEEN: &str = "\n\n";

/// Filters the drafts of one call.
pub(super) struct Drafts {
    shown: Arc<Mutex<Shown>>,
    sink: DraftSink,
}

impl Drafts {
    pub fn new(drafts: &DraftSink) -> Self {
        let shown: Arc<Mutex<Shown>> = Arc::default();
        let (drafts, kept) = (Arc::clone(drafts), Arc::clone(&shown));
        let sink: DraftSink = Arc::new(move |draft| match draft {
            Draft::Reasoning(thought) => {
                let new = kept.lock().unwrap_or_else(PoisonError::into_inner).new_in(thought);
                if !new.is_empty() {
                    drafts(Draft::Reasoning(new));
                }
            }
            draft @ Draft::Text(_) => drafts(draft),
        });
        Self { shown, sink }
    }

    /// The draft sink for the next attempt.
    pub fn of_next_attempt(&self) -> &DraftSink {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).repeated_bytes = 0;
        &self.sink
    }
}

/// The thinking that was shown last.
#[derive(Debug, Default)]
struct Shown {
    thought: String,
    /// How much of `thought` the current attempt has repeated, in bytes.
    repeated_bytes: usize,
}

impl Shown {
    /// Returns the part of this piece that has not been shown.
    fn new_in(&mut self, piece: String) -> String {
        let expected = &self.thought[self.repeated_bytes..];
        if expected.starts_with(&piece) {
            self.repeated_bytes += piece.len();
            return String::new();
        }
        let new = if let Some(new) = piece.strip_prefix(expected) {
            self.thought.push_str(new);
            new.to_owned()
        } else {
            self.thought.truncate(self.repeated_bytes);
            self.thought.push_str(&piece);
            format!("{BETWEEN}{}", self.thought)
        };
        self.repeated_bytes = self.thought.len();
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output for attempts that think these pieces.
    fn shown(attempts: &[&[&str]]) -> String {
        let all: Arc<Mutex<String>> = Arc::default();
        let kept = Arc::clone(&all);
        let sink: DraftSink = Arc::new(move |draft| {
            if let Draft::Reasoning(thought) = draft {
                kept.lock().unwrap().push_str(&thought);
            }
        });
        let drafts = Drafts::new(&sink);
        for pieces in attempts {
            let sink = drafts.of_next_attempt();
            pieces.iter().for_each(|piece| sink(Draft::Reasoning((*piece).to_owned())));
        }
        let all = all.lock().unwrap();
        all.clone()
    }

    #[test]
    fn drafts_show_only_new_thinking_of_a_repeated_attempt() {
        for (attempts, wanted) in [
            (&[&["I th", "ink"][..]][..], "I think"),
            (&[&["I th"], &["I", " think", " on"]], "I think on"),
            (&[&["I th"], &["I thi", "nk"], &["I think!"]], "I think!"),
            (&[&["I th"], &["I saw", " it"]], "I th\n\nI saw it"),
            (&[&["I th"], &["I"], &["I think"]], "I think"),
            (&[&["ab"], &["cd"], &["cde"], &["x"]], "ab\n\ncde\n\nx"),
            (&[&["é"], &["è"]], "é\n\nè"),
        ] {
            assert_eq!(shown(attempts), wanted, "{attempts:?}");
        }
    }
}
