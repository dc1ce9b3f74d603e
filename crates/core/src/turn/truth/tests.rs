//! Texts that contain claims, denials and doubts, and texts that do not.

use super::*;

#[test]
fn claims_of_effects_are_detected_in_english_and_german() {
    for text in [
        "I saved \"Paris\" to long-term memory.",
        "I have created the task \"Call the bank\".",
        "I've deleted it.",
        "I found the task about milk, marked it as done, and then added a task to buy cheese.",
        "I moved task #1 \"Call the dentist\" to Friday.",
        "Sure! I have successfully added milk to your list.",
        "The task \"Buy milk\" has been created.",
        "Ich habe die Aufgabe angelegt.",
        "Die Notiz wurde gespeichert.",
        "I've gone ahead and added it.",
        "No problem, I have saved the note.",
        "I added the task, so you can check it now.",
        "I have **created** the task `Buy milk`.",
        "Task \"Call Dr. Smith\" created successfully!",
        "I have set a reminder for Friday.",
        "Created the task.",
        "Deleted it.",
        "Done! Created task #5.",
        "Added milk to your shopping list.",
        "Sure. Marked it as done.",
        "Here is a draft:\nSubject: Meeting\nSee you then.\nBest regards,\nAnn\nI have also created a task for it.",
    ] {
        assert!(untrue_claim(text, true, &Earlier::default()).is_some(), "{text}");
    }
    assert_eq!(untrue_claim("Ich habe die Aufgabe gelöscht.", true, &Earlier::default()), Some(NOTHING_CHANGED_GERMAN));
}

#[test]
fn sentences_without_claims_are_not_detected() {
    for text in [
        "Hello Ann!",
        "Should I create the task?",
        "I can create a task for you.",
        "I have not created the task.",
        "Once I have saved the note, I will tell you.",
        "Shall I say I deleted it?",
        "Paris is the capital of France.",
        "You have three open tasks.",
        "The bridge was completed in 1937.",
        "> I deleted the note.",
        "Ich habe die Aufgabe nicht gelöscht.",
        "Ich kann die Aufgabe anlegen.",
        "Preheat the oven. **Set it** to 180 degrees.",
        "**Set this** aside.",
        "1. Open the app.\n2. **Set the reminder** to daily.",
        "Updated guidelines say that adults need it.",
        "Added sugar is in most of the things on that shelf.",
        "Dear Bob,\n\nI have scheduled the meeting for Friday.\n\nBest regards,\nAnn",
        "Subject: Meeting\n\nI have added you to the list.",
        "The meeting was scheduled for 1945.",
    ] {
        assert_eq!(untrue_claim(text, false, &Earlier::default()), None, "{text}");
    }
}

#[test]
fn vague_claims_and_promises_are_detected_only_if_no_skill_ran() {
    for text in [
        "Task #5 created: Buy milk.",
        "Your reminder is set for Friday.",
        "The note was saved.",
        "Got it, I'll remember that.",
        "Sure! I will remind you on Friday.",
        "I'll add milk to your shopping list.",
        "Ich merke mir das.",
    ] {
        assert!(untrue_claim(text, false, &Earlier::default()).is_some(), "{text}");
        assert_eq!(untrue_claim(text, true, &Earlier::default()), None, "{text}");
    }
    assert_eq!(untrue_claim("Ich merke mir das.", false, &Earlier::default()), Some(NOTHING_CHANGED_GERMAN));
    for text in [
        "Which list? I'll add the task to it then.",
        "I'll write you a poem: roses are red.",
        "Well done! That is right.",
        "You could say \"I have created the task\".",
        "```\nI deleted the note.\n```",
    ] {
        assert_eq!(untrue_claim(text, false, &Earlier::default()), None, "{text}");
    }
}

#[test]
fn claim_of_failed_effect_is_detected_without_receipt_of_same_kind() {
    let text = "I created the task and I deleted the old task.";
    assert_eq!(claimed_failures(text, &["tasks.delete"], &["tasks.create"]), ["tasks.delete"]);
    assert!(claimed_failures(text, &["tasks.delete"], &["tasks.delete"]).is_empty(), "a later attempt succeeded");
    assert!(claimed_failures("I created the task. Deleting failed.", &["tasks.delete"], &[]).is_empty());
    assert!(claimed_failures("I deleted the task.", &["mcp.files.read__all"], &[]).is_empty());
}

