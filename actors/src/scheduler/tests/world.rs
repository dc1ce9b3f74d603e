//! A scheduler under a supervisor of its own, with a task table that the test writes, on a paused clock.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use annie_core::{
    breaker::BreakerLimits,
    event::{Priority, Scope},
    ids::{ConversationId, TaskId, UserId},
    limits::Deadlines,
    ports::{
        Before, ConversationRow, Fut, IntentRow, MessageRow, Records, StoreError, StoreErrorKind, TaskRow, TaskState,
    },
    queue::{QueueLimits, Refusal, WorkKey},
    route::{BackendFacts, RateWindow},
    spend::{UsageQuery, UsageRow},
    time::Micros,
};
use annie_testkit::env::env;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use super::super::{
    AdmissionMsg, Leases, NoPermit, Permit, PermitRequest, QueuePosition, Scheduler, SchedulerArgs, SchedulerMsg,
    TaskStatus, Verdict,
};
use crate::{
    observe::{Directory, Handle, Path, System, spawn},
    supervise::{BudgetLimits, ChildSpec, Supervisor, SupervisorArgs},
};

pub type Answer = oneshot::Receiver<Result<Permit, NoPermit>>;

/// A task table with rows that the test sets.
#[derive(Default)]
pub struct Table {
    pub rows: Mutex<Vec<TaskRow>>,
    pub conversations: Mutex<Vec<ConversationRow>>,
    /// The next so many readings fail.
    pub failures: AtomicU32,
    pub readings: AtomicU32,
    /// While the value is true, readings wait.
    pub is_shut: Mutex<Option<watch::Receiver<bool>>>,
}

impl Table {
    pub fn readings(&self) -> u32 {
        self.readings.load(SeqCst)
    }
}

impl Records for Table {
    fn conversation(&self, _: Scope, _: ConversationId) -> Fut<'_, Result<Option<ConversationRow>, StoreError>> {
        Box::pin(async { Ok(None) })
    }

    fn conversations(&self, _: Scope, before: Before, _: u32) -> Fut<'_, Result<Vec<ConversationRow>, StoreError>> {
        let found = self
            .conversations
            .lock()
            .iter()
            .filter(|row| before.takes(row.updated_at, row.id.uuid()))
            .cloned()
            .collect();
        Box::pin(async { Ok(found) })
    }

    fn listed_conversations(
        &self,
        scope: Scope,
        before: Before,
        limit: u32,
    ) -> Fut<'_, Result<Vec<ConversationRow>, StoreError>> {
        self.conversations(scope, before, limit)
    }

    fn task(&self, _: Scope, id: TaskId) -> Fut<'_, Result<Option<TaskRow>, StoreError>> {
        let found = self.rows.lock().iter().find(|row| row.id == id).cloned();
        Box::pin(async { Ok(found) })
    }

    fn tasks(&self, _: Scope, open: bool, before: Before, limit: u32) -> Fut<'_, Result<Vec<TaskRow>, StoreError>> {
        Box::pin(async move {
            let shut = self.is_shut.lock().clone();
            if let Some(mut shut) = shut {
                drop(shut.wait_for(|is_shut| !is_shut).await);
            }
            self.readings.fetch_add(1, SeqCst);
            if self.failures.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok() {
                return Err(StoreError { kind: StoreErrorKind::Unavailable, what: "reading", detail: "away".into() });
            }
            let fits = |row: &&TaskRow| before.takes(row.received_at, row.id.uuid()) && !(open && row.state.is_ended());
            let mut rows: Vec<TaskRow> = self.rows.lock().iter().filter(fits).cloned().collect();
            rows.sort_by_key(|row| std::cmp::Reverse((row.received_at, row.id)));
            rows.truncate(limit as usize);
            Ok(rows)
        })
    }

    fn message(&self, _: UserId, _: String) -> Fut<'_, Result<Option<MessageRow>, StoreError>> {
        Box::pin(async { Ok(None) })
    }

    fn intents(&self, _: TaskId) -> Fut<'_, Result<Vec<IntentRow>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn usage(&self, _: UsageQuery) -> Fut<'_, Result<Vec<UsageRow>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn rebuild(&self) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(async { Ok(0) })
    }
}

