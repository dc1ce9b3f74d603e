//! A throwaway PostgreSQL server. Most tests take a database of the one server that a run shares ([`database`]); a test that
//! stops, kills or freezes the server has one of its own ([`Server::start`]).
//!
//! A server lives in a folder below the temporary one and listens on a socket there and on loopback. PostgreSQL refuses to
//! be run by root, so there it runs as `postgres` or `nobody`. Whoever uses a server holds a shared lock on a file in its
//! folder; a small shell process waits until nobody does, then ends the server and removes the folder. So nothing is left
//! behind, also when a test is killed.

#![allow(clippy::panic, clippy::expect_used, reason = "a test says what went wrong by panicking, in its helpers too")]

mod place;
mod tls;

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use rustix::process::{Signal, kill_process};

pub use tls::Roots;

use place::{LINGER_QUARTERS, Place, children, is_at, lock, make_folder, new_name, open, run_as, unique_folder};

/// The role that owns all databases.
pub const USER: &str = "annie";
/// Its password, which is asked for on loopback and not on the socket.
pub const PASSWORD: &str = "the-password-of-the-test";
/// A database of its own on the shared server of this run. It is dropped with this.
pub struct Database {
    /// Its address, through the socket and without a password.
    pub url: String,
    /// Its address on loopback, with a password.
    pub url_tcp: String,
    name: String,
    server: Arc<Server>,
}

/// A new, empty database on the run's shared server, or none where there is no PostgreSQL: then the test is to end, and the
/// reason has been said.
///
/// # Panics
/// If there is a PostgreSQL and it does not work.
pub async fn database() -> Option<Database> {
    let server = shared().await?;
    Some(blocking(move || server.fresh(None)).await)
}

/// A new database with the content that `fill` once gave to an empty one. `name` names that content, so whoever changes it
/// takes another: small letters, digits and low lines, at most 40. `fill` must have closed its connections when it is done.
///
/// # Panics
/// If there is a PostgreSQL and it does not work.
pub async fn database_like(name: &str, fill: impl AsyncFnOnce(String)) -> Option<Database> {
    let server = shared().await?;
    let like = format!("like_{name}");
    if !server.clone().has(&like).await {
        let path = server.place.folder.join("templates");
        let alone = blocking(move || lock(&path)).await;
        if !server.clone().has(&like).await {
            let raw = format!("raw_{like}");
            fill(server.clone().empty(&raw).await).await;
            let end = format!("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{raw}'");
            let rename = format!("ALTER DATABASE {raw} RENAME TO {like}");
            let server = server.clone();
            blocking(move || server.must(&[&end, &rename])).await;
        }
        drop(alone);
    }
    Some(blocking(move || server.fresh(Some(&like))).await)
}

impl Database {
    /// What the database says to a statement, one row a line.
    ///
    /// # Panics
    /// If it fails.
    pub async fn sql(&self, statement: &str) -> String {
        let (server, name, statement) = (self.server.clone(), self.name.clone(), statement.to_owned());
        blocking(move || server.run_sql(&name, &[&statement])).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Nobody waits for it; with the server it goes in any case.
        let _ = self.server.place.psql(&[&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)]).spawn();
    }
}

/// What a server of a test's own is like.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Whether a commit waits for the disk. Without it a killed server loses nothing either, only a machine does.
    pub fsync: bool,
}

/// A server of a test's own. Ended, with everything in it, when dropped.
pub struct Server {
    place: Place,
    child: Mutex<Option<Child>>,
    options: Options,
    is_shared: bool,
    /// Held, shared, as long as this process uses the server.
    _user: File,
}

impl Server {
    /// A new server, or none where there is no PostgreSQL: then the test is to end, and the reason has been said.
    ///
    /// # Panics
    /// If there is a PostgreSQL and it does not start.
    pub async fn start(options: Options) -> Option<Arc<Self>> {
        let programs = programs()?;
        Some(Arc::new(blocking(move || Self::start_in(unique_folder(), programs, options)).await))
    }

    fn start_in(folder: PathBuf, programs: PathBuf, options: Options) -> Self {
        make_folder(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let user = open(&folder.join("users")).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        user.lock_shared().expect("nobody else knows the folder");
        let place = Place { folder, port: 0, programs, run_as: run_as() };
        place.watch(1);
        let (place, child) = place.begin(options);
        Self { place, child: Mutex::new(Some(child)), options, is_shared: false, _user: user }
    }

    /// The address of a new, empty database, through the socket and without a password.
    ///
    /// # Panics
    /// If the server does not run.
    pub async fn database(self: &Arc<Self>) -> String {
        let name = new_name();
        self.clone().empty(&name).await
    }

    /// The same database's address on loopback, with a password.
    #[must_use]
    pub fn tcp(&self, url: &str) -> String {
        let path = url.split_once('?').map_or(url, |(path, _)| path);
        self.place.url_tcp(path.rsplit('/').next().unwrap_or_default())
    }

    /// SIGKILL to the server and everything that works for it, and waits until they are gone.
    pub fn kill(&self) {
        let Some(pid) = self.place.pid() else { return };
        let workers = children(pid);
        let _ = kill_process(pid, Signal::KILL);
        for worker in &workers {
            let _ = kill_process(*worker, Signal::KILL);
        }
        self.reap();
        self.place.wait(&workers);
    }

    /// Ends the server as an operator would who does not wait for its clients: their connections are cut, nothing is lost.
    pub fn stop_fast(&self) {
        self.end(Signal::INT);
    }

    /// Starts it again on the same data and at the same addresses.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&self) {
        let child = self.place.run(self.options);
        self.place.until_ready().unwrap_or_else(|log| panic!("PostgreSQL does not start again: {log}"));
        *self.child.lock() = Some(child);
    }

