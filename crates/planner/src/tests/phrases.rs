//! Tests of phrases that people use, and of the commands that they become.

use super::super::{execute::command_line, goal::goals, testing::catalog};

/// The first command of each request. `>` marks a request that waits for earlier ones, `?` precedes the reason if something
/// is missing, `-` marks a request without a skill.
pub(super) fn plan(sent: &str) -> Vec<String> {
    let catalog = catalog();
    goals(sent, "", &catalog)
        .iter()
        .map(|goal| {
            let wait = if goal.waits_for.is_empty() { "" } else { "> " };
            match (goal.next(), goal.stopped()) {
                (Some(call), _) => format!("{wait}{}", command_line(&call)),
                (None, Some(stopped)) => format!("{wait}? {}", stopped.text),
                (None, None) => format!("{wait}- {}", goal.user_request()),
            }
        })
        .collect()
}

#[track_caller]
fn check(table: &[(&str, &[&str])]) {
    let wrong: Vec<String> = table
        .iter()
        .map(|(sent, wanted)| (sent, wanted, plan(sent)))
        .filter(|(_, wanted, got)| got.as_slice() != **wanted)
        .map(|(sent, wanted, got)| format!("\n{sent}\n  wanted {wanted:?}\n  got    {got:?}"))
        .collect();
    assert!(wrong.is_empty(), "{} of {}:{}", wrong.len(), table.len(), wrong.join(""));
}

#[test]
fn new_tasks_have_title_date_priority_and_tags() {
    check(&[
        ("Create a task to review PR 42 due tomorrow", &["tasks.create --title \"Review PR 42\" --due tomorrow"]),
        ("remind me to call mom tomorrow at 6pm", &["tasks.create --title \"Call mom\" --due \"tomorrow 6pm\""]),
        (
            "Remind me on Friday at 9 to send the report",
            &["tasks.create --title \"Send the report\" --due \"friday 9:00\""],
        ),
        (
            "remind me in 2 hours to take out the trash",
            &["tasks.create --title \"Take out the trash\" --due \"in 2 hours\""],
        ),
        ("add a task: buy bread and butter", &["tasks.create --title \"Buy bread and butter\""]),
        (
            "Add \"finish the Q1 report\" to my todo list for next friday",
            &["tasks.create --title \"finish the Q1 report\" --due \"next friday\""],
        ),
        (
            "new task pay rent by the end of the month, urgent",
            &["tasks.create --title \"Pay rent\" --due \"end of month\" --priority critical"],
        ),
        ("create an urgent task to call the bank", &["tasks.create --title \"Call the bank\" --priority critical"]),
        ("create a task to water plants with low priority", &["tasks.create --title \"Water plants\" --priority low"]),
        ("make a high-priority todo to ship v1.2", &["tasks.create --title \"Ship v1.2\" --priority high"]),
        (
            "add task clean the garage #home #weekend",
            &["tasks.create --title \"Clean the garage\" --tags home,weekend"],
        ),
        (
            "add a task to plan the party tagged fun and family",
            &["tasks.create --title \"Plan the party\" --tags fun,family"],
        ),
        ("Create a task to call Bob. It is urgent.", &["tasks.create --title \"Call Bob\" --priority critical"]),
        (
            "create a task titled \"Renew passport\" due 2026-12-01 with description needs a new photo",
            &["tasks.create --title \"Renew passport\" --due 2026-12-01 --description \"needs a new photo\""],
        ),
        ("i need to buy milk today", &["tasks.create --title \"Buy milk\" --due today"]),
        ("don't forget to lock the door", &["tasks.create --title \"Lock the door\""]),
        ("remember to buy milk", &["tasks.create --title \"Buy milk\""]),
        (
            "don't let me forget about the dentist on march 3rd",
            &["tasks.create --title \"The dentist\" --due \"march 3rd\""],
        ),
        ("put milk on my list", &["tasks.create --title Milk"]),
        ("todo: fix the roof", &["tasks.create --title \"Fix the roof\""]),
        ("create a task to say \"hello\" to Bob's team", &["tasks.create --title \"Say \\\"hello\\\" to Bob's team\""]),
        ("schedule a call with Bob next week", &["tasks.create --title \"Call with Bob\" --due \"next week\""]),
        (
            "add tasks: buy milk, call mom and water the plants",
            &[
                "tasks.create --title \"Buy milk\"",
                "tasks.create --title \"Call mom\"",
                "tasks.create --title \"Water the plants\"",
            ],
        ),
    ]);
}

