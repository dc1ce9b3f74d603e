//! What goes wrong on the way to a database of many processes: connections are cut, the server is restarted, rows are
//! locked, commits are given up. Nothing is lost, nothing is stored twice, and nobody has to be started again.

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
    ports::{AppendError, Appended, Log, Records, Store, StoreErrorKind},
};
use annie_store::{PostgresOptions, PostgresStore};
use annie_testkit::postgres::{Options, Server, database};
use sqlx::{Executor, PgConnection, Row};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

use crate::{
    make::*,
    postgres_only::{all, beside, is_dense, message, signed, two},
    stores::at,
};

/// Long enough for anything that is going to happen.
const LONG: Duration = Duration::from_secs(60);

/// Appends until told to stop; each answer and what was asked. `n` counts from a number of the caller's own.
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

/// Every append that was answered with success is stored, and nothing is stored twice.
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
async fn connections_that_are_cut_in_the_middle_lose_and_double_nothing() {
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
async fn a_server_that_is_killed_and_started_again_loses_and_doubles_nothing() {
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
        // Until something has been stored since the last time.
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
async fn a_server_that_is_away_is_unavailable_and_its_password_is_not_told() {
    let Some(database) = database().await else { return };
    let wrong = database.url_tcp.replacen("the-password-of-the-test", "s3cret-but-wrong", 1);
    assert_ne!(wrong, database.url_tcp);
    let options = PostgresOptions { connect_ms_max: 200, ..PostgresOptions::default() };
    let nobody = "postgres://ann:s3cret@127.0.0.1:1/annie".to_owned();
    let unknown = database.url_tcp.replace("/annie_", "/no_such_");
    for url in [wrong, nobody, unknown] {
        let Err(error) = PostgresStore::open(&url.parse().unwrap(), options).await else { continue };
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        let said = format!("{error} {error:?}");
        assert!(!said.contains("s3cret") && !said.contains("the-password-of-the-test"), "{said}");
    }
    let store = PostgresStore::open(&database.url_tcp.parse().unwrap(), options).await.unwrap();
    store.close().await;
    store.close().await;
    assert_eq!(store.ping().await.unwrap_err().kind, StoreErrorKind::Unavailable);
    let refused = commit(&store, inbox(conversation(1), "ann", vec![message(1)])).await;
    assert!(matches!(refused, Err(AppendError::Store(e)) if e.kind == StoreErrorKind::Unavailable));
}

#[tokio::test]
async fn a_row_that_is_locked_for_too_long_is_locked_for_now() {
    let Some(database) = database().await else { return };
    let options = PostgresOptions { statement_ms_max: 100, ..PostgresOptions::default() };
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
async fn a_commit_that_is_dropped_in_the_middle_is_whole_or_not_there() {
    let Some(database) = database().await else { return };
    let store = at(&database.url).await;
    opened(&store, conversation(1), "ann", task(1), 1).await;
    for polls in 1..60_u128 {
        let batch = vec![
            inbox(conversation(1), "ann", vec![received(task(100 + polls), &polls.to_string(), "x", 2)]),
            inbox(conversation(2), "ann", vec![received(task(200 + polls), &format!("b{polls}"), "x", 2)]),
        ];
        given_up_after(polls, store.commit(batch)).await;
        // Waits for the row, and so for whatever is still under way.
        store.claim(conversation(1), node(1)).await.unwrap();
        let first = store.task(Scope::Operator, task(100 + polls)).await.unwrap();
        let second = store.task(Scope::Operator, task(200 + polls)).await.unwrap();
        assert_eq!(first.is_some(), second.is_some(), "after {polls} polls");
    }
    assert!(commit(&store, inbox(conversation(1), "ann", vec![message(2)])).await.is_ok());
    assert!(is_dense(&all(&store, conversation(1)).await));
}

/// Waits until the server says yes.
async fn until(db: &mut PgConnection, question: &'static str) {
    let yes = async {
        while !sqlx::query_scalar::<_, bool>(question).fetch_one(&mut *db).await.unwrap() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, yes).await.unwrap();
}

/// Whether a statement of a store waits for somebody else's lock.
const WAITS: &str = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() \
     AND application_name = 'annie' AND wait_event_type = 'Lock'";

/// A conversation with one message, and a second one whose commit was given up while it waited for a lock that somebody else
/// holds.
struct GivenUp {
    c: ConversationId,
    store: PostgresStore,
    holder: PgConnection,
    db: PgConnection,
}

impl GivenUp {
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
async fn a_commit_that_was_given_up_is_stored_before_it_is_asked_what_is_open_or_never() {
    let Some(database) = database().await else { return };
    let GivenUp { c, store, mut holder, .. } = GivenUp::on(&database.url).await;
    assert_eq!(store.open_conversations().await.unwrap(), [(c, user("ann"))]);
    holder.execute("ROLLBACK").await.unwrap();
    commit(&store, inbox(c, "ann", vec![message(3)])).await.unwrap();
    let stored: Vec<_> = all(&store, c).await.iter().map(|event| event.task).collect();
    assert_eq!(stored, [task(1), task(3)]);
}

#[tokio::test]
async fn what_a_dead_process_asked_for_does_not_wait_on_in_a_queue() {
    let Some(database) = database().await else { return };
    let GivenUp { c, store, mut holder, mut db } = GivenUp::on(&database.url).await;
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

/// The processes of the server that answer the stores of a database, frozen until this is dropped.
struct Frozen(Vec<String>);

impl Frozen {
    async fn of(db: &mut PgConnection) -> Self {
        let sql = "SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() \
            AND application_name = 'annie' AND query NOT LIKE 'LISTEN%'";
        let pids = sqlx::query_scalar(sql).fetch_all(db).await.unwrap();
        let frozen = Self(pids);
        assert!(!frozen.0.is_empty());
        assert!(frozen.tell("-STOP"));
        frozen
    }

    fn tell(&self, signal: &str) -> bool {
        Command::new("kill").arg(signal).args(&self.0).status().is_ok_and(|status| status.success())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // A second panic would hide what the first one says.
        assert!(self.tell("-CONT") || std::thread::panicking());
    }
}

#[tokio::test]
async fn a_connection_that_answers_no_more_costs_a_wait_and_no_append() {
    let Some(database) = database().await else { return };
    // What is silent for longer than all patience is tried once more all the same.
    let options = PostgresOptions { statement_ms_max: 500, connect_ms_max: 1_000, ..PostgresOptions::default() };
    let store = PostgresStore::open(&database.url.parse().unwrap(), options).await.unwrap();
    let c = conversation(1);
    let epoch = opened(&store, c, "ann", task(1), 1).await;
    let mut db = beside(&database.url).await;
    let frozen = Frozen::of(&mut db).await;
    assert_eq!(commit(&store, owned(c, "ann", epoch, vec![started(task(1), 2)])).await, Ok(Appended { first: Seq(2) }));
    drop(frozen);
    // What woke up finds its place taken.
    store.open_conversations().await.unwrap();
    assert_eq!(length(&store, c).await, 2);
}

#[tokio::test]
async fn a_question_that_was_given_up_keeps_nobody_from_asking_what_is_open() {
    let Some(database) = database().await else { return };
    let options = PostgresOptions { statement_ms_max: 500, connect_ms_max: 1_000, ..PostgresOptions::default() };
    let store = PostgresStore::open(&database.url.parse().unwrap(), options).await.unwrap();
    let c = conversation(1);
    commit(&store, inbox(c, "ann", vec![message(1)])).await.unwrap();
    let mut db = beside(&database.url).await;
    let frozen = Frozen::of(&mut db).await;
    tokio::select! {
        biased;
        said = store.ping() => panic!("{said:?}"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(timeout(LONG, store.open_conversations()).await.unwrap().unwrap(), [(c, user("ann"))]);
    drop(frozen);
}

#[tokio::test]
async fn another_process_is_woken_by_a_message_and_by_a_connection_that_was_lost() {
    let Some((one, other, database)) = two().await else { return };
    // Listening itself wakes once: what was told before is not known.
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

/// Stands between a store and its server, and cuts the connection when the server has answered for the `cut_at`th time from
/// now: what it answered is done, and nobody hears of it.
struct Between {
    port: u16,
    cut_at: Arc<AtomicI64>,
    _ways: JoinSet<()>,
}

impl Between {
    async fn new(port: u16) -> Self {
        let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own_port = door.local_addr().unwrap().port();
        let cut_at = Arc::new(AtomicI64::new(0));
        let answers = Arc::clone(&cut_at);
        let mut ways = JoinSet::new();
        ways.spawn(async move {
            let mut inner = JoinSet::new();
            loop {
                let (mut client, _) = door.accept().await.unwrap();
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
        Self { port: own_port, cut_at, _ways: ways }
    }
}

#[tokio::test]
async fn an_append_whose_answer_was_lost_is_answered_and_stored_once() {
    let Some(database) = database().await else { return };
    let port = database.url_tcp.rsplit(':').next().unwrap().split('/').next().unwrap();
    let between = Between::new(port.parse().unwrap()).await;
    let url = database.url_tcp.replacen(&format!(":{port}/"), &format!(":{}/", between.port), 1);
    assert_ne!(url, database.url_tcp);
    let store = at(&url).await;
    let c = conversation(1);
    let epoch = opened(&store, c, "ann", task(1), 1).await;
    let mut next = 2;
    for cut_at in 1..=12 {
        // An owner's, one of a door, one that makes a conversation, and one of several statements.
        let number = 100 * cut_at as u128;
        let whole = vec![message(number + 3), started(task(number + 3), 2), answered(task(number + 3), "Done.", 3)];
        for (append, first) in [
            (owned(c, "ann", epoch, vec![signed(epoch)]), next),
            (inbox(c, "ann", vec![message(number + 1)]), next + 1),
            (inbox(conversation(number), "ann", vec![message(number + 2)]), 1),
            (owned(c, "ann", epoch, whole), next + 2),
        ] {
            between.cut_at.store(cut_at, SeqCst);
            assert_eq!(commit(&store, append).await, Ok(Appended { first: Seq(first) }), "cut at answer {cut_at}");
            between.cut_at.store(0, SeqCst);
        }
        next += 5;
        assert_eq!(length(&store, c).await as u64, next - 1);
        assert_eq!(length(&store, conversation(number)).await, 1);
    }
}
