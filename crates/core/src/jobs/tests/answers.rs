//! Resolution of targets, and the answers.

use super::*;

#[test]
fn job_target_that_is_running_job_or_else_newest() {
    let that = |jobs: &[JobLine], verb| resolve(&Target::That, jobs, verb, None);
    assert_eq!(that(&three(), Verb::Cancel), Resolution::One(task(1)));
    assert_eq!(that(&three(), Verb::Pause), Resolution::One(task(1)));
    let two = [waiting(1, "a"), waiting(2, "b")];
    assert_eq!(that(&two, Verb::Cancel), Resolution::One(task(2)));
    assert_eq!(that(&two, Verb::First), Resolution::One(task(2)));
    assert_eq!(that(&two, Verb::Resume), Resolution::None);
    assert_eq!(that(&[], Verb::Cancel), Resolution::None);
}

#[test]
fn job_target_of_urgent_is_a_waiting_job() {
    let jobs = [running(1, "a"), waiting(2, "b"), waiting(3, "c")];
    assert_eq!(resolve(&Target::That, &jobs, Verb::Urgent, None), Resolution::One(task(3)));
    let jobs = [running(1, "a")];
    assert_eq!(resolve(&Target::That, &jobs, Verb::Urgent, None), Resolution::One(task(1)));
    let jobs = [JobLine { priority: Priority::High, ..running(1, "a") }];
    assert_eq!(resolve(&Target::That, &jobs, Verb::Urgent, None), Resolution::Already(task(1)));
}

#[test]
fn job_target_of_resume_is_last_paused_job() {
    let jobs = [suspended(1, "a", 900), suspended(2, "b", 500), running(3, "c")];
    assert_eq!(resolve(&Target::That, &jobs, Verb::Resume, None), Resolution::One(task(1)));
    assert_eq!(resolve(&Target::All, &jobs, Verb::Resume, None), Resolution::All(vec![task(1), task(2)]));
    assert_eq!(resolve(&Target::Number(3), &jobs, Verb::Resume, None), Resolution::Already(task(3)));
    assert_eq!(resolve(&Target::All, &jobs, Verb::Pause, None), Resolution::All(vec![task(3)]));
}

#[test]
fn job_target_prefers_job_of_this_conversation() {
    let jobs = [JobLine { conversation: conversation(2), ..running(1, "a") }, waiting(2, "b")];
    assert_eq!(resolve(&Target::That, &jobs, Verb::Cancel, Some(conversation(1))), Resolution::One(task(2)));
    assert_eq!(resolve(&Target::That, &jobs, Verb::Cancel, Some(conversation(2))), Resolution::One(task(1)));
    assert_eq!(resolve(&Target::That, &jobs, Verb::Cancel, None), Resolution::One(task(1)));
    let deferred = [JobLine { is_deferred: true, priority: Priority::High, position: None, ..waiting(1, "a") }];
    assert_eq!(resolve(&Target::That, &deferred, Verb::Resume, None), Resolution::None, "it has to be named");
    for verb in [Verb::Resume, Verb::First] {
        assert_eq!(resolve(&Target::Number(1), &deferred, verb, None), Resolution::One(deferred[0].task), "{verb:?}");
    }
    let upkeep = [JobLine { priority: Priority::Background, ..running(1, "a") }, waiting(2, "b")];
    assert_eq!(resolve(&Target::That, &upkeep, Verb::Cancel, None), Resolution::One(task(2)));
}

#[test]
fn job_target_ignores_messages_that_are_commands() {
    let jobs =
        [waiting(1, "Research solar panels"), waiting(2, "never mind, cancel that"), waiting(3, "cancel the research")];
    assert_eq!(resolve(&Target::That, &jobs[..2], Verb::Cancel, None), Resolution::One(task(1)));
    assert_eq!(resolve(&words("research"), &jobs, Verb::Cancel, None), Resolution::One(task(1)));
}