#[test]
fn times_and_spans_in_words_are_read() {
    check(&[
        (
            "remind me tomorrow at half past six to call grandma",
            &["tasks.create --title \"Call grandma\" --due \"tomorrow 18:30\""],
        ),
        (
            "remind me the day after tomorrow at half past six in the evening to call grandma",
            &["tasks.create --title \"Call grandma\" --due \"day after tomorrow 18:30\""],
        ),
        ("remind me tomorrow at quarter to five to leave", &["tasks.create --title Leave --due \"tomorrow 16:45\""]),
        ("remind me at ten past nine in the morning to stretch", &["tasks.create --title Stretch --due 9:10"]),
        ("remind me tomorrow at 8 in the evening to call", &["tasks.create --title Call --due \"tomorrow 20:00\""]),
        ("remind me tomorrow evening at 8 to call", &["tasks.create --title Call --due \"tomorrow 20:00\""]),
        (
            "remind me tomorrow at quarter to twelve in the morning to call",
            &["tasks.create --title Call --due \"tomorrow 11:45\""],
        ),
        ("remind me tomorrow morning at half past six to call", &["tasks.create --title Call --due \"tomorrow 6:30\""]),
        ("remind me tomorrow evening at 8pm to call", &["tasks.create --title Call --due \"tomorrow 8pm\""]),
        ("remind me tomorrow at 2 at night to call", &["tasks.create --title Call --due \"tomorrow 2:00\""]),
        ("remind me tonight at 8 to call", &["tasks.create --title Call --due \"tonight 20:00\""]),
        ("remind me this evening at 7:30 to call", &["tasks.create --title Call --due \"today evening 19:30\""]),
        (
            "remind me in half an hour to check the oven",
            &["tasks.create --title \"Check the oven\" --due \"in 30 minutes\""],
        ),
        ("remind me in 1.5 hours to check", &["tasks.create --title Check --due \"in 90 minutes\""]),
        ("remind me in an hour and a half to check", &["tasks.create --title Check --due \"in 90 minutes\""]),
        ("remind me in two and a half hours to check", &["tasks.create --title Check --due \"in 150 minutes\""]),
        ("remind me in a couple of hours to check", &["tasks.create --title Check --due \"in 2 hours\""]),
        ("remind me to pick up kids friday 3pm", &["tasks.create --title \"Pick up kids\" --due \"friday 3pm\""]),
        ("todo: dentist tuesday 14:30", &["tasks.create --title Dentist --due \"tuesday 14:30\""]),
        ("create a task for the friday meeting at 3 pm", &["tasks.create --title \"The friday meeting\" --due 3pm"]),
        ("create a task to give 5 to 3 people", &["tasks.create --title \"Give 5 to 3 people\""]),
        ("create a task to give half to six children", &["tasks.create --title \"Give half to six children\""]),
        ("create a task to give ten to six children", &["tasks.create --title \"Give ten to six children\""]),
        ("create a task to call Bob last monday", &["tasks.create --title \"Call Bob last monday\""]),
    ]);
    for (sent, said) in [
        ("remind me yesterday to stretch", "“yesterday”, because that is over"),
        ("remind me 2 days ago to stretch", "“2 days ago”, because that is over"),
        ("create a task to call Bob on 12/11", "not sure which day “12/11” is"),
        ("remind me at 25 to sleep", "did not understand the time “at 25”"),
        ("create a task to call Bob at 3 and email him at 4", "A task has one time, so I made none: what about “at"),
        ("pause schedule 1", "cannot pause or resume a schedule"),
    ] {
        let planned = plan(sent).join("|");
        assert!(planned.starts_with("? ") && planned.contains(said), "{sent}: {planned}");
    }
}

