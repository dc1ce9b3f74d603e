//! Tests of requests that refer to the last answers: pronouns, corrections, other dates and undo.

use super::*;

fn user_request(message: &str, answers: &[&str]) -> String {
    match read(message, "delete it", answers) {
        Referred::Requests(user_requests) => user_requests.join(" | "),
        Referred::Answer(text) => format!("? {text}"),
    }
}

#[test]
fn pronoun_refers_to_the_task_of_the_last_answer() {
    let made = "I created task #7 Call mum, priority medium.";
    for (message, wanted) in [
        ("mark it as done", "mark task 7 as done"),
        ("please mark that one as done", "please mark task 7 as done"),
        ("delete it", "ask whether to delete task 7"),
        ("make it due tomorrow", "make task 7 due tomorrow"),
        ("it is done", "task 7 is done"),
        ("I'm done with it", "I'm done with task 7"),
        ("move that task to Monday", "move task 7 to Monday"),
        ("create a task to finish it", "create a task to finish it"),
        ("remember that it is done", "remember that it is done"),
        ("remove this note", "remove this note"),
        ("mark \"it\" as done", "mark \"it\" as done"),
        ("finish it", "finish task 7"),
    ] {
        assert_eq!(user_request(message, &["Hello!", made]), wanted, "{message}");
    }
    assert!(user_request("finish it", &[]).starts_with("? Which task"));
    assert!(user_request("finish it", &["Found 2 open tasks:\n\n- #1 a\n- #2 b"]).contains("task 1, task 2"));
}

#[test]
fn undo_reverses_the_last_creation_or_deletion_only() {
    for (answer, wanted) in [
        ("I deleted task #2 Call the dentist.", "restore task 2"),
        ("I created task #7 Call mum, priority medium.", "ask whether to delete task 7"),
        ("I deleted the note 'Groceries'. It can be restored for 30 days.", "restore the note Groceries"),
        ("I deleted the note 'Bob's plan'. It can be restored for 30 days.", "restore the note Bob's plan"),
        ("# Diary\nI deleted task #2 a.", "undo that"),
        ("I deleted task #2 a.\nI deleted task #3 b.", "undo that"),
        ("Hello!", "undo that"),
    ] {
        assert_eq!(user_request("undo that", &[answer]), wanted, "{answer}");
    }
    assert_eq!(user_request("undo the knot", &["I deleted task #2 a."]), "undo the knot");
}

#[test]
fn correction_of_a_date_moves_the_task_of_the_last_answer() {
    let made = "I created task #7 Call mum, due 2026-11-29 (tomorrow), priority medium.";
    for (message, wanted) in [
        ("no, I meant the day after tomorrow", "move task 7 to day after tomorrow"),
        ("sorry, I meant friday at 5pm", "move task 7 to friday 5pm"),
        ("actually next week please", "move task 7 to next week"),
        ("I meant to call Bob tomorrow", "I meant to call Bob tomorrow"),
        ("no, tomorrow", "no, tomorrow"),
        ("no, I meant not tomorrow", "no, I meant not tomorrow"),
    ] {
        assert_eq!(user_request(message, &[made]), wanted, "{message}");
    }
    let timed =
        "I created task #7 Call mum, due 2026-11-29 09:00 (tomorrow), priority medium, reminder 2026-11-29 09:00.";
    assert_eq!(user_request("no, I meant friday", &[timed]), "move task 7 to friday 09:00", "the time stays");
    for other in ["Found 1 open task:\n\n- #3 a", "Shall I delete #3 a? Say: yes, delete task 3"] {
        assert_eq!(user_request("sorry, I meant tomorrow", &[other]), "sorry, I meant tomorrow", "{other}");
    }
    let asked = question(&["#7 Call mum"], &[7]);
    assert_eq!(read("yes", "undo that", &[&asked]), Referred::Requests(vec!["delete task 7".into()]));
    assert_eq!(user_request("I meant tomorrow", &["Hello!", made]), "I meant tomorrow", "the last answer names none");
}

#[test]
fn reply_to_a_reminder_refers_to_its_task() {
    let reminder =
        "Reminder: Read task #9 (task #3, due 2026-02-18 13:00). Say “it is done” or “snooze it for 10 minutes”.";
    for (message, wanted) in [
        ("done", "mark task 3 as done"),
        ("Ok, done!", "mark task 3 as done"),
        ("snooze", "snooze task 3"),
        ("snooze for 20 minutes", "snooze task 3 for 20 minutes"),
        ("please snooze until tomorrow at 9", "snooze task 3 until tomorrow at 9"),
        ("remind me again in 2 hours", "snooze task 3 in 2 hours"),
        ("snooze the dentist", "snooze the dentist"),
        ("done with the report", "done with the report"),
        ("thanks", "thanks"),
    ] {
        assert_eq!(user_request(message, &[reminder]), wanted, "{message}");
    }
    assert_eq!(user_request("done", &["Hello!"]), "done");
    assert_eq!(user_request("done", &["Hello!", reminder]), "done", "only the last answer");
    assert_eq!(user_request("snooze", &["Hello!", reminder]), "snooze task 3");
}

#[test]
fn quoted_text_asks_no_question_and_names_no_task() {
    let note = "# Meeting\n  Shall I delete #3 x? Say: yes, delete task 3\n- #9 Buy milk\nsee task #4\nBye";
    let quoted_note = quoted(note, Origin::Other);
    assert_eq!(
        quoted_note,
        "# Meeting\n>   Shall I delete #3 x? Say: yes, delete task 3\n> - #9 Buy milk\n> see task #4\nBye"
    );
    assert_eq!(quoted(&quoted_note, Origin::Other), quoted_note, "quoting is idempotent");
    assert_eq!(user_request("ok", &[&quoted_note]), "ok");
    assert!(user_request("finish it", &[&quoted_note]).starts_with("? Which task"));
    let list = "Found 1 open task:\n\n- #3 Say Shall I delete #5 x? Say: yes, delete task 5";
    assert_eq!(quoted(list, Origin::Tasks), list);
    assert_eq!(user_request("ok", &[list]), "ok");
    let asked = question(&["#3 x"], &[3]);
    assert_eq!(quoted(&asked, Origin::Question), asked);
    assert_eq!(
        read("ok", "read the note Meeting", &[&asked]),
        Referred::Requests(vec!["ok".into()]),
        "the user requested no deletion"
    );
}

#[test]
fn question_is_confirmed_only_by_yes_or_its_exact_text() {
    let asked = question(&["#1 Submit the report"], &[1]);
    assert_eq!(asked, "Shall I delete #1 Submit the report? Say: yes, delete task 1");
    for message in ["yes, delete it", "ok, remove that", "yes", "Yes please", "yes, delete task 1", "ok do it"] {
        assert_eq!(user_request(message, &[&asked]), "delete task 1", "{message}");
    }
    assert!(user_request("no", &[&asked]).contains("nothing was deleted"));
    assert_eq!(user_request("yes", &["Hello!", &asked]), "yes", "`yes` refers to the last answer only");
    let two = question(&["#1 a", "#2 b"], &[1, 2]);
    assert_eq!(user_request("yes, delete tasks 1, 2", &[&two]), "delete task 1 | delete task 2");
    let both = format!("{asked}\n{}", question(&["#2 b"], &[2]));
    assert!(user_request("yes", &[&both]).starts_with("? I asked about several"));
    assert_eq!(user_request("what time is it", &[&asked]), "what time is it");
}
