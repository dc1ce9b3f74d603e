//! The program under test as a process: started on a core of its own, and what the system counts of it.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;

/// Puts this thread, and the threads and processes that it starts from now on, on these cores.
pub fn pin(cores: &[usize]) {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    if let Err(error) = sched_setaffinity(None, &set) {
        eprintln!("cannot choose the cores {cores:?}: {error}");
    }
}

/// The program, with a data folder of its own.
pub struct Program {
    child: Child,
    pub address: String,
    pub data: PathBuf,
}

impl Program {
    /// Starts the program on these cores, and waits until it is ready; this thread goes back to the cores of the driver.
    pub async fn start(program: &Path, folder: &Path, config: &str, cores: &[usize], driver: &[usize]) -> Self {
        let (data, toml, ready) = (folder.join("data"), folder.join("annie.toml"), folder.join("ready.json"));
        std::fs::write(&toml, config).expect("a configuration");
        let log = std::fs::File::create(folder.join("annie.log")).expect("a log");
        pin(cores);
        let child = Command::new(program)
            .args(["--data".as_ref(), data.as_os_str(), "--config".as_ref(), toml.as_os_str()])
            .args(["serve", "--port", "0", "--ready-file"])
            .arg(&ready)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        pin(driver);
        let mut this = Self { child, address: String::new(), data };
        for _ in 0..10_000 {
            let reported: Value =
                std::fs::read(&ready).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
            if let Some(url) = reported["url"].as_str() {
                url.trim_start_matches("http://").clone_into(&mut this.address);
                return this;
            }
            let ended = this.child.try_wait().ok().flatten();
            assert!(ended.is_none(), "the program ended: see {}", folder.join("annie.log").display());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("the program is not ready: see {}", folder.join("annie.log").display());
    }

    pub fn counts(&self) -> Counts {
        Counts::of(&self.child.id().to_string())
    }

    /// SIGTERM, and the wait for the end.
    pub fn stop(mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the system has counted of a process.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// CPU time of all its threads, in milliseconds; ticks of 10 ms.
    pub cpu_ms: f64,
    /// System calls that read files: with SQLite these are the pages that its caches do not have.
    pub reads: f64,
    /// Switches between its threads and others.
    pub switches: f64,
    pub faults: f64,
    pub rss_mb: f64,
}

impl Counts {
    /// Of the process with this id, or `self`.
    pub fn of(pid: &str) -> Self {
        let read = |path: &str| std::fs::read_to_string(format!("/proc/{pid}/{path}")).unwrap_or_default();
        let field = |text: &str, name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
        };
        let stat = read("stat");
        let stat: Vec<f64> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().map(|n| n.parse().unwrap_or(0.0)).collect();
        let at = |n: usize| stat.get(n - 3).copied().unwrap_or(0.0);
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let switches = threads.map(|thread| {
            let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            field(&status, "voluntary_ctxt_switches:") + field(&status, "nonvoluntary_ctxt_switches:")
        });
        Self {
            cpu_ms: (at(14) + at(15)) * 10.0,
            reads: field(&read("io"), "syscr:"),
            switches: switches.sum(),
            faults: at(10),
            rss_mb: field(&read("status"), "VmRSS:") / 1024.0,
        }
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            cpu_ms: self.cpu_ms - before.cpu_ms,
            reads: self.reads - before.reads,
            switches: self.switches - before.switches,
            faults: self.faults - before.faults,
            rss_mb: self.rss_mb,
        }
    }
}

/// Pages and transactions that SQLite has written, read from the index of its write-ahead log beside the database. The index
/// begins again with each checkpoint, so it must be read often.
#[derive(Default, Clone, Copy)]
pub struct Wal {
    pub pages: u64,
    pub transactions: u64,
    last: Option<(u32, u32)>,
}

impl Wal {
    /// Pages in the log from which on it begins again.
    const CHECKPOINT_PAGES: u32 = 4_000;

    pub fn look(&mut self, data: &Path) {
        let Ok(bytes) = std::fs::read(data.join("annie.db-shm")) else { return };
        let number = |at: usize| bytes.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        // The header is stored twice: two different copies are a header that is being written.
        if bytes.len() < 96 || bytes[..48] != bytes[48..96] {
            return;
        }
        let (changes, frames) = (number(8), number(16));
        if let Some((changes_before, frames_before)) = self.last {
            self.transactions += u64::from(changes.wrapping_sub(changes_before));
            self.pages += u64::from(match frames.checked_sub(frames_before) {
                Some(more) => more,
                None => Self::CHECKPOINT_PAGES.saturating_sub(frames_before) + frames,
            });
        }
        self.last = Some((changes, frames));
    }
}