#[test]
fn parts_of_one_message_are_all_read_or_refused() {
    check(&[
        (
            "rename task 4 to Tea and task 5 to Milk",
            &["tasks.update --id 4 --title Tea", "> tasks.update --id 5 --title Milk"],
        ),
        ("task 8 to high priority", &["tasks.update --id 8 --priority high"]),
        ("what time is it in tokyo and berlin", &["system.time --timezone Asia/Tokyo"]),
        (
            "remember that they moved task 4 to Monday and task 5 to Friday",
            &["memory.save --content \"They moved task 4 to Monday and task 5 to Friday\""],
        ),
        (
            "remember the riddle. What has four legs? A table.",
            &["memory.save --content \"The riddle. What has four legs? A table.\" --category fact"],
        ),
        (
            "remember that the code is 1234. what is the code?",
            &["memory.save --content \"The code is 1234\" --category fact", "- what is the code?"],
        ),
        ("snooze reminder 6 by 1 hour", &["tasks.remind --id 6 --when \"1 hour later\""]),
        ("snooze reminder 6 for 1 hour", &["tasks.remind --id 6 --when \"in 1 hour\""]),
    ]);
    let planned = plan("what time is it in tokyo and lisbon").join("|");
    assert!(planned.starts_with("? I do not know the time in “lisbon” together"), "{planned}");
    let planned = plan("task 8 to high priority and due on Friday and rename to Stretching").join("|");
    assert!(planned.starts_with("? I understood this only in part, so I changed nothing"), "{planned}");
}

#[test]
fn polite_words_are_removed_from_requests() {
    check(&[
        (
            "hey annie could you please remind me to call the dentist tomorrow morning",
            &["tasks.create --title \"Call the dentist\" --due \"tomorrow morning\""],
        ),
        ("um so can you uh add a task to book flights please", &["tasks.create --title \"Book flights\""]),
        ("okay annie what should i do today", &["tasks.search --status open --due today"]),
        (
            "i'd like you to remember that my sister is called Eva",
            &["memory.save --content \"My sister is called Eva\" --category relationship"],
        ),
        ("would you mind telling me what's overdue", &["tasks.search --status overdue"]),
        ("annie mark the milk task as done thanks", &["tasks.search --query milk"]),
        ("ok great now tell me what time it is", &["system.time"]),
        ("I want to add a task to learn Rust", &["tasks.create --title \"Learn Rust\""]),
        ("Hey Annie, can you add a task to call Bob?", &["tasks.create --title \"Call Bob\""]),
        ("can you tell me what is due", &["tasks.search --status open"]),
        ("let me know what you know about Bob", &["memory.search --query Bob"]),
        ("help me create a note titled Ideas saying be brave", &["notes.create --title Ideas --content \"Be brave\""]),
    ]);
}

#[test]
fn task_lists_are_filtered_by_the_words_of_the_request() {
    check(&[
        ("what is due?", &["tasks.search --status open"]),
        ("What's due tomorrow?", &["tasks.search --status open --due tomorrow"]),
        ("what do I have to do this week", &["tasks.search --status open --due this_week"]),
        ("show my overdue tasks", &["tasks.search --status overdue"]),
        ("list all my tasks", &["tasks.search --status all"]),
        ("show me my completed tasks", &["tasks.search --status done"]),
        ("which tasks are blocked", &["tasks.search --status blocked"]),
        ("show high priority tasks", &["tasks.search --status open --priority high"]),
        ("list urgent tasks", &["tasks.search --status open --priority critical"]),
        ("find tasks about the report", &["tasks.search --status open --query \"the report\""]),
        ("what tasks do I have tagged home", &["tasks.search --status open --tag home"]),
        ("what's on my list", &["tasks.search --status open"]),
        ("what should I do next", &["tasks.search --status open"]),
        ("do I have anything due today?", &["tasks.search --status open --due today"]),
        ("my tasks", &["tasks.search --status open"]),
        ("what do I need to finish by friday", &["tasks.search --status open"]),
        ("how many open tasks do I have", &["tasks.search --status open"]),
        ("show me everything that is due tomorrow", &["tasks.search --status open --due tomorrow"]),
        ("What did I finish this week?", &["tasks.search --status done"]),
    ]);
}

