//! Whoever speaks waits for the rounds that run already, and for no other (invariant 9).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use annie_core::ids::Incarnation;

use super::town::{Process, Town, pass_ms};

/// How often the scheduler is asked while somebody speaks, in milliseconds.
const LOOK_MS: u64 = 100;

/// A round that voice waits for: of which task, after how many others of it, and where.
type Wait = (String, u64, String);

/// Rounds of others that had begun there when the wait was first seen, and under which life of the scheduler.
struct Seen {
    begun: u64,
    under: (u32, Incarnation),
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
    let mut now = BTreeMap::new();
    for entry in queue["waiting"].as_array().into_iter().flatten() {
        let (Some(task), Some(backend)) = (entry["task"].as_str(), entry["backend"].as_str()) else { continue };
        if entry["priority"] != "realtime" || entry["state"] != "waiting" {
            continue;
        }
        let wait: Wait = (task.to_owned(), entry["rounds_done"].as_u64().unwrap_or(0), backend.to_owned());
        let begun = town.watch.others_begun(life.number, backend);
        let first = seen.remove(&wait).filter(|known| known.under == under).unwrap_or(Seen { begun, under });
        // A round may begin a little after its permit was given, so those that have a permit now may begin still.
        let (passed, slots) = (begun - first.begun, u64::from(town.watch.slots(backend)));
        if passed > slots {
            town.watch.wrong(format!("voice waits on {backend} while {passed} rounds of others begin: {task}"));
        }
        now.insert(wait, first);
    }
    *seen = now;
}
