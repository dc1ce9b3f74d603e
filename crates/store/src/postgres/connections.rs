//! The connections. Each one runs one query or transaction at a time, is opened when it is first needed, and is not checked at
//! every return (a general connection pool would ping it each time). When a connection breaks, the idle ones count as broken
//! too: a retry gets a new connection, and a restart of the server costs one failure, not one for each connection. A connection
//! that was idle for long may have been lost without notice (a firewall forgets it): it is pinged first, with a short timeout.
//!
//! Work that is abandoned before its answer may still be stored: a statement that is a transaction of its own, or a COMMIT. The
//! server process of that connection is remembered until the server reports that it has ended ([`Connections::settle`]). A
//! query that stores nothing is not remembered, and neither is an uncommitted transaction.

use std::{collections::VecDeque, time::Duration};

use annie_core::ports::{StoreError, StoreErrorKind};
use parking_lot::Mutex;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, SqlSafeStr,
    postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow},
    raw_sql,
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, sleep, timeout},
};

use super::{bound::Bound, errors::Failure};
use crate::sql::Columns;

/// The first wait before a retry, in milliseconds; each next wait is twice as long.
const PAUSE_MS: u64 = 10;
/// The longest wait before a retry, in milliseconds.
const PAUSE_MS_MAX: u64 = 500;
/// How much longer than the server a client waits for the end of a statement, in milliseconds.
const SILENCE_MS: u64 = 1_000;

/// How long a connection may be idle until it is pinged before use, in milliseconds.
const IDLE_MS_MAX: u64 = 10_000;
/// Timeout of that ping, in milliseconds.
const PING_MS_MAX: u64 = 1_000;
/// The most abandoned connections that are remembered, the newest ones: a server does not have as many.
const ABANDONED_MAX: usize = 1_000;
/// How long an abandoned server process that was asked to end is waited for, in milliseconds. A process that has not ended by
/// then is frozen, or its disk is, and no other work waits for that. If it stores something when it continues, later readers
/// see it.
const ENDING_MS_MAX: u64 = 30_000;

/// Identifies the server process of the connection that asks.
const BACKEND_ID: &str = "SELECT CAST(pid AS BIGINT), CAST(extract(epoch FROM backend_start) * 1000000 AS BIGINT) \
     FROM pg_stat_activity WHERE pid = pg_backend_pid()";
/// The server checks every second whether its client is still connected, if it can (version 14 and later, depending on the
/// operating system). So a statement of a dead process does not stay queued, to be executed when no client expects it any more.
const CHECK_FOR_CLIENT: &str = "SELECT set_config(name, '1000', false) FROM pg_settings \
     WHERE name = 'client_connection_check_interval'";
/// Ends the abandoned server processes, and returns those that still exist.
const END_ABANDONED: &str = "SELECT g.pid, g.began_at, pg_terminate_backend(a.pid) \
     FROM unnest($1::bigint[], $2::bigint[]) AS g (pid, began_at) JOIN pg_stat_activity a \
     ON a.pid = g.pid AND CAST(extract(epoch FROM a.backend_start) * 1000000 AS BIGINT) = g.began_at";

/// The connections, limited in number.
pub(super) struct Connections {
    options: PgConnectOptions,
    permits: Semaphore,
    connections_max: u32,
    connect_ms_max: u64,
    answer_ms_max: u64,
    idle_max: Duration,
    ending_max: Duration,
    idle: Mutex<Idle>,
    abandoned: Mutex<VecDeque<Abandoned>>,
}

/// Idle connections, all of the same generation: a generation ends when a connection breaks.
#[derive(Default)]
struct Idle {
    connections: Vec<(Line, Instant)>,
    generation: u64,
}

/// A connection and its server process.
struct Line {
    connection: PgConnection,
    backend: Backend,
}

/// The server's process for a connection, with its start time, because process ids are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Backend {
    pid: i64,
    began_at: i64,
}

/// An abandoned server process that may still store something.
struct Abandoned {
    backend: Backend,
    /// When it was asked to end and did not.
    ending_since: Option<Instant>,
}

