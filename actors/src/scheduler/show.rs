//! What the scheduler tells: who stands where, and why.

use std::collections::HashMap;

use annie_core::{event::Priority, ids::TaskId, queue::Rank, time::Micros};
use serde::Serialize;
use serde_json::{Value, json};

use super::desk::{Desk, Entry, id};

/// Tasks that one question may be about.
const STANDS_MAX: usize = 1_000;

/// What a task is doing, for the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StandState {
    /// A round of it runs.
    Running,
    /// Between two rounds: its skills or its agents work.
    Between,
    /// It waits for its next round, or behind another message of its conversation.
    Waiting,
    /// Its user holds it back.
    Held,
    /// It waits for a time, or for other tasks.
    Delayed,
}

/// How a task stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stand {
    /// The task.
    pub task: TaskId,
    /// What it is doing.
    pub state: StandState,
    /// How many rounds start there before its own, and one; nothing while it does not ask for one.
    pub position: Option<usize>,
    /// When its next round may be expected to start, in milliseconds: what is put off, at its time; nothing while it does
    /// not ask for one.
    pub start_in_ms: Option<u64>,
    /// The usual round where it waits or runs, in milliseconds.
    pub round_ms: u64,
    /// Rounds that it has begun in this process; at least 1 if it began in an earlier one.
    pub rounds_done: u32,
    /// The round that its turn is in, and how many it may have, once it has asked for one in this process.
    pub progress: Option<(u32, u32)>,
    /// Why it stands there, in words.
    pub why: String,
}

impl Desk {
    /// How these tasks stand; unknown ones are left out.
    pub fn stands(&mut self, tasks: &[TaskId], now: Micros) -> Vec<Stand> {
        let ranks = self.ranks(now);
        let running = self.leases.all_running();
        tasks
            .iter()
            .take(STANDS_MAX)
            .filter_map(|task| self.entries.get(task).map(|entry| self.stand(entry, &ranks, &running, now)))
            .collect()
    }

    /// Everybody's rank in the best of the lines where they wait.
    fn ranks(&mut self, now: Micros) -> HashMap<TaskId, (usize, Rank)> {
        let mut best: HashMap<TaskId, (usize, Rank)> = HashMap::new();
        for (n, line) in self.lines.iter_mut().enumerate() {
            for rank in line.list(id(n), now) {
                let is_better = best.get(&rank.task).is_none_or(|(_, b)| rank.position < b.position);
                if is_better {
                    best.insert(rank.task, (n, rank));
                }
            }
        }
        best
    }

    fn stand(
        &self,
        entry: &Entry,
        ranks: &HashMap<TaskId, (usize, Rank)>,
        running: &HashMap<TaskId, usize>,
        now: Micros,
    ) -> Stand {
        let task = entry.waiting.task;
        let (rank, runs_at) = (ranks.get(&task), running.get(&task));
        let at = rank.map(|r| r.0).or(runs_at.copied()).or(entry.tickets.first().map(|t| t.at)).unwrap_or(0);
        let state = match () {
            () if runs_at.is_some() => StandState::Running,
            () if entry.is_held => StandState::Held,
            () if entry.is_blocked() => StandState::Delayed,
            () if entry.waiting.rounds_done > 0 && entry.tickets.is_empty() => StandState::Between,
            () => StandState::Waiting,
        };
        let rank = rank.map(|r| &r.1).filter(|_| state == StandState::Waiting);
        let is_voice = state == StandState::Waiting && entry.class() == Priority::Realtime;
        // What else it waits for may take longer, and nobody knows how long.
        let until = entry.until.filter(|_| state == StandState::Delayed && entry.after.is_empty());
        let put_off_ms = until.map(|until| until.since_ms(now));
        Stand {
            task,
            state,
            position: rank.and_then(|r| r.position).or(is_voice.then_some(1)),
            start_in_ms: rank.map(|r| r.start_in_ms).or(is_voice.then_some(0)).or(put_off_ms),
            round_ms: self.lines.get(at).map_or(0, |line| line.round_ms(id(at))),
            rounds_done: entry.waiting.rounds_done,
            progress: entry.progress,
            why: self.why(entry, state, at, rank, now),
        }
    }

