//! The connections: each is used by one question or transaction at a time, opened when it is first needed, and asked for
//! nothing else (a pool that looks after any kind of database would ask at each return whether it is still there). When one
//! breaks, those that lie idle are taken for broken too: so what is tried again gets a new one, and a restart of the server
//! costs one failure, not one for each connection.

use std::time::Duration;

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

/// The first wait before something is tried again, in milliseconds; each next one is twice as long.
const PAUSE_MS: u64 = 10;
/// The longest wait before something is tried again, in milliseconds.
const PAUSE_MS_MAX: u64 = 500;
/// How much longer than the server a client waits for the end of a statement, in milliseconds.
const SILENCE_MS: u64 = 1_000;

/// Connections, at most as many as there are places.
pub(super) struct Connections {
    options: PgConnectOptions,
    places: Semaphore,
    places_max: u32,
    connect_ms_max: u64,
    answer_ms_max: u64,
    idle: Mutex<Idle>,
}

/// Those that nobody uses, all of the same life: it ends when a connection breaks.
#[derive(Default)]
struct Idle {
    connections: Vec<PgConnection>,
    life: u64,
}

/// A connection in somebody's hands. It goes back when it is dropped, unless it broke or its work was given up in the
/// middle: then it is closed, and the server undoes what was not committed.
pub(super) struct Held<'a> {
    connection: Option<PgConnection>,
    home: &'a Connections,
    life: u64,
    /// A question that was not answered to its end, or a transaction that was not ended.
    is_open: bool,
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
            idle: Mutex::default(),
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
        let (idle, life) = {
            let mut idle = self.idle.lock();
            (idle.connections.pop(), idle.life)
        };
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(Held {
            connection: Some(connection),
            home: self,
            life,
            is_open: false,
            answer_ms_max: self.answer_ms_max,
            _place: place,
        })
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
        let mut patience = self.patience();
        loop {
            let asked = async { self.take().await?.rows(sql, bound().finish()?).await }.await;
            match asked {
                Ok(rows) => return Ok(rows),
                Err(failure) => patience.after(failure).await.map_err(|failure| failure.during(what))?,
            }
        }
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
        let idle = std::mem::take(&mut self.idle.lock().connections);
        for connection in idle {
            if let Err(error) = connection.close().await {
                tracing::debug!(%error, "closing a connection to the database");
            }
        }
        drop(all);
    }
}

impl Held<'_> {
    /// All rows of one statement.
    pub async fn rows(&mut self, sql: impl SqlSafeStr, bound: PgArguments) -> Result<Vec<PgRow>, Failure> {
        let was_open = std::mem::replace(&mut self.is_open, true);
        let wait = Duration::from_millis(self.answer_ms_max);
        let Some(connection) = &mut self.connection else { return Err(closed()) };
        let answer = timeout(wait, sqlx::query_with(sql, bound).fetch_all(connection)).await;
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
        self.control("COMMIT").await?;
        self.is_open = false;
        Ok(())
    }

    /// Gives the transaction up. If it fails, the connection is closed, which does the same.
    pub async fn roll_back(&mut self) {
        if self.control("ROLLBACK").await.is_ok() {
            self.is_open = false;
        }
    }

    /// Statements without arguments.
    pub async fn control(&mut self, sql: &'static str) -> Result<(), Failure> {
        let was_open = std::mem::replace(&mut self.is_open, true);
        let wait = Duration::from_millis(self.answer_ms_max);
        let Some(connection) = &mut self.connection else { return Err(closed()) };
        let answer = timeout(wait, raw_sql(sql).execute(connection)).await;
        self.answered(answer.map_err(|_| Failure::Silent("the server does not answer")), was_open).map(drop)
    }

    fn answered<T>(&mut self, answer: Result<Result<T, sqlx::Error>, Failure>, was_open: bool) -> Result<T, Failure> {
        match answer.and_then(|answer| answer.map_err(Failure::from)) {
            Ok(answer) => {
                self.is_open = was_open;
                Ok(answer)
            }
            Err(failure) => {
                if failure.is_broken() {
                    self.home.end_life();
                } else {
                    self.is_open = was_open;
                }
                Err(failure)
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take().filter(|_| !self.is_open) else { return };
        let mut idle = self.home.idle.lock();
        if idle.life == self.life {
            idle.connections.push(connection);
        }
    }
}

/// How long something that fails in passing is tried again.
pub(super) struct Patience {
    until: Instant,
    pause_ms: u64,
}

impl Patience {
    /// Waits a little after a failure that may pass; any other one, and one after too long a time, is given back.
    pub async fn after(&mut self, failure: Failure) -> Result<(), Failure> {
        let passes = failure.is_broken() || failure.is_collision();
        if !passes || Instant::now() >= self.until {
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
