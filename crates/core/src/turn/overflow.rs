//! Shrinks an agent's context that did not fit into its model's window. This happens once in a run. The log keeps the full
//! context.

use super::{interface::USER_ADDS, run::AgentRun};
use crate::{context::clip, message::Message};

/// How much of a result is kept when the context overflowed, in bytes.
const SQUEEZED_BYTES_MAX: usize = 1_000;

impl AgentRun {
    /// Drops the history and cuts the results so far. Returns false if the context was shrunk before, or if there is nothing to
    /// shrink.
    pub(super) fn shrink(&mut self) -> bool {
        if self.has_shrunk {
            return false;
        }
        self.lost_history = self.forget_history();
        let has_cut = self.clip_results();
        self.has_shrunk = self.lost_history || has_cut;
        self.has_shrunk
    }

    /// Drops the history. Returns false if there was none.
    fn forget_history(&mut self) -> bool {
        let forgot = self.stable > 0;
        self.messages.drain(..self.stable);
        self.stable = 0;
        forgot
    }

    /// Cuts the results so far, and no words of the user. Returns false if there is nothing to cut.
    fn clip_results(&mut self) -> bool {
        let mut cut = false;
        for message in self.messages.iter_mut().skip(1) {
            if let Message::Tool { text, .. } | Message::User { text, .. } | Message::Note { text } = message
                && let Some(shorter) = shorter(text)
            {
                *text = shorter;
                cut = true;
            }
        }
        cut
    }
}

/// A message with its results cut. The words that the user added follow the results, and stay. `None` if it is short enough.
fn shorter(text: &str) -> Option<String> {
    let added = if text.starts_with(USER_ADDS) { Some(0) } else { text.find(&format!("\n\n{USER_ADDS}")) };
    let (results, words) = text.split_at(added.unwrap_or(text.len()));
    if results.len() <= SQUEEZED_BYTES_MAX {
        return None;
    }
    let mut shorter = clip(results, SQUEEZED_BYTES_MAX).into_owned();
    // What follows must not be taken for a part of the frame that was cut.
    if let Some(tag) = open_tag(&shorter) {
        shorter.push_str(&format!("\n</{tag}>"));
    }
    shorter.push_str(words);
    Some(shorter)
}

/// The name of the last frame, if its end is missing. Text within a frame contains no tags.
fn open_tag(text: &str) -> Option<String> {
    let begin = ["<result-", "<report-"].iter().filter_map(|tag| text.rfind(tag)).max()?;
    let rest = &text[begin + 1..];
    let name = &rest[..rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len())];
    (!rest.contains(&format!("</{name}>"))).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_cuts_results_and_keeps_what_the_user_added() {
        let words = format!("\n\n{USER_ADDS}, while you work on this:]\n{}", "only in Prague ".repeat(200));
        let results = format!("<result-bcdf command=\"a\">\n{}\n</result-bcdf>", "long ".repeat(1_000));
        let shorter_both = shorter(&format!("{results}{words}")).unwrap();
        assert!(shorter_both.len() < SQUEEZED_BYTES_MAX + words.len() + 32);
        assert!(shorter_both.ends_with(&words) && shorter_both.contains("bytes]\n</result-bcdf>\n\n[The user adds"));
        assert_eq!(shorter(&words[2..]), None, "the user's words alone");
        assert_eq!(shorter("<result-bcdf>short</result-bcdf>"), None);
        let two = format!("<result-bcdf>one</result-bcdf>\n{}", "plain ".repeat(1_000));
        assert!(!shorter(&two).unwrap().ends_with("</result-bcdf>"), "no frame was cut");
    }
}
