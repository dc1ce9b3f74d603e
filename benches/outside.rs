//! Benchmark of the program from outside: starts it on one core, drives it through `POST /api/v1/messages?wait=` from the other
//! core, with a model that answers at once, and prints per turn what the system counts of the process: CPU time, page writes
//! and transactions of SQLite, reads, context switches, page faults; and percentiles of the answer. A bare client with one
//! synchronised write, the floor, is measured in the same run.
//!
//! `cargo bench --bench outside` prints tables; `-- --quick` runs a fifth; `-- --only sqlite|postgres|floor|slow|acknowledge` one
//! part; `-- --program PATH` measures another build.
// The driver is a program of its own, and a panic of one of its tasks ends the measurement.
#![allow(clippy::disallowed_methods)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints its results, and an error ends it"
)]

#[path = "parts/model.rs"]
mod model;
mod parts;
#[path = "parts/process.rs"]
mod process;

use std::{
    cell::RefCell,
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::ExitCode,
    rc::Rc,
    time::{Duration, Instant},
};

use annie_testkit::postgres::{Options, Server};
use process::{Counts, Program, Wal, pin};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream, task::LocalSet};

const PARTS: [&str; 5] = ["floor", "sqlite", "postgres", "acknowledge", "slow"];
/// The core of the program, and that of the driver with its model and the database server.
const MEASURED: usize = 0;
const DRIVER: usize = 1;
const AT_ONCE: usize = 16;
const TURNS: usize = 4_800;

/// The scenes: name, text and mode of the message, model calls one after the other, model calls in all.
const SCENES: [Scene; 3] = [
    ("plain", "How are things?", "multi_agent", 1, 1),
    ("one skill", "zskill: what time is it?", "single_loop", 2, 2),
    ("two agents", "zagents: ask both", "multi_agent", 4, 6),
];

const HEAD: &str = "| part | scene | concurrent | turns/s | CPU ms/turn | page writes | transactions | reads | switches | faults | p50 ms | p99 ms | RSS MB |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|";

fn config(model: &str, store: Option<&str>) -> String {
    let store = store.map(|url| format!("[store]\nurl = {url:?}\n")).unwrap_or_default();
    format!(
        r#"timezone = "UTC"
[[backend]]
name = "main"
base_url = {model:?}
model = "m"
slots = 512
[api]
requests_per_minute_max = 6000000
requests_burst_max = 100000
streams_per_user_max = 1000
[turn]
window_calls_max = 1000000
[queue]
depth_per_user = {{ high_max = 1000, normal_max = 1000, low_max = 3, background_max = 5 }}
[log]
level = "warn"
{store}"#
    )
}

/// A connection of a client.
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    address: String,
}

impl Client {
    async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the program listens");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, buffer: Vec::new(), address: address.to_owned() }
    }

    async fn post(&mut self, path: &str, body: &Value) -> (String, Value) {
        let (body, host) = (body.to_string(), &self.address);
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.expect("sent");
        let (head, body) = model::read_message(&mut self.stream, &mut self.buffer).await.expect("an answer");
        let status = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default().to_owned();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// One turn in a new conversation.
    async fn turn(&mut self, (_, text, mode, ..): Scene) {
        let body = json!({"text": text, "mode": mode, "verbatim": true});
        let (status, answer) = self.post("/api/v1/messages?wait=60", &body).await;
        assert!(status == "200", "{status} {answer}");
        let ended = answer.to_string();
        assert!(ended.contains("Done.") || ended.contains("All is well."), "{answer}");
    }
}

