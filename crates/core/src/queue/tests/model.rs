//! The queue compared with a brute-force model, and properties that hold for every history.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;

type Key = (Micros, u64);

/// Identity of a rotation: a user among the users of a band, or a conversation among those of its user.
type RotationKey = (BackendId, u8, UserId, Option<ConversationId>);

#[derive(Clone)]
struct Row {
    waiting: Waiting,
    seq: u64,
    is_ready: bool,
    is_front: bool,
}

impl Row {
    /// 0 for the front band, otherwise the class level.
    fn band(&self) -> u8 {
        if self.is_front { 0 } else { self.waiting.class.level() }
    }

    fn key(&self) -> Key {
        let preempted = self.waiting.preempted_at.filter(|_| self.is_front);
        (preempted.map_or(self.waiting.anchor, |at| at.max(self.waiting.anchor)), self.seq)
    }

    fn rotation_key(&self, whole_user: bool) -> RotationKey {
        let conversation = (!whole_user).then_some(self.waiting.conversation);
        (self.waiting.backend, self.band(), self.waiting.user.clone(), conversation)
    }
}

#[derive(Clone, Default)]
struct Model {
    rows: Vec<Row>,
    served: HashMap<RotationKey, Key>,
    now: Micros,
    seq: u64,
}

impl Model {
    fn tick(&mut self, backend: BackendId, now: Micros) {
        self.now = self.now.max(now);
        for row in self.rows.iter_mut().filter(|r| r.waiting.backend == backend) {
            row.is_ready |= row.waiting.anchor <= self.now;
            let wait_us = self.now.0 - row.waiting.anchor.0;
            row.is_front |= row.is_ready && wait_us >= (i64::from(row.waiting.class.level()) - 1) * 300 * S;
        }
        self.forget();
    }

    fn forget(&mut self) {
        let here: BTreeSet<RotationKey> = self
            .rows
            .iter()
            .filter(|r| r.is_ready)
            .flat_map(|r| [r.rotation_key(true), r.rotation_key(false)])
            .collect();
        self.served.retain(|rotation_key, _| here.contains(rotation_key));
    }

    fn put(&mut self, mut waiting: Waiting) {
        self.seq += 1;
        let due = waiting.not_before.filter(|at| *at > self.now);
        let since = waiting.not_before.map_or(waiting.anchor, |at| at.max(waiting.anchor));
        waiting.anchor = due.unwrap_or(since.min(self.now));
        let is_ready = due.is_none();
        let is_front = is_ready && waiting.class == Priority::High;
        self.rows.push(Row { waiting, seq: self.seq, is_ready, is_front });
    }

    fn take(&mut self, task: TaskId) -> Option<Waiting> {
        let expected_position = self.rows.iter().position(|r| r.waiting.task == task)?;
        let row = self.rows.remove(expected_position);
        self.forget();
        Some(row.waiting)
    }

    fn next(&self, backend: BackendId) -> Option<&Row> {
        let ready = || self.rows.iter().filter(|r| r.is_ready && r.waiting.backend == backend);
        let band = ready()
            .min_by_key(|r| {
                let sum = r.waiting.anchor.0 + i64::from(r.waiting.class.level()) * 300 * S;
                (!r.is_front, if r.is_front { 0 } else { sum }, r.waiting.class)
            })?
            .band();
        let rows = || ready().filter(|r| r.band() == band);
        let turn = |r: &Row, whole_user: bool| {
            let rotation_key = r.rotation_key(whole_user);
            let peers = rows().filter(|p| p.rotation_key(whole_user) == rotation_key);
            let oldest = peers.map(|p| if whole_user { self.turn_of(p, &rows) } else { p.key() }).min();
            oldest.max(self.served.get(&rotation_key).copied())
        };
        let user = rows().min_by_key(|r| turn(r, true))?.waiting.user.clone();
        let of_user = || rows().filter(|r| r.waiting.user == user);
        let conversation = of_user().min_by_key(|r| turn(r, false))?.waiting.conversation;
        of_user().filter(|r| r.waiting.conversation == conversation).min_by_key(|r| r.key())
    }

