//! Benchmark of turns per second and CPU time per turn against a model that answers at once: a plain answer, one skill call, an
//! orchestrator with two parallel sub-agents of one skill call each (six model calls), and a plain answer in a conversation of
//! its own; with 1, 16 and 128 concurrent conversations, on SQLite (synchronous FULL) and in memory. Also 256 conversations
//! against a model that takes 50 ms, idle conversations, cold start, and Engine crash to the next answer.
//!
//! `cargo bench --bench turns` prints tables; `-- --quick` runs a tenth of the turns, `-- --only turns|slow|idle|recovery` one
//! part. Each figure is the median of three rounds. The fsync cost of the disk is printed with the durable figures, because
//! otherwise they measure the disk.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a benchmark prints its results, starts its own load, and an error ends it"
)]

mod parts;

use std::{
    io::Write,
    os::unix::fs::FileExt,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use annie_actors::{
    Backend, Extensions, Kernel, KernelLimits, Operation, Parts, Profile, Profiles, StreamItem, Submission,
};
use annie_core::{
    event::Mode,
    hooks::Hooks,
    ids::{ConversationId, UserId},
    message::{Message, ModelReply, ModelRequest},
    ports::Storage,
    route::{BackendFacts, RouteMode, RouteTable, default_rules},
};
use annie_store::{MemoryStore, SqliteOptions, SqliteStore};
use annie_testkit::{
    env,
    scripted_model::{ScriptedModel, calls, commands, says},
    skills::{FakeSkills, FixedCatalog},
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

/// The parts of the benchmark.
const PARTS: [&str; 4] = ["turns", "slow", "idle", "recovery"];

#[derive(Clone, Copy, PartialEq)]
enum Scene {
    Plain,
    Skill,
    Agents,
    /// A plain answer; each turn is the first of its conversation.
    New,
}

const SCENES: [(Scene, &str); 4] = [
    (Scene::Plain, "plain"),
    (Scene::Skill, "one skill"),
    (Scene::Agents, "two agents"),
    (Scene::New, "plain, new conversation"),
];
/// After how long an Engine of the scene `New` is passivated, in milliseconds: a conversation of one turn is not used again, and
/// thousands of awake Engines would make the later rounds dearer than the first.
const NEW_PASSIVATE_MS: u64 = 1_000;

fn last_text(request: &ModelRequest) -> &str {
    match request.messages.last() {
        Some(
            Message::User { text, .. }
            | Message::Tool { text, .. }
            | Message::Assistant { text, .. }
            | Message::Note { text },
        ) => text,
        None => "",
    }
}

fn reply(scene: Scene, request: &ModelRequest) -> ModelReply {
    let last = last_text(request);
    match scene {
        Scene::Plain | Scene::New => says("All is well."),
        Scene::Skill => match request.messages.last() {
            Some(Message::Tool { .. }) => says("Done."),
            _ => calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": "x"}}))]),
        },
        Scene::Agents if request.tools.is_empty() => {
            if last.contains("<result") {
                says("Done.")
            } else {
                commands(["test.put --what x"])
            }
        }
        Scene::Agents if last.contains("\"agents\"") => says("Both done."),
        Scene::Agents => calls([
            ("dispatch_agent", json!({"agent_id": "one", "mission": "first", "skills": ["test.put"]})),
            ("dispatch_agent", json!({"agent_id": "two", "mission": "second", "skills": ["test.put"]})),
            ("get_agent_results", json!({})),
        ]),
    }
}

async fn kernel(store: Arc<dyn Storage>, scene: Scene, passivate_after_ms: u64) -> Kernel {
    kernel_with(store, scene, passivate_after_ms, ScriptedModel::new(move |request, _| Ok(reply(scene, request)))).await
}

async fn kernel_with(store: Arc<dyn Storage>, scene: Scene, passivate_after_ms: u64, model: ScriptedModel) -> Kernel {
    let mut limits = KernelLimits { passivate_after_ms, ..KernelLimits::default() };
    // The sliding window of skill calls would stop a load of thousands of turns a minute.
    limits.turn.window_calls_max = u32::MAX;
    if scene == Scene::Skill {
        limits.mode = Mode::SingleLoop;
    }
    let model = model.without_recording();
    let facts = BackendFacts { name: "bench".into(), slots: 1_024, ..BackendFacts::default() };
    let table = RouteTable::new(default_rules(), std::slice::from_ref(&facts)).expect("the rules fit");
    let parts = Parts {
        env: env::env(1),
        node: annie_core::ids::NodeId::from_uuid(uuid::Uuid::from_u128(1)),
        context_sources: annie_skillkit::context_sources(store.clone(), annie_skillkit::MemoryDecay::OFF),
        documents: store.clone(),
        store,
        catalog: Arc::new(FixedCatalog::three()),
        runner: Arc::new(FakeSkills::obliging()),
        workflows: Arc::new(annie_core::ports::NoWorkflows),
        backends: vec![Backend {
            name: "bench".into(),
            slots: 1_024,
            facts,
            model: Arc::new(model),
            round_ms_max: None,
        }],
        profiles: Profiles {
            by_user: Default::default(),
            default: Profile { name: String::new(), timezone: "UTC".into() },
        },
        limits,
        routing: (table, RouteMode::default()),
        extensions: Extensions::default(),
        hooks: Hooks::default(),
    };
    Kernel::start(parts).await.expect("the kernel starts")
}

fn user(n: usize) -> UserId {
    UserId::new(format!("user{n}")).expect("a user id")
}

/// One turn in the user's conversation of this benchmark.
async fn turn(kernel: &Kernel, n: usize) -> Duration {
    answer(kernel, n, Some(ConversationId::for_key(&user(n), "bench"))).await
}

/// One turn; without a conversation it opens a new one.
async fn answer(kernel: &Kernel, n: usize, conversation: Option<ConversationId>) -> Duration {
    let from = Instant::now();
    let mut message = Submission::new(user(n), "bench", "How are things?");
    message.conversation = conversation;
    // As `POST /api/v1/messages?wait=` does.
    let (submitted, mut follow) = kernel.ask(message).await.expect("the message is accepted");
    while let Some(item) = follow.next().await.expect("the log can be read") {
        if let StreamItem::Event(event) = item
            && event.task == submitted.task
            && event.body.is_final()
        {
            break;
        }
    }
    from.elapsed()
}

/// CPU time of this process so far, user and system, ended threads included, in seconds. The kernel counts it in nanoseconds; the
/// ticks of 10 ms in /proc/self/stat are a sixth of a quick round.
fn cpu_s() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// Appends to the log since the kernel started.
async fn appends(kernel: &Kernel) -> u64 {
    let (_, view) = kernel.view("/infra/log").await.expect("the log writer runs");
    view.and_then(|view| view["appends"].as_u64()).expect("the log writer answers")
}

fn rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

struct Load {
    per_s: f64,
    cpu_ms: f64,
    appends: f64,
    p50_ms: f64,
    p99_ms: f64,
}

async fn load(kernel: &Kernel, scene: Scene, at_once: usize, turns: usize) -> Load {
    let appends_before = appends(kernel).await;
    let (from, cpu) = (Instant::now(), cpu_s());
    let each = turns / at_once;
    let mut running = Vec::new();
    for n in 0..at_once {
        let kernel = kernel.clone();
        running.push(tokio::spawn(async move {
            let mut took = Vec::with_capacity(each);
            for _ in 0..each {
                let spent = if scene == Scene::New { answer(&kernel, n, None).await } else { turn(&kernel, n).await };
                took.push(spent.as_secs_f64() * 1e3);
            }
            took
        }));
    }
    let mut took = Vec::new();
    for task in running {
        took.extend(task.await.expect("the load runs"));
    }
    let (wall, cpu) = (from.elapsed().as_secs_f64(), cpu_s() - cpu);
    let appended = appends(kernel).await - appends_before;
    took.sort_by(f64::total_cmp);
    let at = |q: f64| took[((took.len() - 1) as f64 * q) as usize];
    let n = took.len() as f64;
    let appends = appended as f64 / n;
    Load { per_s: n / wall, cpu_ms: cpu * 1e3 / n, appends, p50_ms: at(0.5), p99_ms: at(0.99) }
}

/// Opens the store of a scene.
async fn store(name: &str, folder: &std::path::Path, scene: &str) -> Arc<dyn Storage> {
    if name == "memory" {
        return Arc::new(MemoryStore::new());
    }
    let path = folder.join(scene.replace(' ', "_"));
    std::fs::create_dir_all(&path).expect("a folder");
    Arc::new(SqliteStore::open(&path, SqliteOptions::default()).await.expect("sqlite opens"))
}

/// Throughput with a slow model. The ideal is a conversation that waits only for its model.
async fn slow_table(quick: bool, folder: &std::path::Path) {
    const AT_ONCE: usize = 256;
    const MODEL_MS: u64 = 50;
    println!(
        "\n| scene | store | concurrent | model ms | turns/s | of the ideal | CPU ms/turn | appends/turn | p50 ms | p99 ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    // The number of sequential model calls in a turn; two agents work in parallel. A slow model hides what a new conversation
    // costs, so the scene `New` is left out.
    for ((scene, name), calls) in SCENES.into_iter().zip([1_u64, 2, 4]) {
        for store_name in ["sqlite", "memory"] {
            let store = store(store_name, folder, &format!("slow {name}")).await;
            let model = ScriptedModel::new(move |request, _| Ok(reply(scene, request)));
            let kernel = kernel_with(store, scene, 60_000, model.taking(Duration::from_millis(MODEL_MS))).await;
            load(&kernel, scene, AT_ONCE, AT_ONCE).await;
            let mut rounds = Vec::new();
            for _ in 0..3 {
                rounds.push(load(&kernel, scene, AT_ONCE, AT_ONCE * if quick { 4 } else { 40 }).await);
            }
            let of = |f: fn(&Load) -> f64| median(rounds.iter().map(f).collect());
            let ideal = AT_ONCE as f64 * 1e3 / (MODEL_MS * calls) as f64;
            println!(
                "| {name} | {store_name} | {AT_ONCE} | {MODEL_MS} | {:.0} | {:.0} % | {:.2} | {:.2} | {:.2} | {:.2} |",
                of(|l| l.per_s),
                of(|l| l.per_s) * 100.0 / ideal,
                of(|l| l.cpu_ms),
                of(|l| l.appends),
                of(|l| l.p50_ms),
                of(|l| l.p99_ms)
            );
            kernel.stop().await;
        }
    }
}

async fn turns_table(quick: bool, folder: &std::path::Path) {
    println!("| scene | store | concurrent | turns/s | CPU ms/turn | appends/turn | p50 ms | p99 ms |");
    println!("|---|---|---|---|---|---|---|---|");
    for (scene, name) in SCENES {
        for store_name in ["sqlite", "memory"] {
            let store = store(store_name, folder, name).await;
            let passivate_ms = if scene == Scene::New { NEW_PASSIVATE_MS } else { 60_000 };
            let kernel = kernel(store, scene, passivate_ms).await;
            for at_once in [1, 16, 128] {
                let turns = if quick { 256 } else { 2_560 };
                load(&kernel, scene, at_once, at_once.max(64)).await;
                let mut rounds = Vec::new();
                for _ in 0..3 {
                    rounds.push(load(&kernel, scene, at_once, turns).await);
                }
                let of = |f: fn(&Load) -> f64| median(rounds.iter().map(f).collect());
                println!(
                    "| {name} | {store_name} | {at_once} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} |",
                    of(|l| l.per_s),
                    of(|l| l.cpu_ms),
                    of(|l| l.appends),
                    of(|l| l.p50_ms),
                    of(|l| l.p99_ms)
                );
            }
            kernel.stop().await;
        }
    }
}

async fn idle_table(quick: bool) {
    println!("\n| conversations | MB active | MB after passivation |\n|---|---|---|");
    for count in if quick { [100, 1_000] } else { [1_000, 10_000] } {
        let before = rss_mb();
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(folder.path(), SqliteOptions::default()).await.expect("sqlite opens");
        let kernel = kernel(Arc::new(store), Scene::Plain, if quick { 1_500 } else { 20_000 }).await;
        for chunk in (0..count).collect::<Vec<_>>().chunks(64) {
            futures_util::future::join_all(chunk.iter().map(|n| turn(&kernel, *n))).await;
        }
        let active = rss_mb() - before;
        while kernel.tree().iter().any(|n| n.kind == "engine") {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        println!("| {count} | {active:.1} | {:.1} |", rss_mb() - before);
        kernel.stop().await;
    }
}

async fn recovery() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Instant::now();
    let store = SqliteStore::open(folder.path(), SqliteOptions::default()).await.expect("sqlite opens");
    let first = kernel(Arc::new(store), Scene::Plain, 60_000).await;
    let up = from.elapsed();
    turn(&first, 0).await;
    println!(
        "\ncold start, empty database: up in {:.1} ms, first answer after {:.1} ms",
        up.as_secs_f64() * 1e3,
        from.elapsed().as_secs_f64() * 1e3
    );
    // One kill for each conversation: a second kill within the budget's window would measure the back-off.
    let mut took = Vec::new();
    for n in 0..100 {
        turn(&first, n).await;
        let path = format!("/conversations/engine:{}", ConversationId::for_key(&user(n), "bench"));
        first.operate(&path, None, Operation::Kill, "bench").await.expect("the Engine exists");
        took.push(turn(&first, n).await.as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    println!(
        "engine killed to answering: p50 {:.2} ms, p99 {:.2} ms of {}",
        took[took.len() / 2],
        took[took.len() * 99 / 100],
        took.len()
    );
    first.stop().await;
}

/// The time of an fsync of 8 kB on this disk, in milliseconds; the median of 200.
fn fsync_ms(folder: &std::path::Path) -> f64 {
    let mut file = std::fs::File::create(folder.join("fsync")).expect("a file");
    file.write_all(&[0; 8192]).expect("written");
    let mut took = Vec::new();
    for n in 0..200_u8 {
        file.write_all_at(&[n; 8192], 0).expect("written");
        let from = Instant::now();
        file.sync_data().expect("synced");
        took.push(from.elapsed().as_secs_f64() * 1e3);
    }
    median(took)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let quick = args.iter().any(|a| a == "--quick");
    let only = match parts::only(&args, &PARTS) {
        Ok(only) => only,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let wants = |part: &str| only.is_none_or(|only| only == part);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        println!("fdatasync of 8 kB: {:.2} ms\n", fsync_ms(folder.path()));
        if wants("turns") {
            turns_table(quick, folder.path()).await;
        }
        if wants("slow") {
            slow_table(quick, folder.path()).await;
        }
        if wants("idle") {
            idle_table(quick).await;
        }
        if wants("recovery") {
            recovery().await;
        }
    });
    ExitCode::SUCCESS
}
