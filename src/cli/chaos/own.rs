//! A server of a run's own: on a throwaway folder, with the offline planner, started again whenever it dies, as a service
//! manager does.

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
    cli::failure::{Exit, Failure},
    system,
};

/// How long a server may take until it is ready, in milliseconds.
const READY_MS_MAX: u64 = 30_000;
/// How often it may die before the run is given up.
const DEATHS_MAX: u64 = 10_000;
/// What differs from the defaults: short patience, so that a run is short, and doors that let the load in.
const SETTINGS: &[(&str, &str)] = &[
    ("ANNIE__CHAOS__ENABLED", "true"),
    ("ANNIE__LIMITS__STUCK_MS_MAX", "2000"),
    ("ANNIE__LIMITS__ROUND_MS_MAX", "3000"),
    ("ANNIE__BREAKER__OPEN_MS", "500"),
    ("ANNIE__TURN__DEFER_MS", "200"),
    ("ANNIE__DOORS__REQUESTS_PER_MINUTE_MAX", "1000000"),
    ("ANNIE__DOORS__REQUESTS_BURST_MAX", "100000"),
];

/// A server of one's own.
pub struct Own {
    /// Its data folder.
    pub folder: PathBuf,
    /// Where it answers, in every life.
    pub url: String,
    keep: bool,
    pid: watch::Sender<Option<u32>>,
    deaths: watch::Sender<u64>,
    child: tokio::sync::Mutex<Child>,
}

impl Own {
    /// Starts one, in this folder if one is given.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn start(keep: Option<&Path>) -> Result<Self, Failure> {
        let folder = match keep {
            Some(folder) => folder.to_owned(),
            None => std::env::temp_dir().join(format!("annie-chaos-{}", system::env().uuid())),
        };
        if std::fs::read_dir(&folder).is_ok_and(|mut inside| inside.next().is_some()) {
            let what = format!("{} is not empty: a run breaks the server that works on it", folder.display());
            return Err(Failure::new(Exit::Usage, what).fix("name a folder that is not there yet"));
        }
        std::fs::create_dir_all(&folder).map_err(|e| Failure::io("cannot make a folder for the server", &e))?;
        let mut child = spawn(&folder, "127.0.0.1:0")?;
        let url = ready(&folder, &mut child).await?;
        Ok(Self {
            folder,
            url,
            keep: keep.is_some(),
            pid: watch::channel(child.id()).0,
            deaths: watch::channel(0).0,
            child: tokio::sync::Mutex::new(child),
        })
    }

    /// Starts it again whenever it died. Ends only if it cannot be started, or never stops dying.
    pub async fn keep_alive(&self) -> Failure {
        loop {
            let mut child = self.child.lock().await;
            // How it ended does not matter.
            let _ = child.wait().await;
            self.pid.send_replace(None);
            let deaths = *self.deaths.borrow() + 1;
            let next = self.next_life().await;
            match next {
                Ok(next) => *child = next,
                Err(failure) => return failure,
            }
            self.pid.send_replace(child.id());
            self.deaths.send_replace(deaths);
            if deaths >= DEATHS_MAX {
                return Failure::new(Exit::Failure, format!("the server died {deaths} times"));
            }
        }
    }

    async fn next_life(&self) -> Result<Child, Failure> {
        let at = self.url.trim_start_matches("http://");
        let mut child = spawn(&self.folder, at)?;
        ready(&self.folder, &mut child).await?;
        Ok(child)
    }

    /// How often it died and was started again.
    pub fn deaths(&self) -> u64 {
        *self.deaths.borrow()
    }

    /// Waits until it has died more often than so, within a time; false if it did not.
    pub async fn died_after(&self, deaths: u64, wait: Duration) -> bool {
        let mut seen = self.deaths.subscribe();
        let died = seen.wait_for(|now| *now > deaths);
        matches!(tokio::time::timeout(wait, died).await, Ok(Ok(_)))
    }

    /// Ends its present life and waits until it is gone: nothing is written into its folder after that.
    pub async fn end(&self) {
        let mut child = self.child.lock().await;
        // It may have ended by itself.
        let _ = child.kill().await;
        self.pid.send_replace(None);
    }

    /// Sends its present life a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = *self.pid.borrow();
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // It may have died this moment, which is what was wanted.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if !self.keep {
            // If it was not ended before, it may still be writing; what is left is in the folder for such things.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn spawn(folder: &Path, at: &str) -> Result<Child, Failure> {
    let failed = |e| Failure::io("cannot start a server", &e);
    // What a former life said must not be taken for this one's word.
    let _ = std::fs::remove_file(ready_file(folder));
    let log = File::options().create(true).append(true).open(folder.join("server.log")).map_err(failed)?;
    Command::new(std::env::current_exe().map_err(failed)?)
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

/// Waits until it says where it answers.
async fn ready(folder: &Path, child: &mut Child) -> Result<String, Failure> {
    let gone = |why: &str| {
        let what = format!("the server does not start: {why}");
        Failure::new(Exit::Failure, what).fix(format!("read {}", folder.join("server.log").display()))
    };
    let said = async {
        loop {
            let text = std::fs::read(ready_file(folder)).unwrap_or_default();
            let said: Value = serde_json::from_slice(&text).unwrap_or_default();
            if let Some(url) = said["url"].as_str() {
                return url.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        said = tokio::time::timeout(Duration::from_millis(READY_MS_MAX), said) => said.map_err(|_| gone("it takes too long")),
        ended = child.wait() => Err(gone(&ended.map_or_else(|e| e.to_string(), |status| status.to_string()))),
    }
}
