//! Faults between a store and a database of many processes: connections are cut, the server is restarted, rows are locked,
//! commits are abandoned. Nothing is lost, nothing is stored twice, and no process has to be restarted.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};

use annie_core::{
    event::Scope,
    ids::{ConversationId, Seq},
    ports::{AppendError, Appended, Documents, Log, Records, Store, StoreErrorKind, WriteKind},
};
use annie_store::{PostgresOptions, PostgresStore};
use annie_testkit::postgres::{Options, Server, database};
use serde_json::json;
use sqlx::{Executor, PgConnection, Row};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

use crate::{
    documents::{TASKS, insertion},
    make::*,
    postgres_only::{all, beside, is_dense, message, signed, two},
    stores::at,
};

/// Longer than anything in a test takes.
const LONG: Duration = Duration::from_secs(60);

/// Appends until stopped; returns each append with whether it succeeded. `n` is the caller's own range of numbers.
async fn append_until(store: Arc<PostgresStore>, stop: Arc<AtomicBool>, n: u128) -> Vec<(ConversationId, u128, bool)> {
    let mut done = Vec::new();
    for round in 0.. {
        if stop.load(SeqCst) {
            break;
        }
        let number = n << 48 | round;
        let c = conversation(if round % 3 == 0 { n } else { 1_000 + (n << 32) + round });
        let answer = commit(&*store, inbox(c, "ann", vec![message(number)])).await;
        match &answer {
            Ok(_) => {}
            Err(AppendError::Store(e)) if e.kind == StoreErrorKind::Unavailable => {}
            Err(e) => panic!("{e}"),
        }
        done.push((c, number, answer.is_ok()));
    }
    done
}