#[test]
fn task_is_identified_by_number_or_by_words() {
    check(&[
        ("mark task 3 as done", &["tasks.update --id 3 --status done"]),
        ("complete #3", &["tasks.update --id 3 --status done"]),
        ("I finished task 7", &["tasks.update --id 7 --status done"]),
        ("task 4 is done", &["tasks.update --id 4 --status done"]),
        ("I'm done with the report", &["tasks.search --query report"]),
        ("mark tasks 3 and 4 as complete", &["tasks.update --id 3 --status done"]),
        ("start working on task 5", &["tasks.update --id 5 --status in_progress"]),
        ("mark #2 as blocked", &["tasks.update --id 2 --status blocked"]),
        ("cancel task 9", &["tasks.update --id 9 --status cancelled"]),
        ("reopen task 9", &["tasks.update --id 9 --status todo"]),
        ("postpone task 2 to next monday", &["tasks.update --id 2 --due \"next monday\""]),
        ("make task 3 urgent", &["tasks.update --id 3 --priority critical"]),
        ("set the priority of task 3 to low", &["tasks.update --id 3 --priority low"]),
        ("rename task 3 to Buy oat milk", &["tasks.update --id 3 --title \"Buy oat milk\""]),
        ("change task 3: due friday, high priority", &["tasks.update --id 3 --due friday --priority high"]),
        (
            "update task 3",
            &[
                "? I did not understand what to change about the task: say its date, priority, status or title, for example \
               “move task 3 to Monday”",
            ],
        ),
        ("delete task 12", &["tasks.delete --id 12"]),
        ("delete the task about milk", &["tasks.search --query milk"]),
        ("remove milk from my list", &["tasks.search --query milk"]),
        ("mark the call to the bank as done", &["tasks.search --query \"call bank\""]),
        ("task 3 done", &["tasks.update --id 3 --status done"]),
        ("delete the task", &["? I did not understand which task you mean: say its number, like “task 3”"]),
        ("show me task 3", &["tasks.get --id 3"]),
        ("details of #8", &["tasks.get --id 8"]),
        ("show my recent tasks", &["tasks.get --recent"]),
    ]);
}

#[test]
fn memories_are_saved_and_found() {
    check(&[
        ("remember that Bob prefers email", &["memory.save --content \"Bob prefers email\" --category preference"]),
        (
            "Remember: the wifi password is hunter2",
            &["memory.save --content \"The wifi password is hunter2\" --category fact"],
        ),
        ("note that we decided to use Rust", &["memory.save --content \"We decided to use Rust\" --category decision"]),
        ("keep in mind that I never eat fish", &["memory.save --content \"I never eat fish\" --category instruction"]),
        (
            "save to memory: Eva's birthday is May 3",
            &["memory.save --content \"Eva's birthday is May 3\" --category fact"],
        ),
        (
            "Remember that Bob prefers email. He hates calls.",
            &["memory.save --content \"Bob prefers email. He hates calls.\" --category preference"],
        ),
        ("save this: the door code is 4711", &["memory.save --content \"The door code is 4711\" --category fact"]),
        ("could you note that they like pizza?", &["memory.save --content \"They like pizza\" --category preference"]),
        ("remember that", &["? I did not understand what to remember: say it in the same sentence"]),
        ("what do you know about Bob?", &["memory.search --query Bob"]),
        ("do you remember what Bob prefers", &["memory.search --query \"Bob prefers\""]),
        ("recall everything about the Berlin project", &["memory.search --query \"Berlin project\""]),
        ("what did I tell you about my sister", &["memory.search --query sister"]),
        ("who is Bob", &["memory.search --query Bob"]),
        ("how does Bob prefer to be contacted?", &["memory.search --query \"Bob prefer contacted\""]),
        ("search my memories for tea", &["memory.search --query tea"]),
        ("what is my favourite colour", &["memory.search --query \"favourite colour\""]),
        ("list my memories", &["? tell me what to look for"]),
    ]);
}