    /// The key that ranks a row's conversation within its user.
    fn turn_of<'a, I: Iterator<Item = &'a Row>>(&self, row: &Row, rows: &impl Fn() -> I) -> Key {
        let rotation_key = row.rotation_key(false);
        let oldest = rows().filter(|p| p.rotation_key(false) == rotation_key).map(Row::key).min().unwrap_or(row.key());
        self.served.get(&rotation_key).map_or(oldest, |served| oldest.max(*served))
    }

    fn pop(&mut self, backend: BackendId) -> Option<Waiting> {
        self.seq += 1;
        let row = self.next(backend)?.clone();
        for whole_user in [true, false] {
            self.served.insert(row.rotation_key(whole_user), (self.now, self.seq));
        }
        self.take(row.waiting.task)
    }

    fn order(&self, backend: BackendId) -> Vec<TaskId> {
        let mut copy = self.clone();
        std::iter::from_fn(|| copy.pop(backend).map(|w| w.task)).collect()
    }

    fn depth(&self, user: &UserId, class: Priority) -> usize {
        self.rows.iter().filter(|r| r.waiting.user == *user && r.waiting.class == class).count()
    }
}

#[derive(Debug, Clone)]
struct Step {
    what: u8,
    user: u64,
    conversation: u64,
    class: Priority,
    backend: BackendId,
    pass_ms: i64,
    back_ms: i64,
    pick: prop::sample::Index,
}

fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let times = || prop_oneof![3 => Just(0_i64), 3 => 0..5_000_i64, 2 => 0..400_000_i64];
    let step = (0..14_u8, 0..4_u64, 0..3_u64, 1..5_usize, 0..2_u16, times(), times(), any::<prop::sample::Index>());
    let step = step.prop_map(|(what, user, conversation, class, backend, pass_ms, back_ms, pick)| Step {
        what,
        user,
        conversation: user * 10 + conversation,
        class: Priority::ALL[class],
        backend: BackendId(backend),
        pass_ms,
        back_ms,
        pick,
    });
    prop::collection::vec(step, 1..count)
}

/// The queue, its model, and the tasks that were popped and not returned.
struct Pair {
    queue: Queue,
    model: Model,
    running: Vec<Waiting>,
    now: Micros,
    made: u64,
}

impl Pair {
    fn new_waiting(&mut self, step: &Step) -> Waiting {
        self.made += 1;
        let anchor = self.now.plus_ms(-step.back_ms);
        let conversation = conversation(step.conversation);
        Waiting::new(task(self.made), user(step.user), conversation, step.class, step.backend, anchor)
    }

    fn any_task(&self, step: &Step) -> Option<TaskId> {
        (!self.model.rows.is_empty()).then(|| self.model.rows[step.pick.index(self.model.rows.len())].waiting.task)
    }

    fn admit(&mut self, waiting: Waiting) -> Result<(), TestCaseError> {
        self.model.tick(waiting.backend, self.now);
        let (most, total) = (DepthLimits::default().of(waiting.class) as usize, self.model.rows.len());
        let has_capacity = self.model.depth(&waiting.user, waiting.class) < most && total < 30;
        match self.queue.admit(waiting.clone(), self.now) {
            Admission::Queued => {
                prop_assert!(has_capacity);
                prop_assert!(self.queue.depth(&waiting.user, waiting.class) as usize <= most);
                prop_assert!(self.queue.len() <= 30);
                self.model.put(waiting);
            }
            Admission::Refused(refusal) => {
                prop_assert!(!has_capacity);
                prop_assert!((1_000..=3_600_000).contains(&refusal.retry_after_ms) && refusal.position >= 1);
            }
            other => prop_assert!(false, "{:?}", other),
        }
        Ok(())
    }