#[test]
fn job_title_matches_regardless_of_word_endings() {
    let jobs = three();
    for (sent, number) in [
        ("video", 1),
        ("video summary", 1),
        ("youtube summaries", 1),
        ("summarizing", 1),
        ("golf", 2),
        ("golf course", 2),
        ("reflections", 3),
        ("daily reflection", 3),
        ("writing", 3),
    ] {
        assert_eq!(resolve(&words(sent), &jobs, Verb::Cancel, None), Resolution::One(task(number)), "{sent}");
    }
    for sent in ["music", "golf club", "the", "", "vid", "dailies of golf"] {
        assert_eq!(resolve(&words(sent), &jobs, Verb::Cancel, None), Resolution::None, "{sent}");
    }
}

#[test]
fn job_resolution_asks_user_if_several_jobs_match() {
    let jobs = [waiting(1, "Research solar panels"), waiting(2, "Research heat pumps")];
    let command = understand("cancel the research").unwrap();
    let found = resolve(&words("research"), &jobs, Verb::Cancel, None);
    assert_eq!(found, Resolution::Several(vec![task(1), task(2)]));
    assert_eq!(
        say(&command, &found, &jobs, Style::Short),
        "Which one: 1. \"Research solar panels\" or 2. \"Research heat pumps\"? Say \"cancel number 1\"."
    );
    let jobs = [suspended(1, "Research solar panels", 5), waiting(2, "Research heat pumps")];
    assert_eq!(resolve(&words("research"), &jobs, Verb::Resume, None), Resolution::One(task(1)));
    assert_eq!(resolve(&words("research"), &jobs, Verb::Pause, None), Resolution::One(task(2)));
    let jobs = [
        waiting(1, "Research solar panels"),
        JobLine { conversation: conversation(2), ..waiting(2, "Research heat pumps") },
    ];
    assert_eq!(resolve(&words("research"), &jobs, Verb::Pause, Some(conversation(2))), Resolution::One(task(2)));
}

fn answer(text: &str, jobs: &[JobLine], style: Style) -> String {
    let command = understand(text).unwrap();
    let found = match &command.request {
        JobRequest::Act { verb, target } => resolve(target, jobs, *verb, Some(conversation(1))),
        _ => Resolution::None,
    };
    say(&command, &found, jobs, style)
}

#[test]
fn job_list_is_short_for_voice_and_detailed_for_text() {
    assert_eq!(
        answer("jobs", &three(), Style::Short),
        "I am working on \"Summarise that YouTube video I sent you\", round 3 of 5. Two more wait; \"Look up golf courses near \
         Bangalore\" is next and starts in about 2 minutes."
    );
    assert_eq!(
        answer("/jobs --all", &three(), Style::Short),
        "I am working on three things right now:\n  \
         1. [Running, NORMAL] Summarise that YouTube video I sent you - round 3 of 5, running for about a minute\n  \
         2. [Queued, HIGH] Look up golf courses near Bangalore - next in line, starts in about 2 minutes\n  \
         3. [Queued, BACKGROUND] Write the daily reflection - will run when I am free"
    );
    let asks = [JobLine { awaits_approval: true, round: None, ..running(1, "Delete the old notes") }];
    assert_eq!(
        answer("/jobs --all", &asks, Style::Detailed),
        "I am working on one thing right now:\n  1. [Waiting for you, NORMAL] Delete the old notes - a call needs your approval"
    );
    assert_eq!(answer("jobs", &[], Style::Detailed), "I am not working on anything right now.");
    let paused = [suspended(1, "a", 1)];
    assert_eq!(answer("jobs", &paused, Style::Short), "Nothing runs right now. One is paused.");
    let all = [running(1, "a"), waiting(2, "b"), suspended(3, "c", 1)];
    assert_eq!(
        answer("jobs", &all, Style::Short),
        "I am working on \"a\", round 3 of 5. \"b\" is next, and one is paused."
    );
    let two = [running(1, "a"), running(2, "b")];
    assert_eq!(answer("jobs", &two, Style::Short), "I am working on two things, among them \"a\".");
    let both_deferred = [deferred(1, "a"), JobLine { has_model_failed: true, ..deferred(2, "b") }];
    assert_eq!(
        answer("jobs", &both_deferred, Style::Short),
        "Nothing runs right now. Two wait; \"a\" is next and starts in about 14 minutes."
    );
    assert_eq!(
        answer("jobs", &both_deferred, Style::Detailed),
        "I am working on two things right now:\n  \
         1. [Deferred, NORMAL] a - round 3 of 5, it failed or its time was up, goes on in about 14 minutes, say \"do that \
         first\" to go on now\n  \
         2. [Deferred, NORMAL] b - round 3 of 5, its model failed, goes on when the model answers, at the latest in about 14 \
         minutes, say \"do that first\" to go on now"
    );
}