#[test]
fn notes_have_title_and_text() {
    check(&[
        (
            "create a note titled Groceries saying milk, eggs and bread",
            &["notes.create --title Groceries --content \"Milk, eggs and bread\""],
        ),
        (
            "write a note called \"Trip plan\" with content \"Pack bags\"",
            &["notes.create --title \"Trip plan\" --content \"Pack bags\""],
        ),
        (
            "make a note about the offsite: book rooms, order food",
            &["notes.create --title Offsite --content \"Book rooms, order food\""],
        ),
        (
            "jot down that the meeting moved to room 5",
            &["notes.create --title \"The meeting moved to room 5\" --content \"The meeting moved to room 5\""],
        ),
        ("create a note titled Ideas", &["notes.create --title Ideas --content \"# Ideas\""]),
        ("new note: call the plumber", &["notes.create --title \"Call the plumber\" --content \"Call the plumber\""]),
        (
            "Take a note: met with Ann, she wants the report",
            &["notes.create --title \"Met with Ann, she wants the\" --content \"Met with Ann, she wants the report\""],
        ),
        ("read the note Groceries", &["notes.read --title Groceries"]),
        ("open my groceries note", &["notes.read --title Groceries"]),
        ("what's in the note \"Trip plan\"?", &["notes.read --title \"Trip plan\""]),
        ("find notes about the trip", &["notes.search --query trip"]),
        ("list my notes", &["notes.search"]),
        ("search my notes for plumber", &["notes.search --query plumber"]),
        ("show my meeting notes", &["notes.search --query meeting"]),
        ("add butter to the note Groceries", &["notes.edit --title Groceries --append Butter"]),
        ("add butter and jam to my groceries note", &["notes.edit --title Groceries --append \"Butter and jam\""]),
        ("append to the note Groceries: cheese", &["notes.edit --title Groceries --append Cheese"]),
    ]);
}

#[test]
fn system_skills_and_added_skills_are_chosen() {
    check(&[
        ("what time is it?", &["system.time"]),
        ("what's the time in Tokyo", &["system.time --timezone Asia/Tokyo"]),
        ("what day is it today", &["system.time"]),
        ("help", &["system.help"]),
        ("what can you do?", &["system.help"]),
        ("help me with notes", &["system.help --topic notes"]),
        ("how do I use tasks.create", &["system.help --topic tasks.create"]),
        ("tasks.create --title \"By hand\" --due today", &["tasks.create --title \"By hand\" --due today"]),
        ("tasks.create --colour red", &["? tasks.create takes no “colour”, or not “red” for it"]),
        (
            "send an email to bob@example.org with subject \"Hi\" and body \"See you\"",
            &["email.send --body \"See you\" --subject Hi --to bob@example.org"],
        ),
        ("what's the weather in Prague today", &["weather.today --city Prague"]),
        ("show the weather for Berlin in metric units", &["weather.today --city Berlin --units metric"]),
    ]);
}

#[test]
fn requests_wait_for_earlier_ones_only_if_necessary() {
    check(&[
        (
            "Create a task to review PR 42 due tomorrow, remember that Bob prefers email, and then tell me what is due",
            &[
                "tasks.create --title \"Review PR 42\" --due tomorrow",
                "memory.save --content \"Bob prefers email\" --category preference",
                "> tasks.search --status open",
            ],
        ),
        (
            "add a task to call Bob and show my tasks",
            &["tasks.create --title \"Call Bob\"", "> tasks.search --status open"],
        ),
        ("what time is it and what's overdue", &["system.time", "tasks.search --status overdue"]),
        ("complete #3; delete #4", &["tasks.update --id 3 --status done", "> tasks.get --id 4"]),
        (
            "Add these tasks:\n- buy milk tomorrow\n- call mom",
            &["tasks.create --title \"Buy milk\" --due tomorrow", "tasks.create --title \"Call mom\""],
        ),
        (
            "remind me to call Bob and another one to email Ann tomorrow",
            &["tasks.create --title \"Call Bob\"", "tasks.create --title \"Email Ann\" --due tomorrow"],
        ),
    ]);
}

#[test]
fn conversation_gives_no_command() {
    check(&[
        ("hello there", &["- hello there"]),
        ("how are you?", &["- how are you?"]),
        ("What is the capital of France?", &["- What is the capital of France?"]),
        ("I had a nice day", &["- I had a nice day"]),
        ("lol", &["- lol"]),
    ]);
}

#[test]
fn external_event_gives_an_await_command() {
    check(&[
        ("let me know when the nightly backup is done", &["system.await --what \"the nightly backup\""]),
        ("Wait for the build of release 2.1 to report back.", &["system.await --what \"the build of release 2.1\""]),
        ("please await Bob's answer", &["system.await --what \"Bob's answer\""]),
        ("notify me once it finishes", &["system.await --what it"]),
        ("wait for", &["? tell me what to wait for"]),
    ]);
}
