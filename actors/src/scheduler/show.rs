//! Status of the tasks and of the queue, for users and operators.

use std::collections::{BTreeMap, HashMap};

use annie_core::{event::Priority, ids::TaskId, queue::Rank, time::Micros};
use serde_json::{Value, json};

use super::{
    messages::{TaskStatus, TaskStatusState},
    task_table::{Entry, TaskTable, id},
};

/// The most tasks in one request.
const STATUSES_MAX: usize = 1_000;

impl TaskTable {
    /// The status of these tasks; unknown ones are left out.
    pub fn statuses(&mut self, tasks: &[TaskId], now: Micros) -> Vec<TaskStatus> {
        let ranks = self.ranks(now);
        let running = self.leases.all_running();
        tasks
            .iter()
            .take(STATUSES_MAX)
            .filter_map(|task| self.entries.get(task).map(|entry| self.status(entry, &ranks, &running, now)))
            .collect()
    }

    /// The best rank of every task among the queues where it waits.
    fn ranks(&mut self, now: Micros) -> HashMap<TaskId, (usize, Rank)> {
        let mut best: HashMap<TaskId, (usize, Rank)> = HashMap::new();
        for (n, line) in self.lines.iter_mut().enumerate() {
            for rank in line.list(id(n), now) {
                let is_first = best.get(&rank.task).is_none_or(|(_, b)| rank.position < b.position);
                if is_first {
                    best.insert(rank.task, (n, rank));
                }
            }
        }
        best
    }

    fn status(
        &self,
        entry: &Entry,
        ranks: &HashMap<TaskId, (usize, Rank)>,
        running: &HashMap<TaskId, usize>,
        now: Micros,
    ) -> TaskStatus {
        let task = entry.waiting.task;
        let (rank, runs_at) = (ranks.get(&task), running.get(&task));
        let at = rank.map(|r| r.0).or(runs_at.copied()).or(entry.tickets.first().map(|t| t.at)).unwrap_or(0);
        let state = match () {
            () if runs_at.is_some() => TaskStatusState::Running,
            () if entry.is_held => TaskStatusState::Held,
            () if entry.is_blocked() => TaskStatusState::Delayed,
            () if entry.waiting.rounds_done > 0 && entry.tickets.is_empty() => TaskStatusState::Between,
            () => TaskStatusState::Waiting,
        };
        let rank = rank.map(|r| &r.1).filter(|_| state == TaskStatusState::Waiting);
        let is_voice = state == TaskStatusState::Waiting && entry.class() == Priority::Realtime;
        // The other tasks for which it waits may take longer, and that time is unknown.
        let until = entry.until.filter(|_| state == TaskStatusState::Delayed && entry.after.is_empty());
        let deferred_ms = until.map(|until| until.since_ms(now));
        TaskStatus {
            task,
            state,
            position: rank.and_then(|r| r.position).or(is_voice.then_some(1)),
            start_in_ms: rank.map(|r| r.start_in_ms).or(is_voice.then_some(0)).or(deferred_ms),
            round_ms: self.lines.get(at).map_or(0, |line| line.round_ms(id(at))),
            rounds_done: entry.waiting.rounds_done,
            progress: entry.progress,
            has_model_failed: entry.has_failed,
            why: self.why(entry, state, at, rank, now),
        }
    }

    fn why(&self, entry: &Entry, state: TaskStatusState, at: usize, rank: Option<&Rank>, now: Micros) -> String {
        let name = self.leases.name(at);
        match state {
            TaskStatusState::Running => format!("its round runs on {name}"),
            TaskStatusState::Between => "its skills or agents are at work".to_owned(),
            TaskStatusState::Held => "suspended by its user".to_owned(),
            TaskStatusState::Delayed => {
                let order = self.leases.orders().stops(entry.class(), entry.waiting.conversation);
                if let Some(order) = order.filter(|_| entry.is_stopped) {
                    return order.sentence();
                }
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
            TaskStatusState::Waiting if entry.tickets.is_empty() => {
                "behind another message of its conversation, or just admitted".to_owned()
            }
            TaskStatusState::Waiting => {
                let stance = self.leases.stance(at, entry.class(), now);
                let order = rank.map_or_else(|| "voice goes first".to_owned(), |r| r.why.to_string());
                match stance.shut {
                    Some(shut) => format!("{name}: {shut}"),
                    None if stance.is_closed => format!("voice gate closed on {name}; then {order}"),
                    None => order,
                }
            }
        }
    }

    /// All waiting tasks and all running rounds, for operators.
    pub fn list(&mut self, now: Micros) -> Value {
        let ranks = self.ranks(now);
        let running = self.leases.all_running();
        let mut waiting: Vec<(usize, u64, Value)> = Vec::new();
        for entry in self.entries.values().filter(|e| e.waits()) {
            let status = self.status(entry, &ranks, &running, now);
            if status.state == TaskStatusState::Running {
                continue;
            }
            let rank = ranks.get(&status.task);
            let asks = !entry.tickets.is_empty() && !entry.is_blocked();
            let at = rank.map(|r| r.0).or(entry.tickets.first().map(|t| t.at));
            let value = json!({
                "task_id": status.task, "state": status.state, "priority": entry.class(), "position": status.position,
                "effective": rank.map(|r| r.1.effective), "backend": at.map(|n| self.leases.name(n)),
                "waited_ms": if asks { now.since_ms(entry.waiting.anchor) } else { 0 },
                "start_in_ms": status.start_in_ms.or(asks.then_some(status.round_ms)),
                "rounds_done": status.rounds_done, "preemptions": entry.waiting.preemptions, "why": status.why,
            });
            waiting.push((status.position.unwrap_or(usize::MAX), entry.number, value));
        }
        waiting.sort_unstable_by_key(|(position, number, _)| (*position, *number));
        let waiting: Vec<Value> = waiting.into_iter().map(|(_, _, value)| value).collect();
        json!({"waiting": waiting, "running": self.leases.list(), "backends": self.backends()})
    }

    pub fn view(&self) -> Value {
        let depth: HashMap<&str, usize> = [Priority::High, Priority::Normal, Priority::Low, Priority::Background]
            .into_iter()
            .map(|class| (class.as_str(), self.admission_queue.depth(class)))
            .collect();
        json!({
            "loaded": self.is_loaded, "tasks": self.entries.len(), "waiting": self.admission_queue.len(), "depth": depth,
            "deferred": self.deferred.len(), "awaited": self.awaited(), "granted": self.granted, "backends": self.backends(),
        })
    }

    /// The open tasks in order of arrival.
    pub fn in_order(&self, keep: impl Fn(&Entry) -> bool) -> Vec<TaskId> {
        let found: BTreeMap<u64, TaskId> =
            self.entries.iter().filter(|(_, e)| keep(e)).map(|(task, e)| (e.number, *task)).collect();
        found.into_values().collect()
    }

    /// Applies the orders of operators to all tasks.
    pub fn obey_orders(&mut self, now: Micros) {
        for task in self.in_order(|_| true) {
            self.settle(task, now);
        }
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
