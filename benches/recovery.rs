//! Benchmark of recovery time and the cost of durability, on SQLite and on PostgreSQL: SIGKILL to ready with thousands of stored
//! conversations, Engine crash to the next answer, replay and snapshot of a conversation of 100,000 events, durable turns and
//! acknowledgements of 1, 16 and 128 concurrent conversations.
//!
//! `cargo bench --bench recovery` prints tables; `-- --quick` runs a tenth, `-- --only kills|engines|log|turns` one part.
//! Figures are medians unless stated otherwise. The fsync cost of the disk is printed first, because durable figures include it.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    dead_code,
    reason = "a benchmark prints its results, and an error ends it"
)]

mod parts;

use std::{
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use annie::{
    boot,
    config::{Config, Environment},
};
use annie_actors::{Backend, Extensions, Kernel, KernelLimits, Parts, Profile, Profiles, StreamItem, Submission};
use annie_core::{
    event::{EventBody, Inbound, Mode, NewEvent, Priority, PromptFacts, Scope},
    hooks::Hooks,
    ids::{AgentId, ConversationId, Epoch, NodeIncarnation, Seq, TaskId, UserId},
    limits::TurnLimits,
    message::{Finish, Usage},
    ports::{Append, Fence, Storage, Store},
    route::{BackendFacts, RouteMode, RouteTable, default_rules},
    time::Micros,
    turn::Conversation,
};
use annie_testkit::{
    env,
    postgres::{Options, Server},
    scripted_model::ScriptedModel,
    skills::{FakeSkills, FixedCatalog},
};
use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;

#[path = "../tests/soak/mod.rs"]
mod soak;

use soak::{
    fsync_ms, model,
    report::quantiles,
    site::{Setting, Site},
};

/// The parts of the benchmark.
const PARTS: [&str; 4] = ["kills", "engines", "log", "turns"];

/// A database to measure on.
struct Database {
    name: &'static str,
    server: Option<Arc<Server>>,
}

impl Database {
    /// The address of a new, empty PostgreSQL database; `None` for SQLite, whose database is in the folder.
    async fn url(&self) -> Option<String> {
        match &self.server {
            Some(server) => Some(server.tcp(&server.database().await)),
            None => None,
        }
    }

    async fn open(&self, folder: &Path) -> Arc<dyn Storage> {
        let mut config = Config::default();
        config.store.url = self.url().await.map(Into::into);
        boot::open_store(&config, &Environment::default(), folder).await.expect("the store opens")
    }
}

struct Size {
    quick: bool,
}

impl Size {
    fn of(&self, whole: usize) -> usize {
        if self.quick { whole / 10 } else { whole }
    }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Kills and restarts the real program several times, with different numbers of stored conversations.
async fn kills(database: &Database, size: &Size) {
    for stored in [size.of(1_000), size.of(10_000)] {
        let folder = tempfile::tempdir().expect("a folder");
        let model = model::start().await;
        let url = database.url().await;
        let setting = Setting { model_url: &model.base_url(), store_url: url.as_deref() };
        let data = folder.path().join("data");
        let mut site = Site::new(env!("CARGO_BIN_EXE_annie"), folder.path(), &data, &setting);
        site.spawn();
        site.ready().await;
        fill(&site, stored).await;
        let (mut ready, mut answer) = (Vec::new(), Vec::new());
        for n in 0..11 {
            let since = Instant::now();
            site.kill();
            site.spawn();
            site.ready().await;
            ready.push(ms(since));
            say(&site, &format!("after-{n}")).await;
            answer.push(ms(since));
        }
        let (ready, answer) = (quantiles(&ready), quantiles(&answer));
        println!(
            "| {} | {stored} | {:.0} | {:.0} | {:.0} | {:.0} |",
            database.name, ready[0], ready[2], answer[0], answer[2]
        );
    }
}

async fn fill(site: &Site, count: usize) {
    const AT_ONCE: usize = 8;
    let site = &site;
    futures_util::future::join_all((0..AT_ONCE).map(|n| async move {
        for key in (n..count).step_by(AT_ONCE) {
            say(site, &format!("stored-{key}")).await;
        }
    }))
    .await;
}

/// Sends a message and waits for the answer.
async fn say(site: &Site, key: &str) {
    let body = json!({"text": "zplain TK1N1E", "conversation_key": key, "mode": "multi_agent", "verbatim": true});
    let reply = site.operate("/api/v1/messages?wait=20", &body).await;
    assert!(reply.as_ref().is_some_and(|(status, _)| *status == 200), "{reply:?}");
}

/// Kills each Engine once and sends another message to its conversation.
async fn engines(database: &Database, size: &Size) {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = kernel(database.open(folder.path()).await, 60_000).await;
    let mut took = Vec::new();
    for n in 0..size.of(200) {
        let conversation = ConversationId::for_key(&user(), &format!("engine-{n}"));
        turn(&kernel, conversation).await;
        let since = Instant::now();
        let path = format!("/conversations/engine:{conversation}");
        kernel.operate(&path, None, annie_actors::Operation::Kill, "bench").await.expect("the Engine exists");
        turn(&kernel, conversation).await;
        took.push(ms(since));
    }
    kernel.stop().await;
    let [p50, p99, max] = quantiles(&took);
    println!("| {} | {} | {p50:.2} | {p99:.2} | {max:.2} |", database.name, took.len());
}

fn user() -> UserId {
    UserId::new("ann").expect("a user id")
}

async fn kernel(store: Arc<dyn Storage>, passivate_after_ms: u64) -> Kernel {
    let limits = KernelLimits { passivate_after_ms, ..KernelLimits::default() };
    let facts = BackendFacts { name: "bench".into(), slots: 256, ..BackendFacts::default() };
    let table = RouteTable::new(default_rules(), std::slice::from_ref(&facts)).expect("the rules fit");
    let model = ScriptedModel::saying("All is well.").without_recording();
    let parts = Parts {
        env: env::env(1),
        node: annie_core::ids::NodeId::from_uuid(uuid::Uuid::from_u128(1)),
        context_sources: annie_skillkit::context_sources(store.clone(), annie_skillkit::MemoryDecay::OFF),
        documents: store.clone(),
        store,
        catalog: Arc::new(FixedCatalog::three()),
        runner: Arc::new(FakeSkills::obliging()),
        workflows: Arc::new(annie_core::ports::NoWorkflows),
        backends: vec![Backend { name: "bench".into(), slots: 256, facts, model: Arc::new(model), round_ms_max: None }],
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

/// Runs one turn. Returns the milliseconds to its acknowledgement and to its answer.
async fn turn(kernel: &Kernel, conversation: ConversationId) -> (f64, f64) {
    turn_of(kernel, &user(), conversation).await
}

async fn turn_of(kernel: &Kernel, user: &UserId, conversation: ConversationId) -> (f64, f64) {
    let since = Instant::now();
    let message = Submission::new(user.clone(), "bench", "How are things?").within(conversation);
    let submitted = kernel.submit(message).await.expect("the message is accepted");
    let acknowledged = ms(since);
    let mut follow = kernel.follow(Scope::User(user.clone()), conversation, submitted.seq).await.expect("followed");
    while let Some(item) = follow.next().await.expect("the log can be read") {
        if let StreamItem::Event(event) = item
            && event.task == submitted.task
            && event.body.is_final()
        {
            break;
        }
    }
    (acknowledged, ms(since))
}

/// Measures durable turns per second, and the time to an acknowledgement.
async fn turns(database: &Database, size: &Size) {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = kernel(database.open(folder.path()).await, 60_000).await;
    for at_once in [1, 16, 128] {
        let mut rounds = Vec::new();
        for _ in 0..3 {
            rounds.push(load(&kernel, at_once, size.of(2_560).max(at_once)).await);
        }
        let of = |f: fn(&Load) -> f64| quantiles(&rounds.iter().map(f).collect::<Vec<_>>())[0];
        println!(
            "| {} | {at_once} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} |",
            database.name,
            of(|l| l.per_s),
            of(|l| l.acknowledged[0]),
            of(|l| l.acknowledged[1]),
            of(|l| l.answered[0]),
            of(|l| l.answered[1]),
        );
    }
    kernel.stop().await;
}

struct Load {
    per_s: f64,
    acknowledged: [f64; 3],
    answered: [f64; 3],
}

async fn load(kernel: &Kernel, at_once: usize, turns: usize) -> Load {
    let since = Instant::now();
    let mut all = JoinSet::new();
    for n in 0..at_once {
        let kernel = kernel.clone();
        all.spawn(async move {
            // One user for each conversation, so that the per-user queue limits do not interfere.
            let user = UserId::new(format!("user{n}")).expect("a user id");
            let conversation = ConversationId::for_key(&user, "load");
            let mut took = Vec::new();
            for _ in 0..turns / at_once {
                took.push(turn_of(&kernel, &user, conversation).await);
            }
            took
        });
    }
    let took: Vec<(f64, f64)> = all.join_all().await.into_iter().flatten().collect();
    let per_s = took.len() as f64 / since.elapsed().as_secs_f64();
    let (acknowledged, answered): (Vec<f64>, Vec<f64>) = took.into_iter().unzip();
    Load { per_s, acknowledged: quantiles(&acknowledged), answered: quantiles(&answered) }
}

/// Measures a long conversation: reading, folding, writing and reading its snapshot, and the first answer of an Engine without
/// and with a snapshot.
async fn long_log(database: &Database, size: &Size) {
    const EVENTS_IN_A_TURN: usize = 5;
    let events = size.of(100_000);
    let folder = tempfile::tempdir().expect("a folder");
    let store = database.open(folder.path()).await;
    let conversation = ConversationId::for_key(&user(), "long");
    let since = Instant::now();
    write(&*store, conversation, events / EVENTS_IN_A_TURN).await;
    let written = ms(since);
    let since = Instant::now();
    let mut log = Vec::new();
    loop {
        let after = log.last().map_or(Seq(0), |e: &annie_core::event::Event| e.seq);
        let page = store.events(Scope::User(user()), conversation, after, 500).await.expect("the log can be read");
        if page.is_empty() {
            break;
        }
        log.extend(page);
    }
    let read = ms(since);
    let since = Instant::now();
    let mut state = Conversation::new(conversation, user());
    log.iter().for_each(|event| state.apply(event));
    let folded = ms(since);
    let (mut kept, mut taken, mut snapshot) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..21 {
        let since = Instant::now();
        snapshot = serde_json::to_string(&state).expect("JSON");
        kept.push(ms(since));
        let since = Instant::now();
        let again: Conversation = serde_json::from_str(&snapshot).expect("it can be read");
        taken.push(ms(since));
        assert_eq!(again, state, "the snapshot is the state");
    }
    let (kept, taken) = (quantiles(&kept)[0], quantiles(&taken)[0]);
    let log_mb: usize = log.iter().map(|e| serde_json::to_string(e).map_or(0, |t| t.len())).sum::<usize>();
    let kernel = kernel(store, 500).await;
    let (_, whole) = turn(&kernel, conversation).await;
    // The Engine passivates and stores a snapshot.
    while kernel.tree().iter().any(|node| node.kind == "engine") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (_, with_snapshot) = turn(&kernel, conversation).await;
    kernel.stop().await;
    println!(
        "| {} | {} | {written:.0} | {:.1} | {read:.0} | {folded:.0} | {:.1} | {kept:.2} | {taken:.2} | {whole:.0} | {with_snapshot:.1} |",
        database.name,
        log.len(),
        log_mb as f64 / 1e6,
        snapshot.len() as f64 / 1e3,
    );
}

/// Writes turns as an Engine does: the message, the start of the turn, a decision, a reply, the answer.
async fn write(store: &dyn Store, conversation: ConversationId, turns: usize) {
    let mut epoch = None;
    for first in (0..turns).step_by(20) {
        let mut batch = Vec::new();
        for n in first..turns.min(first + 20) {
            let task = TaskId::from_uuid(Uuid::from_u128(n as u128 + 1));
            let at = Micros(1_800_000_000_000_000 + n as i64 * 1_000_000);
            let event = |body| NewEvent { at, task, agent: AgentId::orchestrator(), body };
            let append = |fence, events| Append { conversation, user: user(), fence, events };
            batch.push(append(Fence::Inbox, vec![event(received(n))]));
            let Some(owner) = epoch else {
                commit(store, std::mem::take(&mut batch)).await;
                epoch = Some(claim(store, conversation).await);
                batch.push(append(Fence::Owner(epoch.expect("claimed")), turn_of_log(n).map(event).to_vec()));
                continue;
            };
            batch.push(append(Fence::Owner(owner), turn_of_log(n).map(event).to_vec()));
        }
        commit(store, batch).await;
    }
}

async fn commit(store: &dyn Store, batch: Vec<Append>) {
    let done = store.commit(batch).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
}

async fn claim(store: &dyn Store, conversation: ConversationId) -> Epoch {
    let by = NodeIncarnation::from_uuid(Uuid::from_u128(1));
    store.claim(conversation, by).await.expect("the store works").expect("the conversation exists").epoch
}

fn received(n: usize) -> EventBody {
    EventBody::Received(Inbound {
        client_id: format!("message-{n}"),
        text: format!("This is message {n}, and it is about as long as what people say. {}", "word ".repeat(20)),
        source: "http".to_owned(),
        priority: Priority::High,
        ..Inbound::default()
    })
}

fn turn_of_log(n: usize) -> [EventBody; 4] {
    let text = format!("This is the answer to message {n}, a little longer than the question. {}", "word ".repeat(40));
    let facts = PromptFacts { skills: "- domain: what it is for".repeat(20), ..PromptFacts::default() };
    [
        EventBody::TurnStarted {
            mode: Mode::MultiAgent,
            facts,
            limits: TurnLimits::default(),
            route: Vec::new(),
            continues: None,
        },
        EventBody::Decided {
            component: "engine".to_owned(),
            decision: "run in mode multi_agent".to_owned(),
            reasoning: "it is the configured mode".to_owned(),
            alternatives: vec!["single_loop".to_owned(), "direct".to_owned()],
            hook: None,
        },
        EventBody::ModelReplied {
            round: 1,
            text: text.clone(),
            calls: Vec::new(),
            finish: Finish::Stop,
            usage: Usage::default(),
            model: "m".to_owned(),
            backend: "main".to_owned(),
            declined: false,
            provider_state: None,
            repairs: Vec::new(),
            cached: false,
            waited_ms: 0,
            prefill_ms: 0,
            judged: None,
        },
        EventBody::answered(text),
    ]
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let size = Size { quick: arguments.iter().any(|a| a == "--quick") };
    let only = match parts::only(&arguments, &PARTS) {
        Ok(only) => only,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let wants = |what: &str| only.is_none_or(|only| only == what);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        println!("fdatasync of 8 kB: {:.2} ms", fsync_ms(folder.path()));
        let mut databases = vec![Database { name: "SQLite", server: None }];
        if let Some(server) = Server::start(Options { fsync: true }).await {
            databases.push(Database { name: "PostgreSQL", server: Some(server) });
        }
        if wants("kills") {
            println!("\n| store | conversations | SIGKILL to ready ms | longest | to an answer ms | longest |\n|---|---|---|---|---|---|");
            for database in &databases {
                kills(database, &size).await;
            }
        }
        if wants("engines") {
            println!("\n| store | Engines killed | to its answer p50 ms | p99 ms | longest ms |\n|---|---|---|---|---|");
            for database in &databases {
                engines(database, &size).await;
            }
        }
        if wants("log") {
            println!(
                "\n| store | events | written ms | log MB | read ms | folded ms | snapshot kB | made ms | read ms | first answer without it ms | with it ms |\n\
                 |---|---|---|---|---|---|---|---|---|---|---|"
            );
            for database in &databases {
                long_log(database, &size).await;
            }
        }
        if wants("turns") {
            println!("\n| store | concurrent | turns/s | acknowledged p50 ms | p99 ms | answered p50 ms | p99 ms |\n|---|---|---|---|---|---|---|");
            for database in &databases {
                turns(database, &size).await;
            }
        }
    });
    ExitCode::SUCCESS
}