#[test]
fn denials_and_refusals_are_distinguished_from_answers() {
    for text in [
        "I did not receive any input to create a task.",
        "I'm sorry, I can't do that.",
        "Leider nein.",
        "No task was created.",
        "I have not made any changes.",
        "Nothing was changed.",
        "Es wurde nichts geändert.",
    ] {
        assert!(denies(text), "{text}");
    }
    assert!(!denies("Created task #1.") && !denies(""));
    for text in ["I'm sorry, but I can't assist with that.", "I cannot help with that request."] {
        assert!(refuses(text), "{text}");
    }
    for text in ["I'm sorry, I could not find task 7. Did you mean 8?", "I can't find the note \"x\"."] {
        assert!(!refuses(text), "{text}");
    }
}

#[test]
fn continuation_is_joined_without_gap_or_repetition() {
    assert_eq!(joined("Once upon a", "time there was"), "Once upon a time there was");
    assert_eq!(joined("Once upon a", " time"), "Once upon a time");
    assert_eq!(joined("one, two", ", three"), "one, two, three");
    assert_eq!(
        joined("It was a dark and stormy night", "stormy night, and cold"),
        "It was a dark and stormy night, and cold"
    );
    assert_eq!(joined("Once upon a time", "Once upon a time there was"), "Once upon a time there was");
    assert_eq!(joined("Once", " "), "Once");
    assert_eq!(
        joined("Äpfel und Öl für große Töpfe", "Öl für große Töpfe, bitte"),
        "Äpfel und Öl für große Töpfe, bitte"
    );
}

#[test]
fn request_for_change_is_recognised_in_one_sentence_beside_courtesy() {
    for (message, is_request) in [
        ("Mark task 7 as done", true),
        ("Hi! Mark task 7 as done", true),
        ("Mark task 7 as done. Thanks!", true),
        ("Can you mark task 7 as done?", true),
        ("Please add eggs. Thank you.", true),
        ("Add a task to call Dr. Smith", true),
        ("Add 3.5 litres of milk to the list", true),
        ("I called them, so that task is done", true),
        ("Did you mark task 7 as done?", false),
        ("Which tasks are done?", false),
        ("Thanks!", false),
        ("Thanks for the task. Now I can order the rest.", false),
    ] {
        assert_eq!(requests_change(message), is_request, "{message}");
    }
}

#[test]
fn thanks_are_recognised_if_the_message_says_nothing_else() {
    for (message, is_thanks) in [
        ("Thanks, that was helpful!", true),
        ("Thank you", true),
        ("Danke!", true),
        ("Thanks, that is all", true),
        ("Great, thanks for your help!", true),
        ("Vielen Dank, das war sehr hilfreich", true),
        ("Danke, das ist alles", true),
        ("Thanks, do it", false),
        ("Thank you, that would be great", false),
        ("Thanks, that one", false),
        ("Thanks, that is right, email Bob", false),
        ("Thanks, it works, turn off the light", false),
        ("Danke, das passt, mach es so", false),
        ("Danke, das kann weg", false),
        ("Thanks, great?", false),
        ("Thanks and milk too", false),
        ("Thank Bob for the flowers", false),
        ("Thanks. Delete task 7", false),
        ("Thanks, delete the milk", false),
        ("Thanks, what is next?", false),
        ("That was helpful", false),
        ("", false),
    ] {
        assert_eq!(only_thanks(message), is_thanks, "{message}");
    }
}

#[test]
fn truth_words_of_claims_are_in_every_claim_and_in_few_other_texts() {
    for text in [
        "**Cre**ated the task.",
        "okcreated the task",
        "```x```Deleted it.",
        "I'll remembered that",
        "Task #1 is done",
        "The timer is set",
        "Ich habe die Aufgabe GELÖSCHT",
        "Ich werde dich morgen daran erinnern",
    ] {
        assert!(may_claim(text), "{text}");
    }
    for text in [
        "All is well.",
        "It is 17 °C in Zürich – a little colder than yesterday.",
        "The settlement of the restored address book is absent.",
        "Morgen um neun beginnt dein Tag mit einem Gespräch über die Räume.",
    ] {
        assert!(!may_claim(text) && untrue_claim(text, false, &Earlier::default()).is_none(), "{text}");
    }
}
