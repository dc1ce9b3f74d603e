//! Two kernels on one database: which of them owns a conversation, when the ownership changes, and what that costs. The
//! tests count rounds, not only answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_actors::{Control, Follow, KernelError, Operation, StreamItem, Submission};
use annie_core::{
    event::{EventBody, NewEvent, Scope},
    ids::{AgentId, ConversationId, Epoch, NodeIncarnation, Seq, TaskId},
    ports::{Append, Fence, Store, StoreErrorKind},
};
use annie_store::{MemoryStore, PostgresOptions, PostgresStore, StoreFault, StorePoint};
use annie_testkit::{
    env::{self, TestClock},
    postgres::{self, Database},
    scripted_model::{ScriptedModel, says},
};

use crate::{
    fault::snapshots,
    flow::scheduling::Gated,
    world::{PATIENCE, World, WorldParts, ann, check_log, eventually, kill, node, sleep_for_ms},
};

/// How long a round takes that must outlast everything that the other kernel does about a message of a conversation it
/// does not own.
const ROUND_MS: u64 = 2_500;

/// Two kernels on one database, both with this model.
async fn two(database: &Database, model: &Arc<ScriptedModel>, change: impl Fn(&mut WorldParts)) -> [World; 2] {
    let start = async |seed| {
        let mut parts = WorldParts::with_model(model.clone());
        let address = database.url.parse().expect("an address");
        parts.store = Arc::new(PostgresStore::open(&address, PostgresOptions::default()).await.expect("a store"));
        (parts.env, parts.node) = (env::env(seed), node(seed));
        change(&mut parts);
        let world = parts.start().await;
        eventually("the kernel has scanned for open conversations", async || {
            (view_of(&world, "booted").await == true).then_some(())
        })
        .await;
        world
    };
    [start(7).await, start(8).await]
}

async fn view_of(world: &World, what: &str) -> serde_json::Value {
    eventually("the actor shows its state", async || {
        let (_, view) = world.kernel.view("/conversations").await.ok()?;
        view.map(|view| view[what].clone())
    })
    .await
}

/// Waits until a kernel knows that `count` of its active conversations belong to another kernel.
async fn until_elsewhere(world: &World, count: u64) {
    eventually("the kernel knows that others own them", async || {
        (view_of(world, "elsewhere").await == count).then_some(())
    })
    .await;
}

