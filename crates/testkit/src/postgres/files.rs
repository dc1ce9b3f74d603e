//! Folder, programs and processes of a server.
#![allow(clippy::panic, clippy::expect_used, reason = "a test says what went wrong by panicking, in its helpers too")]

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use rustix::process::Pid;

use super::{Options, PASSWORD, USER};

/// The longest time for a server to start or to end, in seconds.
const PATIENCE_S: u64 = 60;
/// How long the shared server stays after its last user, in quarter seconds. The tests of a run are separate processes, and
/// between two of them the server may have no user.
pub(super) const LINGER_QUARTERS: u32 = 16;

/// Waits until no process uses a server any more, then ends it and removes its folder. `$1`: the folder. `$2`: the number of
/// quarter seconds without a user after which the server ends.
const WATCH: &str = r#"
folder=$1 left=$2
exec 9<"$folder/users" || exit 0
while [ "$left" -gt 0 ]; do
  sleep 0.25
  [ -e "$folder/users" ] || exit 0
  if flock -n -x 9; then left=$((left - 1)); [ "$left" = 0 ] || flock -u 9; else left=$2; fi
done
pid=$(head -n 1 "$folder/data/postmaster.pid" 2>/dev/null)
lives() { [ -n "$pid" ] && grep -a -q -F "$folder/data" "/proc/$pid/cmdline" 2>/dev/null; }
lives && kill -QUIT "$pid" && kill -CONT "$pid"
tries=0
while lives && [ "$tries" -lt 80 ]; do sleep 0.1; tries=$((tries + 1)); done
lives && kill -KILL "$pid"
mv "$folder" "$folder.gone.$$" && rm -rf "$folder.gone.$$"
"#;

/// Folder and programs of a server.
pub(super) struct Files {
    pub(super) folder: PathBuf,
    pub(super) port: u16,
    pub(super) programs: PathBuf,
    /// User and group to run as, if not the current user's.
    pub(super) run_as: Option<(u32, u32)>,
}

impl Files {
    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Path of its certificate, if it has one.
    pub(super) fn certificate(&self) -> PathBuf {
        self.data().join("server.crt")
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    pub(super) fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@localhost:{}/{database}?host={}", self.port, self.socket().display())
    }

    pub(super) fn url_tcp(&self, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates the data directory and starts the server on a free port.
    pub(super) fn begin(mut self, options: Options) -> (Self, Child) {
        for folder in [self.data(), self.socket()] {
            let made = make_folder(&folder).and_then(|()| match self.run_as {
                Some((user, group)) => chown(&folder, Some(user), Some(group)),
                None => Ok(()),
            });
            made.unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        }
        let secret = self.folder.join("password");
        std::fs::write(&secret, PASSWORD).unwrap_or_else(|e| panic!("{}: {e}", secret.display()));
        // Texts are sorted in linguistic order where the server supports it, as in most databases in use: code that needs byte
        // order must request it.
        let order: &[&str] = &["--locale-provider=icu", "--icu-locale=en-US", "--locale=C.UTF-8"];
        if self.make_data(&secret, order).is_err() {
            self.make_data(&secret, &["--locale=C.UTF-8"]).unwrap_or_else(|e| panic!("initdb: {e}"));
        }
        let mut last_log = String::new();
        for _ in 0..5 {
            self.port = free_port();
            let mut child = self.run(options);
            match self.until_ready(&mut child) {
                Ok(()) => return (self, child),
                Err(log) => last_log = log,
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("PostgreSQL does not start: {last_log}");
    }

    fn make_data(&self, secret: &Path, order: &[&str]) -> Result<(), String> {
        let mut initdb = self.program("initdb");
        initdb.args(["--no-sync", "--encoding=UTF8", "--auth-local=trust", "--auth-host=scram-sha-256", "-U", USER]);
        initdb.arg("--pwfile").arg(secret).args(order).arg("-D").arg(self.data());
        let done = initdb.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
        if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
    }

    /// Starts the server in a session of its own. A key or a time limit that ends the test's processes thus leaves the server
    /// to the watch process, which shuts it down cleanly.
    pub(super) fn run(&self, options: Options) -> Child {
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join("server.log"));
        let log = log.unwrap_or_else(|e| panic!("{}: {e}", self.folder.display()));
        let errors = log.try_clone().expect("a second handle of the log");
        let postgres = self.program("postgres");
        let mut server = Command::new("setsid");
        server.current_dir("/").env_clear().env("LC_ALL", "C").arg(postgres.get_program()).args(postgres.get_args());
        server.arg("-D").arg(self.data()).arg("-k").arg(self.socket()).args(["-p", &self.port.to_string()]);
        let on = if options.fsync { "on" } else { "off" };
        for setting in [
            "listen_addresses=127.0.0.1",
            "max_connections=400",
            "shared_buffers=32MB",
            // A file, because a killed server would leave shared memory behind.
            "dynamic_shared_memory_type=mmap",
            &format!("fsync={on}"),
            &format!("full_page_writes={on}"),
        ] {
            server.args(["-c", setting]);
        }
        if self.certificate().exists() {
            server.args(["-c", "ssl=on"]);
        }
        let child = server.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        child.unwrap_or_else(|e| panic!("setsid: {e}"))
    }

    pub(super) fn until_ready(&self, child: &mut Child) -> Result<(), String> {
        let from = Instant::now();
        loop {
            let status = std::fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
            let is_ready = status.lines().nth(7).is_some_and(|line| line.trim() == "ready");
            if is_ready && self.pid().is_some() && self.psql(&["SELECT 1"]).output().is_ok_and(|o| o.status.success()) {
                return Ok(());
            }
            let log = || std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default();
            if from.elapsed().as_secs() > PATIENCE_S {
                return Err(format!("not within {PATIENCE_S} s: {}", log()));
            }
            // It does not start, for example because another process took the port.
            if child.try_wait().is_ok_and(|status| status.is_some()) {
                return Err(log());
            }
            pause();
        }
    }

    /// The server's process, if it is alive.
    pub(super) fn pid(&self) -> Option<Pid> {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        let pid: i32 = file.lines().next()?.trim().parse().ok()?;
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let is_ours = String::from_utf8_lossy(&command).contains(&*self.data().to_string_lossy());
        if is_ours { Pid::from_raw(pid) } else { None }
    }

    /// Waits until these processes have ended and the server is gone.
    pub(super) fn wait(&self, processes: &[Pid]) {
        let from = Instant::now();
        let is_alive = |pid: &Pid| state(*pid).is_some_and(|(state, _)| state != 'Z');
        while processes.iter().any(is_alive) || self.pid().is_some() {
            assert!(from.elapsed().as_secs() < PATIENCE_S, "PostgreSQL does not end within {PATIENCE_S} s");
            pause();
        }
    }

    /// A PostgreSQL program as the user that may run it, without this process's environment.
    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = match self.run_as {
            None => Command::new(program),
            Some((user, group)) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={group}"));
                command.args(["--clear-groups", "--"]).arg(program);
                command
            }
        };
        command.current_dir("/").env_clear().env("LC_ALL", "C").env("PATH", "/usr/bin:/bin");
        command
    }

