//! A voice task waits for the rounds that already run, and for no others (invariant 9).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use annie_actors::Kernel;
use annie_core::{
    event::{Priority, Scope},
    ids::{Incarnation, TaskId},
    ports::Records,
};
use serde_json::Value;

use super::{
    town::{Process, Town, pass_ms},
    watch::now,
};

/// How often the scheduler is queried while a voice task waits, in milliseconds.
const QUERY_MS: u64 = 50;

/// A wait of a voice task for a round: the task, its number of rounds so far, and the backend.
type Wait = (String, u64, String);

/// The state when a wait was first seen.
struct Seen {
    /// Rounds of other classes that had begun on the backend.
    begun: u64,
    /// The run of the process and the incarnation of the scheduler.
    under: (u32, Incarnation),
    /// The actors that request the round. A new incarnation of the Engine starts a new wait.
    asks: Vec<(String, Incarnation)>,
    /// The permits of other classes that were out on the backend.
    out: BTreeSet<String>,
}

/// Checks all waiting voice tasks for as long as the run continues.
pub async fn watch_voice(town: Arc<Town>) {
    let mut seen: BTreeMap<Wait, Seen> = BTreeMap::new();
    while !town.is_over() {
        pass_ms(QUERY_MS).await;
        match town.present() {
            Some(process) if town.watch.has_open_voice() => check_waits(&town, &process, &mut seen).await,
            _ => seen.clear(),
        }
    }
}

async fn check_waits(town: &Town, Process { kernel, run }: &Process, seen: &mut BTreeMap<Wait, Seen>) {
    let scheduler = || kernel.tree().into_iter().find(|node| node.path.as_str() == "/scheduler").map(|n| n.incarnation);
    let before = scheduler();
    let queue = tokio::time::timeout(Duration::from_secs(1), kernel.queue()).await;
    let (Some(incarnation), Ok(Ok(queue))) = (before.filter(|_| before == scheduler()), queue) else {
        return seen.clear();
    };
    let under = (run.number, incarnation);
    let mut still = BTreeMap::new();
    for entry in queue["waiting"].as_array().into_iter().flatten() {
        let (Some(task), Some(backend)) = (entry["task_id"].as_str(), entry["backend"].as_str()) else { continue };
        if entry["priority"] != "realtime" || entry["state"] != "waiting" {
            continue;
        }
        let wait: Wait = (task.to_owned(), entry["rounds_done"].as_u64().unwrap_or(0), backend.to_owned());
        let begun = town.watch.others_begun(run.number, backend);
        let (asks, out) = (actors_of(town, kernel, task), others_out(town, &queue, backend));
        let mut first = seen.remove(&wait).filter(|known| known.under == under && known.asks == asks);
        let first = first.get_or_insert_with(|| Seen { begun, under, asks, out: out.clone() });
        if let Some(other) = out.difference(&first.out).next() {
            town.watch.wrong(format!("voice waits on {backend} while {other} gets a permit: {task}"));
        }
        // A round may begin a little after its permit was granted, so the holders of current permits may still begin.
        let (passed, slots) = (begun - first.begun, u64::from(town.watch.slots(backend)));
        if passed > slots {
            town.watch.wrong(format!("voice waits on {backend} while {passed} rounds of others begin: {task}"));
        }
        still.insert(wait, Seen { out, asks: std::mem::take(&mut first.asks), ..*first });
    }
    *seen = still;
}

/// The actors of a task's conversation.
fn actors_of(town: &Town, kernel: &Kernel, task: &str) -> Vec<(String, Incarnation)> {
    let row = task.parse::<TaskId>().ok().and_then(|task| now(town.data.task(Scope::Operator, task)));
    let Some(conversation) = row.map(|row| row.conversation.to_string()) else { return Vec::new() };
    let nodes = kernel.tree().into_iter().map(|node| (node.path.to_string(), node.incarnation));
    nodes.filter(|(path, _)| path.contains(&conversation)).collect()
}

/// The permits that are out on a backend, except those of voice tasks.
fn others_out(town: &Town, queue: &Value, backend: &str) -> BTreeSet<String> {
    let is_voice = |lease: &Value| {
        let task = lease["task_id"].as_str().and_then(|task| task.parse::<TaskId>().ok());
        let row = task.and_then(|task| now(town.data.task(Scope::Operator, task)));
        row.is_some_and(|row| row.priority == Priority::Realtime)
    };
    let there = queue["running"].as_array().into_iter().flatten().filter(|lease| lease["backend"] == backend);
    there.filter(|lease| !is_voice(lease)).map(Value::to_string).collect()
}
