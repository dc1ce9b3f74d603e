//! A process that is frozen in the middle of its writing, and wakes after another has taken its conversation over, writes
//! nothing more. The database alone says so: on SQLite the other one removed the lock file first, as if it had been lost.

use std::{path::Path, process::Stdio, sync::Arc};

use annie_core::{
    event::{EventBody, Inbound, NewEvent, Scope},
    ids::{AgentId, ConversationId, Epoch, NodeIncarnation, Seq, TaskId},
    ports::{Append, AppendError, Appended, Fence, Store},
    time::Micros,
};
use annie_store::{Durability, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};
use annie_testkit::{env, postgres};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::world::{PATIENCE, ann, eventually};

/// How often a process is frozen.
const ROUNDS: u128 = 100;
/// Names the database in the process that is frozen.
const DATABASE: &str = "ANNIE_TEST_FROZEN_DATABASE";
/// How often a process that was shut out tries to write all the same.
const TRIES: usize = 3;

/// Waits for nobody else's lock for long: a process that is frozen in the middle of a transaction is let go on, and frozen
/// again.
async fn open(database: &str) -> Arc<dyn Store> {
    match database.strip_prefix("sqlite:") {
        Some(folder) => {
            let options =
                SqliteOptions { durability: Durability::Normal, busy_timeout_ms: 200, ..SqliteOptions::default() };
            Arc::new(SqliteStore::open(Path::new(folder), options).await.expect("SQLite opens"))
        }
        None => {
            let options = PostgresOptions { statement_ms_max: 1_000, ..PostgresOptions::default() };
            let address = database.parse().expect("an address");
            Arc::new(PostgresStore::open(&address, options).await.expect("PostgreSQL opens"))
        }
    }
}

fn conversation(n: u128) -> ConversationId {
    ConversationId::from_uuid(uuid::Uuid::from_u128(0xf0 << 64 | n))
}

fn task(n: u128) -> TaskId {
    TaskId::from_uuid(uuid::Uuid::from_u128(0xf1 << 64 | n))
}

fn append(n: u128, fence: Fence, body: EventBody) -> Append {
    let event = NewEvent { at: Micros(1), task: task(n), agent: AgentId::orchestrator(), body };
    Append { conversation: conversation(n), user: ann(), fence, events: vec![event] }
}

async fn write(store: &dyn Store, n: u128, epoch: Epoch, by: &str) -> Result<Appended, AppendError> {
    let event = append(n, Fence::Owner(epoch), EventBody::Suspended { by: by.to_owned() });
    store.commit(vec![event]).await.remove(0)
}

/// What the process does that is frozen: it owns a conversation and writes as fast as it can, until it may not. Does
/// nothing where it is not started by one of the tests below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_that_is_frozen() {
    let Some(database) = std::env::var_os(DATABASE) else { return };
    let store = open(database.to_str().expect("text")).await;
    let me = NodeIncarnation::from_uuid(env::env(1).uuid());
    println!("frozen: ready");
    for line in std::io::stdin().lines() {
        let n: u128 = line.expect("a line").trim().parse().expect("a number");
        let claim = store.claim(conversation(n), me).await.expect("a claim").expect("the conversation is there");
        let mut refused = 0;
        while refused < TRIES {
            match write(&*store, n, claim.epoch, "frozen").await {
                Ok(Appended { first }) if refused == 0 => println!("frozen: stored {first}"),
                Ok(Appended { first }) => println!("frozen: it wrote {first} after it was shut out"),
                Err(AppendError::Fenced) => refused += 1,
                // The other one holds a lock for a moment.
                Err(AppendError::Store(error)) if error.is_retryable() => {}
                Err(error) => println!("frozen: {error}"),
            }
        }
        println!("frozen: shut out");
    }
}

