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
    cli::{
        console::tame,
        failure::{Exit, Failure},
    },
    system,
};

/// How long a server may take until it is ready, in milliseconds.
const READY_MS_MAX: u64 = 30_000;
/// Of what it said before it ended, so much is told, in characters.
const LAST_WORDS_CHARS_MAX: usize = 300;
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
    program: PathBuf,
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
        let program = std::env::current_exe().map_err(|e| Failure::io("cannot find this program", &e))?;
        let throwaway = || std::env::temp_dir().join(format!("annie-chaos-{}", system::env().uuid()));
        Self::start_in(keep.map_or_else(throwaway, Path::to_owned), keep.is_some(), program).await
    }

    async fn start_in(folder: PathBuf, keep: bool, program: PathBuf) -> Result<Self, Failure> {
        if std::fs::read_dir(&folder).is_ok_and(|mut inside| inside.next().is_some()) {
            let what = format!("{} is not empty: a run breaks the server that works on it", folder.display());
            return Err(Failure::new(Exit::Usage, what).fix("name a folder that is not there yet"));
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

    /// Waits until its present life says where it answers.
    async fn ready(&mut self) -> Result<String, Failure> {
        let child = self.child.get_mut();
        let url = ready(&self.folder, child).await?;
        self.pid.send_replace(child.id());
        Ok(url)
    }

    /// Starts it again whenever it died. Ends only if it cannot be started, or never stops dying.
    pub async fn keep_alive(&self) -> Failure {
        let at = self.url.trim_start_matches("http://");
        let mut child = self.child.lock().await;
        loop {
            // How it ended does not matter.
            let _ = child.wait().await;
            self.pid.send_replace(None);
            // In its place before it is ready: whoever ends the run then ends this life too.
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
        let _ = self.child.get_mut().start_kill();
        if !self.keep {
            // If it was not ended before, it may still be writing; what is left is in the folder for such things.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn spawn(program: &Path, folder: &Path, at: &str) -> Result<Child, Failure> {
    let failed = |e| Failure::io("cannot start a server", &e);
    // What a former life said must not be taken for this one's word.
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

/// Waits until it says where it answers.
async fn ready(folder: &Path, child: &mut Child) -> Result<String, Failure> {
    // Its folder may be gone before anybody can read what it wrote there.
    let gone = |why: &str| {
        let what = format!("the server does not start: {why}{}", last_words(folder));
        Failure::new(Exit::Failure, what).fix("with --keep DIR its log stays: server.log")
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

/// The end of what it wrote.
fn last_words(folder: &Path) -> String {
    let text = std::fs::read(folder.join("server.log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let chars = text.trim_end().chars().count();
    let last: String = text.trim_end().chars().skip(chars.saturating_sub(LAST_WORDS_CHARS_MAX)).collect();
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

    /// How long anything that is going to happen may take.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A program in place of a server: `$2` is its folder, `$9` the file that says that it is ready.
    fn program(home: &Path, script: &str) -> PathBuf {
        let program = home.join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    #[tokio::test]
    async fn a_run_that_ends_between_two_lives_of_its_server_leaves_neither() {
        let home = tempfile::tempdir().unwrap();
        let script = "if mkdir \"$2/lived\"; then echo '{\"url\": \"http://127.0.0.1:1\"}' > \"$9\"\n\
            else echo $$ > \"$2/../second\"; fi\n\
            exec sleep 1000";
        let second = home.path().join("second");
        assert!(std::process::Command::new("mkfifo").arg(&second).status().unwrap().success());
        // Also to write, or it would have ended before the first writer comes.
        let second = pipe::OpenOptions::new().read_write(true).open_receiver(&second).unwrap();
        let folder = home.path().join("data");
        let own = Own::start_in(folder.clone(), false, program(home.path(), script)).await.unwrap();
        own.signal(Signal::KILL);
        let mut second = BufReader::new(second).lines();
        let pid = tokio::select! {
            told = tokio::time::timeout(PATIENCE, second.next_line()) => {
                let told = told.expect("a second life").unwrap().unwrap();
                Pid::from_raw(told.parse().unwrap()).unwrap()
            }
            failure = own.keep_alive() => panic!("{failure}"),
        };
        assert!(test_kill_process(pid).is_ok(), "it lives, and is not ready");
        own.end().await;
        assert!(test_kill_process(pid).is_err(), "it lives on");
        drop(own);
        assert!(!folder.exists());
    }

    #[tokio::test]
    async fn a_server_that_does_not_start_leaves_its_last_words_and_no_folder() {
        let home = tempfile::tempdir().unwrap();
        let program = program(home.path(), "printf 'the port is \\033taken' >&2; exit 5");
        let folder = home.path().join("data");
        let Err(failure) = Own::start_in(folder.clone(), false, program.clone()).await else { panic!("it started") };
        assert!(failure.what.contains("the port is \u{fffd}taken") && failure.what.contains('5'), "{failure}");
        assert!(!folder.exists());
        assert!(Own::start_in(folder.clone(), false, home.path().join("nothing")).await.is_err());
        assert!(!folder.exists(), "nobody began to live in it");
        assert!(Own::start_in(folder.clone(), true, program).await.is_err());
        assert!(folder.join("server.log").exists(), "what is kept stays");
    }
}