/// A running scheduler.
pub struct World {
    pub system: Arc<System>,
    pub leases: Arc<Leases>,
    pub table: Arc<Table>,
    pub scheduler: Handle<SchedulerMsg>,
}

/// The configuration of a world.
pub struct Parts {
    pub backends: Vec<(BackendFacts, u32)>,
    pub limits: QueueLimits,
    pub deadlines: Deadlines,
    pub table: Arc<Table>,
    /// Other nodes use the store too.
    pub is_shared: bool,
}

impl Parts {
    /// A world with backends of these names and numbers of slots.
    pub fn of(backends: &[(&str, u32)]) -> Self {
        let facts = |name: &str| BackendFacts { name: name.to_owned(), ..BackendFacts::default() };
        Self {
            backends: backends.iter().map(|(name, slots)| (facts(name), *slots)).collect(),
            limits: QueueLimits::default(),
            deadlines: Deadlines::default(),
            table: Arc::default(),
            is_shared: false,
        }
    }

    pub fn window(mut self, backend: usize, window: RateWindow) -> Self {
        self.backends[backend].0.window = Some(window);
        self
    }

    pub async fn start(self) -> World {
        let world = self.start_unread().await;
        world.loaded().await;
        world
    }

    /// Starts the scheduler without waiting until the task table is read.
    pub async fn start_unread(self) -> World {
        let system = Arc::new(System { env: env(3), directory: Arc::new(Directory::new()) });
        let leases =
            Arc::new(Leases::new(system.env.clock.clone(), BreakerLimits::default(), self.deadlines, &self.backends));
        let scheduler: Handle<SchedulerMsg> = system.handle(&Path::parse("/scheduler"));
        let args = SchedulerArgs {
            limits: self.limits,
            leases: leases.clone(),
            records: self.table.clone(),
            is_shared: self.is_shared,
            me: scheduler.clone(),
            conversations: system.handle(&Path::parse("/conversations")),
            backends: self.backends.iter().map(|(facts, _)| system.handle(&endpoint(&facts.name))).collect(),
        };
        let tree = SupervisorArgs {
            children: vec![ChildSpec::permanent::<Scheduler>("scheduler", move || args.clone())],
            budget: BudgetLimits { restarts_max: 1_000, window_ms: 1_000 },
        };
        spawn::<Supervisor>(&system, Path::root(), tree, None).await.expect("it starts");
        let world = World { system, leases, table: self.table, scheduler };
        world.alive().await;
        world
    }
}

impl World {
    pub async fn alive(&self) {
        while self.system.directory.get(&Path::parse("/scheduler")).is_none() {
            tokio::task::yield_now().await;
        }
    }

    pub async fn loaded(&self) {
        self.until("the table is read", async || (self.view().await["loaded"] == true).then_some(())).await;
    }

    pub async fn view(&self) -> Value {
        let path = Path::parse("/scheduler");
        let view = crate::observe::ask_view(&self.system.directory, &path, std::time::Duration::from_secs(1)).await;
        view.unwrap_or(Value::Null)
    }

    /// Kills the scheduler and waits for its next incarnation.
    pub async fn kill(&self) {
        let entry = self.system.directory.get(&Path::parse("/scheduler")).expect("the scheduler runs");
        let incarnation = entry.incarnation;
        entry.cell.kill();
        let is_next = |world: &Self| {
            world.system.directory.get(&Path::parse("/scheduler")).is_some_and(|e| e.incarnation != incarnation)
        };
        self.until("the next incarnation starts", async || is_next(self).then_some(())).await;
    }

