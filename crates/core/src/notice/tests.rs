//! Tests of notifications: which texts become one, and how several are merged.

use uuid::Uuid;

use super::*;
use crate::{
    ids::{ConversationId, TaskId, UserId},
    time::Micros,
};

fn final_text(n: u8, title: &str, state: TaskState, priority: Priority, source: &str) -> OutboxRow {
    let task = TaskId::from_uuid(Uuid::new_v8([n; 16]));
    OutboxRow {
        id: OutboxId::for_task(task),
        user: UserId::new("ann").unwrap(),
        task,
        conversation: ConversationId::from_uuid(Uuid::nil()),
        title: title.to_owned(),
        priority,
        source: source.to_owned(),
        state,
        text: format!("the answer to {title}"),
        at: Micros(0),
        reply_to: None,
        diverted: None,
    }
}

fn done(n: u8, title: &str) -> OutboxRow {
    final_text(n, title, TaskState::Completed, Priority::Normal, "http")
}

fn given_up(n: u8, title: &str) -> OutboxRow {
    let failed = final_text(n, title, TaskState::Failed, Priority::Normal, "http");
    OutboxRow { id: OutboxId::for_dead_letter(failed.task), text: "It is given up.".to_owned(), ..failed }
}

#[test]
fn notice_about_an_approval_is_sent_unless_a_client_listens() {
    let running = final_text(1, "buy milk", TaskState::Running, Priority::High, "http");
    let text = "May I run tasks.create?".to_owned();
    let asks = OutboxRow { id: OutboxId::for_approval(running.task, 1), text, ..running };
    assert!(!is_delivered_in_conversation(&asks, false) && is_delivered_in_conversation(&asks, true));
    assert_eq!(notice(std::slice::from_ref(&asks)), "I need your approval for \"buy milk\": May I run tasks.create?");
    let merged = notice(&[asks, done(2, "x")]);
    assert_eq!(
        merged,
        "I finished \"x\". I need your approval for \"buy milk\".\n\"buy milk\": May I run tasks.create?\n\"x\": the answer to x"
    );
}

#[test]
fn notice_about_a_report_says_what_the_forked_task_came_to() {
    let report = |n: u8, end: &str, text: &str| {
        let row = final_text(n, "[Report of the background", TaskState::Completed, Priority::High, "fork_report");
        OutboxRow { text: format!("\"/audit {n}\" {end}{text}"), ..row }
    };
    let finished = report(1, "has finished in the background:\n\n", "Two findings.");
    assert!(!is_delivered_in_conversation(&finished, false) && is_delivered_in_conversation(&finished, true));
    assert_eq!(notice(std::slice::from_ref(&finished)), "I finished \"/audit 1\": Two findings.");
    let failed = report(2, "has failed in the background:\n\n", "No model.");
    assert_eq!(notice(std::slice::from_ref(&failed)), "About \"/audit 2\": No model.");
    let cancelled = report(3, "was cancelled in the background.", "");
    assert!(is_delivered_in_conversation(&cancelled, false), "the user who cancelled the task knows about it");
    assert_eq!(
        notice(&[finished, failed]),
        "I finished \"/audit 1\". I could not do \"/audit 2\".\n\"/audit 1\": Two findings.\n\"/audit 2\": No model."
    );
}

#[test]
fn notices_skip_interactive_work_and_announce_background_work() {
    use Priority::{Background, High, Low, Normal, Realtime};
    let finished = |priority, source| final_text(1, "x", TaskState::Completed, priority, source);
    for class in [Realtime, High] {
        assert!(is_delivered_in_conversation(&finished(class, "http"), false));
        assert!(
            !is_delivered_in_conversation(&finished(class, "dead_letter"), false),
            "an automatic retry needs a notification"
        );
        assert!(
            !is_delivered_in_conversation(&finished(class, "operation"), false),
            "the result of an operation needs a notification"
        );
        assert!(is_delivered_in_conversation(&finished(class, "operation"), true));
    }
    for class in [Normal, Low, Background] {
        assert!(!is_delivered_in_conversation(&finished(class, "http"), false));
        assert!(is_delivered_in_conversation(&finished(class, "http"), true), "a client is connected");
    }
    assert!(
        is_delivered_in_conversation(&final_text(1, "x", TaskState::Cancelled, Normal, "http"), false),
        "the user who cancelled it knows"
    );
    assert!(
        !is_delivered_in_conversation(&given_up(1, "x"), true),
        "the conversation does not show that the retries ended"
    );
}

