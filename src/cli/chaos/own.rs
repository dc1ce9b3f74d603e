//! The server of a run: on a temporary folder, with the offline planner, restarted whenever it dies, like under a service
//! manager.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    process::{Child, Command},
    sync::watch,
};

use crate::{
    cli::{
        console::tame,
        failure::{Exit, Failure},
    },
    system,
};

/// How long a server may take until it is ready, in milliseconds.
const READY_MS_MAX: u64 = 30_000;
/// How much of the end of the server's log an error contains, in characters.
const LOG_TAIL_CHARS_MAX: usize = 300;
/// How often the server may die before the run fails.
const DEATHS_MAX: u64 = 10_000;
/// Settings that differ from the defaults: short time limits, so that a run is short, and request limits that admit the load.
const SETTINGS: &[(&str, &str)] = &[
    ("ANNIE__CHAOS__ENABLED", "true"),
    ("ANNIE__LIMITS__STUCK_MS_MAX", "2000"),
    ("ANNIE__LIMITS__ROUND_MS_MAX", "3000"),
    ("ANNIE__BREAKER__OPEN_MS", "500"),
    ("ANNIE__TURN__DEFER_MS", "200"),
    ("ANNIE__API__REQUESTS_PER_MINUTE_MAX", "1000000"),
    ("ANNIE__API__REQUESTS_BURST_MAX", "100000"),
];

/// A server process of a run.
pub struct Own {
    /// The data folder.
    pub folder: PathBuf,
    /// The URL, the same for every run of the process.
    pub url: String,
    keep: bool,
    program: PathBuf,
    pid: watch::Sender<Option<u32>>,
    deaths: watch::Sender<u64>,
    child: tokio::sync::Mutex<Child>,
}

impl Own {
    /// Starts a server, in the folder `keep` if given.
    ///
    /// # Errors
    /// If the server does not become ready.
    pub async fn start(keep: Option<&Path>) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|e| Failure::io("cannot find this program", &e))?;
        let temporary = || std::env::temp_dir().join(format!("annie-chaos-{}", system::env().uuid()));
        Self::start_in(keep.map_or_else(temporary, Path::to_owned), keep.is_some(), program).await
    }

    async fn start_in(folder: PathBuf, keep: bool, program: PathBuf) -> Result<Self, Failure> {
        if std::fs::read_dir(&folder).is_ok_and(|mut inside| inside.next().is_some()) {
            let what =
                format!("{} is not empty: a run injects faults into the server on this folder", folder.display());
            return Err(Failure::new(Exit::Usage, what).fix("name a folder that does not exist yet"));
        }
        std::fs::create_dir_all(&folder).map_err(|e| Failure::io("cannot make a folder for the server", &e))?;
        let child = spawn(&program, &folder, "127.0.0.1:0").inspect_err(|_| {
            if !keep {
                let _ = std::fs::remove_dir_all(&folder);
            }
        })?;
        let mut own = Self {
            folder,
            url: String::new(),
            keep,
            program,
            pid: watch::channel(None).0,
            deaths: watch::channel(0).0,
            child: tokio::sync::Mutex::new(child),
        };
        match own.ready().await {
            Ok(url) => own.url = url,
            Err(failure) => {
                own.end().await;
                return Err(failure);
            }
        }
        Ok(own)
    }

    /// Waits until the present run reports its URL.
    async fn ready(&mut self) -> Result<String, Failure> {
        let child = self.child.get_mut();
        let url = ready(&self.folder, child).await?;
        self.pid.send_replace(child.id());
        Ok(url)
    }

    /// Restarts the server whenever it dies. Returns only if the server cannot be started, or died too often.
    pub async fn keep_alive(&self) -> Failure {
        let at = self.url.trim_start_matches("http://");
        let mut child = self.child.lock().await;
        loop {
            // The exit status does not matter.
            let _ = child.wait().await;
            self.pid.send_replace(None);
            // The new process is stored before it is ready, so that the end of the chaos run also ends it.
            match spawn(&self.program, &self.folder, at) {
                Ok(next) => *child = next,
                Err(failure) => return failure,
            }
            if let Err(failure) = ready(&self.folder, &mut child).await {
                return failure;
            }
            self.pid.send_replace(child.id());
            let deaths = *self.deaths.borrow() + 1;
            self.deaths.send_replace(deaths);
            if deaths >= DEATHS_MAX {
                return Failure::new(Exit::Failure, format!("the server died {deaths} times"));
            }
        }
    }

    /// How often the server died and was restarted.
    pub fn deaths(&self) -> u64 {
        *self.deaths.borrow()
    }

    /// Waits until the server has died more than `deaths` times. False if this does not happen within `wait`.
    pub async fn died_after(&self, deaths: u64, wait: Duration) -> bool {
        let mut seen = self.deaths.subscribe();
        let died = seen.wait_for(|now| *now > deaths);
        matches!(tokio::time::timeout(wait, died).await, Ok(Ok(_)))
    }

    /// Kills the present run and waits for its exit, after which nothing is written into the folder.
    pub async fn end(&self) {
        let mut child = self.child.lock().await;
        // The process may have ended already.
        let _ = child.kill().await;
        self.pid.send_replace(None);
    }

    /// Sends a signal to the present run.
    pub fn signal(&self, signal: Signal) {
        let pid = *self.pid.borrow();
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // The process may have died just now; then the signal is not needed.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.child.get_mut().start_kill();
        if !self.keep {
            // If `end` was not called, the process may still be writing; then some files stay in the system's temporary folder.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn spawn(program: &Path, folder: &Path, at: &str) -> Result<Child, Failure> {
    let failed = |e| Failure::io("cannot start a server", &e);
    // The file of an earlier run must not be taken for that of the new run.
    let _ = std::fs::remove_file(ready_file(folder));
    let log = File::options().create(true).append(true).open(folder.join("server.log")).map_err(failed)?;
    Command::new(program)
        .arg("--data")
        .arg(folder)
        .args(["serve", "--bind", at, "--log-level", "warn", "--ready-file"])
        .arg(ready_file(folder))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder)
        .envs(SETTINGS.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)
}