type Scene = (&'static str, &'static str, &'static str, u64, u64);

/// Runs `turns` pieces of work on `at_once` connections; returns the sorted times in milliseconds.
async fn drive(address: &str, at_once: usize, turns: usize, scene: Scene, waits: bool) -> Vec<f64> {
    let took = Rc::new(RefCell::new(Vec::with_capacity(turns)));
    let local = LocalSet::new();
    for _ in 0..at_once {
        let (took, address) = (took.clone(), address.to_owned());
        local.spawn_local(async move {
            let mut client = Client::connect(&address).await;
            for _ in 0..turns / at_once {
                let from = Instant::now();
                if waits {
                    client.turn(scene).await;
                } else {
                    let body = json!({"text": scene.1, "mode": scene.2, "verbatim": true});
                    let (status, answer) = client.post("/api/v1/messages", &body).await;
                    assert!(status.starts_with('2'), "{status} {answer}");
                }
                took.borrow_mut().push(from.elapsed().as_secs_f64() * 1e3);
            }
        });
    }
    local.await;
    let mut took = took.take();
    took.sort_by(f64::total_cmp);
    took
}

/// Measures a load on a program, and prints a row of the table.
async fn row(part: &str, program: &Program, at_once: usize, turns: usize, scene: Scene) -> f64 {
    drive(&program.address, at_once, at_once.max(64), scene, true).await;
    let asked = model::requests();
    let (from, before) = (Instant::now(), program.counts());
    let wal = Rc::new(RefCell::new(Wal::default()));
    wal.borrow_mut().look(&program.data);
    let look = {
        let (wal, data) = (wal.clone(), program.data.clone());
        async move {
            loop {
                tokio::time::sleep(Duration::from_millis(5)).await;
                wal.borrow_mut().look(&data);
            }
        }
    };
    let took = tokio::select! {
        took = drive(&program.address, at_once, turns, scene, true) => took,
        () = look => Vec::new(),
    };
    wal.borrow_mut().look(&program.data);
    let (counted, wall) = (program.counts().since(before), from.elapsed().as_secs_f64());
    let n = took.len() as f64;
    let calls = (model::requests() - asked) as f64 / n;
    assert!((calls - scene.4 as f64).abs() < 0.01, "a turn of the scene {:?} made {calls} model calls", scene.0);
    let wal = *wal.borrow();
    let at = |q: f64| took[((took.len() - 1) as f64 * q) as usize];
    println!(
        "| {part} | {} | {at_once} | {:.0} | {:.3} | {:.1} | {:.2} | {:.1} | {:.1} | {:.1} | {:.2} | {:.2} | {:.0} |",
        scene.0,
        n / wall,
        counted.cpu_ms / n,
        wal.pages as f64 / n,
        wal.transactions as f64 / n,
        counted.reads / n,
        counted.switches / n,
        counted.faults / n,
        at(0.5),
        at(0.99),
        counted.rss_mb
    );
    n / wall
}

/// The floor, in a process of its own: the model calls of a scene with a bare client, and one page that is synchronised.
fn floor(arguments: &[String]) {
    let argument = |name: &str| {
        let at = arguments.iter().position(|a| a == name).expect("an argument");
        arguments[at + 1].clone()
    };
    let (url, folder, turns) = (argument("--url"), argument("--folder"), argument("--turns"));
    let (turns, calls): (usize, usize) =
        (turns.parse().expect("a number"), argument("--calls").parse().expect("a number"));
    pin(&[MEASURED]);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let file = std::sync::Arc::new(std::fs::File::create(Path::new(&folder).join("floor")).expect("a file"));
    file.write_all_at(&vec![0; turns * 4_096], 0).expect("written");
    runtime.block_on(async {
        let client = annie_llm::http_client().no_proxy().build().expect("a client");
        let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "x".repeat(4_000)}]});
        let before = Counts::of("self");
        let from = Instant::now();
        let running = (0..AT_ONCE).map(|n| {
            let (client, url, body, file) = (client.clone(), url.clone(), body.clone(), file.clone());
            tokio::spawn(async move {
                for turn in 0..turns / AT_ONCE {
                    for _ in 0..calls {
                        let answer = client.post(format!("{url}/chat/completions")).json(&body).send().await;
                        answer.expect("an answer").bytes().await.expect("a body");
                    }
                    let (file, place) = (file.clone(), (turn * AT_ONCE + n) as u64 * 4_096);
                    let synced = tokio::task::spawn_blocking(move || {
                        file.write_all_at(&[1; 4_096], place)?;
                        file.sync_data()
                    });
                    synced.await.expect("it runs").expect("synced");
                }
            })
        });
        for task in running.collect::<Vec<_>>() {
            task.await.expect("it runs");
        }
        let (counted, wall) = (Counts::of("self").since(before), from.elapsed().as_secs_f64());
        let n = turns as f64;
        println!(
            "| floor | {calls} model calls, one page synchronised | {AT_ONCE} | {:.0} | {:.3} | 1 | 1 | {:.1} | {:.1} | {:.1} | | | {:.0} |",
            n / wall,
            counted.cpu_ms / n,
            counted.reads / n,
            counted.switches / n,
            counted.faults / n,
            counted.rss_mb
        );
    });
}