    /// Whether its process is there, frozen or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.place.pid().is_some()
    }

    /// Freezes the server and everything that works for it: connections stay open and nobody answers.
    pub fn pause(&self) {
        self.signal_all(Signal::STOP);
    }

    /// Lets a frozen server go on.
    pub fn go_on(&self) {
        self.signal_all(Signal::CONT);
    }

    /// Runs statements, each in a transaction of its own, in a database of this server.
    ///
    /// # Panics
    /// If one of them fails.
    pub fn run_sql(&self, database: &str, statements: &[&str]) -> String {
        let mut psql = self.place.psql(statements);
        psql.env("PGDATABASE", database).stdout(Stdio::piped()).stderr(Stdio::piped());
        let done = psql.output().unwrap_or_else(|e| panic!("psql: {e}"));
        let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        assert!(done.status.success(), "{statements:?}: {}", String::from_utf8_lossy(&done.stderr));
        said
    }

    fn signal_all(&self, signal: Signal) {
        let Some(pid) = self.place.pid() else { return };
        // The parent first: a frozen one has no more children.
        let _ = kill_process(pid, signal);
        for worker in children(pid) {
            let _ = kill_process(worker, signal);
        }
    }

    fn end(&self, signal: Signal) {
        let Some(pid) = self.place.pid() else { return };
        let _ = kill_process(pid, signal);
        self.go_on();
        self.reap();
        self.place.wait(&[pid]);
    }

    fn reap(&self) {
        if let Some(mut child) = self.child.lock().take() {
            let _ = child.wait();
        }
    }

    fn must(&self, statements: &[&str]) -> String {
        self.run_sql("postgres", statements)
    }

    async fn has(self: Arc<Self>, database: &str) -> bool {
        let asked = format!("SELECT 1 FROM pg_database WHERE datname = '{database}'");
        blocking(move || self.must(&[&asked]) == "1").await
    }

    async fn empty(self: Arc<Self>, name: &str) -> String {
        let url = self.place.url(name);
        let statements = [format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"), format!("CREATE DATABASE {name}")];
        blocking(move || self.must(&statements.each_ref().map(String::as_str))).await;
        url
    }

    fn fresh(self: Arc<Self>, like: Option<&str>) -> Database {
        let name = new_name();
        let like = like.map(|l| format!(" TEMPLATE {l}")).unwrap_or_default();
        self.must(&[&format!("CREATE DATABASE {name}{like}")]);
        Database { url: self.place.url(&name), url_tcp: self.place.url_tcp(&name), name, server: self }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.is_shared {
            self.end(Signal::QUIT);
            let _ = std::fs::remove_dir_all(&self.place.folder);
        }
    }
}

/// The server that all tests of a run share. It is started by the first one and ends some seconds after the last one.
async fn shared() -> Option<Arc<Server>> {
    static SERVER: OnceLock<Arc<Server>> = OnceLock::new();
    let programs = programs()?;
    Some(blocking(move || SERVER.get_or_init(|| Arc::new(join(&programs))).clone()).await)
}

fn join(programs: &Path) -> Server {
    let run_as = run_as();
    let folder = std::env::temp_dir().join(format!("annie-postgres-{}", rustix::process::getuid().as_raw()));
    loop {
        make_folder(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let user = match open(&folder.join("users")) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            other => other.unwrap_or_else(|e| panic!("{}: {e}", folder.display())),
        };
        user.lock_shared().unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        // The folder of the last run may just have been taken away.
        if !is_at(&user, &folder.join("users")) {
            continue;
        }
        let alone = lock(&folder.join("start"));
        let port = std::fs::read_to_string(folder.join("ready")).ok().and_then(|port| port.parse().ok()).unwrap_or(0);
        let mut place = Place { folder: folder.clone(), port, programs: programs.to_owned(), run_as };
        if port == 0 || place.pid().is_none() {
            let _ = std::fs::remove_dir_all(folder.join("data"));
            place.watch(LINGER_QUARTERS);
            place = place.begin(Options::default()).0;
            let ready = std::fs::write(folder.join("ready"), place.port.to_string());
            ready.unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        }
        drop(alone);
        return Server { place, child: Mutex::new(None), options: Options::default(), is_shared: true, _user: user };
    }
}

/// The folder of PostgreSQL's programs. Without them the test counts as skipped.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|all| all.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    folders.extend(["/usr/local/bin", "/usr/local/pgsql/bin"].map(PathBuf::from));
    // What lies on the path is often only a link or a wrapper; the programs lie together where it leads to.
    let real =
        folders.iter().filter_map(|folder| Some(folder.join("initdb").canonicalize().ok()?.parent()?.to_owned()));
    let whole = |folder: &PathBuf| ["initdb", "postgres", "psql"].iter().all(|name| folder.join(name).is_file());
    let found = real.into_iter().find(whole);
    if found.is_none() {
        crate::skip::skipped("no PostgreSQL (initdb, postgres and psql; Debian: postgresql)");
    }
    found
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => std::panic::resume_unwind(e.into_panic()),
    }
}

#[cfg(test)]
mod tests;
