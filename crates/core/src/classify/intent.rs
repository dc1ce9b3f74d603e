//! What a message wants: small talk, one use of a skill, or several steps. By words alone, in microseconds, never by a model. To
//! take a request for small talk is worse than a prompt that is too long, so only whole messages of a fixed list are small talk, and
//! only where nothing is open to which they may be the answer.

use serde::{Deserialize, Serialize};

use crate::jobs::words::words;

/// The longest small talk, in bytes.
const SIMPLE_BYTES_MAX: usize = 60;
/// A message with at least this many words is several steps.
const COMPLEX_WORDS_MIN: usize = 60;
/// Words that join steps.
const THEN: [&str; 5] = ["then", "afterwards", "finally", "compare", "research"];

/// Whole messages that want no skill, without the assistant's name. None of them is a consent.
const SMALL_TALK: &[&str] = &[
    "hi",
    "hello",
    "hey",
    "hi there",
    "hello there",
    "hey there",
    "good morning",
    "good afternoon",
    "good evening",
    "good night",
    "morning",
    "thanks",
    "thanks a lot",
    "many thanks",
    "thank you",
    "thank you very much",
    "thank you so much",
    "thx",
    "bye",
    "goodbye",
    "bye bye",
    "see you",
    "see you later",
    "how are you",
    "how are you today",
    "how are you doing",
    "who are you",
    "what is your name",
    "nice to meet you",
    "hallo",
    "guten morgen",
    "guten abend",
    "danke",
    "vielen dank",
    "tschuess",
    "tschüss",
    "bonjour",
    "merci",
    "hola",
    "gracias",
    "namaste",
    "dhanyavad",
];

/// What a message wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// Small talk: a short prompt without skills is enough.
    Simple,
    /// A question or a request.
    ToolUse,
    /// Several steps.
    Complex,
}

impl Intent {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::ToolUse => "tool_use",
            Self::Complex => "complex",
        }
    }
}

/// What a message wants, and why. `is_answer` says whether something is open to which the message may be the answer: a paused turn,
/// an open request, a running turn, an active skill, or a question in the last answer.
#[must_use]
pub fn intent(text: &str, is_answer: bool) -> (Intent, &'static str) {
    let said = words(text);
    let is_name = |word: &str| word == "annie";
    let plain: Vec<&str> = said.iter().map(String::as_str).filter(|word| !is_name(word)).collect();
    if text.len() <= SIMPLE_BYTES_MAX && SMALL_TALK.contains(&plain.join(" ").as_str()) {
        return if is_answer {
            (Intent::ToolUse, "small talk, but it may be the answer to something that is open")
        } else {
            (Intent::Simple, "the whole message is small talk")
        };
    }
    if plain.len() >= COMPLEX_WORDS_MIN {
        return (Intent::Complex, "it is long");
    }
    if plain.iter().any(|word| THEN.contains(word)) {
        return (Intent::Complex, "its words join several steps");
    }
    (Intent::ToolUse, "it may need a skill")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intent_is_simple_only_for_whole_small_talk_with_nothing_open() {
        for text in ["Hello!", "hi Annie", "Thanks a lot.", "Good morning, Annie!", "how are you?", "Danke"] {
            assert_eq!(intent(text, false).0, Intent::Simple, "{text}");
            assert_eq!(intent(text, true).0, Intent::ToolUse, "{text}");
        }
        for text in [
            "",
            "yes",
            "ok",
            "ok thanks",
            "hello, what is due?",
            "thanks, and delete it",
            "good morning, wake me at 8",
            "hi hi hi hi",
            "say hello to Bob",
            "how are you going to do it?",
            "it",
            "that one",
            "hello\nhello",
        ] {
            assert_ne!(intent(text, false).0, Intent::Simple, "{text}");
        }
    }

    #[test]
    fn intent_of_several_steps_is_complex() {
        for text in
            ["find it and then mail it to Bob".to_owned(), "word ".repeat(60), "compare the two offers".to_owned()]
        {
            assert_eq!(intent(&text, false).0, Intent::Complex, "{text}");
        }
        assert_eq!(intent("remind me to buy milk", false).0, Intent::ToolUse);
    }
}
