//! The tables beside the log are what a rebuild from the log makes of them.

use annie_core::{
    event::Scope,
    ports::{Letters, Operations, Outbox, Records},
    time::Micros,
};

use super::{people, scenario::USERS, town::Town, watch::now};

/// Rebuilds them in place and compares.
pub fn check(town: &Town) {
    let before = all(town);
    now(town.data.rebuild());
    let after = all(town);
    for (was, is) in before.iter().zip(&after) {
        if was != is {
            town.watch.wrong(format!("a table said {was}, and the log says {is}"));
        }
    }
    if before.len() != after.len() {
        town.watch.wrong(format!("the tables had {} rows, and the log makes {}", before.len(), after.len()));
    }
}

fn all(town: &Town) -> Vec<String> {
    let (data, ever) = (&town.data, Micros(i64::MAX));
    let tasks = now(data.tasks(Scope::Operator, false, ever, 10_000));
    let mut rows: Vec<String> = Vec::new();
    for task in &tasks {
        rows.extend(now(data.intents(task.id)).iter().map(|intent| format!("{intent:?}")));
    }
    rows.extend(tasks.iter().map(|task| format!("{task:?}")));
    rows.extend(now(data.conversations(Scope::Operator, ever, 10_000)).iter().map(|row| format!("{row:?}")));
    rows.extend(now(data.letters(Scope::Operator, None, ever, 10_000)).iter().map(|row| format!("{row:?}")));
    rows.extend(now(data.operations(Scope::Operator, false, ever, 10_000)).iter().map(|row| format!("{row:?}")));
    rows.extend(now(data.outbox(10_000)).iter().map(|row| format!("{row:?}")));
    for n in 0..USERS.len() {
        for step in 0..40 {
            let found = now(data.message(people::user(n), format!("step{step}")));
            rows.extend(found.map(|message| format!("{message:?}")));
        }
    }
    rows
}
