//! Telling other processes that there is something new, and hearing it from them. A notification is a hint: several may
//! become one, and one may be lost with its connection. It never goes with a commit, because the server lets commits with a
//! notification through one at a time only.

use std::{sync::Arc, time::Duration};

use annie_core::ports::StoreError;
use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{bound::Bound, connections::Connections};

/// Where all processes that share a database listen.
const CHANNEL: &str = "annie";
const TELL: &str = "SELECT pg_notify('annie', $1)";
/// A word for this process, so that it does not wake itself.
const NAME: &str = "SELECT CAST(gen_random_uuid() AS TEXT)";
/// How long to wait before listening or telling again when the server is away, in milliseconds.
const AGAIN_MS: u64 = 500;

/// How long somebody waits at most without a hint, in milliseconds.
const LOOK_MS_MAX: u64 = 60_000;
/// How long nothing may be heard until the server is asked whether it is still there, in milliseconds: a connection that was
/// lost without a word is as quiet as one that has nothing to tell.
const QUIET_MS_MAX: u64 = 30_000;
/// How long it may take to answer that, in milliseconds.
const THERE_MS_MAX: u64 = 5_000;

/// The two sides of being woken.
pub(super) struct Wakeups {
    news: Arc<Notify>,
    heard: Arc<Notify>,
    look_max: Duration,
    tasks: Mutex<JoinSet<()>>,
}

impl Wakeups {
    pub async fn open(connections: &Arc<Connections>, listen: PgConnectOptions) -> Result<Self, StoreError> {
        const WHAT: &str = "opening the database";
        let rows = connections.read(WHAT, NAME, Bound::default).await?;
        let name = match rows.first() {
            Some(row) => crate::sql::Columns::of(row).text()?,
            None => String::new(),
        };
        let (news, heard) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(tell(Arc::clone(connections), Arc::clone(&news), name.clone()));
        tasks.spawn(listen_for_ever(listen, Arc::clone(&heard), name));
        Ok(Self { news, heard, look_max: Duration::from_millis(LOOK_MS_MAX), tasks: Mutex::new(tasks) })
    }

    /// There is something new for others: they are told soon.
    pub fn tell(&self) {
        self.news.notify_one();
    }

    /// Waits until there may be something new from others. What was heard while nobody waited ends the next wait at once; a
    /// hint that was lost is made up for by the time.
    pub async fn heard(&self) {
        let _ = timeout(self.look_max, self.heard.notified()).await;
    }

    pub fn close(&self) {
        self.tasks.lock().abort_all();
    }
}

/// Tells the others: what is new while they are being told becomes one more telling.
async fn tell(connections: Arc<Connections>, news: Arc<Notify>, name: String) {
    loop {
        news.notified().await;
        let bound = || Bound::default().with(name.clone());
        if let Err(error) = connections.read("telling other processes", TELL, bound).await {
            tracing::debug!(%error, "other processes were not told of what is new, and will be");
            sleep(Duration::from_millis(AGAIN_MS)).await;
            news.notify_one();
        }
    }
}

/// Listens, and again when the connection was lost. What was told meanwhile is lost too, so that whoever waits is woken.
async fn listen_for_ever(options: PgConnectOptions, heard: Arc<Notify>, name: String) {
    loop {
        let quiet = Duration::from_millis(QUIET_MS_MAX);
        if let Err(error) = listen(options.clone(), &heard, &name, quiet).await {
            tracing::debug!(%error, "listening to other processes");
        }
        sleep(Duration::from_millis(AGAIN_MS)).await;
    }
}

/// Listens until the connection is lost for good. `quiet`: how long nothing may be heard until it is asked.
async fn listen(options: PgConnectOptions, heard: &Notify, name: &str, quiet: Duration) -> Result<(), sqlx::Error> {
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(CHANNEL).await?;
    heard.notify_one();
    loop {
        let Ok(told) = timeout(quiet, listener.try_recv()).await else {
            let there = sqlx::query("SELECT 1").execute(&mut listener);
            timeout(Duration::from_millis(THERE_MS_MAX), there).await.map_err(|_| sqlx::Error::PoolTimedOut)??;
            continue;
        };
        match told? {
            Some(notification) if notification.payload() == name => {}
            Some(_) | None => heard.notify_one(),
        }
    }
}

#[cfg(test)]
mod tests {
    use annie_testkit::postgres::{Options, Server};

    use super::*;

    /// Long enough for anything that is going to happen.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn who_is_never_told_anything_looks_from_time_to_time() {
        let (news, heard, look_max) = (Arc::default(), Arc::default(), Duration::from_millis(1));
        let deaf = Wakeups { news, heard, look_max, tasks: Mutex::default() };
        for _ in 0..3 {
            timeout(LONG, deaf.heard()).await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_quiet_line_is_asked_and_one_that_is_dead_is_given_up() {
        let Some(server) = Server::start(Options::default()).await else { return };
        let address: crate::PostgresAddress = server.database().await.parse().unwrap();
        let (heard, quiet) = (Arc::new(Notify::new()), Duration::from_millis(1));
        let (options, ours) = (super::super::listen_options(&address), Arc::clone(&heard));
        let mut listening = JoinSet::new();
        listening.spawn(async move { listen(options, &ours, "", quiet).await });
        // Listening itself is heard, and what is told after many a question.
        timeout(LONG, heard.notified()).await.unwrap();
        let connections = Connections::new(super::super::base_options(&address), 1, 5_000, 5_000);
        for _ in 0..50 {
            connections.rows("asking", "SELECT 1", Bound::default).await.unwrap();
        }
        connections.rows("telling", TELL, || Bound::default().with("another".to_owned())).await.unwrap();
        timeout(LONG, heard.notified()).await.unwrap();
        assert!(listening.try_join_next().is_none());
        server.pause();
        let ended = timeout(LONG, listening.join_next()).await.unwrap().unwrap().unwrap();
        assert!(ended.is_err(), "it is deaf");
        server.go_on();
    }
}
