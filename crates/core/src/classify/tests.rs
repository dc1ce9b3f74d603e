//! Tables of sources and phrases, and properties of moods.

use proptest::prelude::*;

use super::*;

const EVERY_SOURCE: &[&str] = &[
    "voice",
    "chat",
    "http",
    "cli",
    "grpc",
    "telegram",
    "openai",
    "cron",
    "system",
    "omi",
    "watcher",
    "maintenance",
    "evolution",
    "consolidation",
    "dead_letter",
    "something_new",
];

fn class(source: &str, text: &str) -> Priority {
    classify(source, text, None).priority
}

#[test]
fn classification_uses_source_first() {
    for (source, expected) in [
        ("voice", Priority::Realtime),
        ("Voice", Priority::Realtime),
        ("chat", Priority::High),
        ("http", Priority::High),
        ("cli", Priority::High),
        ("grpc", Priority::High),
        ("telegram", Priority::High),
        ("telegram:4711", Priority::High),
        ("openai", Priority::High),
        ("a door of tomorrow", Priority::High),
        ("", Priority::High),
        ("cron", Priority::Low),
        ("cron:daily", Priority::Low),
        ("system", Priority::Low),
        ("omi", Priority::Low),
        ("watcher/mail", Priority::Low),
        ("maintenance", Priority::Background),
        ("reflection", Priority::Low),
        ("evolution", Priority::Background),
        ("consolidation", Priority::Background),
        ("dead_letter", Priority::Background),
    ] {
        assert_eq!(class(source, "What's the weather?"), expected, "{source:?}");
        if expected != Priority::High {
            assert_eq!(
                class(source, "urgent: research this right now"),
                expected,
                "phrases affect interactive sources only: {source:?}"
            );
        }
    }
}

#[test]
fn classification_lowers_unhurried_work_to_normal() {
    for text in [
        "Research heat pumps for me",
        "please research heat pumps",
        "Annie, can you research the best golf courses near Bangalore?",
        "I want you to research solar panels",
        "do some research on solar panels",
        "Could you do a bit of research into heat pumps?",
        "investigate why the heating bill rose",
        "deep research on fusion",
        "Summarize this YouTube video: https://example.org/v",
        "summarise https://youtu.be/abc for me",
        "give me a summary of this video",
        "YouTube summary please: https://www.youtube.com/watch?v=abc",
        "look up trains to Basel when you have time",
        "Look up trains to Basel, when you have time please",
        "When you have time, look up trains to Basel",
        "when you get a chance check the prices",
        "find a birthday present for Tom. No hurry.",
        "no rush, but find a present for Tom",
        "tidy up my notes, there's no rush",
        "Sort my bookmarks. It's not urgent.",
        "compare these two phones, take your time",
        "whenever you are free, draft the letter",
        "index my documents in the background",
        "can you run the comparison in the background, please",
        "In the background, collect the prices",
        "not urgent: book a table",
    ] {
        assert_eq!(class("telegram", text), Priority::Normal, "{text:?}");
    }
}

#[test]
fn classification_lowers_interactive_messages_only_for_clear_phrases() {
    for text in [
        "summarize this article",
        "summarise my inbox",
        "What's the weather?",
        "research",
        "what research did Einstein publish?",
        "research papers on attention, which are the best?",
        "is research on fusion well paid?",
        "did you summarise that video?",
        "play the video",
        "who is the man in the background?",
        "what do you see in the background",
        "tell me when you have time",
        "let me know when you are free",
        "when do you have time for a call?",
        "what does 'take your time' mean in German?",
        "what is the opposite of no hurry in Spanish",
        "put a sunset in the background of my slide tomorrow",
        "remind me to take your time sheet",
        "I have no rush hour ticket",
        "add milk to the list",
        "the hurry was for nothing",
        "",
        "\u{1F600}",
    ] {
        assert_eq!(class("chat", text), Priority::High, "{text:?}");
    }
}

#[test]
fn classification_prefers_urgency_over_long_work() {
    for text in [
        "research heat pumps, urgent",
        "Urgent! Research heat pumps for me",
        "research heat pumps asap",
        "I need you to research this right now",
        "summarise this video immediately: https://youtu.be/abc",
        "research heat pumps as soon as possible",
        "no hurry with the rest, but this is urgent",
    ] {
        let classified = classify("chat", text, None);
        assert_eq!((classified.priority, classified.basis), (Priority::High, Basis::Words), "{text:?}");
    }
}

#[test]
fn classification_ignores_pasted_text() {
    let mail = "Dear all, there is no rush, and nothing here is urgent. ".repeat(40);
    let text =
        format!("Answer this letter for me today: {}{mail}{} Best wishes, Tom", "word ".repeat(90), "word ".repeat(90));
    assert_eq!(class("chat", &text), Priority::High);
    let text = format!(
        "{}{mail}{} So much for the letter. Answer it when you have time",
        "word ".repeat(90),
        "word ".repeat(90)
    );
    assert_eq!(class("chat", &text), Priority::Normal);
}

#[test]
fn classification_honours_requested_class_but_reserves_realtime_for_voice() {
    for source in EVERY_SOURCE {
        for asked in Priority::ALL {
            let classified = classify(source, "research heat pumps", Some(asked));
            let allowed = if asked == Priority::Realtime && *source != "voice" { Priority::High } else { asked };
            assert_eq!((classified.priority, classified.basis), (allowed, Basis::Asked), "{source} {asked:?}");
        }
    }
}