async fn epoch_of(world: &World, conversation: ConversationId) -> Epoch {
    let row = world.kernel.conversation(Scope::User(ann()), conversation).await;
    row.expect("the conversation is there").epoch
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_to_either_node_runs_one_round_at_the_owner_without_a_claim() {
    for acts in [false, true] {
        let Some(database) = postgres::database().await else { return };
        let model = ScriptedModel::new(|_, call| Ok(says(format!("round {call}"))));
        let model = Arc::new(model.taking(Duration::from_millis(ROUND_MS)));
        let [a, b] = two(&database, &model, |parts| parts.acts = acts).await;
        let first = a.say("1").await;
        assert_eq!(a.answer(&first).await, "round 0");
        let conversation = first.conversation;
        for n in 1..=3 {
            // The second message goes to the owner, the other two to the other process.
            let to = if n == 2 { &a } else { &b };
            let sent = to.say_in(conversation, &n.to_string()).await;
            assert_eq!(to.answer(&sent).await, format!("round {n}"));
        }
        let log = a.log(conversation).await;
        check_log(&log);
        assert_eq!(model.call_count(), 4, "a round began twice: {:?}", a.kinds(conversation).await);
        assert_eq!(epoch_of(&a, conversation).await, Epoch(1), "its owner is alive");
        assert_eq!(view_of(&b, "active").await, 0);
        for world in [a, b] {
            world.kernel.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_claimed_by_a_cancellation_is_left_to_its_new_owner() {
    let Some(database) = postgres::database().await else { return };
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, call| call == 2));
    let [a, b] = two(&database, &model, |_| {}).await;
    let first = a.say("1").await;
    a.answer(&first).await;
    // The second message arrives while the Engine is active.
    a.answer(&a.say_in(first.conversation, "2").await).await;
    let third = a.say_in(first.conversation, "3").await;
    model.called(3).await;
    until_begun(&a, first.conversation, 3).await;
    // The cancellation claims the conversation in the middle of a round.
    assert!(b.kernel.cancel(Scope::User(ann()), third.task, "ann").await.expect("it is there"));
    let fourth = a.say_in(first.conversation, "4").await;
    assert_eq!(a.answer(&fourth).await, "here");
    eventually("the former owner has released the conversation", async || {
        let awake = view_of(&a, "active").await;
        let elsewhere = view_of(&a, "elsewhere").await;
        (awake == 0 || elsewhere == 1).then_some(())
    })
    .await;
    assert_eq!(epoch_of(&b, first.conversation).await, Epoch(2), "the former owner has reclaimed the conversation");
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

/// Waits until `turns` turns have begun in a conversation.
async fn until_begun(world: &World, conversation: ConversationId, turns: usize) {
    eventually("the start of the turn is stored", async || {
        let kinds = world.kinds(conversation).await;
        (kinds.iter().filter(|kind| kind.ends_with("turn_started")).count() == turns).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fenced_engine_does_not_reclaim_its_conversation_however_it_ends() {
    for operation in [Operation::Kill, Operation::Stop] {
        let Some(database) = postgres::database().await else { return };
        let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, call| call == 1));
        let [a, b] = two(&database, &model, |_| {}).await;
        let first = a.say("1").await;
        a.answer(&first).await;
        let second = a.say_in(first.conversation, "2").await;
        until_begun(&a, first.conversation, 2).await;
        let is_suspended = b.kernel.control(Scope::User(ann()), second.task, Control::Suspend, "ann").await;
        assert!(is_suspended.expect("it is there"));
        until_elsewhere(&a, 1).await;
        let claimed = epoch_of(&b, first.conversation).await;
        let engine = format!("/conversations/engine:{}", first.conversation);
        a.kernel.operate(&engine, None, operation, "a test").await.expect("the actor is alive");
        eventually("the Engine has released the conversation or has reclaimed it", async || {
            let has_released = view_of(&a, "active").await == 0 && view_of(&a, "elsewhere").await == 0;
            (has_released || epoch_of(&b, first.conversation).await != claimed).then_some(())
        })
        .await;
        assert_eq!(
            epoch_of(&b, first.conversation).await,
            claimed,
            "{operation:?}: the Engine has reclaimed the conversation"
        );
        for world in [a, b] {
            world.kernel.crash().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependent_task_continues_when_another_node_ends_its_predecessor() {
    let Some(database) = postgres::database().await else { return };
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, call| call == 0));
    let [a, b] = two(&database, &model, |_| {}).await;
    let first = a.say("1").await;
    model.called(1).await;
    let mut waiting = Submission::new(ann(), "test", "then this");
    waiting.after = vec![first.task];
    let waiting = a.kernel.submit(waiting).await.expect("the message is accepted");
    // The cancellation claims the conversation.
    assert!(b.kernel.cancel(Scope::User(ann()), first.task, "ann").await.expect("it is there"));
    // Earlier than any periodic scan that runs without a notification.
    let answer = tokio::time::timeout(PATIENCE / 6, a.answer(&waiting)).await;
    assert_eq!(answer.expect("the task continues"), "here");
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependent_task_waits_for_a_task_that_only_another_node_knows() {
    let Some(database) = postgres::database().await else { return };
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = is_over.clone();
    let script = move |_: &_, _| Ok(says(if seen.load(Relaxed) { "after it" } else { "before it" }));
    let model = Arc::new(ScriptedModel::new(script).hanging_when(|_, call| call == 0));
    let [a, b] = two(&database, &model, |_| {}).await;
    let theirs = b.say("1").await;
    model.called(1).await;
    let mut waiting = Submission::new(ann(), "test", "then this");
    waiting.after = vec![theirs.task];
    let waiting = a.kernel.submit(waiting).await.expect("the message is accepted");
    sleep_for_ms(500).await;
    is_over.store(true, Relaxed);
    assert!(b.kernel.cancel(Scope::User(ann()), theirs.task, "ann").await.expect("it is there"));
    assert_eq!(a.answer(&waiting).await, "after it");
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

async fn follow(world: &World, conversation: ConversationId, after: Seq) -> Follow {
    world.kernel.follow(Scope::User(ann()), conversation, after).await.expect("the conversation can be followed")
}

async fn sees_the_end_of(follow: &mut Follow, task: TaskId) {
    let wait = async {
        loop {
            let item: Result<Option<StreamItem>, KernelError> = follow.next().await;
            if let StreamItem::Event(event) = item.expect("the log can be read").expect("the kernel lives")
                && event.task == task
                && event.body.is_final()
            {
                return;
            }
        }
    };
    // Earlier than any periodic scan that runs without a notification.
    tokio::time::timeout(PATIENCE / 4, wait).await.expect("the follower receives the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follower_at_one_node_receives_the_answers_of_another_node() {
    let Some(database) = postgres::database().await else { return };
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("here"))));
    let [a, b] = two(&database, &model, |_| {}).await;
    // One conversation that only the other process has owned, and one that it claims from this process.
    let (theirs, ours) = (b.say("theirs").await, a.say("ours").await);
    for sent in [&theirs, &ours] {
        b.answer(sent).await;
    }
    for sent in [theirs, ours] {
        let mut follow = follow(&a, sent.conversation, Seq(0)).await;
        sees_the_end_of(&mut follow, sent.task).await;
        for n in 0..3 {
            let more = b.say_in(sent.conversation, &format!("more {n}")).await;
            sees_the_end_of(&mut follow, more.task).await;
        }
    }
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

/// Another process that owns a conversation and writes the events that a test gives it.
struct Stranger {
    store: Arc<dyn Store>,
    conversation: ConversationId,
    epoch: Epoch,
}

/// The lease of a stranger that renews nothing, in milliseconds.
const STRANGERS_LEASE_MS: u64 = 200_000;

impl Stranger {
    async fn claims(parts: &WorldParts, conversation: ConversationId) -> Self {
        let me = NodeIncarnation::from_uuid(parts.env.uuid());
        parts.store.register_node(node(99), me, STRANGERS_LEASE_MS).await.expect("the store works");
        let claim = parts.store.claim(conversation, me).await.expect("the store works").expect("it is there");
        Self { store: parts.store.clone(), conversation, epoch: claim.epoch }
    }

    async fn writes(&self, parts: &WorldParts, task: TaskId, body: EventBody) {
        let event = NewEvent { at: parts.env.now(), task, agent: AgentId::orchestrator(), body };
        let (conversation, fence) = (self.conversation, Fence::Owner(self.epoch));
        let append = Append { conversation, user: ann(), fence, events: vec![event] };
        self.store.commit(vec![append]).await.remove(0).expect("the stranger owns the conversation");
    }
}

#[tokio::test(start_paused = true)]
async fn conversation_of_a_silent_node_is_left_to_it_until_its_lease_expires() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let model = Arc::new(Gated { model: ScriptedModel::saying("here"), gate: gate.clone() });
    let mut parts = WorldParts::with_model(model.clone());
    parts.limits.round_ms_max = 500;
    let world = parts.start().await;
    let sent = world.say("hello").await;
    until_begun(&world, sent.conversation, 1).await;
    let stranger = Stranger::claims(&parts, sent.conversation).await;
    let by = || "its user".to_owned();
    stranger.writes(&parts, sent.task, EventBody::Suspended { by: by() }).await;
    gate.add_permits(1);
    eventually("the Engine is fenced", async || (view_of(&world, "active").await == 0).then_some(())).await;
    stranger.writes(&parts, sent.task, EventBody::Continued { by: by() }).await;
    // The stranger is silent for a hundred times as long as its rounds may take.
    sleep_for_ms(100 * parts.limits.round_ms_max).await;
    let more = world.say_in(sent.conversation, "and this").await;
    sleep_for_ms(100 * parts.limits.round_ms_max).await;
    assert_eq!(
        epoch_of(&world, sent.conversation).await,
        stranger.epoch,
        "the conversation was claimed from a live process"
    );
    gate.add_permits(10);
    sleep_for_ms(STRANGERS_LEASE_MS - 200 * parts.limits.round_ms_max).await;
    for sent in [&sent, &more] {
        // Earlier than any periodic scan that runs without a notification.
        let answer = tokio::time::timeout(Duration::from_secs(5), world.answer(sent)).await;
        assert_eq!(answer.expect("its lease has expired"), "here");
    }
    assert_eq!(epoch_of(&world, sent.conversation).await, Epoch(stranger.epoch.0 + 1));
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn engine_fenced_repeatedly_by_its_own_node_is_quarantined() {
    let model = Arc::new(ScriptedModel::saying("here").taking(Duration::from_millis(200)));
    let parts = WorldParts::with_model(model);
    let world = parts.start().await;
    let sent = world.say("hello").await;
    let mut follow = follow(&world, sent.conversation, Seq(0)).await;
    let claims = async {
        loop {
            let row = world.kernel.conversation(Scope::User(ann()), sent.conversation).await;
            if let Some(owner) = row.ok().and_then(|row| row.owner) {
                // Simulates a late claim of a former incarnation.
                parts.store.claim(sent.conversation, owner).await.expect("the store works");
            }
            sleep_for_ms(50).await;
        }
    };
    let ends = tokio::time::timeout(PATIENCE, sees_the_end_of(&mut follow, sent.task));
    tokio::select! {
        () = claims => {}
        ended = ends => ended.expect("the task ends"),
    }
    let last = world.final_of(sent.conversation, sent.task).await;
    assert!(matches!(&last, EventBody::Failed { code, .. } if code == "conversation_quarantined"), "{last:?}");
    assert_eq!(view_of(&world, "quarantine").await, serde_json::json!([sent.conversation]));
    world.kernel.stop().await;
}

#[tokio::test]
async fn restart_after_a_kill_activates_open_conversations_within_capacity() {
    let store = MemoryStore::new();
    let start = async |seed, engines_max, hangs: bool| {
        let model = Arc::new(ScriptedModel::saying("here").hanging_when(move |_, _| hangs));
        let mut parts = WorldParts::with_model(model.clone());
        (parts.store, parts.env) = (Arc::new(store.clone()), env::env(seed));
        parts.limits.engines_max = engines_max;
        parts.limits.passivate_after_ms = 20;
        (parts.start().await, model)
    };
    let (before, model) = start(7, 100, true).await;
    let mut sent = Vec::new();
    for n in 0..5 {
        sent.push(before.say(&format!("message {n}")).await);
    }
    model.called(5).await;
    for sent in &sent {
        eventually("the start of the turn is stored", async || {
            let kinds = before.kinds(sent.conversation).await;
            kinds.iter().any(|kind| kind.ends_with("turn_started")).then_some(())
        })
        .await;
    }
    before.kernel.crash().await;
    let (between, model) = start(8, 2, true).await;
    eventually("the capacity is used", async || (view_of(&between, "active").await == 2).then_some(())).await;
    model.called(2).await;
    assert_eq!(
        (view_of(&between, "active").await, view_of(&between, "waiting_for_capacity").await),
        (2.into(), 3.into())
    );
    between.kernel.crash().await;
    let (after, _) = start(9, 2, false).await;
    for sent in &sent {
        assert_eq!(after.answer(sent).await, "here");
        // Conversations that had to wait for capacity also record that the process ended in the middle of their turn.
        let kinds = after.kinds(sent.conversation).await;
        assert!(kinds.iter().any(|kind| kind.ends_with("resumed")), "{kinds:?}");
    }
    after.kernel.stop().await;
}

#[tokio::test]
async fn engine_reads_no_event_of_the_log_twice() {
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    let is_lost = |append: &Append| {
        append.events.iter().any(|e| matches!(&e.body, EventBody::Received(inbound) if inbound.text == "lost"))
    };
    parts.store = Arc::new(MemoryStore::new().with_hook(Arc::new(move |point| match point {
        StorePoint::Commit(batch) if batch.iter().any(is_lost) => StoreFault::LoseReply(StoreErrorKind::Unavailable),
        _ => StoreFault::Pass,
    })));
    let world = parts.start().await;
    let first = world.say("hello").await;
    world.answer(&first).await;
    for n in 1..4 {
        // The outcome of this commit is unknown, so the Engine is notified to read the log.
        let message = Submission::new(ann(), "test", "lost").within(first.conversation);
        assert!(world.kernel.submit(message).await.is_err());
        let last = eventually("the message is answered", async || {
            let log = world.log(first.conversation).await;
            let answers = log.iter().filter(|e| e.body.is_final()).count();
            let messages = log.iter().filter(|e| matches!(e.body, EventBody::Received(_)));
            (answers == n + 1).then(|| messages.map(|e| e.seq).max()).flatten()
        })
        .await;
        let engine = format!("/conversations/engine:{}", first.conversation);
        let (_, view) = world.kernel.view(&engine).await.expect("the Engine is active");
        let read_to = view.expect("the Engine has a view")["read_to"].as_u64().expect("a number");
        assert!(read_to >= last.0, "the Engine reads again from {read_to}, and the message is at {last}");
    }
    world.kernel.stop().await;
}

/// One snapshot is stored although its Engine received an error, and the next snapshot starts there. A message that
/// another process stored before it must not be lost behind the two snapshots.
#[tokio::test(start_paused = true)]
async fn unannounced_message_is_found_behind_a_snapshot_whose_write_reported_an_error() {
    const TURNS: usize = 150;
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    let is_first = AtomicBool::new(true);
    parts.store = Arc::new(MemoryStore::new().with_hook(Arc::new(move |point| match point {
        StorePoint::Write("put_snapshot") if is_first.swap(false, Relaxed) => {
            StoreFault::LoseReply(StoreErrorKind::Unavailable)
        }
        _ => StoreFault::Pass,
    })));
    let world = parts.start().await;
    let sent = world.say("hello").await;
    world.answer(&sent).await;
    let task = snapshots::store_unannounced_message(&parts, &world, sent.conversation).await;
    for _ in 1..TURNS {
        world.answer(&world.say_in(sent.conversation, "and again").await).await;
    }
    assert!(world.final_of(sent.conversation, task).await.is_final());
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn open_work_of_live_nodes_costs_other_nodes_one_scan_in_total() {
    const OPEN: usize = 20;
    let (data, reads) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let counted = reads.clone();
    let counting = data.with_hook(Arc::new(move |point| {
        counted.fetch_add(usize::from(matches!(point, StorePoint::Read("open_for" | "conversation"))), Relaxed);
        StoreFault::Pass
    }));
    let model = Arc::new(ScriptedModel::saying("here").hanging_when(|_, _| true));
    let start = async |seed, store: MemoryStore| {
        let mut parts = WorldParts::with_model(model.clone());
        (parts.env, parts.node) = (env::env(seed), node(seed));
        (parts.store, parts.slots) = (Arc::new(store), 2 * OPEN as u32);
        let world = parts.start().await;
        eventually("the kernel has scanned for open conversations", async || {
            (view_of(&world, "booted").await == true).then_some(())
        })
        .await;
        world
    };
    let (a, b) = (start(7, data.clone()).await, start(8, counting).await);
    let mut sent = Vec::new();
    for n in 0..OPEN {
        sent.push(a.say(&format!("message {n}")).await);
    }
    model.called(OPEN as u64).await;
    let before = reads.load(Relaxed);
    kill(&b, "/infra/log").await;
    eventually("the kernel scans", async || (reads.load(Relaxed) > before).then_some(())).await;
    sleep_for_ms(60_000).await;
    let count = reads.load(Relaxed) - before;
    assert!((1..5).contains(&count), "the kernel scanned {count} times");
    for sent in sent {
        assert_eq!(epoch_of(&a, sent.conversation).await, Epoch(1));
    }
    assert_eq!(view_of(&b, "active").await, 0);
    for world in [a, b] {
        world.kernel.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn conversation_waiting_for_capacity_or_passive_survives_a_clock_change() {
    const HOUR_MS: i64 = 3_600_000;
    let clock = Arc::new(TestClock::new());
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    parts.env.clock = clock.clone();
    parts.limits.engines_max = 1;
    let world = parts.start().await;
    let mut later = Submission::new(ann(), "test", "in two hours");
    later.not_before = Some(TestClock::START.plus_ms(2 * HOUR_MS));
    let later = world.kernel.submit(later).await.expect("the message is accepted");
    // The deferred conversation is evicted for this one, and this one for the next.
    world.answer(&world.say("hello").await).await;
    clock.set_by_ms(-HOUR_MS);
    world.answer(&world.say("an hour ago").await).await;
    // No conversation waits for capacity any more.
    sleep_for_ms(5_000).await;
    assert_eq!(view_of(&world, "passive").await, 1);
    clock.set_by_ms(4 * HOUR_MS);
    assert_eq!(world.answer(&later).await, "here");
    world.kernel.stop().await;
}
