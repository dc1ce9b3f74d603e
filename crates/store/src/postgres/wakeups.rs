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
/// How long to wait before listening again when the server is away, in milliseconds.
const AGAIN_MS: u64 = 500;

/// How long somebody waits at most without a hint, in milliseconds.
const LOOK_MS_MAX: u64 = 60_000;

/// The two sides of being woken.
pub(super) struct Wakeups {
    news: Arc<Notify>,
    heard: Arc<Notify>,
    tasks: Mutex<JoinSet<()>>,
}

impl Wakeups {
    pub async fn open(connections: &Arc<Connections>, listen: PgConnectOptions) -> Result<Self, StoreError> {
        const WHAT: &str = "opening the database";
        let rows = connections.rows(WHAT, NAME, Bound::default).await?;
        let name = match rows.first() {
            Some(row) => crate::sql::Columns::of(row).text()?,
            None => String::new(),
        };
        let (news, heard) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(tell(Arc::clone(connections), Arc::clone(&news), name.clone()));
        tasks.spawn(listen_for_ever(listen, Arc::clone(&heard), name));
        Ok(Self { news, heard, tasks: Mutex::new(tasks) })
    }

    /// There is something new for others: they are told soon.
    pub fn tell(&self) {
        self.news.notify_one();
    }

    /// Waits until there may be something new from others. What was heard while nobody waited ends the next wait at once; a
    /// hint that was lost is made up for by the time.
    pub async fn heard(&self) {
        let _ = timeout(Duration::from_millis(LOOK_MS_MAX), self.heard.notified()).await;
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
        if let Err(error) = connections.rows("telling other processes", TELL, bound).await {
            tracing::debug!(%error, "other processes were not told of what is new");
        }
    }
}

/// Listens, and again when the connection was lost. What was told meanwhile is lost too, so that whoever waits is woken.
async fn listen_for_ever(options: PgConnectOptions, heard: Arc<Notify>, name: String) {
    loop {
        if let Err(error) = listen(options.clone(), &heard, &name).await {
            tracing::debug!(%error, "listening to other processes");
        }
        sleep(Duration::from_millis(AGAIN_MS)).await;
    }
}

async fn listen(options: PgConnectOptions, heard: &Notify, name: &str) -> Result<(), sqlx::Error> {
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(CHANNEL).await?;
    heard.notify_one();
    loop {
        match listener.try_recv().await? {
            Some(notification) if notification.payload() == name => {}
            Some(_) | None => heard.notify_one(),
        }
    }
}
