//! Two servers on one PostgreSQL database. A message to either is answered once. A frozen server is replaced and writes
//! nothing when it continues. A database that is killed under both servers loses and duplicates nothing. Notifications
//! between the servers are hints, and losing all of them does no harm.

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
    ports::{Append, Entropy, Fence, Log, Records, Store},
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
    world::{PATIENCE, World, WorldParts, ann, check_log, eventually, eventually_within, node, sleep_for_ms},
};

/// Two servers, each with a data folder of its own.
struct Two {
    servers: [Server; 2],
    folders: [TempDir; 2],
}

/// The configuration of every server of these tests.
fn settings(url: &str) -> [(&'static str, &str); 4] {
    [
        ("ANNIE__STORE__URL", url),
        ("ANNIE__STORE__CONNECT_MS_MAX", "1000"),
        // Enables the skill whose effects are counted outside the process, and the model that calls it.
        ("ANNIE__CHAOS__ENABLED", "true"),
        // Queues deep enough that the load of these tests is not refused.
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

/// Sends a message until it is acknowledged, to the servers in turn, as a client with an idempotency key does.
async fn send(servers: &[&Server], key: &str, client_id: &str, text: &str) -> (String, String) {
    let body = json!({"text": text, "conversation_key": key, "client_id": client_id});
    let turn = AtomicUsize::new(0);
    let sent = eventually("the message is accepted", async || {
        let server = servers[turn.fetch_add(1, Relaxed) % servers.len()];
        let (status, sent) = server.post("/api/v1/messages", &body).await.ok()?;
        assert!([202, 429, 503].contains(&status), "{status} {sent}");
        (status == 202).then_some(sent)
    })
    .await;
    let text = |name: &str| sent[name].as_str().expect("text").to_owned();
    (text("conversation_id"), text("task_id"))
}

/// Extra time for a machine that is busy with other work.
const BUSY: Duration = Duration::from_secs(15);

/// How long a message may wait whose owner was not notified: the owner scans by itself once a minute.
const UNNOTIFIED_PATIENCE: Duration = Duration::from_secs(150);

/// Waits until these tasks have ended, according to this server.
async fn until_ended(server: &Server, tasks: impl IntoIterator<Item = &String>) {
    until_ended_within(UNNOTIFIED_PATIENCE, server, tasks).await;
}

/// The same, with a limit for each task.
async fn until_ended_within(patience: Duration, server: &Server, tasks: impl IntoIterator<Item = &String>) {
    for task in tasks {
        eventually_within(patience, &format!("{task} ends"), async || {
            let request =
                server.http.get(format!("{}/api/v1/tasks/{task}", server.url)).timeout(Duration::from_secs(5));
            let sent: Value = request.send().await.ok()?.json().await.ok()?;
            ["completed", "failed", "cancelled"].contains(&sent["status"].as_str()?).then_some(())
        })
        .await;
    }
}

/// The log of a conversation, once `tasks` tasks in it have ended.
async fn log(server: &Server, conversation: &str, tasks: usize) -> Vec<Sse> {
    let seen = server.stream(conversation, 0, |seen| seen.iter().filter(|s| s.is_final()).count() >= tasks).await;
    let ids: Vec<u64> = seen.iter().map(|s| s.id).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>(), "a gap or a repeat");
    seen
}

/// The acknowledged tasks of each conversation, each with its marker.
type Accepted = BTreeMap<String, BTreeMap<String, String>>;

/// Checks that every acknowledged message has one end, that no effect took place twice, and that every effect reported as
/// done took place.
async fn check(two: &Two, reader: &Server, accepted: &Accepted) {
    let effects = two.effects();
    for (marker, times) in &effects {
        assert_eq!(*times, 1, "{marker} took effect {times} times");
    }
    check_ends(reader, accepted, &effects).await;
}

async fn check_ends(reader: &Server, accepted: &Accepted, effects: &BTreeMap<String, u64>) {
    for (conversation, tasks) in accepted {
        let log = log(reader, conversation, tasks.len()).await;
        for (task, marker) in tasks {
            let ends: Vec<&Sse> = log.iter().filter(|s| s.is_final() && s.data["task_id"] == **task).collect();
            assert_eq!(ends.len(), 1, "{task}: {ends:?}");
            let says_done = ends[0].data["text"].as_str().is_some_and(|text| text.contains("is counted"));
            assert!(!says_done || effects.contains_key(marker), "{marker} was reported as done: {:?}", ends[0]);
        }
    }
}

impl Two {
    /// How often each marker took effect. A shell command outside both processes counts this in files.
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

fn options(marker: &str) -> String {
    format!("chaos-load: {marker} count it")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_to_either_of_two_processes_is_answered_exactly_once() {
    let Some(database) = postgres::database().await else { return };
    say_to_either(&Two::start(&database.url).await).await;
}

/// Drops all notifications between processes from now on, and counts them.
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
async fn message_to_either_of_two_processes_is_answered_once_although_notifications_are_lost() {
    let Some(database) = postgres::database().await else { return };
    lose_notifications(&database).await;
    say_to_either(&Two::start(&database.url).await).await;
    let lost: u64 = database.sql("SELECT count(*) FROM deaf.lost").await.parse().expect("a number");
    assert!(lost > 20, "{lost}");
}

async fn say_to_either(two: &Two) {
    let [a, b] = &two.servers;
    let mut accepted = Accepted::new();
    for n in 0..24 {
        // Every second message of each conversation goes to the other process, and some are sent to both.
        let (key, marker) = (format!("c{}", n % 3), format!("m{n}"));
        let (to, other) = if (n / 3) % 2 == 0 { (a, b) } else { (b, a) };
        let sent = send(&[to], &key, &marker, &options(&marker)).await;
        if n % 4 == 0 {
            assert_eq!(send(&[other], &key, &marker, &options(&marker)).await, sent, "a repeat became another task");
        }
        accepted.entry(sent.0).or_default().insert(sent.1, marker);
    }
    until_ended(b, accepted.values().flat_map(BTreeMap::keys)).await;
    check(two, a, &accepted).await;
    assert!(two.effects().len() > 20, "{:?}", two.effects());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_process_is_replaced_and_writes_nothing_when_it_continues() {
    let Some(database) = postgres::database().await else { return };
    let two = Two::start(&database.url).await;
    let [a, b] = &two.servers;
    for round in 0..5 {
        let mut accepted = Accepted::new();
        for n in 0..12 {
            let (key, marker) = (format!("r{round}c{}", n % 6), format!("r{round}m{n}"));
            // The process that will be frozen claims conversations of the other, whose Engines may not have been
            // notified.
            let to = if round == 0 && n < 6 { b } else { a };
            let sent = send(&[to], &key, &marker, &options(&marker)).await;
            accepted.entry(sent.0).or_default().insert(sent.1, marker);
        }
        // Freezes the process in the middle of this work.
        two.signal(0, Signal::STOP);
        for n in 0..6 {
            let (key, marker) = (format!("r{round}c{n}"), format!("r{round}b{n}"));
            let sent = send(&[b], &key, &marker, &options(&marker)).await;
            accepted.entry(sent.0).or_default().insert(sent.1, marker);
        }
        until_ended_within(TAKEOVER + BUSY, b, accepted.values().flat_map(BTreeMap::keys)).await;
        let mut before = Vec::new();
        for (conversation, tasks) in &accepted {
            before.push(log(b, conversation, tasks.len()).await.len());
        }
        two.signal(0, Signal::CONT);
        eventually("the frozen one is ready again", async || (a.get("/readyz").await.0 == 200).then_some(())).await;
        // Once the process answers a message of its own, its interrupted work is finished.
        let marker = format!("r{round}after");
        let sent = send(&[a], &marker, &marker, &options(&marker)).await;
        until_ended(a, [&sent.1]).await;
        check(&two, a, &accepted).await;
        for ((conversation, _), before) in accepted.iter().zip(before) {
            let sql = format!(
                "SELECT count(*) FROM events WHERE conversation_id::text = '{}'",
                uuid::Uuid::parse_str(conversation.trim_start_matches("conv_")).expect("an id")
            );
            assert_eq!(
                database.sql(&sql).await,
                before.to_string(),
                "the process wrote into {conversation} after it continued"
            );
        }
    }
}

/// How many times a third process is started beside the two live ones.
const STARTS: u64 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_start_and_death_beside_live_processes_interrupts_none_of_their_rounds() {
    let Some(database) = postgres::database().await else { return };
    let two = Two::start(&database.url).await;
    let [a, b] = &two.servers;
    let is_over = AtomicBool::new(false);
    let client = async |client: usize| {
        let mut accepted = Vec::new();
        for n in 0.. {
            if is_over.load(Relaxed) {
                break;
            }
            let (key, marker) = (format!("k{client}"), format!("k{client}m{n}"));
            let servers = if (client + n / 3).is_multiple_of(2) { [a, b] } else { [b, a] };
            let sent = send(&servers, &key, &marker, &options(&marker)).await;
            until_ended(servers[0], [&sent.1]).await;
            accepted.push((sent, marker));
        }
        accepted
    };
    let random = env::SeededEntropy::new(17);
    let folder = tempfile::tempdir().expect("a folder");
    let beside = async {
        let mut accepted = Vec::new();
        for start in 0..STARTS {
            wait_for_load(&two).await;
            let mut third = Server::start(folder.path(), &[], &settings(&database.url)).await;
            for n in 0..random.next_u64() % 6 {
                let (key, marker) = (format!("t{}", n % 2), format!("s{start}t{n}"));
                accepted.push((send(&[&third], &key, &marker, &options(&marker)).await, marker));
            }
            if random.next_u64().is_multiple_of(2) { third.kill() } else { third.stop().await }
        }
        wait_for_load(&two).await;
        is_over.store(true, Relaxed);
        accepted
    };
    let (sent, thirds) = tokio::join!(futures_util::future::join_all((0..6).map(client)), beside);
    until_ended_within(TAKEOVER + BUSY, a, thirds.iter().map(|((_, task), _)| task)).await;
    let of = |all: Vec<((String, String), String)>| {
        let mut accepted = Accepted::new();
        for ((conversation, task), marker) in all {
            accepted.entry(conversation).or_default().insert(task, marker);
        }
        accepted
    };
    let (accepted, thirds) = (of(sent.into_iter().flatten().collect()), of(thirds));
    for conversation in accepted.keys() {
        let id = uuid::Uuid::parse_str(conversation.trim_start_matches("conv_")).expect("an id");
        let sql = format!("SELECT count(*) FROM events WHERE kind = 'resumed' AND conversation_id::text = '{id}'");
        assert_eq!(database.sql(&sql).await, "0", "a round of a living process was interrupted in {conversation}");
    }
    let mut effects = two.effects();
    add_effects(&mut effects, folder.path());
    for (marker, times) in &effects {
        assert_eq!(*times, 1, "{marker} took effect {times} times");
    }
    check_ends(a, &accepted, &effects).await;
    check_ends(a, &thirds, &effects).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_killed_under_two_processes_loses_and_duplicates_nothing() {
    let Some(database) = postgres::Server::start(Options { fsync: true }).await else { return };
    let url = database.database().await;
    let two = Two::start(&url).await;
    let [a, b] = &two.servers;
    let stop = AtomicBool::new(false);
    let client = async |client: usize| {
        let mut accepted = Vec::new();
        for n in 0.. {
            if stop.load(Relaxed) {
                break;
            }
            let (key, marker) = (format!("k{client}"), format!("k{client}m{n}"));
            // The client sends to its own process first, and to the other one if the first refuses.
            let servers = if client.is_multiple_of(2) { [a, b] } else { [b, a] };
            let sent = send(&servers, &key, &marker, &options(&marker)).await;
            until_ended(servers[0], [&sent.1]).await;
            accepted.push((sent, marker));
        }
        accepted
    };
    let killer = async {
        for _ in 0..3 {
            wait_for_load(&two).await;
            let database = database.clone();
            let again = tokio::task::spawn_blocking(move || {
                database.kill();
                database.start_again();
            });
            again.await.expect("it starts again");
        }
        wait_for_load(&two).await;
        stop.store(true, Relaxed);
    };
    let (sent, ()) = tokio::join!(futures_util::future::join_all((0..6).map(client)), killer);
    let mut accepted = Accepted::new();
    for ((conversation, task), marker) in sent.into_iter().flatten() {
        accepted.entry(conversation).or_default().insert(task, marker);
    }
    check(&two, a, &accepted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_with_a_wrong_tls_root_does_not_start_while_two_others_work_over_tls() {
    let Some(database) = postgres::Server::start(Options::default()).await else { return };
    let roots = database.want_tls().await;
    let url = database.tls(&database.database().await);
    let with_root = |root: &Path| format!("{url}?sslmode=verify-full&sslrootcert={}", root.display());
    let two = Two::start(&with_root(&roots.right)).await;
    let [a, b] = &two.servers;
    let mut accepted = Accepted::new();
    for (n, (to, reader)) in [(a, b), (b, a), (a, b)].into_iter().enumerate() {
        let marker = format!("m{n}");
        let sent = send(&[to], "k", &marker, &options(&marker)).await;
        until_ended(reader, [&sent.1]).await;
        accepted.entry(sent.0).or_default().insert(sent.1, marker);
    }
    check(&two, a, &accepted).await;
    let folder = tempfile::tempdir().expect("a folder");
    let third = tokio::process::Command::new(env!("CARGO_BIN_EXE_annie"))
        .args(["--data".as_ref(), folder.path().as_os_str()])
        .args(["serve", "--port", "0"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder.path())
        .env("ANNIE__STORE__URL", with_root(&roots.wrong))
        .env("ANNIE__STORE__CONNECT_MS_MAX", "2000")
        .kill_on_drop(true)
        .output();
    let third = tokio::time::timeout(PATIENCE, third).await.expect("the process exits").expect("the binary starts");
    let sent = String::from_utf8(third.stderr).expect("text");
    assert_eq!(third.status.code(), Some(5), "{sent}");
    assert!(sent.contains("annie@localhost:") && sent.contains("invalid peer certificate"), "{sent}");
    assert!(!sent.contains(postgres::PASSWORD), "{sent}");
}

async fn wait_for_load(two: &Two) {
    let before = two.effects().len();
    eventually("there is load", async || (two.effects().len() > before + 10).then_some(())).await;
}

/// Stores a message as the front end of another process does that dies right after.
async fn store_message_and_die(other: &dyn Store) -> TaskId {
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
async fn message_stored_by_a_process_that_died_is_worked_on_by_the_owner() {
    let Some(database) = postgres::database().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let env = [("ANNIE__STORE__URL", database.url.as_str())];
    let owner = Server::start(folder.path(), &[], &env).await;
    let (_, task) = send(&[&owner], "k", "first", "what is due?").await;
    until_ended(&owner, [&task]).await;
    let address = database.url.parse().expect("an address");
    let other = PostgresStore::open(&address, PostgresOptions::default()).await.expect("a store");
    let task = store_message_and_die(&other).await;
    // Earlier than the owner's own periodic scan.
    until_ended_within(PATIENCE / 3, &owner, [&task.to_string()]).await;
}

/// How often a process scans that receives no notifications, in milliseconds, as the store for several processes does.
const SCAN_MS: u64 = 60_000;

/// Two kernels on one database that never receive notifications from each other. `acts`: a round of the model is an
/// effect.
async fn two_unnotified_kernels(model: &Arc<ScriptedModel>, store: &MemoryStore, acts: bool) -> [World; 2] {
    let start = async |seed| {
        let mut parts = WorldParts::with_model(model.clone());
        parts.store = Arc::new(store.with_wakes(Arc::new(|| Box::pin(sleep_for_ms(SCAN_MS)))));
        (parts.env, parts.node) = (env::env(seed), node(seed));
        parts.limits.passivate_after_ms = 10 * SCAN_MS;
        parts.acts = acts;
        // Summaries would be model calls of their own.
        parts.limits.turn.compaction_messages = 0;
        let world = parts.start().await;
        eventually("the kernel has scanned for open conversations", async || {
            let (_, view) = world.kernel.view("/conversations").await.ok()?;
            (view?["booted"] == true).then_some(())
        })
        .await;
        world
    };
    [start(7).await, start(8).await]
}

#[tokio::test(start_paused = true)]
async fn two_kernels_without_notifications_answer_every_message_once_and_followers_receive_it() {
    for acts in [false, true] {
        let model = Arc::new(ScriptedModel::saying("here"));
        let [a, b] = two_unnotified_kernels(&model, &MemoryStore::new(), acts).await;
        let first = a.say("0").await;
        a.answer(&first).await;
        let conversation = first.conversation;
        let mut follow = a.kernel.follow(Scope::User(ann()), conversation, Seq(0)).await.expect("it is there");
        for n in 1..=12 {
            // The owner is not notified of messages that arrive at the other kernel.
            let world = if n % 3 == 0 { &a } else { &b };
            let sent = world.say_in(conversation, &n.to_string()).await;
            let receives = async {
                while let Ok(Some(item)) = follow.next().await {
                    if matches!(&item, StreamItem::Event(event) if event.task == sent.task && event.body.is_final()) {
                        return;
                    }
                }
                panic!("the stream ended");
            };
            tokio::time::timeout(Duration::from_millis(2 * SCAN_MS), receives)
                .await
                .expect("the follower receives the end within two scans");
            assert_eq!(world.answer(&sent).await, "here");
        }
        let log = a.log(conversation).await;
        check_log(&log);
        assert_eq!(model.call_count(), 13, "a round began twice");
        for world in [a, b] {
            world.kernel.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn message_stored_by_a_process_that_died_is_worked_on_without_a_notification() {
    let model = Arc::new(ScriptedModel::saying("here"));
    let store = MemoryStore::new();
    let [owner, _other] = two_unnotified_kernels(&model, &store, false).await;
    let first = owner.say("first").await;
    owner.answer(&first).await;
    let task = store_message_and_die(&store).await;
    let ends = async {
        while !store.task(Scope::Operator, task).await.expect("readable").is_some_and(|row| row.state.is_ended()) {
            sleep_for_ms(100).await;
        }
    };
    tokio::time::timeout(Duration::from_millis(3 * SCAN_MS), ends).await.expect("the task ends within three scans");
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
    eventually("the kernel has scanned for open conversations", async || {
        let (_, view) = world.kernel.view("/conversations").await.ok()?;
        (view?["booted"] == true).then_some(())
    })
    .await;
    world
}

/// The same without notifications: the kernel only scans periodically.
async fn unnotified_kernel(store: &MemoryStore) -> World {
    let store = store.with_wakes(Arc::new(|| Box::pin(sleep_for_ms(SCAN_MS))));
    one_of_two(7, ScriptedModel::saying("here"), store, |_| {}).await
}

pub(super) async fn epoch_of(store: &MemoryStore, conversation: ConversationId) -> Epoch {
    store.conversation(Scope::Operator, conversation).await.expect("readable").expect("it is there").epoch
}

/// Time until another process continues the open work of a dead one: its lease, two renewals, and a margin.
pub(super) const TAKEOVER: Duration = Duration::from_millis(18_000);

#[tokio::test(start_paused = true)]
async fn message_stored_by_a_process_that_died_is_worked_on_although_no_engine_is_active() {
    for is_begun in [false, true] {
        let store = MemoryStore::new();
        let a = unnotified_kernel(&store).await;
        let hangs = ScriptedModel::saying("never").hanging_when(|_, _| true);
        // Without capacity no kernel claims the conversation.
        let capacity = |parts: &mut WorldParts| parts.limits.engines_max = usize::from(is_begun);
        let b = one_of_two(8, hangs, store.clone(), capacity).await;
        let sent = b.say("hello").await;
        eventually("the turn is as far as the test needs", async || {
            let kinds = b.kinds(sent.conversation).await;
            (kinds.iter().any(|kind| kind.ends_with("turn_started")) == is_begun).then_some(())
        })
        .await;
        b.kernel.crash().await;
        let epoch = epoch_of(&store, sent.conversation).await;
        // The node that stores the first message of a conversation owns it from that append.
        assert_eq!(epoch, Epoch(1));
        let ends = async {
            while !store
                .task(Scope::Operator, sent.task)
                .await
                .expect("readable")
                .is_some_and(|row| row.state.is_ended())
            {
                sleep_for_ms(100).await;
            }
        };
        tokio::time::timeout(TAKEOVER, ends)
            .await
            .unwrap_or_else(|_| panic!("the message is not worked on, begun: {is_begun}"));
        assert_eq!(a.answer(&sent).await, "here");
        check_log(&a.log(sent.conversation).await);
        assert_eq!(epoch_of(&store, sent.conversation).await, Epoch(epoch.0 + 1), "the conversation is claimed once");
        a.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn scan_for_open_work_leaves_the_running_work_of_another_process_to_it() {
    let (store, scans) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let counted = scans.clone();
    let a = unnotified_kernel(&store.with_hook(Arc::new(move |point| {
        counted.fetch_add(usize::from(matches!(point, StorePoint::Read("open_for"))), Relaxed);
        StoreFault::Pass
    })))
    .await;
    let takes_long = ScriptedModel::saying("there").taking(Duration::from_millis(100_000));
    let b = one_of_two(8, takes_long, store.clone(), |_| {}).await;
    for n in 0..4 {
        let before = scans.load(Relaxed);
        let sent = b.say(&n.to_string()).await;
        sleep_for_ms(90_000).await;
        assert!(scans.load(Relaxed) > before, "no scan ran");
        sleep_for_ms(20_000).await;
        assert_eq!(b.answer(&sent).await, "there");
        assert_eq!(epoch_of(&store, sent.conversation).await, Epoch(1));
    }
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn owner_begins_an_older_message_that_arrived_at_another_process_first() {
    let store = MemoryStore::new();
    // Neither process is notified of what the other stores.
    let slow = ScriptedModel::saying("here").taking(Duration::from_millis(10_000));
    let a = one_of_two(7, slow, store.clone(), |_| {}).await;
    let b = one_of_two(8, ScriptedModel::saying("there"), store.clone(), |_| {}).await;
    let first = a.say("0").await;
    a.answer(&first).await;
    let conversation = first.conversation;
    let second = a.say_in(conversation, "1").await;
    eventually("its turn has begun", async || {
        let kinds = a.kinds(conversation).await;
        (kinds.iter().filter(|kind| kind.ends_with("turn_started")).count() == 2).then_some(())
    })
    .await;
    let third = b.say_in(conversation, "2").await;
    eventually("the other process has left it to its owner", async || {
        let (_, view) = b.kernel.view("/conversations").await.ok()?;
        (view?["active"] == 0).then_some(())
    })
    .await;
    let fourth = a.say_in(conversation, "3").await;
    let sent = [first, second, third, fourth];
    for sent in &sent {
        a.final_of(conversation, sent.task).await;
    }
    let log = a.log(conversation).await;
    check_log(&log);
    let ended: Vec<TaskId> = log.iter().filter(|e| e.body.is_final()).map(|e| e.task).collect();
    assert_eq!(ended, sent.map(|sent| sent.task), "in the order in which they were acknowledged");
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn conversation_that_another_process_is_about_to_claim_is_left_to_it() {
    let store = MemoryStore::new();
    let notifications = Arc::new(Semaphore::new(0));
    let received = notifications.clone();
    let notified = store.with_wakes(Arc::new(move || {
        let received = received.clone();
        Box::pin(async move { received.acquire().await.expect("it is open").forget() })
    }));
    let a = one_of_two(7, ScriptedModel::saying("here"), notified, |_| {}).await;
    let b = one_of_two(8, ScriptedModel::saying("there"), store.clone(), |_| {}).await;
    sleep_for_ms(SCAN_MS).await;
    // A process without a lease stores a message without owning what it opens.
    let (conversation, task) = store_without_owner(&store, &b).await;
    notifications.add_permits(1);
    eventually("a scan has found the conversation without an owner", async || {
        let (_, view) = a.kernel.view("/ownership").await.ok()?;
        (view?["unclaimed"] == 1).then_some(())
    })
    .await;
    sleep_for_ms(1_000).await;
    assert_eq!(epoch_of(&store, conversation).await, Epoch(0), "the other process has claimed it");
    let sent = b.say_in(conversation, "and this").await;
    assert_eq!(b.answer(&sent).await, "there");
    sleep_for_ms(SCAN_MS / 2).await;
    let log = b.log(conversation).await;
    check_log(&log);
    assert!(log.iter().any(|event| event.task == task && event.body.is_final()), "{log:?}");
    assert_eq!(epoch_of(&store, conversation).await, Epoch(1));
    for world in [a, b] {
        world.kernel.stop().await;
    }
}

/// Stores the message of a new conversation, of which no process is the owner.
async fn store_without_owner(store: &MemoryStore, world: &World) -> (ConversationId, TaskId) {
    let sent = world.say("hello").await;
    world.answer(&sent).await;
    let first = world.log(sent.conversation).await.remove(0);
    let EventBody::Received(mut inbound) = first.body else { panic!("no message") };
    inbound.client_id = "without an owner".to_owned();
    let conversation = ConversationId::from_uuid(uuid::Uuid::from_u128(7));
    let task = TaskId::from_uuid(uuid::Uuid::from_u128(8));
    let event = NewEvent { at: first.at, task, agent: AgentId::orchestrator(), body: EventBody::Received(inbound) };
    let append = Append { conversation, user: ann(), fence: Fence::Inbox, events: vec![event] };
    store.commit(vec![append]).await.remove(0).expect("stored");
    (conversation, task)
}

#[tokio::test(start_paused = true)]
async fn engine_whose_claim_takes_long_is_not_taken_for_one_of_another_process() {
    let store = MemoryStore::new();
    let hangs = ScriptedModel::saying("never").hanging_when(|_, _| true);
    let before = one_of_two(7, hangs, store.clone(), |_| {}).await;
    let sent = before.say("hello").await;
    eventually("the turn has begun", async || {
        before.kinds(sent.conversation).await.iter().any(|kind| kind.ends_with("turn_started")).then_some(())
    })
    .await;
    before.kernel.crash().await;
    let checks = Arc::new(AtomicUsize::new(0));
    let checked = checks.clone();
    // Each hint leads to a check.
    let slow = store
        .with_wakes(Arc::new(|| Box::pin(sleep_for_ms(1_000))))
        .with_hook(Arc::new(move |point| {
            checked.fetch_add(usize::from(matches!(point, StorePoint::Read("conversations"))), Relaxed);
            StoreFault::Pass
        }))
        .with_wait(Arc::new(|point, side| {
            let is_claim = matches!((point, side), (StorePoint::Claim(_), StoreSide::Before));
            Box::pin(sleep_for_ms(if is_claim { 8_000 } else { 0 }))
        }));
    let after = one_of_two(8, ScriptedModel::saying("here"), slow, |parts| parts.node = node(7)).await;
    sleep_for_ms(6_000).await;
    assert!(checks.load(Relaxed) > 0, "no check ran");
    let (_, view) = after.kernel.view("/conversations").await.expect("the actor answers");
    let view = view.expect("a view");
    assert_eq!((&view["active"], &view["elsewhere"]), (&1.into(), &0.into()), "{view}");
    assert_eq!(after.answer(&sent).await, "here");
    after.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn message_stored_by_a_process_that_died_activates_a_passive_conversation() {
    let store = MemoryStore::new();
    let wakes = store.with_wakes(Arc::new(|| Box::pin(sleep_for_ms(SCAN_MS))));
    let a = one_of_two(7, ScriptedModel::saying("here"), wakes, |parts| parts.limits.engines_max = 1).await;
    let mut later = Submission::new(ann(), "test", "much later");
    later.not_before = Some(TestClock::START.later_ms(1_000 * SCAN_MS));
    let later = a.kernel.submit(later).await.expect("the message is accepted");
    // The deferred conversation is evicted for this one.
    let other = a.say("hello").await;
    a.answer(&other).await;
    eventually("the conversation is passive", async || {
        let (_, view) = a.kernel.view("/conversations").await.ok()?;
        (view?["passive"] == 1).then_some(())
    })
    .await;
    let b = one_of_two(8, ScriptedModel::saying("never"), store.clone(), |parts| parts.limits.engines_max = 0).await;
    // Without capacity this kernel claims nothing.
    let sent = b.say_in(later.conversation, "and this").await;
    b.kernel.crash().await;
    let ends = async {
        while !store.task(Scope::Operator, sent.task).await.expect("readable").is_some_and(|row| row.state.is_ended()) {
            sleep_for_ms(100).await;
        }
    };
    tokio::time::timeout(TAKEOVER, ends).await.expect("the conversation is activated");
    assert_eq!(a.answer(&sent).await, "here");
    a.kernel.stop().await;
}
