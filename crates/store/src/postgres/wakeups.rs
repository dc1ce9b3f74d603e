//! Notifies other processes that there is something new, and receives their notifications. A notification is a hint: several
//! may become one, and one may be lost with its connection. It is never part of a commit, because the server runs commits with
//! a notification one at a time.

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

/// The channel on which all processes that share a database listen.
const CHANNEL: &str = "annie";
const NOTIFY: &str = "SELECT pg_notify('annie', $1)";
/// A random name for this process, so that it ignores its own notifications.
const NAME: &str = "SELECT CAST(gen_random_uuid() AS TEXT)";
/// The wait before listening or notifying again when the server is unreachable, in milliseconds.
const AGAIN_MS: u64 = 500;

/// The longest wait without a hint, in milliseconds.
const WAIT_MS_MAX: u64 = 60_000;
/// How long the connection may be quiet until the server is pinged, in milliseconds: a connection that was lost without notice
/// is as quiet as one without notifications.
const QUIET_MS_MAX: u64 = 30_000;
/// Timeout of that ping, in milliseconds.
const PING_MS_MAX: u64 = 5_000;

/// Sends and receives wake-up notifications.
pub(super) struct Wakeups {
    news: Arc<Notify>,
    received: Arc<Notify>,
    wait_max: Duration,
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
        let (news, received) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(announce(Arc::clone(connections), Arc::clone(&news), name.clone()));
        tasks.spawn(keep_listening(listen, Arc::clone(&received), name));
        Ok(Self { news, received, wait_max: Duration::from_millis(WAIT_MS_MAX), tasks: Mutex::new(tasks) })
    }

    /// There is something new for other processes: they are notified soon.
    pub fn announce(&self) {
        self.news.notify_one();
    }

    /// Waits until there may be something new from other processes. A notification that arrived while no caller waited ends the
    /// next wait at once; a lost notification is made up for by the time limit.
    pub async fn received(&self) {
        let _ = timeout(self.wait_max, self.received.notified()).await;
    }

    pub fn close(&self) {
        self.tasks.lock().abort_all();
    }
}

/// Notifies the other processes: news that arrives meanwhile becomes one more notification.
async fn announce(connections: Arc<Connections>, news: Arc<Notify>, name: String) {
    loop {
        news.notified().await;
        let bound = || Bound::default().with(name.clone());
        if let Err(error) = connections.read("telling other processes", NOTIFY, bound).await {
            tracing::debug!(%error, "other processes were not notified; trying again");
            sleep(Duration::from_millis(AGAIN_MS)).await;
            news.notify_one();
        }
    }
}

/// Listens, and listens again when the connection was lost. Notifications during that time are lost too, so waiting callers are
/// woken.
async fn keep_listening(options: PgConnectOptions, received: Arc<Notify>, name: String) {
    loop {
        let quiet = Duration::from_millis(QUIET_MS_MAX);
        if let Err(error) = listen(options.clone(), &received, &name, quiet).await {
            tracing::debug!(%error, "listening to other processes");
        }
        sleep(Duration::from_millis(AGAIN_MS)).await;
    }
}

/// Listens until the connection is lost for good. `quiet`: how long nothing may arrive until the server is pinged.
async fn listen(options: PgConnectOptions, received: &Notify, name: &str, quiet: Duration) -> Result<(), sqlx::Error> {
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(CHANNEL).await?;
    received.notify_one();
    loop {
        let Ok(event) = timeout(quiet, listener.try_recv()).await else {
            let there = sqlx::query("SELECT 1").execute(&mut listener);
            timeout(Duration::from_millis(PING_MS_MAX), there).await.map_err(|_| sqlx::Error::PoolTimedOut)??;
            continue;
        };
        match event? {
            Some(notification) if notification.payload() == name => {}
            Some(_) | None => received.notify_one(),
        }
    }
}

#[cfg(test)]
mod tests {
    use annie_testkit::postgres::{Options, Server};

    use super::*;

    /// Longer than anything in a test takes.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn wakeups_end_a_wait_without_a_notification_after_the_time_limit() {
        let (news, received, wait_max) = (Arc::default(), Arc::default(), Duration::from_millis(1));
        let unnotified = Wakeups { news, received, wait_max, tasks: Mutex::default() };
        for _ in 0..3 {
            timeout(LONG, unnotified.received()).await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn wakeups_ping_a_quiet_connection_and_give_up_a_dead_one() {
        let Some(server) = Server::start(Options::default()).await else { return };
        let address: crate::PostgresAddress = server.database().await.parse().unwrap();
        let (received, quiet) = (Arc::new(Notify::new()), Duration::from_millis(1));
        let (options, ours) = (super::super::listen_options(&address), Arc::clone(&received));
        let mut listening = JoinSet::new();
        listening.spawn(async move { listen(options, &ours, "", quiet).await });
        // The start of listening wakes once, and so does a notification after many pings.
        timeout(LONG, received.notified()).await.unwrap();
        let connections = Connections::new(super::super::base_options(&address), 1, 5_000, 5_000);
        for _ in 0..50 {
            connections.rows("asking", "SELECT 1", Bound::default).await.unwrap();
        }
        connections.rows("telling", NOTIFY, || Bound::default().with("another".to_owned())).await.unwrap();
        timeout(LONG, received.notified()).await.unwrap();
        assert!(listening.try_join_next().is_none());
        server.pause();
        let ended = timeout(LONG, listening.join_next()).await.unwrap().unwrap().unwrap();
        assert!(ended.is_err(), "listening ended although the server is frozen");
        server.go_on();
    }
}