    fn take_step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        self.now = self.now.plus_ms(step.pass_ms);
        let now = self.now;
        match step.what {
            0..=4 => {
                let mut waiting = self.new_waiting(step);
                if step.what == 0 {
                    waiting.not_before = Some(now.plus_ms(step.back_ms));
                }
                self.admit(waiting)?;
            }
            5..=8 => {
                self.model.tick(step.backend, now);
                let (got, want) = (self.queue.pop(step.backend, now), self.model.pop(step.backend));
                prop_assert_eq!(got.as_ref().map(|g| g.waiting.clone()), want);
                self.running.extend(got.map(|g| g.waiting));
            }
            9 | 10 if !self.running.is_empty() => {
                let waiting = self.running.swap_remove(step.pick.index(self.running.len()));
                self.model.tick(waiting.backend, now);
                let rounds_done = waiting.rounds_done + 1;
                if step.what == 9 {
                    self.model.put(Waiting { rounds_done, anchor: now, preempted_at: None, ..waiting.clone() });
                    prop_assert!(self.queue.yield_back(waiting, now));
                } else {
                    let preemptions = waiting.preemptions.saturating_add(1);
                    self.model.put(Waiting { rounds_done, preemptions, preempted_at: Some(now), ..waiting.clone() });
                    prop_assert!(self.queue.preempt(waiting, now));
                }
            }
            11 => {
                let waiting = self.new_waiting(step);
                self.model.tick(waiting.backend, now);
                self.model.put(waiting.clone());
                prop_assert!(self.queue.restore(waiting, now));
            }
            12 => {
                if let Some(task) = self.any_task(step) {
                    prop_assert_eq!(self.queue.remove(task), self.model.take(task));
                }
            }
            13 => self.reprioritise(step)?,
            _ => {}
        }
        Ok(())
    }

    fn reprioritise(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let Some(task) = self.any_task(step) else { return Ok(()) };
        let Some(old) = self.model.rows.iter().find(|r| r.waiting.task == task).map(|r| r.waiting.clone()) else {
            return Ok(());
        };
        if old.class != step.class {
            self.model.tick(old.backend, self.now);
        }
        let has_capacity = self.model.depth(&old.user, step.class) < DepthLimits::default().of(step.class) as usize;
        let done = self.queue.reprioritise(task, step.class, self.now);
        prop_assert_eq!(done.is_ok(), has_capacity || old.class == step.class, "{:?}", done);
        if done.is_ok() && old.class != step.class {
            self.model.take(task);
            self.model.put(Waiting { class: step.class, ..old });
        }
        Ok(())
    }

    fn compare(&mut self, backend: BackendId) -> Result<(), TestCaseError> {
        let now = self.now;
        self.model.tick(backend, now);
        let want = self.model.order(backend);
        let list = self.queue.list(backend, now);
        let ready: Vec<TaskId> = list.iter().filter(|r| r.position.is_some()).map(|r| r.task).collect();
        prop_assert_eq!(&ready, &want);
        prop_assert_eq!(self.queue.peek(backend, now).map(|r| r.task), want.first().copied());
        for (rank, expected_position) in list.iter().filter(|r| r.position.is_some()).zip(1..) {
            prop_assert_eq!(rank.position, Some(expected_position));
        }
        if let Some(last) = list.last() {
            prop_assert_eq!(self.queue.position(last.task, now), Some(last.clone()));
        }
        let high = self
            .model
            .rows
            .iter()
            .any(|r| r.is_ready && r.waiting.class == Priority::High && r.waiting.backend == backend);
        let running = Waiting { backend, ..entry(0, 0, Priority::Low, 0) };
        prop_assert_eq!(self.queue.should_preempt(&running, now), high);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn queue_matches_brute_force_model_for_every_history(steps in steps(120)) {
        let limits = QueueLimits { waiting_max: 30, ..QueueLimits::default() };
        let mut pair = Pair { queue: Queue::new(limits), model: Model::default(), running: vec![], now: at(10_000), made: 0 };
        for step in &steps {
            pair.take_step(step)?;
            pair.compare(step.backend)?;
            prop_assert_eq!(pair.queue.len(), pair.model.rows.len());
        }
        // Each remaining task is popped exactly once.
        let mut left: BTreeSet<TaskId> = pair.model.rows.iter().map(|r| r.waiting.task).collect();
        let end = pair.now.plus_ms(1_000_000);
        for backend in [BackendId(0), BackendId(1)] {
            while let Some(grant) = pair.queue.pop(backend, end) {
                prop_assert!(left.remove(&grant.waiting.task));
            }
        }
        prop_assert!(left.is_empty() && pair.queue.is_empty());
    }

    #[test]
    fn queue_with_one_task_per_user_orders_by_effective_class(
        entries in prop::collection::vec((1..5_usize, 0..2_000_000_i64), 0..60)
    ) {
        let mut queue = Queue::new(QueueLimits::default());
        let now = at(2_000);
        for (n, (class, ms)) in (1..).zip(&entries) {
            let anchor = Micros(ms * 1_000);
            queue.restore(Waiting { anchor, ..entry(n, n, Priority::ALL[*class], 0) }, now);
        }
        let list = queue.list(GPU, now);
        prop_assert_eq!(list.len(), entries.len());
        for pair in list.windows(2) {
            prop_assert!(pair[0].effective <= pair[1].effective + 1e-9);
            if pair[1].effective == 1.0 {
                prop_assert!(pair[0].waited_ms >= pair[1].waited_ms, "equals go by age");
            }
        }
    }

    #[test]
    fn queue_users_of_a_band_differ_by_at_most_one_turn(
        counts in prop::collection::vec(1..12_u64, 1..8), class in 1..5_usize, wait_s in 0..100_i64,
    ) {
        let mut queue = Queue::new(QueueLimits::default());
        let mut left: BTreeMap<u64, u64> = BTreeMap::new();
        for (u, count) in (0..).zip(&counts) {
            left.insert(u, *count);
            for n in 0..*count {
                queue.restore(entry(u * 100 + n, u, Priority::ALL[class], i64::try_from(n).unwrap_or(0)), at(100));
            }
        }
        let mut turns: BTreeMap<u64, u64> = BTreeMap::new();
        while let Some(grant) = queue.pop(GPU, at(100 + wait_s)) {
            let u = u64::try_from(grant.waiting.task.uuid().as_u128() / 100).unwrap_or(0);
            *turns.entry(u).or_default() += 1;
            *left.entry(u).or_default() -= 1;
            let waiting = left.iter().filter(|(_, n)| **n > 0).map(|(u, _)| turns.get(u).copied().unwrap_or(0));
            let (least, most) = (waiting.min(), turns.values().max().copied().unwrap_or(0));
            prop_assert!(least.is_none_or(|least| most - least <= 1), "{:?}", turns);
        }
        prop_assert!(left.values().all(|n| *n == 0));
    }

    #[test]
    fn queue_under_urgent_load_serves_every_task_within_aging_bound(
        users in 1..12_u64, round_s in 1..30_i64, class in 2..5_usize,
    ) {
        let mut queue = Queue::new(QueueLimits::default());
        let class = Priority::ALL[class];
        queue.admit(entry(0, 0, class, 0), at(0));
        let (mut now_s, mut made) = (0, 0);
        let bound_s = 300 * (i64::from(class.level()) - 1) + round_s * (i64::try_from(users).unwrap_or(0) + 1);
        loop {
            for u in 1..=users {
                while queue.depth(&user(u), Priority::High) < 3 {
                    made += 1;
                    queue.admit(entry(made, u, Priority::High, now_s), at(now_s));
                }
            }
            let grant = queue.pop(GPU, at(now_s));
            prop_assert!(now_s <= bound_s, "not served within {bound_s} s");
            if grant.is_some_and(|g| g.waiting.task == task(0)) {
                break;
            }
            now_s += round_s;
        }
    }
}
