//! Two kernels on one database: whose a conversation is, when it changes hands, and what that costs. Rounds are counted, and
//! not only answers.

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
    world::{PATIENCE, World, WorldParts, ann, check_log, come_back_after, eventually, kill, node},
};

/// How long a round takes that is meant to outlast everything that others do about a message which is not theirs.
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
        eventually("it has looked what is open", async || (view_of(&world, "booted").await == true).then_some(()))
            .await;
        world
    };
    [start(7).await, start(8).await]
}

async fn view_of(world: &World, what: &str) -> serde_json::Value {
    eventually("it says what it is like", async || {
        let (_, view) = world.kernel.view("/conversations").await.ok()?;
        view.map(|view| view[what].clone())
    })
    .await
}

/// Waits until a kernel knows that so many of its awake conversations are another's.
async fn until_elsewhere(world: &World, count: u64) {
    eventually("it knows whose they are", async || (view_of(world, "elsewhere").await == count).then_some(())).await;
}

async fn epoch_of(world: &World, conversation: ConversationId) -> Epoch {
    let row = world.kernel.conversation(Scope::User(ann()), conversation).await;
    row.expect("the conversation is there").epoch
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_to_either_process_has_one_round_at_the_owner_and_no_claim() {
    for acts in [false, true] {
        let Some(database) = postgres::database().await else { return };
        let model = ScriptedModel::new(|_, call| Ok(says(format!("round {call}"))));
        let model = Arc::new(model.taking(Duration::from_millis(ROUND_MS)));
        let [a, b] = two(&database, &model, |parts| parts.acts = acts).await;
        let first = a.say("1").await;
        assert_eq!(a.answer(&first).await, "round 0");
        let conversation = first.conversation;
        for n in 1..=3 {
            // One that came to the other process, and one to this one while that runs.
            let to = if n == 2 { &a } else { &b };
            let said = to.say_in(conversation, &n.to_string()).await;
            assert_eq!(to.answer(&said).await, format!("round {n}"));
        }
        let log = a.log(conversation).await;
        check_log(&log);
        assert_eq!(model.call_count(), 4, "a round was begun twice: {:?}", a.kinds(conversation).await);
        assert_eq!(epoch_of(&a, conversation).await, Epoch(1), "its owner lives");
        assert_eq!(view_of(&b, "awake").await, 0);
        for world in [a, b] {
            world.kernel.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_that_a_cancellation_took_over_is_left_to_its_new_owner() {
    let Some(database) = postgres::database().await else { return };
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, call| call == 2));
    let [a, b] = two(&database, &model, |_| {}).await;
    let first = a.say("1").await;
    a.answer(&first).await;
    // This one comes to a life that is awake.
    a.answer(&a.say_in(first.conversation, "2").await).await;
    let third = a.say_in(first.conversation, "3").await;
    model.called(3).await;
    until_begun(&a, first.conversation, 3).await;
    // It takes over in the middle of a round.
    assert!(b.kernel.cancel(Scope::User(ann()), third.task, "ann").await.expect("it is there"));
    let fourth = a.say_in(first.conversation, "4").await;
    assert_eq!(a.answer(&fourth).await, "here");
    eventually("it has let go", async || {
        let awake = view_of(&a, "awake").await;
        let elsewhere = view_of(&a, "elsewhere").await;
        (awake == 0 || elsewhere == 1).then_some(())
    })
    .await;
    assert_eq!(epoch_of(&b, first.conversation).await, Epoch(2), "it was taken back");
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

/// Waits until so many turns have begun in a conversation.
async fn until_begun(world: &World, conversation: ConversationId, turns: usize) {
    eventually("its beginning is stored", async || {
        let kinds = world.kinds(conversation).await;
        (kinds.iter().filter(|kind| kind.ends_with("turn_started")).count() == turns).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_a_life_ends_whose_conversation_is_anothers_it_is_not_taken_back() {
    for operation in [Operation::Kill, Operation::Stop] {
        let Some(database) = postgres::database().await else { return };
        let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, call| call == 1));
        let [a, b] = two(&database, &model, |_| {}).await;
        let first = a.say("1").await;
        a.answer(&first).await;
        let second = a.say_in(first.conversation, "2").await;
        until_begun(&a, first.conversation, 2).await;
        let held = b.kernel.control(Scope::User(ann()), second.task, Control::Suspend, "ann").await;
        assert!(held.expect("it is there"));
        until_elsewhere(&a, 1).await;
        let claimed = epoch_of(&b, first.conversation).await;
        let engine = format!("/conversations/engine:{}", first.conversation);
        a.kernel.operate(&engine, None, operation, "a test").await.expect("it lives");
        eventually("it has let go, or has taken it back", async || {
            let has_let_go = view_of(&a, "awake").await == 0 && view_of(&a, "elsewhere").await == 0;
            (has_let_go || epoch_of(&b, first.conversation).await != claimed).then_some(())
        })
        .await;
        assert_eq!(epoch_of(&b, first.conversation).await, claimed, "{operation:?}: it was taken back");
        for world in [a, b] {
            world.kernel.crash().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_task_goes_on_when_another_process_has_ended_it() {
    let Some(database) = postgres::database().await else { return };
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("here"))).hanging_when(|_, call| call == 0));
    let [a, b] = two(&database, &model, |_| {}).await;
    let first = a.say("1").await;
    model.called(1).await;
    let mut waiting = Submission::new(ann(), "test", "then this");
    waiting.after = vec![first.task];
    let waiting = a.kernel.submit(waiting).await.expect("the message is taken");
    // It takes the conversation over.
    assert!(b.kernel.cancel(Scope::User(ann()), first.task, "ann").await.expect("it is there"));
    // Sooner than anybody looks without being told.
    let answer = tokio::time::timeout(PATIENCE / 6, a.answer(&waiting)).await;
    assert_eq!(answer.expect("it goes on"), "here");
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_only_another_process_knows_is_waited_for() {
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
    let waiting = a.kernel.submit(waiting).await.expect("the message is taken");
    come_back_after(500).await;
    is_over.store(true, Relaxed);
    assert!(b.kernel.cancel(Scope::User(ann()), theirs.task, "ann").await.expect("it is there"));
    assert_eq!(a.answer(&waiting).await, "after it");
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

async fn follow(world: &World, conversation: ConversationId, after: Seq) -> Follow {
    world.kernel.follow(Scope::User(ann()), conversation, after).await.expect("it can be followed")
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
    // Sooner than anybody looks without being told.
    tokio::time::timeout(PATIENCE / 4, wait).await.expect("it hears of the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_follows_at_one_process_hears_what_another_answers() {
    let Some(database) = postgres::database().await else { return };
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("here"))));
    let [a, b] = two(&database, &model, |_| {}).await;
    // One conversation that only the other process ever had, and one that it takes over.
    let (theirs, ours) = (b.say("theirs").await, a.say("ours").await);
    for said in [&theirs, &ours] {
        b.answer(said).await;
    }
    for said in [theirs, ours] {
        let mut follow = follow(&a, said.conversation, Seq(0)).await;
        sees_the_end_of(&mut follow, said.task).await;
        for n in 0..3 {
            let more = b.say_in(said.conversation, &format!("more {n}")).await;
            sees_the_end_of(&mut follow, more.task).await;
        }
    }
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

/// Another process that owns a conversation, and writes what it is told to.
struct Stranger {
    store: Arc<dyn Store>,
    conversation: ConversationId,
    epoch: Epoch,
}

/// How long a stranger lives of which nothing is heard, in milliseconds.
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
        self.store.commit(vec![append]).await.remove(0).expect("it owns it");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_living_process_owns_is_left_to_it_however_silent_it_is_until_its_lease_has_expired() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let model = Arc::new(Gated { model: ScriptedModel::saying("here"), gate: gate.clone() });
    let mut parts = WorldParts::with_model(model.clone());
    parts.limits.round_ms_max = 500;
    let world = parts.start().await;
    let said = world.say("hello").await;
    until_begun(&world, said.conversation, 1).await;
    let stranger = Stranger::claims(&parts, said.conversation).await;
    let by = || "its user".to_owned();
    stranger.writes(&parts, said.task, EventBody::Suspended { by: by() }).await;
    gate.add_permits(1);
    eventually("it is shut out", async || (view_of(&world, "awake").await == 0).then_some(())).await;
    stranger.writes(&parts, said.task, EventBody::Continued { by: by() }).await;
    // A hundred times as long as its rounds may take, and it does nothing.
    come_back_after(100 * parts.limits.round_ms_max).await;
    let more = world.say_in(said.conversation, "and this").await;
    come_back_after(100 * parts.limits.round_ms_max).await;
    assert_eq!(epoch_of(&world, said.conversation).await, stranger.epoch, "it was taken from a process that lives");
    gate.add_permits(10);
    come_back_after(STRANGERS_LEASE_MS - 200 * parts.limits.round_ms_max).await;
    for said in [&said, &more] {
        // Sooner than anybody looks without being told.
        let answer = tokio::time::timeout(Duration::from_secs(5), world.answer(said)).await;
        assert_eq!(answer.expect("its lease has expired"), "here");
    }
    assert_eq!(epoch_of(&world, said.conversation).await, Epoch(stranger.epoch.0 + 1));
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_shut_out_by_its_own_process_again_and_again_is_parked() {
    let model = Arc::new(ScriptedModel::saying("here").taking(Duration::from_millis(200)));
    let parts = WorldParts::with_model(model);
    let world = parts.start().await;
    let said = world.say("hello").await;
    let mut follow = follow(&world, said.conversation, Seq(0)).await;
    let strikes = async {
        loop {
            let row = world.kernel.conversation(Scope::User(ann()), said.conversation).await;
            if let Some(owner) = row.ok().and_then(|row| row.owner) {
                // As the last breath of a life before it.
                parts.store.claim(said.conversation, owner).await.expect("the store works");
            }
            come_back_after(50).await;
        }
    };
    let ends = tokio::time::timeout(PATIENCE, sees_the_end_of(&mut follow, said.task));
    tokio::select! {
        () = strikes => {}
        ended = ends => ended.expect("it ends"),
    }
    let last = world.final_of(said.conversation, said.task).await;
    assert!(matches!(&last, EventBody::Failed { code, .. } if code == "conversation_parked"), "{last:?}");
    assert_eq!(view_of(&world, "quarantine").await, serde_json::json!([said.conversation]));
    world.kernel.stop().await;
}

#[tokio::test]
async fn what_was_open_when_a_process_was_killed_takes_no_more_room_than_there_is() {
    let store = MemoryStore::new();
    let start = async |seed, engines_max, hangs: bool| {
        let model = Arc::new(ScriptedModel::saying("here").hanging_when(move |_, _| hangs));
        let mut parts = WorldParts::with_model(model.clone());
        (parts.store, parts.env) = (Arc::new(store.clone()), env::env(seed));
        parts.limits.engines_max = engines_max;
        parts.limits.hibernate_ms = 20;
        (parts.start().await, model)
    };
    let (before, model) = start(7, 100, true).await;
    let mut said = Vec::new();
    for n in 0..5 {
        said.push(before.say(&format!("message {n}")).await);
    }
    model.called(5).await;
    for said in &said {
        eventually("its beginning is stored", async || {
            let kinds = before.kinds(said.conversation).await;
            kinds.iter().any(|kind| kind.ends_with("turn_started")).then_some(())
        })
        .await;
    }
    before.kernel.crash().await;
    let (between, model) = start(8, 2, true).await;
    eventually("all are awake for whom there is room", async || (view_of(&between, "awake").await == 2).then_some(()))
        .await;
    model.called(2).await;
    assert_eq!((view_of(&between, "awake").await, view_of(&between, "waiting_for_room").await), (2.into(), 3.into()));
    between.kernel.crash().await;
    let (after, _) = start(9, 2, false).await;
    for said in &said {
        assert_eq!(after.answer(said).await, "here");
        // Also those that had to wait know that the process ended in the middle of their turn.
        let kinds = after.kinds(said.conversation).await;
        assert!(kinds.iter().any(|kind| kind.ends_with("resumed")), "{kinds:?}");
    }
    after.kernel.stop().await;
}

#[tokio::test]
async fn what_was_read_of_the_log_once_is_not_read_again() {
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
        // Nobody knows whether it is stored, so the Engine is told to read.
        let message = Submission::new(ann(), "test", "lost").within(first.conversation);
        assert!(world.kernel.submit(message).await.is_err());
        let last = eventually("it is answered", async || {
            let log = world.log(first.conversation).await;
            let answers = log.iter().filter(|e| e.body.is_final()).count();
            let messages = log.iter().filter(|e| matches!(e.body, EventBody::Received(_)));
            (answers == n + 1).then(|| messages.map(|e| e.seq).max()).flatten()
        })
        .await;
        let engine = format!("/conversations/engine:{}", first.conversation);
        let (_, view) = world.kernel.view(&engine).await.expect("it is awake");
        let read_to = view.expect("it has a view")["read_to"].as_u64().expect("a number");
        assert!(read_to >= last.0, "it reads again from {read_to} on, and the message is at {last}");
    }
    world.kernel.stop().await;
}

/// One snapshot is kept though its Engine was told of a failure, and the next begins there: what another process stored
/// before it must not vanish behind the two.
#[tokio::test(start_paused = true)]
async fn a_message_that_nobody_told_of_is_found_behind_a_snapshot_of_which_nobody_knows() {
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
    let said = world.say("hello").await;
    world.answer(&said).await;
    let task = snapshots::untold(&parts, &world, said.conversation).await;
    for _ in 1..TURNS {
        world.answer(&world.say_in(said.conversation, "and again").await).await;
    }
    assert!(world.final_of(said.conversation, task).await.is_final());
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_living_processes_have_open_costs_the_others_one_look_for_all_of_it() {
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
        eventually("it has looked what is open", async || (view_of(&world, "booted").await == true).then_some(()))
            .await;
        world
    };
    let (a, b) = (start(7, data.clone()).await, start(8, counting).await);
    let mut said = Vec::new();
    for n in 0..OPEN {
        said.push(a.say(&format!("message {n}")).await);
    }
    model.called(OPEN as u64).await;
    let before = reads.load(Relaxed);
    kill(&b, "/infra/log").await;
    eventually("it looks", async || (reads.load(Relaxed) > before).then_some(())).await;
    come_back_after(60_000).await;
    let count = reads.load(Relaxed) - before;
    assert!((1..5).contains(&count), "it looked {count} times");
    for said in said {
        assert_eq!(epoch_of(&a, said.conversation).await, Epoch(1));
    }
    assert_eq!(view_of(&b, "awake").await, 0);
    for world in [a, b] {
        world.kernel.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_or_sleeps_is_not_forgotten_when_the_clock_is_set() {
    const HOUR_MS: i64 = 3_600_000;
    let clock = Arc::new(TestClock::new());
    let mut parts = WorldParts::new(|_, _| Ok(says("here")));
    parts.env.clock = clock.clone();
    parts.limits.engines_max = 1;
    let world = parts.start().await;
    let mut later = Submission::new(ann(), "test", "in two hours");
    later.not_before = Some(TestClock::START.plus_ms(2 * HOUR_MS));
    let later = world.kernel.submit(later).await.expect("the message is taken");
    // It makes room for this one, and that one for the next.
    world.answer(&world.say("hello").await).await;
    clock.set_by_ms(-HOUR_MS);
    world.answer(&world.say("an hour ago").await).await;
    // Nobody asks for room any more.
    come_back_after(5_000).await;
    assert_eq!(view_of(&world, "sleeping").await, 1);
    clock.set_by_ms(4 * HOUR_MS);
    assert_eq!(world.answer(&later).await, "here");
    world.kernel.stop().await;
}