    pub(super) fn psql(&self, statements: &[&str]) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.current_dir("/")
            .env_clear()
            .env("PGDATABASE", "postgres")
            .env("PGOPTIONS", "-c client_min_messages=error");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", USER, "-p", &self.port.to_string(), "-h"]);
        psql.arg(self.socket()).args(statements.iter().flat_map(|s| ["-c", s]));
        psql.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        psql
    }

    pub(super) fn watch(&self, quarters: u32) {
        let mut watch = Command::new("setsid");
        watch.current_dir("/").args(["--fork", "sh", "-c", WATCH, "watch"]).arg(&self.folder).arg(quarters.to_string());
        let begun = watch.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        begun.unwrap_or_else(|e| panic!("setsid: {e}"));
    }
}

/// The user and group for the server, if this process runs as root.
pub(super) fn run_as() -> Option<(u32, u32)> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map(str::parse);
        Some((ids.next()?.ok()?, ids.next()?.ok()?))
    };
    of("postgres").or_else(|| of("nobody"))
}

/// State letter and parent of a process, if it exists.
fn state(pid: Pid) -> Option<(char, i32)> {
    let line = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name before it is in parentheses and may contain any character.
    let mut rest = line.rsplit_once(')')?.1.split_whitespace();
    Some((rest.next()?.chars().next()?, rest.next()?.parse().ok()?))
}

pub(super) fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().get();
    let all = std::fs::read_dir("/proc").map(|all| all.flatten().collect()).unwrap_or_else(|_| Vec::new());
    let pids = all.iter().filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| state(*pid).is_some_and(|(_, of)| of == parent)).collect()
}

pub(super) fn unique_folder() -> PathBuf {
    std::env::temp_dir().join(format!("annie-postgres-{}-{}", rustix::process::getuid().as_raw(), new_name()))
}

pub(super) fn new_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since = std::fs::metadata(format!("/proc/{}", std::process::id())).map_or(0, |m| m.ctime_nsec());
    format!("t{}_{since}_{}", std::process::id(), COUNT.fetch_add(1, Relaxed))
}

/// Creates a folder that only this user may write to, or accepts an existing one.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o711).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let there = std::fs::symlink_metadata(path)?;
            let ours = there.is_dir()
                && [rustix::process::getuid().as_raw(), run_as().map_or(0, |r| r.0)].contains(&there.uid());
            if ours { Ok(()) } else { Err(io::Error::other("it is somebody else's")) }
        }
        other => other,
    }
}

pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

pub(super) fn lock(path: &Path) -> File {
    let file = open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.lock().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file
}

pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let same =
        |here: std::fs::Metadata, there: std::fs::Metadata| (here.dev(), here.ino()) == (there.dev(), there.ino());
    file.metadata().ok().zip(std::fs::metadata(path).ok()).is_some_and(|(here, there)| same(here, there))
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("it listens").port()
}

/// Pause between two checks of processes that send no notification. Must be called only on threads that may block.
pub(super) fn pause() {
    std::thread::park_timeout(Duration::from_millis(10));
}