    fn why(&self, entry: &Entry, state: StandState, at: usize, rank: Option<&Rank>, now: Micros) -> String {
        let name = self.leases.name(at);
        match state {
            StandState::Running => format!("its round runs on {name}"),
            StandState::Between => "its skills or agents are at work".to_owned(),
            StandState::Held => "held back by its user".to_owned(),
            StandState::Delayed => {
                let until = entry.until.map(|until| {
                    if entry.has_failed {
                        format!("its model failed; it is tried again when the model answers, or at {until}")
                    } else {
                        format!("starts at {until} at the earliest")
                    }
                });
                until.unwrap_or_else(|| {
                    let after: Vec<String> = entry.after.iter().map(ToString::to_string).collect();
                    format!("waits for the end of {}", after.join(", "))
                })
            }
            StandState::Waiting if entry.tickets.is_empty() => {
                "behind another message of its conversation, or just admitted".to_owned()
            }
            StandState::Waiting => {
                let stance = self.leases.stance(at, entry.class(), now);
                let order = rank.map_or_else(|| "voice goes first".to_owned(), |r| r.why.to_string());
                match stance.shut {
                    Some(shut) => format!("{name}: {shut}"),
                    None if stance.is_closed => format!("somebody speaks on {name}; then {order}"),
                    None => order,
                }
            }
        }
    }

    /// Everybody who waits and every round that runs, for operators.
    pub fn list(&mut self, now: Micros) -> Value {
        let ranks = self.ranks(now);
        let running = self.leases.all_running();
        let mut waiting: Vec<(usize, u64, Value)> = Vec::new();
        for entry in self.entries.values().filter(|e| e.waits()) {
            let stand = self.stand(entry, &ranks, &running, now);
            if stand.state == StandState::Running {
                continue;
            }
            let rank = ranks.get(&stand.task);
            let asks = !entry.tickets.is_empty() && !entry.is_blocked();
            let at = rank.map(|r| r.0).or(entry.tickets.first().map(|t| t.at));
            let value = json!({
                "task_id": stand.task, "state": stand.state, "priority": entry.class(), "position": stand.position,
                "effective": rank.map(|r| r.1.effective), "backend": at.map(|n| self.leases.name(n)),
                "waited_ms": if asks { now.since_ms(entry.waiting.anchor) } else { 0 },
                "start_in_ms": stand.start_in_ms.or(asks.then_some(stand.round_ms)),
                "rounds_done": stand.rounds_done, "parks": entry.waiting.parks, "why": stand.why,
            });
            waiting.push((stand.position.unwrap_or(usize::MAX), entry.number, value));
        }
        waiting.sort_unstable_by_key(|(position, number, _)| (*position, *number));
        let waiting: Vec<Value> = waiting.into_iter().map(|(_, _, value)| value).collect();
        json!({"waiting": waiting, "running": self.leases.list(), "backends": self.backends()})
    }

    pub fn view(&self) -> Value {
        let depth: HashMap<&str, usize> = [Priority::High, Priority::Normal, Priority::Low, Priority::Background]
            .into_iter()
            .map(|class| (class.as_str(), self.lobby.depth(class)))
            .collect();
        json!({
            "loaded": self.is_loaded, "tasks": self.entries.len(), "waiting": self.lobby.len(), "depth": depth,
            "deferred": self.deferred.len(), "awaited": self.awaited(), "granted": self.granted, "backends": self.backends(),
        })
    }

    fn backends(&self) -> Vec<Value> {
        let one = |(n, line): (usize, &annie_core::queue::Queue)| {
            let mut view = self.leases.view(n);
            if let Some(fields) = view.as_object_mut() {
                fields.insert("backend".to_owned(), self.leases.name(n).into());
                fields.insert("ready".to_owned(), line.ready(id(n)).into());
                fields.insert("round_ms".to_owned(), line.round_ms(id(n)).into());
            }
            view
        };
        self.lines.iter().enumerate().map(one).collect()
    }
}