#[test]
fn classification_records_reason_and_alternatives() {
    let classified = classify("telegram", "Research heat pumps for me", None);
    assert_eq!(classified.reason, "a person asked for research, which takes long");
    assert_eq!(classified.alternatives, ["high: source telegram: a person waits"]);
    let classified = classify("http", "hello", Some(Priority::Realtime));
    assert_eq!(classified.alternatives, ["realtime: the source is not voice", "high: source http: a person waits"]);
    let classified = classify("chat", "find a gift, no rush", None);
    assert_eq!(classified.reason, "a person asked, and said \"no rush\"");
    for source in EVERY_SOURCE {
        assert!(!classify(source, "hello", None).reason.is_empty());
    }
}

#[test]
fn mood_effects_match_specified_table() {
    // [S3 12.1], with HIGH in place of REALTIME, which is reserved for voice.
    let frustrated = mood(Emotion::Frustrated, 1.0);
    assert_eq!(frustrated.lift, Some(Priority::High));
    assert_eq!((frustrated.brevity, frustrated.nudges), (Brevity::Short, false));
    assert_eq!(frustrated.queue_shift_ms, -QUEUE_SHIFT_MS_MAX);
    let stressed = mood(Emotion::Stressed, 0.9);
    assert_eq!((stressed.brevity, stressed.nudges), (Brevity::Short, false));
    assert_eq!(stressed.lift, None);
    let tired = mood(Emotion::Tired, 0.9);
    assert_eq!((tired.brevity, tired.nudges), (Brevity::Minimal, false));
    assert_eq!(mood(Emotion::Happy, 1.0), Mood::default());
    assert_eq!(mood(Emotion::Curious, 0.8).brevity, Brevity::Full);
    assert_eq!(mood(Emotion::Neutral, 1.0), Mood::default());
}

#[test]
fn mood_of_low_intensity_has_little_or_no_effect() {
    for emotion in Emotion::ALL {
        assert_eq!(mood(emotion, 0.39), Mood::default());
        assert_eq!(mood(emotion, f32::NAN), Mood::default());
        assert_eq!(mood(emotion, -3.0), Mood::default());
        let unsure = mood(emotion, 0.7);
        assert!(unsure.lift.is_none(), "{emotion:?}");
    }
    assert_eq!(mood(Emotion::Tired, 0.5).brevity, Brevity::Short);
}

#[test]
fn mood_raises_interactive_tasks_to_high_at_most() {
    let upset = mood(Emotion::Frustrated, 0.9);
    let research = "research heat pumps";
    let lifted = classify("chat", research, None).felt(&upset);
    assert_eq!((lifted.priority, lifted.basis), (Priority::High, Basis::Mood));
    assert!(lifted.alternatives.iter().any(|a| a.starts_with("normal: ")), "{:?}", lifted.alternatives);
    assert_eq!(classify("chat", research, Some(Priority::Normal)).felt(&upset).priority, Priority::Normal);
    assert_eq!(classify("cron", research, None).felt(&upset).priority, Priority::Low);
    assert_eq!(classify("voice", research, None).felt(&upset).priority, Priority::Realtime);
    assert_eq!(classify("chat", research, None).felt(&mood(Emotion::Happy, 1.0)).priority, Priority::Normal);
    assert_eq!(classify("chat", "find a gift, no rush", None).felt(&upset).priority, Priority::Normal);
    let forged = Mood { lift: Some(Priority::Realtime), ..Mood::default() };
    assert_eq!(classify("chat", research, None).felt(&forged).priority, Priority::High);
}

#[test]
fn emotion_parses_labels_of_recognisers() {
    for emotion in Emotion::ALL {
        assert_eq!(emotion.as_str().parse(), Ok(emotion));
    }
    for (label, emotion) in [
        ("Angry", Emotion::Frustrated),
        ("calm", Emotion::Neutral),
        ("sad", Emotion::Tired),
        (" anxious ", Emotion::Stressed),
        ("joy", Emotion::Happy),
        ("surprise", Emotion::Curious),
        ("urgent", Emotion::Frustrated),
    ] {
        assert_eq!(label.parse(), Ok(emotion), "{label}");
    }
    assert_eq!("bored".parse::<Emotion>(), Err("unknown emotion \"bored\"".to_owned()));
}

proptest! {
    #[test]
    fn classification_handles_every_text_and_source(source in any::<String>(), text in any::<String>(), n in 0usize..200) {
        let classified = classify(&source, &text.repeat(n.min(1 + 2_000 / (text.len() + 1))), None);
        prop_assert!(!classified.reason.is_empty());
    }

    #[test]
    fn classification_gives_realtime_only_to_voice(
        source in prop::sample::select(EVERY_SOURCE.to_vec()),
        text in any::<String>(),
        asked in prop::option::of(prop::sample::select(Priority::ALL.to_vec())),
        emotion in prop::sample::select(Emotion::ALL.to_vec()),
        intensity in any::<f32>(),
    ) {
        let classified = classify(source, &text, asked).felt(&mood(emotion, intensity));
        prop_assert!(source == "voice" || classified.priority != Priority::Realtime);
    }

    #[test]
    fn mood_shift_is_limited_and_never_delays(
        emotion in prop::sample::select(Emotion::ALL.to_vec()),
        intensity in any::<f32>(),
        forged_ms in any::<i64>(),
    ) {
        let of_table = mood(emotion, intensity);
        let forged = Mood { queue_shift_ms: forged_ms, ..of_table };
        for mood in [of_table, forged] {
            prop_assert!((-QUEUE_SHIFT_MS_MAX..=0).contains(&mood.shift_ms()));
        }
    }
}