#[test]
fn job_load_is_reported_in_numbers() {
    assert_eq!(answer("top", &[], Style::Short), "I am not busy: nothing runs and nothing waits.");
    assert_eq!(
        answer("how busy are you", &three(), Style::Short),
        "I am working on one thing, and two more wait. The next one starts in about 2 minutes."
    );
    assert_eq!(
        answer("top", &three(), Style::Detailed),
        "I am working on one thing, and two more wait. The next one starts in about 2 minutes.\n  HIGH: 0 running, 1 waiting, \
         0 paused\n  NORMAL: 1 running, 0 waiting, 0 paused\n  BACKGROUND: 0 running, 1 waiting, 0 paused"
    );
}

#[test]
fn job_command_of_each_kind_has_an_answer() {
    let jobs = three();
    for (sent, answered) in [
        ("cancel that", "I am cancelling \"Summarise that YouTube video I sent you\"."),
        ("cancel the golf thing", "\"Look up golf courses near Bangalore\" is cancelled."),
        (
            "pause that",
            "I pause \"Summarise that YouTube video I sent you\" after this round. Say \"resume\" to go on.",
        ),
        ("pause number 2", "\"Look up golf courses near Bangalore\" is paused. Say \"resume\" to go on."),
        ("do the reflection first", "I will do \"Write the daily reflection\" first."),
        ("the reflection is urgent", "\"Write the daily reflection\" is urgent now."),
        ("number 2 is urgent", "\"Look up golf courses near Bangalore\" is urgent already."),
        ("/first 2", "\"Look up golf courses near Bangalore\" is next already."),
        ("/first 1", "I stay on \"Summarise that YouTube video I sent you\" before everything else."),
        ("resume the golf", "\"Look up golf courses near Bangalore\" is not paused."),
        ("cancel everything", "I am cancelling all three jobs."),
        ("resume everything", "Nothing is paused."),
        ("cancel number 9", "There is no number 9. I have three jobs."),
        ("/cancel music", "I have no job about \"music\". I have three jobs."),
    ] {
        assert_eq!(answer(sent, &jobs, Style::Short), answered, "{sent:?}");
    }
    assert_eq!(answer("cancel that", &[], Style::Short), "There is nothing to cancel.");
    assert_eq!(
        answer("cancel number 3", &jobs, Style::Detailed),
        format!("\"Write the daily reflection\" ({}) is cancelled.", task(3))
    );
}

#[test]
fn job_titles_are_truncated_between_words() {
    let jobs = [waiting(1, "Find out which of the many\nheat pumps on the market is the quietest at night")];
    assert_eq!(
        answer("cancel that", &jobs, Style::Short),
        "\"Find out which of the many heat pumps\u{2026}\" is cancelled."
    );
}

#[test]
fn job_answer_suggests_only_phrases_that_are_recognised() {
    let jobs = [
        waiting(1, "Research solar panels"),
        waiting(2, "Research heat pumps"),
        suspended(3, "Research tiles", 1),
        suspended(4, "Research roofs", 2),
    ];
    for verb in [Verb::First, Verb::Urgent, Verb::Cancel, Verb::Pause, Verb::Resume] {
        for target in [words("research"), Target::That, Target::All] {
            let command = JobCommand { request: act(verb, target.clone()), is_detailed: false, is_certain: true };
            let answer = say(&command, &resolve(&target, &jobs, verb, None), &jobs, Style::Short);
            for hint in answer.split("Say \"").skip(1) {
                let hint = hint.split('"').next().unwrap();
                assert!(understand(hint).is_some(), "{answer}");
            }
        }
    }
}
