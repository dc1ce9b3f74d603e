//! What holds for every text.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_text_is_too_strange(text in any::<String>()) {
        let _ = understand(&text);
        let _ = understand(&format!("/cancel {text}"));
        let _ = understand(&format!("cancel the {text}"));
        let job = JobLine { title: text.clone(), ..waiting(1, "") };
        let command = understand("/cancel 1").unwrap();
        for style in [Style::Short, Style::Detailed] {
            let found = resolve(&Target::Words(text.clone()), std::slice::from_ref(&job), Verb::Cancel, None);
            prop_assert!(!say(&command, &found, std::slice::from_ref(&job), style).is_empty());
        }
    }

    #[test]
    fn whoever_says_much_asks_for_something_else(
        said in prop::collection::vec(prop::sample::select(vec!["cancel", "that", "the", "please", "annie", "first", "do",
            "never", "mind", "jobs", "now", "urgent", "is", "this", "resume", "ok", "can", "you", "research", "hey"]), 13..40),
        pause in prop::sample::select(vec![" ", ", ", "\n", "...", "-"]),
    ) {
        prop_assert_eq!(understand(&said.join(pause)), None);
    }

    #[test]
    fn one_more_word_makes_a_question_an_ordinary_one(
        phrase in prop::sample::select(vec!["jobs", "what are you doing", "how busy are you", "cancel it", "pause everything"]),
        word in "(my|meeting|tomorrow|berlin|tom|because|with)",
    ) {
        let text = format!("{phrase} {word}");
        prop_assert_eq!(understand(&text), None);
    }
}