#[test]
fn notice_of_one_task_contains_its_answer() {
    assert_eq!(notice(&[done(1, "heat pumps")]), "I finished \"heat pumps\": the answer to heat pumps");
    let failed = final_text(1, "call Bob", TaskState::Failed, Priority::Normal, "http");
    assert_eq!(notice(&[failed]), "About \"call Bob\": the answer to call Bob");
    assert_eq!(notice(&[given_up(1, "call Bob")]), "I could not do \"call Bob\". It is given up.");
    let operation = final_text(1, "[The x that …", TaskState::Completed, Priority::Normal, "operation");
    assert_eq!(notice(&[operation]), "the answer to [The x that …");
    let long = OutboxRow { text: "é".repeat(1_000), ..done(1, "long") };
    assert!(notice(&[long]).ends_with("é …"));
}

#[test]
fn notice_says_what_did_not_reach_its_address() {
    let lost = |n, diverted| OutboxRow { diverted: Some(diverted), ..done(n, &format!("{n}")) };
    assert_eq!(
        notice(&[lost(1, Diverted::InDoubt)]),
        "I finished \"1\": the answer to 1\nI do not know whether I delivered \"1\": the attempt broke off."
    );
    let all = [lost(1, Diverted::InDoubt), lost(2, Diverted::Refused), lost(3, Diverted::GivenUp), done(4, "4")];
    assert_eq!(
        notice(&all),
        "I finished 4 things: \"1\", \"2\", \"3\" and \"4\".\n\
         \"1\": the answer to 1 (I do not know whether I delivered it: the attempt broke off.)\n\
         \"2\": the answer to 2 (I could not deliver it: the channel refused it.)\n\
         \"3\": the answer to 3 (I could not deliver it: the channel failed for too long.)\n\"4\": the answer to 4"
    );
    // Beyond the texts that are shown, what was not delivered is still said, with its address.
    let to = Address { channel: "hook".to_owned(), to: "x".to_owned() };
    let last = OutboxRow { reply_to: Some(to), ..lost(9, Diverted::NoChannel) };
    let many: Vec<OutboxRow> =
        (1..=5).map(|n| done(n, "same")).chain((1..=5).map(|n| done(n, &format!("{n}")))).collect();
    let text = notice(&many.into_iter().chain([last]).collect::<Vec<_>>());
    let end = "I could not deliver \"9\" to x (channel hook): no channel has this name any more.";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn notice_of_a_reminder_is_its_text_and_names_the_todo_among_others() {
    let text = "Reminder: Stretch (task #3, due 2026-02-18 13:00). Say “it is done”.".to_owned();
    let row = final_text(1, "[Reminder of task #3]", TaskState::Completed, Priority::Low, REMINDER);
    let reminds = OutboxRow { text: text.clone(), ..row };
    assert!(!is_delivered_in_conversation(&reminds, false) && is_delivered_in_conversation(&reminds, true));
    assert_eq!(notice(std::slice::from_ref(&reminds)), text);
    assert_eq!(
        notice(&[reminds, done(2, "x")]),
        "I finished \"x\". I remind you of \"Stretch\".\n\"x\": the answer to x"
    );
}

#[test]
fn notice_of_several_tasks_is_merged_into_one_short_text() {
    let failed = final_text(3, "call Bob", TaskState::Failed, Priority::Normal, "http");
    let text = notice(&[done(1, "a"), done(2, "b"), failed, done(4, "c"), given_up(5, "d")]);
    assert_eq!(
        text,
        "I finished 3 things: \"a\", \"b\" and \"c\". I could not do \"call Bob\". I have given up \"d\".\n\
         \"a\": the answer to a\n\"b\": the answer to b\n\"call Bob\": the answer to call Bob\n\"c\": the answer to c\n\
         \"d\": It is given up."
    );
    let many: Vec<OutboxRow> = (0..9).map(|n| done(n, &format!("{n}"))).collect();
    let text = notice(&many);
    assert!(text.starts_with("I finished 9 things: \"0\", \"1\", \"2\", \"3\", \"4\" and 4 more.\n"), "{text}");
    assert_eq!(text.lines().count(), 1 + NAMES_MAX, "{text}");
    let same = notice(&[done(1, "same"), done(2, "same")]);
    assert_eq!(same, "I finished \"same\".\n\"same\": the answer to same", "one execution for both tasks");
}