fn ready_file(folder: &Path) -> PathBuf {
    folder.join("ready.json")
}

/// Waits until the server reports its URL.
async fn ready(folder: &Path, child: &mut Child) -> Result<String, Failure> {
    // The folder is removed with the run, so the error contains the end of the log.
    let gone = |why: &str| {
        let what = format!("the server does not start: {why}{}", log_tail(folder));
        Failure::new(Exit::Failure, what).fix("with --keep DIR its log stays: server.log")
    };
    let url = async {
        loop {
            let text = std::fs::read(ready_file(folder)).unwrap_or_default();
            let address: Value = serde_json::from_slice(&text).unwrap_or_default();
            if let Some(url) = address["url"].as_str() {
                return url.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        url = tokio::time::timeout(Duration::from_millis(READY_MS_MAX), url) => url.map_err(|_| gone("it takes too long")),
        ended = child.wait() => Err(gone(&ended.map_or_else(|e| e.to_string(), |status| status.to_string()))),
    }
}

/// The end of the server's log.
fn log_tail(folder: &Path) -> String {
    let text = std::fs::read(folder.join("server.log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let chars = text.trim_end().chars().count();
    let last: String = text.trim_end().chars().skip(chars.saturating_sub(LOG_TAIL_CHARS_MAX)).collect();
    if last.is_empty() { last } else { format!(": {}", tame(&last)) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::test_kill_process;
    use tokio::{
        io::{AsyncBufReadExt, BufReader},
        net::unix::pipe,
    };

    use super::*;

    /// How long a test waits for a condition.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A fake server program: `$2` is its folder, `$9` its ready file.
    fn program(home: &Path, script: &str) -> PathBuf {
        let program = home.join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    #[tokio::test]
    async fn run_that_ends_during_a_restart_leaves_no_server_and_no_folder() {
        let home = tempfile::tempdir().unwrap();
        let script = "if mkdir \"$2/lived\"; then echo '{\"url\": \"http://127.0.0.1:1\"}' > \"$9\"\n\
            else echo $$ > \"$2/../second\"; fi\n\
            exec sleep 1000";
        let second = home.path().join("second");
        assert!(std::process::Command::new("mkfifo").arg(&second).status().unwrap().success());
        // Opened for writing too, so that the pipe does not end before the first writer opens it.
        let second = pipe::OpenOptions::new().read_write(true).open_receiver(&second).unwrap();
        let folder = home.path().join("data");
        let own = Own::start_in(folder.clone(), false, program(home.path(), script)).await.unwrap();
        own.signal(Signal::KILL);
        let mut second = BufReader::new(second).lines();
        let pid = tokio::select! {
            line = tokio::time::timeout(PATIENCE, second.next_line()) => {
                let line = line.expect("a second run").unwrap().unwrap();
                Pid::from_raw(line.parse().unwrap()).unwrap()
            }
            failure = own.keep_alive() => panic!("{failure}"),
        };
        assert!(test_kill_process(pid).is_ok(), "the second run is alive and not ready");
        own.end().await;
        assert!(test_kill_process(pid).is_err(), "the second run is still alive");
        drop(own);
        assert!(!folder.exists());
    }

    #[tokio::test]
    async fn failed_start_reports_the_end_of_the_log_and_leaves_no_folder() {
        let home = tempfile::tempdir().unwrap();
        let program = program(home.path(), "printf 'the port is \\033taken' >&2; exit 5");
        let folder = home.path().join("data");
        let Err(failure) = Own::start_in(folder.clone(), false, program.clone()).await else { panic!("it started") };
        assert!(failure.what.contains("the port is \u{fffd}taken") && failure.what.contains('5'), "{failure}");
        assert!(!folder.exists());
        assert!(Own::start_in(folder.clone(), false, home.path().join("nothing")).await.is_err());
        assert!(!folder.exists(), "no folder is left");
        assert!(Own::start_in(folder.clone(), true, program).await.is_err());
        assert!(folder.join("server.log").exists(), "a kept folder stays");
    }
}
