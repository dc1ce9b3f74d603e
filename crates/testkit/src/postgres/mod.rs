//! A throwaway PostgreSQL server. Most tests use a database of the one server that a run shares ([`database`]); a test that
//! stops, kills or freezes the server has one of its own ([`Server::start`]).
//!
//! A server has a folder below the temporary one and listens on a socket there and on loopback. PostgreSQL refuses to run as
//! root; in that case it runs as `postgres` or `nobody`. Every process that uses a server holds a shared lock on a file in its
//! folder. A small shell process waits until no lock is held, then ends the server and removes the folder. So nothing is left
//! behind, even when a test is killed.

#![allow(clippy::panic, clippy::expect_used, reason = "a test says what went wrong by panicking, in its helpers too")]

mod files;
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

use files::{Files, LINGER_QUARTERS, children, is_at, lock, make_folder, new_name, open, pause, run_as, unique_folder};

/// The role that owns all databases.
pub const USER: &str = "annie";
/// Password of that role. It is required on loopback and not on the socket.
pub const PASSWORD: &str = "the-password-of-the-test";
/// A database of its own on the shared server of this run. It is dropped with this value.
pub struct Database {
    /// Its address, through the socket and without a password.
    pub url: String,
    /// Its address on loopback, with a password.
    pub url_tcp: String,
    name: String,
    server: Arc<Server>,
}

/// A new, empty database on the run's shared server. `None` where PostgreSQL is not installed: then the test has been reported
/// as skipped and must return.
///
/// # Panics
/// If PostgreSQL is installed and does not work.
pub async fn database() -> Option<Database> {
    let server = shared().await?;
    Some(blocking(move || server.fresh(None)).await)
}

/// A new database with the content that `fill` once gave to an empty one. `name` identifies that content: a test with other
/// content needs another name. Allowed are lower-case letters, digits and underscores, at most 40. `fill` must have closed its
/// connections when it returns.
///
/// # Panics
/// If PostgreSQL is installed and does not work.
pub async fn database_like(name: &str, fill: impl AsyncFnOnce(String)) -> Option<Database> {
    let server = shared().await?;
    let like = format!("like_{name}");
    if !server.clone().has(&like).await {
        let path = server.files.folder.join("templates");
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
    /// The result of a statement, one row a line.
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
        // No caller waits for this; the database goes with the server in any case.
        let _ = self.server.files.psql(&[&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)]).spawn();
    }
}

/// How often a server is started again before the test fails.
const STARTS_MAX: usize = 20;

/// Settings of a server of a test's own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Whether a commit waits for the disk. Even without it a killed server loses nothing, only a crashed machine does.
    pub fsync: bool,
}

/// A server of a test's own. It ends, with all its data, when dropped.
pub struct Server {
    files: Files,
    child: Mutex<Option<Child>>,
    options: Options,
    is_shared: bool,
    /// A shared lock, held as long as this process uses the server.
    _user: File,
}

impl Server {
    /// A new server. `None` where PostgreSQL is not installed: then the test has been reported as skipped and must return.
    ///
    /// # Panics
    /// If PostgreSQL is installed and does not start.
    pub async fn start(options: Options) -> Option<Arc<Self>> {
        let programs = programs()?;
        Some(Arc::new(blocking(move || Self::start_in(unique_folder(), programs, options)).await))
    }

    fn start_in(folder: PathBuf, programs: PathBuf, options: Options) -> Self {
        make_folder(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let user = open(&folder.join("users")).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        user.lock_shared().expect("the folder is new and unlocked");
        let files = Files { folder, port: 0, programs, run_as: run_as() };
        files.watch(1);
        let (files, child) = files.begin(options);
        Self { files, child: Mutex::new(Some(child)), options, is_shared: false, _user: user }
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
        self.files.url_tcp(path.rsplit('/').next().unwrap_or_default())
    }

    /// Sends SIGKILL to the server and all its workers, and waits until they have ended.
    pub fn kill(&self) {
        let Some(pid) = self.files.pid() else { return };
        let workers = children(pid);
        let _ = kill_process(pid, Signal::KILL);
        for worker in &workers {
            let _ = kill_process(*worker, Signal::KILL);
        }
        self.reap();
        self.files.wait(&workers);
    }

    /// Shuts the server down fast, without waiting for its clients: their connections are cut, no data is lost.
    pub fn stop_fast(&self) {
        self.end(Signal::INT);
    }

    /// Starts the server again on the same data and at the same addresses.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&self) {
        let mut last_log = String::new();
        // A worker of the killed server may hold its shared memory for a moment longer, and then the new server ends at once.
        for _ in 0..STARTS_MAX {
            let mut child = self.files.run(self.options);
            match self.files.until_ready(&mut child) {
                Ok(()) => {
                    *self.child.lock() = Some(child);
                    return;
                }
                Err(log) => last_log = log,
            }
            let _ = child.kill();
            let _ = child.wait();
            pause();
        }
        panic!("PostgreSQL does not start again: {last_log}");
    }

