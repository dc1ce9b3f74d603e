//! The connections: each is used by one question or transaction at a time, opened when it is first needed, and asked for
//! nothing else (a pool that looks after any kind of database would ask at each return whether it is still there). When one
//! breaks, those that lie idle are taken for broken too: so what is tried again gets a new one, and a restart of the server
//! costs one failure, not one for each connection. One that has lain idle for long may have been lost without a word (a
//! firewall forgets it): it is asked first, and not for long.
//!
//! What is given up before it is answered may still be stored: a statement that is a transaction of its own, or the end of
//! one. Whose connection that was is remembered until the server says that it is gone ([`Connections::settle`]). A question
//! that stores nothing is not remembered, nor is what lies in a transaction whose end was not sent.

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

/// The first wait before something is tried again, in milliseconds; each next one is twice as long.
const PAUSE_MS: u64 = 10;
/// The longest wait before something is tried again, in milliseconds.
const PAUSE_MS_MAX: u64 = 500;
/// How much longer than the server a client waits for the end of a statement, in milliseconds.
const SILENCE_MS: u64 = 1_000;

/// How long a connection may lie idle until it is asked whether it is still there, in milliseconds.
const IDLE_MS_MAX: u64 = 10_000;
/// How long it may take to answer that, in milliseconds.
const THERE_MS_MAX: u64 = 1_000;
/// Connections at most that are remembered as given up, the newest: a server has not as many.
const GIVEN_UP_MAX: usize = 1_000;
/// How long one that was given up and told to end is waited for, in milliseconds. A process of the server that has not ended
/// by then is frozen, or its disk is, and nobody's work waits for that: of what it stores when it wakes, whoever looks later
/// hears.
const ENDING_MS_MAX: u64 = 30_000;

/// As whom the server knows the connection that asks.
const WHO: &str = "SELECT CAST(pid AS BIGINT), CAST(extract(epoch FROM backend_start) * 1000000 AS BIGINT) \
     FROM pg_stat_activity WHERE pid = pg_backend_pid()";
/// The server looks every second whether its client is still there, if it can (14 and later, where the system tells): so what
/// a dead process asked for does not wait on in a queue, to be carried out when nobody expects it any more.
const LOOK_FOR_CLIENT: &str = "SELECT set_config(name, '1000', false) FROM pg_settings \
     WHERE name = 'client_connection_check_interval'";
/// Ends those that were given up, and names those that are still there.
const END_GIVEN_UP: &str = "SELECT g.pid, g.began_at, pg_terminate_backend(a.pid) \
     FROM unnest($1::bigint[], $2::bigint[]) AS g (pid, began_at) JOIN pg_stat_activity a \
     ON a.pid = g.pid AND CAST(extract(epoch FROM a.backend_start) * 1000000 AS BIGINT) = g.began_at";

/// Connections, at most as many as there are places.
pub(super) struct Connections {
    options: PgConnectOptions,
    places: Semaphore,
    places_max: u32,
    connect_ms_max: u64,
    answer_ms_max: u64,
    idle_max: Duration,
    ending_max: Duration,
    idle: Mutex<Idle>,
    given_up: Mutex<VecDeque<GivenUp>>,
}

/// Those that nobody uses, all of the same life: it ends when a connection breaks.
#[derive(Default)]
struct Idle {
    connections: Vec<(Line, Instant)>,
    life: u64,
}

/// A connection, and who answers at its other end.
struct Line {
    connection: PgConnection,
    backend: Backend,
}

/// The server's process for a connection, and when it began: its number is given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Backend {
    pid: i64,
    began_at: i64,
}

/// One that may store something though nobody waits for it.
struct GivenUp {
    backend: Backend,
    /// When it was told to end and did not.
    told_at: Option<Instant>,
}

/// A connection in somebody's hands. It goes back when it is dropped, unless it broke or its work was given up in the
/// middle: then it is closed, and the server undoes what was not committed.
pub(super) struct Held<'a> {
    line: Option<Line>,
    home: &'a Connections,
    life: u64,
    /// A question that was not answered to its end, or a transaction that was not ended.
    is_open: bool,
    /// The question that was not answered to its end may be stored all the same.
    may_store: bool,
    answer_ms_max: u64,
    _place: SemaphorePermit<'a>,
}

