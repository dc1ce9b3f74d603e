//! A process is frozen in the middle of a write and continues after another process has claimed its conversation. It then
//! writes nothing more. The database alone enforces this: on SQLite the test removes the lock file first, as if it had
//! been lost.

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
/// Environment variable with the database of the child process that is frozen.
const DATABASE: &str = "ANNIE_TEST_FROZEN_DATABASE";
/// How many times a fenced process tries to write all the same.
const TRIES: usize = 3;

/// Short lock timeouts: if the other process is frozen in the middle of a transaction, the test lets it continue and
/// freezes it again.
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

/// The child process that is frozen: it owns a conversation and writes as fast as it can until it is fenced. Does nothing
/// if one of the tests below has not started it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_child_process_entry_point() {
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
                Ok(Appended { first }) => println!("frozen: it wrote {first} after it was fenced"),
                Err(AppendError::Fenced) => refused += 1,
                // The other process holds a lock for a moment.
                Err(AppendError::Store(error)) if error.is_retryable() => {}
                Err(error) => println!("frozen: {error}"),
            }
        }
        println!("frozen: fenced");
    }
}

/// The frozen child process as a test controls it.
struct Frozen {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

#[derive(Debug, PartialEq)]
enum Report {
    Ready,
    Stored(u64),
    Fenced,
}

impl Frozen {
    fn start(database: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["fault::frozen::frozen_child_process_entry_point", "--exact", "--nocapture"])
            .env(DATABASE, database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let (input, out) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, input, lines: BufReader::new(out).lines() }
    }

    async fn next_report(&mut self) -> Report {
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line())
                .await
                .expect("the process reports within the limit");
            let line = line.expect("its output can be read").expect("the process is alive");
            // The test runner of the child writes before the report, also on the same line.
            match line.split_once("frozen: ").map(|(_, sent)| sent) {
                Some("ready") => return Report::Ready,
                Some("fenced") => return Report::Fenced,
                Some(sent) => match sent.strip_prefix("stored ").and_then(|seq| seq.parse().ok()) {
                    Some(seq) => return Report::Stored(seq),
                    None => panic!("{sent}"),
                },
                None => {}
            }
        }
    }

    async fn until_it_stores(&mut self) {
        assert!(
            matches!(self.next_report().await, Report::Stored(_)),
            "the process was fenced although no other process had claimed"
        );
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).expect("the process is alive");
        kill_process(pid, signal).expect("the process can be signalled");
    }

    async fn freeze(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.child.id().expect("the process is alive"));
        eventually("the process is stopped", async || {
            let line = std::fs::read_to_string(&stat).ok()?;
            line.rsplit_once(") ")?.1.starts_with('T').then_some(())
        })
        .await;
    }
}

async fn frozen_process_writes_nothing_after_it_was_fenced(database: &str, once_open: impl FnOnce()) {
    let mut frozen = Frozen::start(database);
    assert_eq!(frozen.next_report().await, Report::Ready);
    once_open();
    let store = open(database).await;
    let me = NodeIncarnation::from_uuid(env::env(2).uuid());
    let mut again = 0;
    for n in 0..ROUNDS {
        let inbound = Inbound { client_id: n.to_string(), text: "hello".to_owned(), ..Inbound::default() };
        let message = append(n, Fence::Inbox, EventBody::Received(inbound));
        store.commit(vec![message]).await.remove(0).expect("a new conversation");
        frozen.input.write_all(format!("{n}\n").as_bytes()).await.expect("the process reads its input");
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
            match frozen.next_report().await {
                // Stored before the claim and reported only now.
                Report::Stored(seq) => assert!(seq <= claim.last.0, "round {n}: it wrote {seq} behind {}", claim.last),
                next_report => break assert_eq!(next_report, Report::Fenced),
            }
        }
        let behind = store.events(Scope::Operator, conversation(n), claim.last, 10).await.expect("the log");
        assert_eq!(behind.iter().map(|e| e.seq).collect::<Vec<_>>(), [ours], "round {n}");
    }
    println!("{ROUNDS} of {ROUNDS} fenced; frozen in the middle of a transaction and continued: {again}");
    drop(frozen.input);
    frozen.child.wait().await.expect("the process exits");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_process_on_sqlite_writes_nothing_after_another_process_claimed() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("annie.lock");
    let lose_lock = || std::fs::remove_file(&lock).expect("it is there");
    let database = format!("sqlite:{}", folder.path().display());
    frozen_process_writes_nothing_after_it_was_fenced(&database, lose_lock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_process_on_postgres_writes_nothing_after_another_process_claimed() {
    let Some(database) = postgres::database().await else { return };
    frozen_process_writes_nothing_after_it_was_fenced(&database.url, || {}).await;
}