/// A connection in use. It becomes idle again when it is dropped, unless it broke or its work was abandoned in the middle: then
/// it is closed, and the server rolls back what was not committed.
pub(super) struct Held<'a> {
    line: Option<Line>,
    pool: &'a Connections,
    generation: u64,
    /// A query without a complete answer, or a transaction without an end.
    is_open: bool,
    /// The query without a complete answer may be stored all the same.
    may_store: bool,
    answer_ms_max: u64,
    _permit: SemaphorePermit<'a>,
}

impl Connections {
    pub fn new(options: PgConnectOptions, connections_max: u32, connect_ms_max: u64, statement_ms_max: u64) -> Self {
        Self {
            options,
            permits: Semaphore::new(connections_max as usize),
            connections_max,
            connect_ms_max,
            answer_ms_max: statement_ms_max.saturating_add(SILENCE_MS),
            idle_max: Duration::from_millis(IDLE_MS_MAX),
            ending_max: Duration::from_millis(ENDING_MS_MAX),
            idle: Mutex::default(),
            abandoned: Mutex::default(),
        }
    }

    /// An idle connection or a new one.
    pub async fn take(&self) -> Result<Held<'_>, Failure> {
        let wait = Duration::from_millis(self.connect_ms_max);
        let permit = match timeout(wait, self.permits.acquire()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(closed()),
            Err(_) => return Err(busy()),
        };
        let (line, generation) = match self.idle().await {
            Some(reused) => reused,
            None => {
                let generation = self.idle.lock().generation;
                (self.open().await?, generation)
            }
        };
        Ok(Held {
            line: Some(line),
            pool: self,
            generation,
            is_open: false,
            may_store: false,
            answer_ms_max: self.answer_ms_max,
            _permit: permit,
        })
    }

    /// The idle connection that was used last, if it still works.
    async fn idle(&self) -> Option<(Line, u64)> {
        let ((mut line, since), generation) = {
            let mut idle = self.idle.lock();
            (idle.connections.pop()?, idle.generation)
        };
        if since.elapsed() > self.idle_max {
            let wait = Duration::from_millis(PING_MS_MAX);
            if !matches!(timeout(wait, line.connection.ping()).await, Ok(Ok(()))) {
                self.end_generation();
                return None;
            }
        }
        Some((line, generation))
    }

    /// A new connection with its server process.
    async fn open(&self) -> Result<Line, Failure> {
        let mut connection = self.connect().await?;
        let known = async {
            if let Err(error) = raw_sql(CHECK_FOR_CLIENT).execute(&mut connection).await.map_err(Failure::from) {
                if error.is_broken() {
                    return Err(error);
                }
                tracing::debug!(?error, "the server cannot check for lost clients");
            }
            let row = sqlx::query(BACKEND_ID).fetch_one(&mut connection).await?;
            let mut row = Columns::of(&row);
            Ok(Backend { pid: row.number()?, began_at: row.number()? })
        };
        let wait = Duration::from_millis(self.connect_ms_max);
        let backend = timeout(wait, known).await.map_err(|_| Failure::Silent("the server does not answer"))??;
        Ok(Line { connection, backend })
    }

    /// A new connection that is not counted here.
    pub async fn connect(&self) -> Result<PgConnection, Failure> {
        timeout(Duration::from_millis(self.connect_ms_max), self.options.connect())
            .await
            .map_err(|_| Failure::Silent("the server does not answer"))?
            .map_err(Failure::from)
    }

    /// All rows of one statement that may be executed twice. It is retried if its connection breaks, or if it collided with
    /// another transaction.
    pub async fn rows(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: impl Fn() -> Bound,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.query(what, sql, bound, true).await
    }

    /// As `rows`, for a statement that stores nothing.
    pub async fn read(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: impl Fn() -> Bound,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.query(what, sql, bound, false).await
    }

    async fn query(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: impl Fn() -> Bound,
        may_store: bool,
    ) -> Result<Vec<PgRow>, StoreError> {
        let mut patience = self.patience();
        loop {
            let asked = async { self.take().await?.query(sql, bound().finish()?, may_store).await }.await;
            match asked {
                Ok(rows) => return Ok(rows),
                Err(failure) => patience.after(failure).await.map_err(|failure| failure.during(what))?,
            }
        }
    }

    /// Waits until no abandoned statement can be executed any more. Running ones are ended; what was executed before that is
    /// stored, and can be read from then on. A server process that does not end is waited for only for a limited time; then it
    /// is logged and forgotten.
    ///
    /// # Errors
    /// If the server cannot be reached, or if something is still running when time is up: then the next call continues.
    pub async fn settle(&self) -> Result<(), StoreError> {
        const WHAT: &str = "ending abandoned statements";
        let mut patience = self.patience();
        loop {
            let abandoned: Vec<Backend> = self.abandoned.lock().iter().map(|one| one.backend).collect();
            if abandoned.is_empty() {
                return Ok(());
            }
            let (pids, began): (Vec<i64>, Vec<i64>) = abandoned.iter().map(|one| (one.pid, one.began_at)).unzip();
            let bound = || Bound::default().numbers(pids.clone()).numbers(began.clone());
            let mut left = Vec::new();
            for row in self.read(WHAT, END_ABANDONED, bound).await? {
                let mut row = Columns::of(&row);
                left.push(Backend { pid: row.number()?, began_at: row.number()? });
            }
            if self.forget(&abandoned, &left) {
                let failure = Failure::Silent("an abandoned statement is still running");
                patience.after(failure).await.map_err(|failure| failure.during(WHAT))?;
            }
        }
    }

    /// Forgets the abandoned processes in `listed` that are not in `left`, and those that are left for too long. Returns whether
    /// any is still waited for.
    fn forget(&self, listed: &[Backend], left: &[Backend]) -> bool {
        let mut is_waited_for = false;
        self.abandoned.lock().retain_mut(|one| {
            if !listed.contains(&one.backend) {
                return true;
            }
            if !left.contains(&one.backend) {
                return false;
            }
            let waits = one.ending_since.get_or_insert_with(Instant::now).elapsed() < self.ending_max;
            if !waits {
                let pid = one.backend.pid;
                tracing::warn!(pid, "a server process does not end; its statement may be stored later");
            }
            is_waited_for |= waits;
            waits
        });
        is_waited_for
    }

    pub fn patience(&self) -> Patience {
        Patience { until: Instant::now() + Duration::from_millis(self.connect_ms_max), pause_ms: 0 }
    }

    fn end_generation(&self) {
        let mut idle = self.idle.lock();
        idle.generation += 1;
        idle.connections.clear();
    }

    /// Waits until all connections are returned, and closes them.
    pub async fn close(&self) {
        let all = self.permits.acquire_many(self.connections_max).await;
        self.permits.close();
        let idle = std::mem::take(&mut *self.idle.lock());
        for (line, _) in idle.connections {
            if let Err(error) = line.connection.close().await {
                tracing::debug!(%error, "closing a connection to the database");
            }
        }
        drop(all);
    }
}