/// Asserts that every append that was answered with success is stored, and that nothing is stored twice.
async fn assert_stored_once(store: &PostgresStore, done: Vec<(ConversationId, u128, bool)>) {
    assert!(done.iter().filter(|(.., is_ok)| *is_ok).count() > 0);
    let mut stored = BTreeMap::new();
    for (c, n, is_ok) in done {
        let events = match stored.entry(c) {
            Entry::Occupied(old) => old.into_mut(),
            Entry::Vacant(new) => new.insert(all(store, c).await),
        };
        assert!(is_dense(events));
        let times = events.iter().filter(|event| event.task == task(n)).count();
        assert!(times == 1 || (times == 0 && !is_ok), "{n} is stored {times} times, answered {is_ok}");
        let row = store.task(Scope::Operator, task(n)).await.unwrap();
        assert_eq!(row.is_some(), times == 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_loses_and_doubles_nothing_when_connections_are_cut() {
    let Some((one, other, database)) = two().await else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for n in 0..6 {
        let store = Arc::clone(if n % 2 == 0 { &one } else { &other });
        writers.spawn(append_until(store, Arc::clone(&stop), n));
    }
    let mut db = beside(&database.url).await;
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
        WHERE datname = current_database() AND application_name = 'annie' AND pid <> pg_backend_pid()";
    let mut cuts = 0;
    while cuts < 300 {
        let row = db.fetch_one(cut).await.unwrap();
        cuts += row.get::<i64, _>(0);
    }
    stop.store(true, SeqCst);
    let done: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
    let failed = done.iter().filter(|(.., is_ok)| !is_ok).count();
    assert_eq!(failed, 0, "of {}", done.len());
    assert_stored_once(&one, done).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_loses_and_doubles_nothing_when_the_server_is_killed() {
    let Some(server) = Server::start(Options::default()).await else { return };
    let url = server.database().await;
    let store = Arc::new(at(&url).await);
    // Between commits: the next call works.
    let c = conversation(999);
    let epoch = opened(&*store, c, "ann", task(999), 1).await;
    let again = Arc::clone(&server);
    tokio::task::spawn_blocking(move || (again.stop_fast(), again.start_again())).await.unwrap();
    assert_eq!(length(&*store, c).await, 1);
    commit(&*store, owned(c, "ann", epoch, vec![started(task(999), 2)])).await.unwrap();
    // During commits.
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for n in 0..4 {
        writers.spawn(append_until(Arc::clone(&store), Arc::clone(&stop), n));
    }
    for round in 0..3 {
        // Waits until something has been stored since the last round.
        while store.task(Scope::Operator, task(round)).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        let again = Arc::clone(&server);
        tokio::task::spawn_blocking(move || (again.kill(), again.start_again())).await.unwrap();
        store.ping().await.unwrap();
    }
    stop.store(true, SeqCst);
    let done = writers.join_all().await.into_iter().flatten().collect();
    assert_stored_once(&store, done).await;
    store.close().await;
}

#[tokio::test]
async fn postgres_is_unavailable_without_a_server_and_errors_hide_the_password() {
    let Some(database) = database().await else { return };
    let wrong = database.url_tcp.replacen("the-password-of-the-test", "s3cret-but-wrong", 1);
    assert_ne!(wrong, database.url_tcp);
    let options = PostgresOptions { connect_ms_max: 200, ..PostgresOptions::default() };
    let unreachable = "postgres://ann:s3cret@127.0.0.1:1/annie".to_owned();
    let unknown = database.url_tcp.replace("/annie_", "/no_such_");
    for url in [wrong, unreachable, unknown] {
        let Err(error) = PostgresStore::open(&url.parse().unwrap(), options).await else { continue };
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        let sent = format!("{error} {error:?}");
        assert!(!sent.contains("s3cret") && !sent.contains("the-password-of-the-test"), "{sent}");
    }
    // The server that answers has the usual time: on a busy machine the password alone takes longer than the limit above.
    let store = PostgresStore::open(&database.url_tcp.parse().unwrap(), PostgresOptions::default()).await.unwrap();
    store.close().await;
    store.close().await;
    assert_eq!(store.ping().await.unwrap_err().kind, StoreErrorKind::Unavailable);
    let refused = commit(&store, inbox(conversation(1), "ann", vec![message(1)])).await;
    assert!(matches!(refused, Err(AppendError::Store(e)) if e.kind == StoreErrorKind::Unavailable));
}

#[tokio::test]
async fn postgres_reports_locked_when_a_row_is_locked_for_too_long() {
    let Some(database) = database().await else { return };
    let options = PostgresOptions { statement_ms_max: 1_000, ..PostgresOptions::default() };
    let store = PostgresStore::open(&database.url.parse().unwrap(), options).await.unwrap();
    let epoch = opened(&store, conversation(1), "ann", task(1), 1).await;
    let mut db = beside(&database.url).await;
    db.execute("BEGIN; UPDATE conversations SET title = 'x'").await.unwrap();
    let owner = || owned(conversation(1), "ann", epoch, vec![started(task(1), 2)]);
    let refused = commit(&store, owner()).await;
    assert!(matches!(&refused, Err(AppendError::Store(e)) if e.kind == StoreErrorKind::Locked), "{refused:?}");
    db.execute("ROLLBACK").await.unwrap();
    assert_eq!(commit(&store, owner()).await, Ok(Appended { first: Seq(2) }));
}

#[tokio::test]
async fn postgres_stores_a_dropped_commit_completely_or_not_at_all() {
    let Some(database) = database().await else { return };
    let store = at(&database.url).await;
    opened(&store, conversation(1), "ann", task(1), 1).await;
    for polls in 1..60_u128 {
        let batch = vec![
            inbox(conversation(1), "ann", vec![received(task(100 + polls), &polls.to_string(), "x", 2)]),
            inbox(conversation(2), "ann", vec![received(task(200 + polls), &format!("b{polls}"), "x", 2)]),
        ];
        drop_after_polls(polls, store.commit(batch)).await;
        // Waits for the row lock, and so for whatever is still running.
        store.claim(conversation(1), node(1)).await.unwrap();
        let first = store.task(Scope::Operator, task(100 + polls)).await.unwrap();
        let second = store.task(Scope::Operator, task(200 + polls)).await.unwrap();
        assert_eq!(first.is_some(), second.is_some(), "after {polls} polls");
    }
    assert!(commit(&store, inbox(conversation(1), "ann", vec![message(2)])).await.is_ok());
    assert!(is_dense(&all(&store, conversation(1)).await));
}

/// Waits until a query returns true.
async fn until(db: &mut PgConnection, query: &'static str) {
    let yes = async {
        while !sqlx::query_scalar::<_, bool>(query).fetch_one(&mut *db).await.unwrap() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, yes).await.unwrap();
}

/// Whether a statement of a store waits for another connection's lock.
const WAITS: &str = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() \
     AND application_name = 'annie' AND wait_event_type = 'Lock'";

/// Whether the statements of two stores wait for a lock.
const BOTH_WAIT: &str = "SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = current_database() \
     AND application_name = 'annie' AND wait_event_type = 'Lock'";

#[tokio::test]
async fn postgres_deletion_of_documents_waits_for_the_write_under_way() {
    let Some((one, other, database)) = two().await else { return };
    let (mut holder, mut first, mut second) =
        (beside(&database.url).await, beside(&database.url).await, beside(&database.url).await);
    let lock = "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('documents tasks of ann', 0))";
    holder.execute(lock).await.unwrap();
    let write = one.write_document(insertion("ann", &TASKS, 1, json!({"title": "a"})));
    let deletion = async {
        until(&mut first, WAITS).await;
        other.delete_documents(user("ann")).await
    };
    let release = async {
        until(&mut second, BOTH_WAIT).await;
        holder.execute("ROLLBACK").await.unwrap();
    };
    let (written, deleted, ()) = tokio::join!(write, deletion, release);
    assert_eq!((written.unwrap().kind, deleted.unwrap()), (WriteKind::Inserted, 1));
    assert_eq!(one.export_documents(user("ann"), None, 9).await.unwrap(), []);
}

/// A conversation with one message, and a second message whose commit was abandoned while it waited for a lock of another
/// connection.
struct Abandoned {
    c: ConversationId,
    store: PostgresStore,
    holder: PgConnection,
    db: PgConnection,
}

impl Abandoned {
    async fn on(url: &str) -> Self {
        let options = PostgresOptions { statement_ms_max: 600_000, ..PostgresOptions::default() };
        let store = PostgresStore::open(&url.parse().unwrap(), options).await.unwrap();
        let c = conversation(1);
        commit(&store, inbox(c, "ann", vec![message(1)])).await.unwrap();
        let (mut holder, mut db) = (beside(url).await, beside(url).await);
        holder.execute("BEGIN; UPDATE conversations SET title = 'x'").await.unwrap();
        tokio::select! {
            answers = store.commit(vec![inbox(c, "ann", vec![message(2)])]) => panic!("{answers:?}"),
            () = until(&mut db, WAITS) => {}
        }
        Self { c, store, holder, db }
    }
}

#[tokio::test]
async fn postgres_decides_an_abandoned_commit_before_it_lists_open_conversations() {
    let Some(database) = database().await else { return };
    let Abandoned { c, store, mut holder, .. } = Abandoned::on(&database.url).await;
    assert_eq!(store.open_conversations().await.unwrap(), [(c, user("ann"))]);
    holder.execute("ROLLBACK").await.unwrap();
    commit(&store, inbox(c, "ann", vec![message(3)])).await.unwrap();
    let stored: Vec<_> = all(&store, c).await.iter().map(|event| event.task).collect();
    assert_eq!(stored, [task(1), task(3)]);
}

#[tokio::test]
async fn postgres_drops_the_waiting_statement_of_a_dead_process() {
    let Some(database) = database().await else { return };
    let Abandoned { c, store, mut holder, mut db } = Abandoned::on(&database.url).await;
    drop(store);
    until(
        &mut db,
        "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() \
         AND application_name = 'annie')",
    )
    .await;
    holder.execute("ROLLBACK").await.unwrap();
    let next = at(&database.url).await;
    assert_eq!(length(&next, c).await, 1);
}

/// The server processes of a database's stores, frozen until this value is dropped.
struct Frozen(Vec<String>);

impl Frozen {
    async fn of(db: &mut PgConnection) -> Self {
        let sql = "SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() \
            AND application_name = 'annie' AND query NOT LIKE 'LISTEN%'";
        let pids = sqlx::query_scalar(sql).fetch_all(db).await.unwrap();
        let frozen = Self(pids);
        assert!(!frozen.0.is_empty());
        assert!(frozen.signal_all("-STOP"));
        frozen
    }

    fn signal_all(&self, signal: &str) -> bool {
        Command::new("kill").arg(signal).args(&self.0).status().is_ok_and(|status| status.success())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // A second panic would hide the message of the first one.
        assert!(self.signal_all("-CONT") || std::thread::panicking());
    }
}

#[tokio::test]
async fn postgres_stores_an_append_in_spite_of_a_silent_connection() {
    let Some(database) = database().await else { return };
    // After a silence that is longer than the time limit the store still retries once.
    let options = PostgresOptions { statement_ms_max: 500, ..PostgresOptions::default() };
    let store = PostgresStore::open(&database.url.parse().unwrap(), options).await.unwrap();
    let c = conversation(1);
    let epoch = opened(&store, c, "ann", task(1), 1).await;
    let mut db = beside(&database.url).await;
    let frozen = Frozen::of(&mut db).await;
    assert_eq!(commit(&store, owned(c, "ann", epoch, vec![started(task(1), 2)])).await, Ok(Appended { first: Seq(2) }));
    drop(frozen);
    // The frozen statement finds its sequence number taken.
    store.open_conversations().await.unwrap();
    assert_eq!(length(&store, c).await, 2);
}

#[tokio::test]
async fn postgres_lists_open_conversations_in_spite_of_an_abandoned_query() {
    let Some(database) = database().await else { return };
    let options = PostgresOptions { statement_ms_max: 500, ..PostgresOptions::default() };
    let store = PostgresStore::open(&database.url.parse().unwrap(), options).await.unwrap();
    let c = conversation(1);
    commit(&store, inbox(c, "ann", vec![message(1)])).await.unwrap();
    let mut db = beside(&database.url).await;
    let frozen = Frozen::of(&mut db).await;
    tokio::select! {
        biased;
        sent = store.ping() => panic!("{sent:?}"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(timeout(LONG, store.open_conversations()).await.unwrap().unwrap(), [(c, user("ann"))]);
    drop(frozen);
}

#[tokio::test]
async fn postgres_wakes_other_processes_for_a_message_and_a_lost_connection() {
    let Some((one, other, database)) = two().await else { return };
    // The start of listening wakes once, because earlier notifications are unknown.
    timeout(LONG, other.woken()).await.unwrap();
    commit(&*one, inbox(conversation(1), "ann", vec![message(1)])).await.unwrap();
    timeout(LONG, other.woken()).await.unwrap();
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
        WHERE datname = current_database() AND application_name = 'annie' AND query LIKE 'LISTEN%'";
    let ended = beside(&database.url).await.fetch_all(cut).await.unwrap();
    assert_eq!(ended.len(), 2, "each process listens");
    timeout(LONG, other.woken()).await.unwrap();
    // Until the new connection listens, a notification may be lost: it is only a hint.
    let mut n = 1;
    while timeout(Duration::from_millis(200), other.woken()).await.is_err() {
        n += 1;
        commit(&*one, inbox(conversation(1), "ann", vec![message(n)])).await.unwrap();
    }
}

/// A proxy between a store and its server. It cuts the connection when the server has answered for the `cut_at`th time from
/// now: the statement is executed, and its answer is lost.
struct CuttingProxy {
    port: u16,
    cut_at: Arc<AtomicI64>,
    _connections: JoinSet<()>,
}

impl CuttingProxy {
    async fn new(port: u16) -> Self {
        let handle = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own_port = handle.local_addr().unwrap().port();
        let cut_at = Arc::new(AtomicI64::new(0));
        let answers = Arc::clone(&cut_at);
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut inner = JoinSet::new();
            loop {
                let (mut client, _) = handle.accept().await.unwrap();
                let answers = Arc::clone(&answers);
                inner.spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
                    loop {
                        tokio::select! {
                            count = client.read(&mut asked) => match count {
                                Ok(count) if count > 0 => server.write_all(&asked[..count]).await.unwrap(),
                                _ => return,
                            },
                            count = server.read(&mut answered) => match count {
                                Ok(count) if count > 0 && answers.fetch_sub(1, SeqCst) != 1 => {
                                    if client.write_all(&answered[..count]).await.is_err() {
                                        return;
                                    }
                                }
                                _ => return,
                            },
                        }
                    }
                });
            }
        });
        Self { port: own_port, cut_at, _connections: connections }
    }
}

#[tokio::test]
async fn postgres_answers_and_stores_an_append_once_when_its_answer_is_lost() {
    let Some(database) = database().await else { return };
    let port = database.url_tcp.rsplit(':').next().unwrap().split('/').next().unwrap();
    let proxy = CuttingProxy::new(port.parse().unwrap()).await;
    let url = database.url_tcp.replacen(&format!(":{port}/"), &format!(":{}/", proxy.port), 1);
    assert_ne!(url, database.url_tcp);
    let store = at(&url).await;
    let c = conversation(1);
    let epoch = opened(&store, c, "ann", task(1), 1).await;
    let mut next = 2;
    for cut_at in 1..=12 {
        // An append of the owner, one of a front end, one that creates a conversation, and one of several statements.
        let number = 100 * cut_at as u128;
        let whole = vec![message(number + 3), started(task(number + 3), 2), answered(task(number + 3), "Done.", 3)];
        for (append, first) in [
            (owned(c, "ann", epoch, vec![signed(epoch)]), next),
            (inbox(c, "ann", vec![message(number + 1)]), next + 1),
            (inbox(conversation(number), "ann", vec![message(number + 2)]), 1),
            (owned(c, "ann", epoch, whole), next + 2),
        ] {
            proxy.cut_at.store(cut_at, SeqCst);
            assert_eq!(commit(&store, append).await, Ok(Appended { first: Seq(first) }), "cut at answer {cut_at}");
            proxy.cut_at.store(0, SeqCst);
        }
        next += 5;
        assert_eq!(length(&store, c).await as u64, next - 1);
        assert_eq!(length(&store, conversation(number)).await, 1);
    }
}
