//! Properties that hold for every text.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn job_command_detection_handles_every_text(text in any::<String>()) {
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
    fn job_command_detection_ignores_long_messages(
        sent in prop::collection::vec(prop::sample::select(vec!["cancel", "that", "the", "please", "annie", "first", "do",
            "never", "mind", "jobs", "now", "urgent", "is", "this", "resume", "ok", "can", "you", "research", "hey"]), 13..40),
        pause in prop::sample::select(vec![" ", ", ", "\n", "...", "-"]),
    ) {
        prop_assert_eq!(understand(&sent.join(pause)), None);
    }

    #[test]
    fn job_command_detection_ignores_phrase_with_additional_word(
        phrase in prop::sample::select(vec!["jobs", "what are you doing", "how busy are you", "cancel it", "pause everything"]),
        word in "(my|meeting|tomorrow|berlin|tom|because|with)",
    ) {
        let text = format!("{phrase} {word}");
        prop_assert_eq!(understand(&text), None);
    }
}
