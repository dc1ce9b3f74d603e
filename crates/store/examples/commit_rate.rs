//! Measures the speed of the log on this machine's disk: `cargo run --release -p annie-store --example commit_rate [FOLDER]
//! [ADDRESS]`. Prints the cost of one durable commit, alone and in batches, beside the cost of the disk itself (an append of 8
//! kB and its fdatasync), without which no durable figure means anything. With the address of an empty PostgreSQL database,
//! that database is measured too.
// A measurement reports failures by panicking, and prints.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::{
    io::Write,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use annie_core::{
    event::{EventBody, Inbound, Mode, NewEvent, Priority, PromptFacts, Scope},
    ids::{AgentId, ConversationId, Epoch, NodeIncarnation, Seq, TaskId, UserId},
    limits::TurnLimits,
    ports::{
        Append, Decide, Document, DocumentChange, DocumentOrder, DocumentQuery, DocumentWrite, Fence, Find, Namespace,
        Seen, Storage, Store,
    },
    time::Micros,
};
use annie_store::{Durability, MemoryStore, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Characters of a message and of an answer.
const TEXT_CHARS: usize = 300;
const COMMITS: usize = 2_000;

#[tokio::main]
async fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let folder = tempfile::tempdir_in(folder).unwrap();
    println!("disk: append 8 kB + fdatasync, median {:.0} us", micros(fsync(folder.path())));
    for (name, durability) in [("full", Durability::Full), ("normal", Durability::Normal)] {
        let path = folder.path().join(name);
        let store = SqliteStore::open(&path, SqliteOptions { durability, ..SqliteOptions::default() }).await.unwrap();
        println!("sqlite, durability {name}");
        let store: Arc<dyn Storage> = Arc::new(store);
        measure(&store).await;
        store.close().await;
    }
    if let Some(address) = std::env::args().nth(2) {
        println!("postgres");
        let store = PostgresStore::open(&address.parse().unwrap(), PostgresOptions::default()).await.unwrap();
        let store: Arc<dyn Storage> = Arc::new(store);
        measure(&store).await;
        store.close().await;
    }
    println!("memory");
    let store: Arc<dyn Storage> = Arc::new(MemoryStore::new());
    measure(&store).await;
}

async fn measure(shared: &Arc<dyn Storage>) {
    let store = shared.as_ref();
    let mut next = 1;
    let owned = claimed(store, 1_024, &mut next).await;
    for batch in [1, 8, 64, 256] {
        let rounds = (COMMITS / batch).max(20);
        let (mut times, cpu, switches) = (Vec::with_capacity(rounds), cpu_time(), switches());
        for round in 0..rounds {
            let appends = (0..batch).map(|n| pair(owned[(round * batch + n) % owned.len()], &mut next)).collect();
            let start = Instant::now();
            assert!(store.commit(appends).await.iter().all(Result::is_ok));
            times.push(start.elapsed());
        }
        let cpu = (cpu_time() - cpu).as_secs_f64() * 1e6 / (rounds * batch) as f64;
        let switches = (crate::switches() - switches) as f64 / rounds as f64;
        let total: Duration = times.iter().sum();
        times.sort();
        println!(
            "  owner's append of 2 events, {batch:>3} a commit: {:>7.0} appends/s, commit median {:>6.0} us, \
             p99 {:>6.0} us, CPU {cpu:>5.1} us an append, {switches:.1} thread switches a commit",
            (rounds * batch) as f64 / total.as_secs_f64(),
            micros(times[rounds / 2]),
            micros(times[rounds * 99 / 100]),
        );
    }
    inbox(store, &mut next).await;
    for at_a_time in [1, 16, 128] {
        turns(shared, at_a_time, &mut next).await;
    }
    reads(store, owned[0].0).await;
}

async fn inbox(store: &dyn Store, next: &mut u128) {
    each("message into the inbox, one a commit", COMMITS, async |n| {
        let append = message(conversation(50_000 + n as u128 % 100), next);
        assert!(store.commit(vec![append]).await[0].is_ok());
    })
    .await;
}

/// The store's work for a plain answer, with this many conversations at a time: the message, the read of the log by the client
/// that waits for its answer, and the answer.
async fn turns(store: &Arc<dyn Storage>, at_a_time: usize, next: &mut u128) {
    let owned = claimed(store.as_ref(), at_a_time as u128, next).await;
    let mut turns: Vec<Vec<_>> = owned.iter().map(|_| Vec::new()).collect();
    for n in 0..COMMITS {
        let owned = owned[n % at_a_time];
        turns[n % at_a_time].push((owned.0, message(owned.0, next), pair(owned, next)));
    }
    let before = Before::now();
    let mut all = JoinSet::new();
    for turns in turns {
        let store = Arc::clone(store);
        all.spawn(async move {
            for (conversation, asked, answered) in turns {
                let seq = store.commit(vec![asked]).await.remove(0).unwrap().first;
                assert!(store.conversation(Scope::User(user()), conversation).await.unwrap().is_some());
                assert!(store.events(Scope::User(user()), conversation, seq, 50).await.unwrap().is_empty());
                assert!(store.commit(vec![answered]).await[0].is_ok());
            }
        });
    }
    all.join_all().await;
    before.print(&format!("two commits and two reads, {at_a_time} at a time"), COMMITS);
}

/// Performs the work several times and prints the cost of one.
async fn each(what: &str, times: usize, mut work: impl AsyncFnMut(usize)) {
    let before = Before::now();
    for n in 0..times {
        work(n).await;
    }
    before.print(what, times);
}

