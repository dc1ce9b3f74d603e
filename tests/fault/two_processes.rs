//! Two servers on one PostgreSQL database: a message to either is answered once, a frozen one is replaced and writes nothing
//! when it wakes, and a database that is killed under both loses nothing and doubles nothing. What one tells the other is a
//! hint, and losing all of them does no harm.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_actors::{StreamItem, Submission};
use annie_core::{
    event::{EventBody, NewEvent, Scope},
    ids::{AgentId, ConversationId, Epoch, Seq, TaskId},
    ports::{Append, Entropy, Fence, Records, Store},
    time::Micros,
};
use annie_store::{MemoryStore, PostgresOptions, PostgresStore, StoreFault, StorePoint, StoreSide};
use annie_testkit::{
    env::{self, TestClock},
    postgres::{self, Database, Options},
    scripted_model::ScriptedModel,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::{
    server::{Server, Sse},
    world::{PATIENCE, World, WorldParts, ann, check_log, come_back_after, eventually, eventually_within, node},
};

/// Two servers, each with a data folder of its own.
struct Two {
    servers: [Server; 2],
    folders: [TempDir; 2],
}

/// What every server of these tests is set to.
fn settings(url: &str) -> [(&'static str, &str); 4] {
    [
        ("ANNIE__STORE__URL", url),
        ("ANNIE__STORE__CONNECT_MS_MAX", "1000"),
        // Brings the skill whose effects are counted outside, and the model that calls it.
        ("ANNIE__CHAOS__ENABLED", "true"),
        // As patient as these tests are.
        ("ANNIE__QUEUE__DEPTH_PER_USER", "{ high_max = 50, normal_max = 500, low_max = 50, background_max = 50 }"),
    ]
}

impl Two {
    async fn start(url: &str) -> Self {
        let folders = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
        let env = settings(url);
        let start = async |folder: &Path| Server::start(folder, &[], &env).await;
        let servers = [start(folders[0].path()).await, start(folders[1].path()).await];
        Self { servers, folders }
    }
}

/// Sends a message until it is acknowledged, to one server after the other, as a client with an idempotency key does.
async fn send(servers: &[&Server], key: &str, client_id: &str, text: &str) -> (String, String) {
    let body = json!({"text": text, "conversation_key": key, "client_id": client_id});
    let turn = AtomicUsize::new(0);
    let said = eventually("the message is taken", async || {
        let server = servers[turn.fetch_add(1, Relaxed) % servers.len()];
        let (status, said) = server.post("/api/v1/messages", &body).await.ok()?;
        assert!([202, 429, 503].contains(&status), "{status} {said}");
        (status == 202).then_some(said)
    })
    .await;
    let text = |name: &str| said[name].as_str().expect("text").to_owned();
    (text("conversation_id"), text("task_id"))
}

/// What a machine that is busy with something else may take longer.
const BUSY: Duration = Duration::from_secs(15);

/// How long a message may lie that its owner was not told of: until it looks by itself, which is once a minute.
const DEAF_PATIENCE: Duration = Duration::from_secs(150);

/// Waits until these have ended, asking one of the servers.
async fn until_ended(server: &Server, tasks: impl IntoIterator<Item = &String>) {
    until_ended_within(DEAF_PATIENCE, server, tasks).await;
}

/// The same, each within this time.
async fn until_ended_within(patience: Duration, server: &Server, tasks: impl IntoIterator<Item = &String>) {
    for task in tasks {
        eventually_within(patience, &format!("{task} ends"), async || {
            let request =
                server.http.get(format!("{}/api/v1/tasks/{task}", server.url)).timeout(Duration::from_secs(5));
            let said: Value = request.send().await.ok()?.json().await.ok()?;
            ["completed", "failed", "cancelled"].contains(&said["status"].as_str()?).then_some(())
        })
        .await;
    }
}

/// A conversation's log, in which everything has ended.
async fn log(server: &Server, conversation: &str, tasks: usize) -> Vec<Sse> {
    let seen = server.stream(conversation, 0, |seen| seen.iter().filter(|s| s.is_final()).count() >= tasks).await;
    let ids: Vec<u64> = seen.iter().map(|s| s.id).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>(), "a gap or a repeat");
    seen
}

/// The tasks that were acknowledged, by conversation, each with its marker.
type Taken = BTreeMap<String, BTreeMap<String, String>>;

/// Every acknowledged message has one end, and no effect took place twice. What was answered as done was done.
async fn check(two: &Two, reader: &Server, taken: &Taken) {
    let effects = two.effects();
    for (marker, times) in &effects {
        assert_eq!(*times, 1, "{marker} took effect {times} times");
    }
    check_ends(reader, taken, &effects).await;
}

async fn check_ends(reader: &Server, taken: &Taken, effects: &BTreeMap<String, u64>) {
    for (conversation, tasks) in taken {
        let log = log(reader, conversation, tasks.len()).await;
        for (task, marker) in tasks {
            let ends: Vec<&Sse> = log.iter().filter(|s| s.is_final() && s.data["task_id"] == **task).collect();
            assert_eq!(ends.len(), 1, "{task}: {ends:?}");
            let says_done = ends[0].data["text"].as_str().is_some_and(|text| text.contains("is counted"));
            assert!(!says_done || effects.contains_key(marker), "{marker} was told as done: {:?}", ends[0]);
        }
    }
}

impl Two {
    /// How often each marker took effect: counted by the system in files, outside of both processes.
    fn effects(&self) -> BTreeMap<String, u64> {
        let mut effects = BTreeMap::new();
        for folder in &self.folders {
            add_effects(&mut effects, folder.path());
        }
        effects
    }

    fn signal(&self, which: usize, signal: Signal) {
        self.servers[which].signal(signal);
    }
}

fn add_effects(effects: &mut BTreeMap<String, u64>, folder: &Path) {
    let lines = std::fs::read_to_string(folder.join("chaos-effects.log")).unwrap_or_default();
    for marker in lines.lines().filter_map(|line| line.split(' ').next()) {
        *effects.entry(marker.to_owned()).or_insert(0) += 1;
    }
}

fn wish(marker: &str) -> String {
    format!("chaos-load: {marker} count it")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_to_either_of_two_processes_is_answered_exactly_once() {
    let Some(database) = postgres::database().await else { return };
    say_to_either(&Two::start(&database.url).await).await;
}

/// From now on nobody hears what another process tells, and it is counted what would have been told.
async fn lose_notifications(database: &Database) {
    for sql in [
        "CREATE SCHEMA deaf",
        "CREATE TABLE deaf.lost (what text)",
        "CREATE FUNCTION deaf.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'INSERT INTO deaf.lost VALUES ($2)'",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, deaf, pg_catalog', \
         current_database()); END $$",
    ] {
        database.sql(sql).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_to_either_of_two_processes_is_answered_exactly_once_though_neither_hears_of_the_other() {
    let Some(database) = postgres::database().await else { return };
    lose_notifications(&database).await;
    say_to_either(&Two::start(&database.url).await).await;
    let lost: u64 = database.sql("SELECT count(*) FROM deaf.lost").await.parse().expect("a number");
    assert!(lost > 20, "{lost}");
}

async fn say_to_either(two: &Two) {
    let [a, b] = &two.servers;
    let mut taken = Taken::new();
    for n in 0..24 {
        // Every second message of each conversation goes to the other process, and some are sent to both.
        let (key, marker) = (format!("c{}", n % 3), format!("m{n}"));
        let (to, other) = if (n / 3) % 2 == 0 { (a, b) } else { (b, a) };
        let said = send(&[to], &key, &marker, &wish(&marker)).await;
        if n % 4 == 0 {
            assert_eq!(send(&[other], &key, &marker, &wish(&marker)).await, said, "a repeat became another task");
        }
        taken.entry(said.0).or_default().insert(said.1, marker);
    }
    until_ended(b, taken.values().flat_map(BTreeMap::keys)).await;
    check(two, a, &taken).await;
    assert!(two.effects().len() > 20, "{:?}", two.effects());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_process_is_replaced_and_writes_nothing_when_it_wakes() {
    let Some(database) = postgres::database().await else { return };
    let two = Two::start(&database.url).await;
    let [a, b] = &two.servers;
    for round in 0..5 {
        let mut taken = Taken::new();
        for n in 0..12 {
            let (key, marker) = (format!("r{round}c{}", n % 6), format!("r{round}m{n}"));
            // The process that is frozen takes conversations from the other, whose Engines may not know of it.
            let to = if round == 0 && n < 6 { b } else { a };
            let said = send(&[to], &key, &marker, &wish(&marker)).await;
            taken.entry(said.0).or_default().insert(said.1, marker);
        }
        // In the middle of all that.
        two.signal(0, Signal::STOP);
        for n in 0..6 {
            let (key, marker) = (format!("r{round}c{n}"), format!("r{round}b{n}"));
            let said = send(&[b], &key, &marker, &wish(&marker)).await;
            taken.entry(said.0).or_default().insert(said.1, marker);
        }
        until_ended_within(TAKEOVER + BUSY, b, taken.values().flat_map(BTreeMap::keys)).await;
        let mut before = Vec::new();
        for (conversation, tasks) in &taken {
            before.push(log(b, conversation, tasks.len()).await.len());
        }
        two.signal(0, Signal::CONT);
        eventually("the frozen one is ready again", async || (a.get("/readyz").await.0 == 200).then_some(())).await;
        // It is through with what it was about when it answers a message of its own.
        let marker = format!("r{round}after");
        let said = send(&[a], &marker, &marker, &wish(&marker)).await;
        until_ended(a, [&said.1]).await;
        check(&two, a, &taken).await;
        for ((conversation, _), before) in taken.iter().zip(before) {
            let sql = format!(
                "SELECT count(*) FROM events WHERE conversation_id::text = '{}'",
                uuid::Uuid::parse_str(conversation.trim_start_matches("conv_")).expect("an id")
            );
            assert_eq!(database.sql(&sql).await, before.to_string(), "it wrote into {conversation} after it woke");
        }
    }
}

/// How often a process beside the two living ones is started.
const STARTS: u64 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_and_die_beside_living_ones_cut_none_of_their_rounds() {
    let Some(database) = postgres::database().await else { return };
    let two = Two::start(&database.url).await;
    let [a, b] = &two.servers;
    let is_over = AtomicBool::new(false);
    let client = async |client: usize| {
        let mut taken = Vec::new();
        for n in 0.. {
            if is_over.load(Relaxed) {
                break;
            }
            let (key, marker) = (format!("k{client}"), format!("k{client}m{n}"));
            let servers = if (client + n / 3).is_multiple_of(2) { [a, b] } else { [b, a] };
            let said = send(&servers, &key, &marker, &wish(&marker)).await;
            until_ended(servers[0], [&said.1]).await;
            taken.push((said, marker));
        }
        taken
    };
    let random = env::SeededEntropy::new(17);
    let folder = tempfile::tempdir().expect("a folder");
    let beside = async {
        let mut taken = Vec::new();
        for start in 0..STARTS {
            there_is_load(&two).await;
            let mut third = Server::start(folder.path(), &[], &settings(&database.url)).await;
            for n in 0..random.next_u64() % 6 {
                let (key, marker) = (format!("t{}", n % 2), format!("s{start}t{n}"));
                taken.push((send(&[&third], &key, &marker, &wish(&marker)).await, marker));
            }
            if random.next_u64().is_multiple_of(2) { third.kill() } else { third.stop().await }
        }
        there_is_load(&two).await;
        is_over.store(true, Relaxed);
        taken
    };
    let (said, thirds) = tokio::join!(futures_util::future::join_all((0..6).map(client)), beside);
    until_ended_within(TAKEOVER + BUSY, a, thirds.iter().map(|((_, task), _)| task)).await;
    let of = |all: Vec<((String, String), String)>| {
        let mut taken = Taken::new();
        for ((conversation, task), marker) in all {
            taken.entry(conversation).or_default().insert(task, marker);
        }
        taken
    };
    let (taken, thirds) = (of(said.into_iter().flatten().collect()), of(thirds));
    for conversation in taken.keys() {
        let id = uuid::Uuid::parse_str(conversation.trim_start_matches("conv_")).expect("an id");
        let sql = format!("SELECT count(*) FROM events WHERE kind = 'resumed' AND conversation_id::text = '{id}'");
        assert_eq!(database.sql(&sql).await, "0", "a round of a living process was cut off in {conversation}");
    }
    let mut effects = two.effects();
    add_effects(&mut effects, folder.path());
    for (marker, times) in &effects {
        assert_eq!(*times, 1, "{marker} took effect {times} times");
    }
    check_ends(a, &taken, &effects).await;
    check_ends(a, &thirds, &effects).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_killed_under_two_processes_loses_and_doubles_nothing() {
    let Some(database) = postgres::Server::start(Options { fsync: true }).await else { return };
    let url = database.database().await;
    let two = Two::start(&url).await;
    let [a, b] = &two.servers;
    let stop = AtomicBool::new(false);
    let client = async |client: usize| {
        let mut taken = Vec::new();
        for n in 0.. {
            if stop.load(Relaxed) {
                break;
            }
            let (key, marker) = (format!("k{client}"), format!("k{client}m{n}"));
            // Its own process first; the other one where that does not take it.
            let servers = if client.is_multiple_of(2) { [a, b] } else { [b, a] };
            let said = send(&servers, &key, &marker, &wish(&marker)).await;
            until_ended(servers[0], [&said.1]).await;
            taken.push((said, marker));
        }
        taken
    };
    let killer = async {
        for _ in 0..3 {
            there_is_load(&two).await;
            let database = database.clone();
            let again = tokio::task::spawn_blocking(move || {
                database.kill();
                database.start_again();
            });
            again.await.expect("it starts again");
        }
        there_is_load(&two).await;
        stop.store(true, Relaxed);
    };
    let (said, ()) = tokio::join!(futures_util::future::join_all((0..6).map(client)), killer);
    let mut taken = Taken::new();
    for ((conversation, task), marker) in said.into_iter().flatten() {
        taken.entry(conversation).or_default().insert(task, marker);
    }
    check(&two, a, &taken).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_speak_to_their_database_over_tls_and_none_begins_that_does_not_believe_it() {
    let Some(database) = postgres::Server::start(Options::default()).await else { return };
    let roots = database.want_tls().await;
    let url = database.tls(&database.database().await);
    let believing = |root: &Path| format!("{url}?sslmode=verify-full&sslrootcert={}", root.display());
    let two = Two::start(&believing(&roots.right)).await;
    let [a, b] = &two.servers;
    let mut taken = Taken::new();
    for (n, (to, reader)) in [(a, b), (b, a), (a, b)].into_iter().enumerate() {
        let marker = format!("m{n}");
        let said = send(&[to], "k", &marker, &wish(&marker)).await;
        until_ended(reader, [&said.1]).await;
        taken.entry(said.0).or_default().insert(said.1, marker);
    }
    check(&two, a, &taken).await;
    let folder = tempfile::tempdir().expect("a folder");
    let third = tokio::process::Command::new(env!("CARGO_BIN_EXE_annie"))
        .args(["--data".as_ref(), folder.path().as_os_str()])
        .args(["serve", "--port", "0"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder.path())
        .env("ANNIE__STORE__URL", believing(&roots.wrong))
        .env("ANNIE__STORE__CONNECT_MS_MAX", "2000")
        .kill_on_drop(true)
        .output();
    let third = tokio::time::timeout(PATIENCE, third).await.expect("it ends").expect("the binary starts");
    let said = String::from_utf8(third.stderr).expect("text");
    assert_eq!(third.status.code(), Some(5), "{said}");
    assert!(said.contains("annie@localhost:") && said.contains("invalid peer certificate"), "{said}");
    assert!(!said.contains(postgres::PASSWORD), "{said}");
}

async fn there_is_load(two: &Two) {
    let before = two.effects().len();
    eventually("there is load", async || (two.effects().len() > before + 10).then_some(())).await;
}

/// Stores a message as the door of another process does, which gets no further.
async fn takes_in_and_dies(other: &dyn Store) -> TaskId {
    let row = other.conversations(Scope::Operator, Micros(i64::MAX).into(), 10).await.expect("rows").remove(0);
    let mut events = other.events(Scope::Operator, row.id, Seq(0), 1).await.expect("its log");
    let EventBody::Received(mut inbound) = events.remove(0).body else { panic!("no message") };
    let task = TaskId::from_uuid(uuid::Uuid::from_u128(7));
    inbound.client_id = "second".to_owned();
    let event =
        NewEvent { at: row.updated_at, task, agent: AgentId::orchestrator(), body: EventBody::Received(inbound) };
    let append = Append { conversation: row.id, user: row.user, fence: Fence::Inbox, events: vec![event] };
    other.commit(vec![append]).await.remove(0).expect("stored");
    task
}

#[tokio::test]
async fn what_another_process_took_in_and_died_over_is_done_by_the_owner() {
    let Some(database) = postgres::database().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let env = [("ANNIE__STORE__URL", database.url.as_str())];
    let owner = Server::start(folder.path(), &[], &env).await;
    let (_, task) = send(&[&owner], "k", "first", "what is due?").await;
    until_ended(&owner, [&task]).await;
    let address = database.url.parse().expect("an address");
    let other = PostgresStore::open(&address, PostgresOptions::default()).await.expect("a store");
    let task = takes_in_and_dies(&other).await;
    // Sooner than it looks without being told.
    until_ended_within(PATIENCE / 3, &owner, [&task.to_string()]).await;
}

/// How often a process looks that is never told anything, in milliseconds: as the store for many processes has it.
const LOOK_MS: u64 = 60_000;

/// Two kernels on one database that are never told anything by each other. `acts`: a round of the model is an effect.
async fn two_deaf_ones(model: &Arc<ScriptedModel>, store: &MemoryStore, acts: bool) -> [World; 2] {
    let start = async |seed| {
        let mut parts = WorldParts::with_model(model.clone());
        parts.store = Arc::new(store.with_wakes(Arc::new(|| Box::pin(come_back_after(LOOK_MS)))));
        (parts.env, parts.node) = (env::env(seed), node(seed));
        parts.limits.hibernate_ms = 10 * LOOK_MS;
        parts.acts = acts;
        let world = parts.start().await;
        eventually("it has looked what is open", async || {
            let (_, view) = world.kernel.view("/conversations").await.ok()?;
            (view?["booted"] == true).then_some(())
        })
        .await;
        world
    };
    [start(7).await, start(8).await]
}

#[tokio::test(start_paused = true)]
async fn two_kernels_that_hear_nothing_of_each_other_answer_everything_once_and_whoever_follows_hears_it() {
    for acts in [false, true] {
        let model = Arc::new(ScriptedModel::saying("here"));
        let [a, b] = two_deaf_ones(&model, &MemoryStore::new(), acts).await;
        let first = a.say("0").await;
        a.answer(&first).await;
        let conversation = first.conversation;
        let mut follow = a.kernel.follow(Scope::User(ann()), conversation, Seq(0)).await.expect("it is there");
        for n in 1..=12 {
            // Its owner is not told of what comes to the other one.
            let world = if n % 3 == 0 { &a } else { &b };
            let said = world.say_in(conversation, &n.to_string()).await;
            let hears = async {
                while let Ok(Some(item)) = follow.next().await {
                    if matches!(&item, StreamItem::Event(event) if event.task == said.task && event.body.is_final()) {
                        return;
                    }
                }
                panic!("it is cut off");
            };
            tokio::time::timeout(Duration::from_millis(2 * LOOK_MS), hears).await.expect("it hears of it in the end");
            assert_eq!(world.answer(&said).await, "here");
        }
        let log = a.log(conversation).await;
        check_log(&log);
        assert_eq!(model.call_count(), 13, "a round was begun twice");
        for world in [a, b] {
            world.kernel.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_process_took_in_and_died_over_is_done_though_nobody_is_told() {
    let model = Arc::new(ScriptedModel::saying("here"));
    let store = MemoryStore::new();
    let [owner, _other] = two_deaf_ones(&model, &store, false).await;
    let first = owner.say("first").await;
    owner.answer(&first).await;
    let task = takes_in_and_dies(&store).await;
    let ends = async {
        while !store.task(Scope::Operator, task).await.expect("it is read").is_some_and(|row| row.state.is_ended()) {
            come_back_after(100).await;
        }
    };
    tokio::time::timeout(Duration::from_millis(3 * LOOK_MS), ends).await.expect("it is done in the end");
    check_log(&owner.log(first.conversation).await);
    assert_eq!(model.call_count(), 2);
}

/// One of two kernels on one database.
pub(super) async fn one_of_two(
    seed: u64,
    says: ScriptedModel,
    store: MemoryStore,
    change: impl Fn(&mut WorldParts),
) -> World {
    let mut parts = WorldParts::with_model(Arc::new(says));
    (parts.store, parts.env, parts.node) = (Arc::new(store), env::env(seed), node(seed));
    change(&mut parts);
    let world = parts.start().await;
    eventually("it has looked what is open", async || {
        let (_, view) = world.kernel.view("/conversations").await.ok()?;
        (view?["booted"] == true).then_some(())
    })
    .await;
    world
}

/// The same, which hears nothing and looks by itself.
async fn a_deaf_one(store: &MemoryStore) -> World {
    let store = store.with_wakes(Arc::new(|| Box::pin(come_back_after(LOOK_MS))));
    one_of_two(7, ScriptedModel::saying("here"), store, |_| {}).await
}

pub(super) async fn epoch_of(store: &MemoryStore, conversation: ConversationId) -> Epoch {
    store.conversation(Scope::Operator, conversation).await.expect("it is read").expect("it is there").epoch
}

/// Until others go on with what a dead process had open: its lease, two renewals, and a moment.
pub(super) const TAKEOVER: Duration = Duration::from_millis(18_000);

#[tokio::test(start_paused = true)]
async fn what_another_process_took_in_and_died_over_is_done_though_it_is_awake_nowhere() {
    for is_begun in [false, true] {
        let store = MemoryStore::new();
        let a = a_deaf_one(&store).await;
        let hangs = ScriptedModel::saying("never").hanging_when(|_, _| true);
        // Without room nobody claims it.
        let room = |parts: &mut WorldParts| parts.limits.engines_max = usize::from(is_begun);
        let b = one_of_two(8, hangs, store.clone(), room).await;
        let said = b.say("hello").await;
        eventually("it comes so far", async || {
            let kinds = b.kinds(said.conversation).await;
            (kinds.iter().any(|kind| kind.ends_with("turn_started")) == is_begun).then_some(())
        })
        .await;
        b.kernel.crash().await;
        let epoch = epoch_of(&store, said.conversation).await;
        assert_eq!(epoch, Epoch(u64::from(is_begun)));
        let ends = async {
            while !store
                .task(Scope::Operator, said.task)
                .await
                .expect("it is read")
                .is_some_and(|row| row.state.is_ended())
            {
                come_back_after(100).await;
            }
        };
        tokio::time::timeout(TAKEOVER, ends).await.unwrap_or_else(|_| panic!("it lies there, begun: {is_begun}"));
        assert_eq!(a.answer(&said).await, "here");
        check_log(&a.log(said.conversation).await);
        assert_eq!(epoch_of(&store, said.conversation).await, Epoch(epoch.0 + 1), "it is claimed once");
        a.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_process_is_at_work_on_is_left_to_it_by_whoever_looks_for_what_lies_there() {
    let (store, looks) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let counted = looks.clone();
    let a = a_deaf_one(&store.with_hook(Arc::new(move |point| {
        counted.fetch_add(usize::from(matches!(point, StorePoint::Read("open_for"))), Relaxed);
        StoreFault::Pass
    })))
    .await;
    let takes_long = ScriptedModel::saying("there").taking(Duration::from_millis(100_000));
    let b = one_of_two(8, takes_long, store.clone(), |_| {}).await;
    for n in 0..4 {
        let before = looks.load(Relaxed);
        let said = b.say(&n.to_string()).await;
        come_back_after(90_000).await;
        assert!(looks.load(Relaxed) > before, "nobody looks");
        come_back_after(20_000).await;
        assert_eq!(b.answer(&said).await, "there");
        assert_eq!(epoch_of(&store, said.conversation).await, Epoch(1));
    }
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn owner_begins_an_older_message_first_that_came_to_another_process() {
    let store = MemoryStore::new();
    // No process hears of what the other stores.
    let slow = ScriptedModel::saying("here").taking(Duration::from_millis(10_000));
    let a = one_of_two(7, slow, store.clone(), |_| {}).await;
    let b = one_of_two(8, ScriptedModel::saying("there"), store.clone(), |_| {}).await;
    let first = a.say("0").await;
    a.answer(&first).await;
    let conversation = first.conversation;
    let second = a.say_in(conversation, "1").await;
    eventually("its round runs", async || {
        let kinds = a.kinds(conversation).await;
        (kinds.iter().filter(|kind| kind.ends_with("turn_started")).count() == 2).then_some(())
    })
    .await;
    let third = b.say_in(conversation, "2").await;
    eventually("the other process has left it to its owner", async || {
        let (_, view) = b.kernel.view("/conversations").await.ok()?;
        (view?["awake"] == 0).then_some(())
    })
    .await;
    let fourth = a.say_in(conversation, "3").await;
    let said = [first, second, third, fourth];
    for said in &said {
        a.final_of(conversation, said.task).await;
    }
    let log = a.log(conversation).await;
    check_log(&log);
    let ended: Vec<TaskId> = log.iter().filter(|e| e.body.is_final()).map(|e| e.task).collect();
    assert_eq!(ended, said.map(|said| said.task), "in the order in which they were acknowledged");
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_process_is_about_to_claim_is_left_to_it() {
    let store = MemoryStore::new();
    let news = Arc::new(Semaphore::new(0));
    let heard = news.clone();
    let hears = store.with_wakes(Arc::new(move || {
        let heard = heard.clone();
        Box::pin(async move { heard.acquire().await.expect("it is open").forget() })
    }));
    let a = one_of_two(7, ScriptedModel::saying("here"), hears, |_| {}).await;
    let slow = store.with_wait(Arc::new(|point, side| {
        let is_claim = matches!((point, side), (StorePoint::Claim(_), StoreSide::Before));
        Box::pin(come_back_after(if is_claim { 1_500 } else { 0 }))
    }));
    let b = one_of_two(8, ScriptedModel::saying("there"), slow, |_| {}).await;
    come_back_after(LOOK_MS).await;
    let said = b.say("hello").await;
    news.add_permits(1);
    assert_eq!(b.answer(&said).await, "there");
    come_back_after(LOOK_MS / 2).await;
    assert_eq!(epoch_of(&store, said.conversation).await, Epoch(1));
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_process_took_in_and_died_over_wakes_who_sleeps_here() {
    let store = MemoryStore::new();
    let wakes = store.with_wakes(Arc::new(|| Box::pin(come_back_after(LOOK_MS))));
    let a = one_of_two(7, ScriptedModel::saying("here"), wakes, |parts| parts.limits.engines_max = 1).await;
    let mut later = Submission::new(ann(), "test", "much later");
    later.not_before = Some(TestClock::START.later_ms(1_000 * LOOK_MS));
    let later = a.kernel.submit(later).await.expect("the message is taken");
    // It makes room for this one.
    let other = a.say("hello").await;
    a.answer(&other).await;
    eventually("it sleeps", async || {
        let (_, view) = a.kernel.view("/conversations").await.ok()?;
        (view?["sleeping"] == 1).then_some(())
    })
    .await;
    let b = one_of_two(8, ScriptedModel::saying("never"), store.clone(), |parts| parts.limits.engines_max = 0).await;
    // Without room it claims nothing.
    let said = b.say_in(later.conversation, "and this").await;
    b.kernel.crash().await;
    let ends = async {
        while !store.task(Scope::Operator, said.task).await.expect("it is read").is_some_and(|row| row.state.is_ended())
        {
            come_back_after(100).await;
        }
    };
    tokio::time::timeout(TAKEOVER, ends).await.expect("it wakes");
    assert_eq!(a.answer(&said).await, "here");
    a.kernel.stop().await;
}