impl Held<'_> {
    /// All rows of one statement. Outside of a transaction it is stored as soon as it is executed.
    pub async fn rows(&mut self, sql: impl SqlSafeStr, bound: PgArguments) -> Result<Vec<PgRow>, Failure> {
        self.query(sql, bound, true).await
    }

    /// All rows of one statement that stores nothing.
    pub async fn read(&mut self, sql: impl SqlSafeStr, bound: PgArguments) -> Result<Vec<PgRow>, Failure> {
        self.query(sql, bound, false).await
    }

    async fn query(
        &mut self,
        sql: impl SqlSafeStr,
        bound: PgArguments,
        may_store: bool,
    ) -> Result<Vec<PgRow>, Failure> {
        let (was_open, wait) = self.begins(may_store && !self.is_open);
        let Some(line) = &mut self.line else { return Err(closed()) };
        let answer = timeout(wait, sqlx::query_with(sql, bound).fetch_all(&mut line.connection)).await;
        self.answered(answer.map_err(|_| Failure::Silent("the server does not answer")), was_open)
    }

    /// As `rows`, for a text that consists of fixed pieces.
    pub async fn rows_of(&mut self, text: String, bound: PgArguments) -> Result<Vec<PgRow>, Failure> {
        self.rows(AssertSqlSafe(text), bound).await
    }

    /// Waits for answers without a time limit from now on.
    pub const fn wait_for_ever(&mut self) {
        self.answer_ms_max = u64::MAX;
    }

    pub async fn begin(&mut self) -> Result<(), Failure> {
        self.control("BEGIN").await?;
        self.is_open = true;
        Ok(())
    }

    pub async fn commit(&mut self) -> Result<(), Failure> {
        self.run_raw("COMMIT", true).await?;
        self.is_open = false;
        Ok(())
    }

    /// Rolls the transaction back. If that fails, the connection is closed, which has the same effect.
    pub async fn roll_back(&mut self) {
        if self.control("ROLLBACK").await.is_ok() {
            self.is_open = false;
        }
    }

    /// Runs statements without arguments that begin a transaction, or are within one.
    pub async fn control(&mut self, sql: &'static str) -> Result<(), Failure> {
        self.run_raw(sql, false).await
    }

    async fn run_raw(&mut self, sql: &'static str, may_store: bool) -> Result<(), Failure> {
        let (was_open, wait) = self.begins(may_store);
        let Some(line) = &mut self.line else { return Err(closed()) };
        let answer = timeout(wait, raw_sql(sql).execute(&mut line.connection)).await;
        self.answered(answer.map_err(|_| Failure::Silent("the server does not answer")), was_open).map(drop)
    }

    /// Marks the begin of a query. Returns whether a transaction is open, and how long to wait.
    fn begins(&mut self, may_store: bool) -> (bool, Duration) {
        // A later query does not undo abandoned work.
        self.may_store |= may_store;
        (std::mem::replace(&mut self.is_open, true), Duration::from_millis(self.answer_ms_max))
    }

    fn answered<T>(&mut self, answer: Result<Result<T, sqlx::Error>, Failure>, was_open: bool) -> Result<T, Failure> {
        match answer.and_then(|answer| answer.map_err(Failure::from)) {
            Err(failure) if failure.is_broken() => {
                self.pool.end_generation();
                Err(failure)
            }
            answer => {
                (self.is_open, self.may_store) = (was_open, false);
                answer
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Some(line) = self.line.take() else { return };
        if self.may_store {
            let mut abandoned = self.pool.abandoned.lock();
            abandoned.truncate(ABANDONED_MAX - 1);
            abandoned.push_front(Abandoned { backend: line.backend, ending_since: None });
        }
        let mut idle = self.pool.idle.lock();
        if !self.is_open && idle.generation == self.generation {
            idle.connections.push((line, Instant::now()));
        }
    }
}

/// The time limit for retries after temporary failures.
pub(super) struct Patience {
    until: Instant,
    pause_ms: u64,
}

impl Patience {
    /// Waits a little after a temporary failure. Any other failure, and a failure after the time limit, is returned. The first
    /// failure never comes too late, because waiting for a missing answer takes longer than the limit.
    pub async fn after(&mut self, failure: Failure) -> Result<(), Failure> {
        let passes = failure.is_broken() || failure.is_collision();
        if !passes || (self.pause_ms > 0 && Instant::now() >= self.until) {
            return Err(failure);
        }
        // The first retry is immediate: in most cases only the connection was old.
        sleep(Duration::from_millis(self.pause_ms)).await;
        self.pause_ms = (self.pause_ms * 2).clamp(PAUSE_MS, PAUSE_MS_MAX);
        Ok(())
    }
}

fn closed() -> Failure {
    unavailable("the store is closed")
}

fn busy() -> Failure {
    unavailable("all connections are in use")
}

fn unavailable(detail: &str) -> Failure {
    let (kind, what) = (StoreErrorKind::Unavailable, "taking a connection");
    Failure::Answer(StoreError { kind, what, detail: detail.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use annie_testkit::postgres::{Database, database};

    use super::*;

    /// Longer than anything in a test takes.
    const LONG: Duration = Duration::from_secs(60);

    /// At most one connection to a new database: the same server process answers every query.
    async fn one() -> Option<(Connections, Database)> {
        let database = database().await?;
        let address: crate::PostgresAddress = database.url.parse().unwrap();
        let connections = Connections::new(address.connect_options(), 1, 1_000, 600_000);
        connections.rows("asking", "CREATE TABLE kept (n int)", Bound::default).await.unwrap();
        Some((connections, database))
    }

    fn only_idle(connections: &Connections) -> Backend {
        connections.idle.lock().connections[0].0.backend
    }

    /// A server process that is frozen until this value is dropped.
    struct Frozen(Backend);

    impl Frozen {
        fn new(backend: Backend) -> Self {
            let frozen = Self(backend);
            frozen.tell("-STOP");
            frozen
        }

        fn tell(&self, signal: &str) {
            Command::new("kill").args([signal, &self.0.pid.to_string()]).status().unwrap();
        }
    }

    impl Drop for Frozen {
        fn drop(&mut self) {
            self.tell("-CONT");
        }
    }

    /// Starts the work and drops it before there can be an answer.
    async fn abandon<T>(asked: impl Future<Output = T>) {
        tokio::select! {
            biased;
            _ = asked => panic!("the frozen server answered"),
            () = tokio::task::yield_now() => {}
        }
    }

    #[tokio::test]
    async fn connections_replace_an_idle_one_that_was_lost() {
        let Some((mut connections, _database)) = one().await else { return };
        connections.idle_max = Duration::ZERO;
        let first = only_idle(&connections);
        let frozen = Frozen::new(first);
        let asked = timeout(LONG, connections.rows("asking", "SELECT 1", Bound::default)).await;
        drop(frozen);
        assert_eq!(asked.unwrap().unwrap().len(), 1);
        assert_ne!(only_idle(&connections), first);
        connections.close().await;
    }

    #[tokio::test]
    async fn connections_forget_abandoned_work_that_stores_nothing() {
        let Some((connections, _database)) = one().await else { return };
        let frozen = Frozen::new(only_idle(&connections));
        abandon(connections.read("asking", "SELECT 1", Bound::default)).await;
        connections.settle().await.unwrap();
        drop(frozen);
        // Within a transaction nothing is stored before COMMIT.
        let mut held = connections.take().await.unwrap();
        held.begin().await.unwrap();
        let frozen = Frozen::new(held.line.as_ref().unwrap().backend);
        abandon(held.rows("INSERT INTO kept VALUES (1)", Bound::default().finish().unwrap())).await;
        drop(held);
        connections.settle().await.unwrap();
        drop(frozen);
        let mut held = connections.take().await.unwrap();
        held.begin().await.unwrap();
        // Waits for the end of the other transaction.
        held.control("LOCK TABLE kept").await.unwrap();
        let rows = held.read("SELECT n FROM kept", Bound::default().finish().unwrap()).await.unwrap();
        assert_eq!(rows.len(), 0);
    }

    #[tokio::test]
    async fn connections_settle_waits_a_limited_time_for_a_server_process_that_does_not_end() {
        let Some((mut connections, _database)) = one().await else { return };
        let frozen = Frozen::new(only_idle(&connections));
        abandon(connections.rows("writing", "INSERT INTO kept VALUES (1)", Bound::default)).await;
        for _ in 0..2 {
            let error = timeout(LONG, connections.settle()).await.unwrap().unwrap_err();
            assert_eq!(error.detail, "an abandoned statement is still running");
        }
        connections.ending_max = Duration::ZERO;
        timeout(LONG, connections.settle()).await.unwrap().unwrap();
        assert!(connections.abandoned.lock().is_empty());
        drop(frozen);
        // It was asked to end before it could begin.
        assert_eq!(connections.read("asking", "SELECT n FROM kept", Bound::default).await.unwrap().len(), 0);
    }

    #[tokio::test]
    async fn connections_settle_waits_for_an_abandoned_commit() {
        let Some((connections, _database)) = one().await else { return };
        let mut held = connections.take().await.unwrap();
        held.begin().await.unwrap();
        held.rows("INSERT INTO kept VALUES (1)", Bound::default().finish().unwrap()).await.unwrap();
        let frozen = Frozen::new(held.line.as_ref().unwrap().backend);
        abandon(held.commit()).await;
        abandon(held.control("SELECT 1")).await;
        drop(held);
        connections.settle().await.unwrap_err();
        drop(frozen);
        connections.settle().await.unwrap();
        assert!(connections.abandoned.lock().is_empty());
    }
}