/// The process that is frozen, in the hands of a test.
struct Frozen {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

#[derive(Debug, PartialEq)]
enum Told {
    Ready,
    Stored(u64),
    ShutOut,
}

impl Frozen {
    fn start(database: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["fault::frozen::the_process_that_is_frozen", "--exact", "--nocapture"])
            .env(DATABASE, database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let (orders, out) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, orders, lines: BufReader::new(out).lines() }
    }

    async fn told(&mut self) -> Told {
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("it says something");
            let line = line.expect("its output can be read").expect("it lives");
            // The test's own runner writes before it, on the same line too.
            match line.split_once("frozen: ").map(|(_, said)| said) {
                Some("ready") => return Told::Ready,
                Some("shut out") => return Told::ShutOut,
                Some(said) => match said.strip_prefix("stored ").and_then(|seq| seq.parse().ok()) {
                    Some(seq) => return Told::Stored(seq),
                    None => panic!("{said}"),
                },
                None => {}
            }
        }
    }

    async fn until_it_stores(&mut self) {
        assert!(matches!(self.told().await, Told::Stored(_)), "it was shut out by nobody");
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).expect("it lives");
        kill_process(pid, signal).expect("it can be signalled");
    }

    async fn freeze(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.child.id().expect("it lives"));
        eventually("it stands still", async || {
            let line = std::fs::read_to_string(&stat).ok()?;
            line.rsplit_once(") ")?.1.starts_with('T').then_some(())
        })
        .await;
    }
}

async fn a_frozen_process_writes_nothing_after_it_was_shut_out(database: &str, once_open: impl FnOnce()) {
    let mut frozen = Frozen::start(database);
    assert_eq!(frozen.told().await, Told::Ready);
    once_open();
    let store = open(database).await;
    let me = NodeIncarnation::from_uuid(env::env(2).uuid());
    let mut again = 0;
    for n in 0..ROUNDS {
        let inbound = Inbound { client_id: n.to_string(), text: "hello".to_owned(), ..Inbound::default() };
        let message = append(n, Fence::Inbox, EventBody::Received(inbound));
        store.commit(vec![message]).await.remove(0).expect("a new conversation");
        frozen.orders.write_all(format!("{n}\n").as_bytes()).await.expect("it listens");
        let claim = loop {
            frozen.until_it_stores().await;
            frozen.freeze().await;
            match store.claim(conversation(n), me).await {
                Ok(claim) => break claim.expect("the conversation is there"),
                Err(error) => {
                    assert!(error.is_retryable() && again < 10 * ROUNDS, "{error}");
                    again += 1;
                    frozen.signal(Signal::CONT);
                }
            }
        };
        let ours = write(&*store, n, claim.epoch, "other").await.expect("the new owner writes").first;
        assert_eq!(ours, Seq(claim.last.0 + 1));
        frozen.signal(Signal::CONT);
        loop {
            match frozen.told().await {
                // Stored before, told of only now.
                Told::Stored(seq) => assert!(seq <= claim.last.0, "round {n}: it wrote {seq} behind {}", claim.last),
                told => break assert_eq!(told, Told::ShutOut),
            }
        }
        let behind = store.events(Scope::Operator, conversation(n), claim.last, 10).await.expect("the log");
        assert_eq!(behind.iter().map(|e| e.seq).collect::<Vec<_>>(), [ours], "round {n}");
    }
    println!("{ROUNDS} of {ROUNDS} shut out; frozen in the middle of a transaction and let go on: {again}");
    drop(frozen.orders);
    frozen.child.wait().await.expect("it ends");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_process_on_sqlite_writes_nothing_after_another_took_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("annie.lock");
    let lose_lock = || std::fs::remove_file(&lock).expect("it is there");
    let database = format!("sqlite:{}", folder.path().display());
    a_frozen_process_writes_nothing_after_it_was_shut_out(&database, lose_lock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_process_on_postgres_writes_nothing_after_another_took_over() {
    let Some(database) = postgres::database().await else { return };
    a_frozen_process_writes_nothing_after_it_was_shut_out(&database.url, || {}).await;
}