async fn floors(folder: &Path, turns: usize) {
    let url = model::start(Duration::ZERO).await;
    for calls in [1, 2, 6] {
        let own = std::env::current_exe().expect("this program");
        let (turns, calls) = (turns.to_string(), calls.to_string());
        let mut command = tokio::process::Command::new(own);
        command.args(["--floor", "--url", &url, "--turns", &turns, "--calls", &calls, "--folder"]).arg(folder);
        let status = command.status().await.expect("it runs");
        assert!(status.success(), "the floor: {status}");
    }
}

/// The time of an fdatasync of 8 kB on this disk, in milliseconds; the median of 200.
fn fsync_ms(folder: &Path) -> f64 {
    let mut file = std::fs::File::create(folder.join("fsync")).expect("a file");
    file.write_all(&[0; 8192]).expect("written");
    let mut took: Vec<f64> = (0..200_u8)
        .map(|n| {
            file.write_all_at(&[n; 8192], 0).expect("written");
            let from = Instant::now();
            file.sync_data().expect("synced");
            from.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

/// The program of one run, and how to start it.
struct Run {
    program: PathBuf,
    turns: usize,
}

impl Run {
    async fn start(&self, folder: &Path, delay: Duration, store: Option<&str>, cores: &[usize]) -> Program {
        let model = model::start(delay).await;
        Program::start(&self.program, folder, &config(&model, store), cores, &[DRIVER]).await
    }

    async fn scenes(&self, part: &str, store: Option<&str>) {
        let folder = tempfile::tempdir().expect("a folder");
        let program = self.start(folder.path(), Duration::ZERO, store, &[MEASURED]).await;
        for scene in SCENES {
            row(part, &program, AT_ONCE, self.turns, scene).await;
        }
        row(part, &program, 1, self.turns / 4, SCENES[0]).await;
        program.stop();
    }

    async fn postgres(&self) {
        let Some(server) = Server::start(Options::default()).await else { return };
        let url = server.tcp(&server.database().await);
        self.scenes("postgres", Some(&url)).await;
    }

    async fn acknowledge(&self) {
        let folder = tempfile::tempdir().expect("a folder");
        let program = self.start(folder.path(), Duration::ZERO, None, &[MEASURED]).await;
        drive(&program.address, AT_ONCE, 64, SCENES[0], true).await;
        let took = drive(&program.address, AT_ONCE, self.turns / 8, SCENES[0], false).await;
        let at = |q: f64| took[((took.len() - 1) as f64 * q) as usize];
        println!("\nacknowledged at {AT_ONCE} at once: p50 {:.2} ms, p99 {:.2} ms", at(0.5), at(0.99));
        program.stop();
    }

    /// 256 conversations and a model of 50 ms; the program has both cores, which it shares with the driver.
    async fn slow(&self) {
        const MODEL_MS: u64 = 50;
        let folder = tempfile::tempdir().expect("a folder");
        let program = self.start(folder.path(), Duration::from_millis(MODEL_MS), None, &[MEASURED, DRIVER]).await;
        pin(&[MEASURED, DRIVER]);
        for scene in SCENES {
            let per_s = row("slow", &program, 256, 256 * 20, scene).await;
            let ideal = 256.0 * 1e3 / (MODEL_MS * scene.3) as f64;
            println!("  of the ideal {ideal:.0} turns/s: {:.0} %", per_s * 100.0 / ideal);
        }
        pin(&[DRIVER]);
        program.stop();
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|a| a == "--floor") {
        floor(&arguments);
        return ExitCode::SUCCESS;
    }
    let only = match parts::only(&arguments, &PARTS) {
        Ok(only) => only,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let named = arguments.iter().position(|a| a == "--program").and_then(|at| arguments.get(at + 1));
    let run = Run {
        program: named.map_or(env!("CARGO_BIN_EXE_annie"), String::as_str).into(),
        turns: if arguments.iter().any(|a| a == "--quick") { TURNS / 5 } else { TURNS },
    };
    let wants = |part: &str| only.is_none_or(|only| only == part);
    pin(&[DRIVER]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        println!("fdatasync of 8 kB: {:.2} ms\n\n{HEAD}", fsync_ms(folder.path()));
        if wants("floor") {
            floors(folder.path(), run.turns).await;
        }
        if wants("sqlite") {
            run.scenes("sqlite", None).await;
        }
        if wants("postgres") {
            run.postgres().await;
        }
        if wants("acknowledge") {
            run.acknowledge().await;
        }
        if wants("slow") {
            run.slow().await;
        }
    });
    ExitCode::SUCCESS
}