/// Resources used before a measurement.
struct Before {
    start: Instant,
    cpu: Duration,
    switches: u64,
}

impl Before {
    fn now() -> Self {
        Self { start: Instant::now(), cpu: cpu_time(), switches: switches() }
    }

    fn print(self, what: &str, times: usize) {
        let (time, cpu, switches) = (self.start.elapsed(), cpu_time() - self.cpu, switches() - self.switches);
        let of_one = |total: f64| total / times as f64;
        println!(
            "  {what}: {:.0} us, CPU {:.1} us, {:.1} thread switches",
            of_one(micros(time)),
            of_one(micros(cpu)),
            of_one(switches as f64)
        );
    }
}

/// Memories, as the built-in skill declares them.
static MEMORY: Namespace = Namespace { numbers: &["importance"], words: &["content"], ..Namespace::named("memory") };

async fn reads(store: &dyn Storage, conversation: ConversationId) {
    let last = store.conversation(Scope::Operator, conversation).await.unwrap().unwrap().last_seq;
    let after = Seq(last.0.saturating_sub(50));
    each(&format!("read {} events of a conversation", last.0 - after.0), COMMITS, async |_| {
        store.events(Scope::Operator, conversation, after, 50).await.unwrap();
    })
    .await;
    each("read what is behind the end of a conversation", COMMITS, async |_| {
        assert!(store.events(Scope::Operator, conversation, last, 50).await.unwrap().is_empty());
    })
    .await;
    each("look a conversation up", COMMITS, async |_| {
        assert!(store.conversation(Scope::Operator, conversation).await.unwrap().is_some());
    })
    .await;
    for n in 0..500_u128 {
        let content = format!("Person {n} of the team in room {} prefers topic {}", n % 40, n % 9);
        let body = serde_json::json!({"content": content, "importance": 0.5});
        let decide: Decide = Arc::new(move |_: &[Document]| Ok(DocumentChange::Insert(body.clone())));
        let intent = annie_core::ids::IntentId::from_uuid(Uuid::from_u128(n));
        let (user, seen, at) = (user(), Seen::Nothing, Micros(1));
        store.write_document(DocumentWrite { user, namespace: &MEMORY, intent, seen, decide, at }).await.unwrap();
    }
    each("search among 500 memories", 200, async |n| {
        let text = format!("what does person {n} in room {} prefer", n % 40);
        let (find, order) = (Find::AnyWord(text), DocumentOrder::Rank);
        let query = DocumentQuery { find, order, limit: 5, ..DocumentQuery::default() };
        assert!(!store.find_documents(user(), &MEMORY, query).await.unwrap().is_empty());
    })
    .await;
}

async fn claimed(store: &dyn Store, count: u128, next: &mut u128) -> Vec<(ConversationId, Epoch)> {
    let opening = (0..count).map(|n| message(conversation(n), next)).collect();
    assert!(store.commit(opening).await.iter().all(Result::is_ok));
    let mut owned = Vec::new();
    for n in 0..count {
        let claim = store.claim(conversation(n), NodeIncarnation::from_uuid(Uuid::from_u128(1))).await.unwrap();
        owned.push((conversation(n), claim.unwrap().epoch));
    }
    owned
}

/// The start of a turn and its answer.
fn pair((conversation, epoch): (ConversationId, Epoch), next: &mut u128) -> Append {
    *next += 1;
    let task = TaskId::from_uuid(Uuid::from_u128(*next));
    let facts = PromptFacts { skills: "x".repeat(TEXT_CHARS), ..PromptFacts::default() };
    let started = EventBody::TurnStarted {
        mode: Mode::MultiAgent,
        facts,
        limits: TurnLimits::default(),
        route: Vec::new(),
        continues: None,
    };
    let answered = EventBody::answered("x".repeat(TEXT_CHARS));
    let events = [started, answered].map(|body| event(task, body)).to_vec();
    Append { conversation, user: user(), fence: Fence::Owner(epoch), events }
}

fn message(conversation: ConversationId, next: &mut u128) -> Append {
    *next += 1;
    let task = TaskId::from_uuid(Uuid::from_u128(*next));
    let received = EventBody::Received(Inbound {
        client_id: task.to_string(),
        text: "x".repeat(TEXT_CHARS),
        source: "http".to_owned(),
        priority: Priority::High,
        mode: None,
        ..Inbound::default()
    });
    Append { conversation, user: user(), fence: Fence::Inbox, events: vec![event(task, received)] }
}

fn event(task: TaskId, body: EventBody) -> NewEvent {
    NewEvent { at: Micros(1), task, agent: AgentId::orchestrator(), body }
}

/// Ids spread over the whole range, as hashed and time-ordered ids are.
fn conversation(n: u128) -> ConversationId {
    ConversationId::from_uuid(Uuid::from_u128(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)))
}

fn user() -> UserId {
    UserId::new("ann").unwrap()
}

fn fsync(folder: &Path) -> Duration {
    let mut file = std::fs::File::create(folder.join("fsync")).unwrap();
    let mut times: Vec<Duration> = (0..300)
        .map(|_| {
            let start = Instant::now();
            file.write_all(&[1; 8_192]).unwrap();
            file.sync_data().unwrap();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

/// CPU time of the process so far, where the system reports it (in ticks of 10 ms).
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Number of voluntary context switches of all threads so far, where the system reports it.
fn switches() -> u64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("status")).ok())
        .filter_map(|status| {
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .sum()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