    /// Waits until a condition holds, advancing the clock in steps of 1 ms.
    pub async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        for _ in 0..2_000 {
            if let Some(found) = look().await {
                return found;
            }
            self.pass_ms(1).await;
        }
        panic!("{what}: {:#}", self.list().await);
    }

    /// Advances the clock, which is paused otherwise.
    pub async fn pass_ms(&self, ms: u64) {
        tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
    }

    pub fn now(&self) -> Micros {
        self.system.env.now()
    }

    pub fn tell(&self, msg: SchedulerMsg) {
        assert!(self.scheduler.tell(msg), "the scheduler runs");
    }

    /// The list for operators. Its reply shows that all earlier messages have been processed.
    pub async fn list(&self) -> Value {
        let wait = std::time::Duration::from_secs(5);
        self.scheduler.call(wait, |reply| SchedulerMsg::List { reply }).await.expect("it answers")
    }

    pub async fn processed(&self) {
        self.list().await;
    }

    pub async fn admit(&self, new: New) -> Result<QueuePosition, Refusal> {
        let wait = std::time::Duration::from_secs(5);
        let ask = |reply| {
            SchedulerMsg::Admission(AdmissionMsg::Admit {
                task: task(new.task),
                user: user(new.user),
                conversation: conversation(new.task),
                priority: new.priority,
                work: new.work,
                not_before: new.not_before,
                after: new.after.iter().map(|n| task(*n)).collect(),
                reply,
            })
        };
        self.scheduler.call(wait, ask).await.expect("it answers")
    }

    pub fn request(&self, n: u32, priority: Priority, route: &[&str]) -> PermitRequest {
        PermitRequest {
            task: task(n),
            user: user("ann"),
            conversation: conversation(n),
            priority,
            since: self.now(),
            after: Vec::new(),
            route: route.iter().map(|name| (*name).to_owned()).collect(),
            progress: None,
            is_task: true,
        }
    }

    /// Asks for a round, and waits until the request is processed.
    pub async fn ask(&self, n: u32, priority: Priority, route: &[&str]) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.tell(SchedulerMsg::Acquire { request: self.request(n, priority, route), reply });
        self.processed().await;
        answer
    }

    /// Asks for a permit that must be granted at once.
    pub async fn take(&self, n: u32, priority: Priority, route: &[&str]) -> Permit {
        let mut answer = self.ask(n, priority, route).await;
        self.granted(&mut answer).await
    }

    pub async fn granted(&self, answer: &mut Answer) -> Permit {
        self.processed().await;
        match answer.try_recv() {
            Ok(Ok(permit)) => permit,
            Ok(Err(none)) => panic!("{none}"),
            Err(_) => panic!("the round waits: {:#}", self.list().await),
        }
    }

    /// Whether the round still waits.
    pub async fn waits(&self, answer: &mut Answer) -> bool {
        self.processed().await;
        matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    pub async fn status(&self, n: u32) -> Option<TaskStatus> {
        let wait = std::time::Duration::from_secs(5);
        let ask = |reply| SchedulerMsg::TaskStatus { tasks: vec![task(n)], reply };
        self.scheduler.call(wait, ask).await.expect("it answers").pop()
    }

    /// Runs one failing call per verdict on a backend.
    pub async fn fail(&self, n: u32, backend: &str, verdicts: &[Verdict]) {
        for verdict in verdicts {
            let permit = self.take(n, Priority::High, &[backend]).await;
            permit.give_back(10, *verdict);
            self.processed().await;
        }
    }
}

/// The path of a backend's actor, if the test starts one.
pub fn endpoint(name: &str) -> Path {
    Path::parse("/backends").child(&crate::backend::segment(name))
}

/// A task that asks for admission.
#[derive(Clone)]
pub struct New {
    pub task: u32,
    pub user: &'static str,
    pub priority: Priority,
    pub work: Option<WorkKey>,
    pub not_before: Option<Micros>,
    pub after: Vec<u32>,
}

impl New {
    pub fn of(task: u32, priority: Priority) -> Self {
        Self { task, user: "ann", priority, work: None, not_before: None, after: Vec::new() }
    }
}

pub fn task(n: u32) -> TaskId {
    format!("task_{n:032x}").parse().expect("an id")
}

pub fn conversation(n: u32) -> ConversationId {
    format!("conv_{n:032x}").parse().expect("an id")
}

pub fn user(name: &str) -> UserId {
    UserId::new(name).expect("a user id")
}

/// A row of the task table; made of JSON, so that new fields of a row need no change here.
pub fn row(n: u32, state: TaskState, received_at: Micros, more: Value) -> TaskRow {
    let mut row = json!({
        "id": task(n), "user": user("ann"), "conversation": conversation(n), "state": state, "priority": "normal",
        "source": "test", "title": "", "received_at": received_at, "started_at": null, "ended_at": null, "error": null,
    });
    let fields = row.as_object_mut().expect("an object");
    fields.extend(more.as_object().cloned().unwrap_or_default());
    serde_json::from_value(row).expect("a row")
}