impl Connections {
    pub fn new(options: PgConnectOptions, places_max: u32, connect_ms_max: u64, statement_ms_max: u64) -> Self {
        Self {
            options,
            places: Semaphore::new(places_max as usize),
            places_max,
            connect_ms_max,
            answer_ms_max: statement_ms_max.saturating_add(SILENCE_MS),
            idle_max: Duration::from_millis(IDLE_MS_MAX),
            ending_max: Duration::from_millis(ENDING_MS_MAX),
            idle: Mutex::default(),
            given_up: Mutex::default(),
        }
    }

    /// An idle one or a new one.
    pub async fn take(&self) -> Result<Held<'_>, Failure> {
        let wait = Duration::from_millis(self.connect_ms_max);
        let place = match timeout(wait, self.places.acquire()).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return Err(closed()),
            Err(_) => return Err(busy()),
        };
        let (line, life) = match self.idle().await {
            Some(there) => there,
            None => {
                let life = self.idle.lock().life;
                (self.open().await?, life)
            }
        };
        Ok(Held {
            line: Some(line),
            home: self,
            life,
            is_open: false,
            may_store: false,
            answer_ms_max: self.answer_ms_max,
            _place: place,
        })
    }

    /// The one that was used last of those that are still there.
    async fn idle(&self) -> Option<(Line, u64)> {
        let ((mut line, since), life) = {
            let mut idle = self.idle.lock();
            (idle.connections.pop()?, idle.life)
        };
        if since.elapsed() > self.idle_max {
            let wait = Duration::from_millis(THERE_MS_MAX);
            if !matches!(timeout(wait, line.connection.ping()).await, Ok(Ok(()))) {
                self.end_life();
                return None;
            }
        }
        Some((line, life))
    }

    /// A new one, and who answers there.
    async fn open(&self) -> Result<Line, Failure> {
        let mut connection = self.connect().await?;
        let known = async {
            if let Err(error) = raw_sql(LOOK_FOR_CLIENT).execute(&mut connection).await.map_err(Failure::from) {
                if error.is_broken() {
                    return Err(error);
                }
                tracing::debug!(?error, "the server cannot look for its clients");
            }
            let row = sqlx::query(WHO).fetch_one(&mut connection).await?;
            let mut row = Columns::of(&row);
            Ok(Backend { pid: row.number()?, began_at: row.number()? })
        };
        let wait = Duration::from_millis(self.connect_ms_max);
        let backend = timeout(wait, known).await.map_err(|_| Failure::Silent("the server does not answer"))??;
        Ok(Line { connection, backend })
    }

    /// A new one that belongs to nobody here.
    pub async fn connect(&self) -> Result<PgConnection, Failure> {
        timeout(Duration::from_millis(self.connect_ms_max), self.options.connect())
            .await
            .map_err(|_| Failure::Silent("the server does not answer"))?
            .map_err(Failure::from)
    }

    /// All rows of one statement that may be done twice. It is tried again if its connection breaks, or if another
    /// transaction was in its way.
    pub async fn rows(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: impl Fn() -> Bound,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.ask(what, sql, bound, true).await
    }

    /// The same of a statement that stores nothing.
    pub async fn read(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: impl Fn() -> Bound,
    ) -> Result<Vec<PgRow>, StoreError> {
        self.ask(what, sql, bound, false).await
    }

    async fn ask(
        &self,
        what: &'static str,
        sql: &'static str,
        bound: impl Fn() -> Bound,
        may_store: bool,
    ) -> Result<Vec<PgRow>, StoreError> {
        let mut patience = self.patience();
        loop {
            let asked = async { self.take().await?.ask(sql, bound().finish()?, may_store).await }.await;
            match asked {
                Ok(rows) => return Ok(rows),
                Err(failure) => patience.after(failure).await.map_err(|failure| failure.during(what))?,
            }
        }
    }

    /// Waits until nothing that was given up can be carried out any more. What is still under way is ended; what was carried
    /// out before that is stored, and can be read from then on. A process of the server that does not end is waited for only
    /// for a time, and then no more: it is said, and forgotten.
    ///
    /// # Errors
    /// If the server cannot be asked, or if something is still under way after all patience: then the next call goes on.
    pub async fn settle(&self) -> Result<(), StoreError> {
        const WHAT: &str = "ending what was given up";
        let mut patience = self.patience();
        loop {
            let given_up: Vec<Backend> = self.given_up.lock().iter().map(|one| one.backend).collect();
            if given_up.is_empty() {
                return Ok(());
            }
            let (pids, began): (Vec<i64>, Vec<i64>) = given_up.iter().map(|one| (one.pid, one.began_at)).unzip();
            let bound = || Bound::default().numbers(pids.clone()).numbers(began.clone());
            let mut left = Vec::new();
            for row in self.read(WHAT, END_GIVEN_UP, bound).await? {
                let mut row = Columns::of(&row);
                left.push(Backend { pid: row.number()?, began_at: row.number()? });
            }
            if self.forget(&given_up, &left) {
                let failure = Failure::Silent("what was given up is still under way");
                patience.after(failure).await.map_err(|failure| failure.during(WHAT))?;
            }
        }
    }

    /// Forgets those of the `told` that are not `left`, and those that are left for too long. Whether one is waited for.
    fn forget(&self, told: &[Backend], left: &[Backend]) -> bool {
        let mut is_waited_for = false;
        self.given_up.lock().retain_mut(|one| {
            if !told.contains(&one.backend) {
                return true;
            }
            if !left.contains(&one.backend) {
                return false;
            }
            let waits = one.told_at.get_or_insert_with(Instant::now).elapsed() < self.ending_max;
            if !waits {
                let pid = one.backend.pid;
                tracing::warn!(pid, "a process of the server does not end; what it was to store may be stored later");
            }
            is_waited_for |= waits;
            waits
        });
        is_waited_for
    }

    pub fn patience(&self) -> Patience {
        Patience { until: Instant::now() + Duration::from_millis(self.connect_ms_max), pause_ms: 0 }
    }

    fn end_life(&self) {
        let mut idle = self.idle.lock();
        idle.life += 1;
        idle.connections.clear();
    }

    /// Waits for those who use one and closes.
    pub async fn close(&self) {
        let all = self.places.acquire_many(self.places_max).await;
        self.places.close();
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
    /// All rows of one statement. Outside of a transaction it is stored as soon as it is carried out.
    pub async fn rows(&mut self, sql: impl SqlSafeStr, bound: PgArguments) -> Result<Vec<PgRow>, Failure> {
        self.ask(sql, bound, true).await
    }

    /// All rows of one statement that stores nothing.
    pub async fn read(&mut self, sql: impl SqlSafeStr, bound: PgArguments) -> Result<Vec<PgRow>, Failure> {
        self.ask(sql, bound, false).await
    }

    async fn ask(&mut self, sql: impl SqlSafeStr, bound: PgArguments, may_store: bool) -> Result<Vec<PgRow>, Failure> {
        let (was_open, wait) = self.begins(may_store && !self.is_open);
        let Some(line) = &mut self.line else { return Err(closed()) };
        let answer = timeout(wait, sqlx::query_with(sql, bound).fetch_all(&mut line.connection)).await;
        self.answered(answer.map_err(|_| Failure::Silent("the server does not answer")), was_open)
    }

    /// A text made of fixed pieces.
    pub async fn rows_of(&mut self, text: String, bound: PgArguments) -> Result<Vec<PgRow>, Failure> {
        self.rows(AssertSqlSafe(text), bound).await
    }

    /// From now on waits for an answer as long as it takes.
    pub const fn wait_for_ever(&mut self) {
        self.answer_ms_max = u64::MAX;
    }

    pub async fn begin(&mut self) -> Result<(), Failure> {
        self.control("BEGIN").await?;
        self.is_open = true;
        Ok(())
    }

    pub async fn commit(&mut self) -> Result<(), Failure> {
        self.say("COMMIT", true).await?;
        self.is_open = false;
        Ok(())
    }

    /// Gives the transaction up. If it fails, the connection is closed, which does the same.
    pub async fn roll_back(&mut self) {
        if self.control("ROLLBACK").await.is_ok() {
            self.is_open = false;
        }
    }

    /// Statements without arguments that begin a transaction, or are within one.
    pub async fn control(&mut self, sql: &'static str) -> Result<(), Failure> {
        self.say(sql, false).await
    }

    async fn say(&mut self, sql: &'static str, may_store: bool) -> Result<(), Failure> {
        let (was_open, wait) = self.begins(may_store);
        let Some(line) = &mut self.line else { return Err(closed()) };
        let answer = timeout(wait, raw_sql(sql).execute(&mut line.connection)).await;
        self.answered(answer.map_err(|_| Failure::Silent("the server does not answer")), was_open).map(drop)
    }

    /// A question is about to be asked. Whether a transaction is open, and how long to wait.
    fn begins(&mut self, may_store: bool) -> (bool, Duration) {
        // What was given up before is not made undone by what is asked after it.
        self.may_store |= may_store;
        (std::mem::replace(&mut self.is_open, true), Duration::from_millis(self.answer_ms_max))
    }

    fn answered<T>(&mut self, answer: Result<Result<T, sqlx::Error>, Failure>, was_open: bool) -> Result<T, Failure> {
        match answer.and_then(|answer| answer.map_err(Failure::from)) {
            Err(failure) if failure.is_broken() => {
                self.home.end_life();
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
            let mut given_up = self.home.given_up.lock();
            given_up.truncate(GIVEN_UP_MAX - 1);
            given_up.push_front(GivenUp { backend: line.backend, told_at: None });
        }
        let mut idle = self.home.idle.lock();
        if !self.is_open && idle.life == self.life {
            idle.connections.push((line, Instant::now()));
        }
    }
}

/// How long something that fails in passing is tried again.
pub(super) struct Patience {
    until: Instant,
    pause_ms: u64,
}

impl Patience {
    /// Waits a little after a failure that may pass; any other one, and one after too long a time, is given back. The first
    /// never comes too late: to wait for an answer that does not come takes longer than all patience.
    pub async fn after(&mut self, failure: Failure) -> Result<(), Failure> {
        let passes = failure.is_broken() || failure.is_collision();
        if !passes || (self.pause_ms > 0 && Instant::now() >= self.until) {
            return Err(failure);
        }
        // The first time at once: mostly only the connection was old.
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

    /// Long enough for anything that is going to happen.
    const LONG: Duration = Duration::from_secs(60);

    /// At most one connection to a new database: the same process of the server answers every question.
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

    /// A process of the server that does nothing until this is dropped.
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

    /// Asks, and leaves before there can be an answer.
    async fn give_up<T>(asked: impl Future<Output = T>) {
        tokio::select! {
            biased;
            _ = asked => panic!("nobody is there to answer"),
            () = tokio::task::yield_now() => {}
        }
    }

    #[tokio::test]
    async fn a_connection_that_was_lost_while_it_lay_idle_is_not_waited_for() {
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
    async fn what_stores_nothing_when_it_is_given_up_is_not_remembered() {
        let Some((connections, _database)) = one().await else { return };
        let frozen = Frozen::new(only_idle(&connections));
        give_up(connections.read("asking", "SELECT 1", Bound::default)).await;
        connections.settle().await.unwrap();
        drop(frozen);
        // Within a transaction nothing is stored before its end is sent.
        let mut held = connections.take().await.unwrap();
        held.begin().await.unwrap();
        let frozen = Frozen::new(held.line.as_ref().unwrap().backend);
        give_up(held.rows("INSERT INTO kept VALUES (1)", Bound::default().finish().unwrap())).await;
        drop(held);
        connections.settle().await.unwrap();
        drop(frozen);
        let mut held = connections.take().await.unwrap();
        held.begin().await.unwrap();
        // Waits for the other's end.
        held.control("LOCK TABLE kept").await.unwrap();
        let rows = held.read("SELECT n FROM kept", Bound::default().finish().unwrap()).await.unwrap();
        assert_eq!(rows.len(), 0);
    }

    #[tokio::test]
    async fn a_process_of_the_server_that_does_not_end_is_waited_for_for_a_time_and_then_no_more() {
        let Some((mut connections, _database)) = one().await else { return };
        let frozen = Frozen::new(only_idle(&connections));
        give_up(connections.rows("writing", "INSERT INTO kept VALUES (1)", Bound::default)).await;
        for _ in 0..2 {
            let error = timeout(LONG, connections.settle()).await.unwrap().unwrap_err();
            assert_eq!(error.detail, "what was given up is still under way");
        }
        connections.ending_max = Duration::ZERO;
        timeout(LONG, connections.settle()).await.unwrap().unwrap();
        assert!(connections.given_up.lock().is_empty());
        drop(frozen);
        // It was told to end before it could begin.
        assert_eq!(connections.read("asking", "SELECT n FROM kept", Bound::default).await.unwrap().len(), 0);
    }

    #[tokio::test]
    async fn the_end_of_a_transaction_that_was_given_up_is_waited_for() {
        let Some((connections, _database)) = one().await else { return };
        let mut held = connections.take().await.unwrap();
        held.begin().await.unwrap();
        held.rows("INSERT INTO kept VALUES (1)", Bound::default().finish().unwrap()).await.unwrap();
        let frozen = Frozen::new(held.line.as_ref().unwrap().backend);
        give_up(held.commit()).await;
        give_up(held.control("SELECT 1")).await;
        drop(held);
        connections.settle().await.unwrap_err();
        drop(frozen);
        connections.settle().await.unwrap();
        assert!(connections.given_up.lock().is_empty());
    }
}