    /// Whether its process exists, frozen or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.files.pid().is_some()
    }

    /// Freezes the server and all its workers: connections stay open without an answer.
    pub fn pause(&self) {
        self.signal_all(Signal::STOP);
    }

    /// Continues a frozen server.
    pub fn go_on(&self) {
        self.signal_all(Signal::CONT);
    }

    /// Runs statements, each in a transaction of its own, in a database of this server.
    ///
    /// # Panics
    /// If one of them fails.
    pub fn run_sql(&self, database: &str, statements: &[&str]) -> String {
        let mut psql = self.files.psql(statements);
        psql.env("PGDATABASE", database).stdout(Stdio::piped()).stderr(Stdio::piped());
        let done = psql.output().unwrap_or_else(|e| panic!("psql: {e}"));
        let output = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        assert!(done.status.success(), "{statements:?}: {}", String::from_utf8_lossy(&done.stderr));
        output
    }

    fn signal_all(&self, signal: Signal) {
        let Some(pid) = self.files.pid() else { return };
        // The parent first: a frozen parent starts no more children.
        let _ = kill_process(pid, signal);
        for worker in children(pid) {
            let _ = kill_process(worker, signal);
        }
    }

    fn end(&self, signal: Signal) {
        let Some(pid) = self.files.pid() else { return };
        let _ = kill_process(pid, signal);
        self.go_on();
        self.reap();
        self.files.wait(&[pid]);
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
        let query = format!("SELECT 1 FROM pg_database WHERE datname = '{database}'");
        blocking(move || self.must(&[&query]) == "1").await
    }

    async fn empty(self: Arc<Self>, name: &str) -> String {
        let url = self.files.url(name);
        let statements = [format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"), format!("CREATE DATABASE {name}")];
        blocking(move || self.must(&statements.each_ref().map(String::as_str))).await;
        url
    }

    fn fresh(self: Arc<Self>, like: Option<&str>) -> Database {
        let name = new_name();
        let like = like.map(|l| format!(" TEMPLATE {l}")).unwrap_or_default();
        self.must(&[&format!("CREATE DATABASE {name}{like}")]);
        Database { url: self.files.url(&name), url_tcp: self.files.url_tcp(&name), name, server: self }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.is_shared {
            self.end(Signal::QUIT);
            let _ = std::fs::remove_dir_all(&self.files.folder);
        }
    }
}

/// The server that all tests of a run share. The first test starts it, and it ends some seconds after the last one.
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
        // The folder of the last run may just have been removed.
        if !is_at(&user, &folder.join("users")) {
            continue;
        }
        let alone = lock(&folder.join("start"));
        let port = std::fs::read_to_string(folder.join("ready")).ok().and_then(|port| port.parse().ok()).unwrap_or(0);
        let mut files = Files { folder: folder.clone(), port, programs: programs.to_owned(), run_as };
        if port == 0 || files.pid().is_none() {
            let _ = std::fs::remove_dir_all(folder.join("data"));
            files.watch(LINGER_QUARTERS);
            files = files.begin(Options::default()).0;
            let ready = std::fs::write(folder.join("ready"), files.port.to_string());
            ready.unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        }
        drop(alone);
        return Server { files, child: Mutex::new(None), options: Options::default(), is_shared: true, _user: user };
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
    // The program on the path is often only a link or a wrapper; the real programs are together at the link's target.
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
