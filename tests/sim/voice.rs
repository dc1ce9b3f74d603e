//! Whoever speaks waits for the rounds that run already, and for no other (invariant 9).

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

/// How often the scheduler is asked while somebody speaks, in milliseconds.
const LOOK_MS: u64 = 50;

/// A round that voice waits for: of which task, after how many others of it, and where.
type Wait = (String, u64, String);

/// What was so when a wait was seen.
struct Seen {
    /// Rounds of others that had begun there when it was first seen.
    begun: u64,
    /// Under which life of the scheduler.
    under: (u32, Incarnation),
    /// Who asks: with another life of its Engine it waits anew.
    asks: Vec<(String, Incarnation)>,
    /// The permits of others that were out there.
    out: BTreeSet<String>,
}

/// Looks at everybody who speaks and waits, for as long as the run goes on.
pub async fn look(town: Arc<Town>) {
    let mut seen: BTreeMap<Wait, Seen> = BTreeMap::new();
    while !town.is_over() {
        pass_ms(LOOK_MS).await;
        match town.present() {
            Some(process) if town.watch.hears_voice() => look_at(&town, &process, &mut seen).await,
            _ => seen.clear(),
        }
    }
}

async fn look_at(town: &Town, Process { kernel, life }: &Process, seen: &mut BTreeMap<Wait, Seen>) {
    let scheduler = || kernel.tree().into_iter().find(|node| node.path.as_str() == "/scheduler").map(|n| n.incarnation);
    let before = scheduler();
    let queue = tokio::time::timeout(Duration::from_secs(1), kernel.queue()).await;
    let (Some(incarnation), Ok(Ok(queue))) = (before.filter(|_| before == scheduler()), queue) else {
        return seen.clear();
    };
    let under = (life.number, incarnation);
    let mut still = BTreeMap::new();
    for entry in queue["waiting"].as_array().into_iter().flatten() {
        let (Some(task), Some(backend)) = (entry["task_id"].as_str(), entry["backend"].as_str()) else { continue };
        if entry["priority"] != "realtime" || entry["state"] != "waiting" {
            continue;
        }
        let wait: Wait = (task.to_owned(), entry["rounds_done"].as_u64().unwrap_or(0), backend.to_owned());
        let begun = town.watch.others_begun(life.number, backend);
        let (asks, out) = (who_asks(town, kernel, task), others_out(town, &queue, backend));
        let mut first = seen.remove(&wait).filter(|known| known.under == under && known.asks == asks);
        let first = first.get_or_insert_with(|| Seen { begun, under, asks, out: out.clone() });
        if let Some(other) = out.difference(&first.out).next() {
            town.watch.wrong(format!("voice waits on {backend} while {other} is let through: {task}"));
        }
        // A round may begin a little after its permit was given, so those that have a permit now may begin still.
        let (passed, slots) = (begun - first.begun, u64::from(town.watch.slots(backend)));
        if passed > slots {
            town.watch.wrong(format!("voice waits on {backend} while {passed} rounds of others begin: {task}"));
        }
        still.insert(wait, Seen { out, asks: std::mem::take(&mut first.asks), ..*first });
    }
    *seen = still;
}

/// The actors of a task's conversation.
fn who_asks(town: &Town, kernel: &Kernel, task: &str) -> Vec<(String, Incarnation)> {
    let row = task.parse::<TaskId>().ok().and_then(|task| now(town.data.task(Scope::Operator, task)));
    let Some(conversation) = row.map(|row| row.conversation.to_string()) else { return Vec::new() };
    let nodes = kernel.tree().into_iter().map(|node| (node.path.to_string(), node.incarnation));
    nodes.filter(|(path, _)| path.contains(&conversation)).collect()
}

/// The permits that are out on a backend, but for those of voice.
fn others_out(town: &Town, queue: &Value, backend: &str) -> BTreeSet<String> {
    let is_voice = |lease: &Value| {
        let task = lease["task_id"].as_str().and_then(|task| task.parse::<TaskId>().ok());
        let row = task.and_then(|task| now(town.data.task(Scope::Operator, task)));
        row.is_some_and(|row| row.priority == Priority::Realtime)
    };
    let there = queue["running"].as_array().into_iter().flatten().filter(|lease| lease["backend"] == backend);
    there.filter(|lease| !is_voice(lease)).map(Value::to_string).collect()
}
