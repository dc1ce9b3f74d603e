//! Benchmark of the scheduler through its actor: decisions per second, and how long a slot is idle between two rounds.
//!
//! The setup is one backend with one slot and a model that answers at once. The voice gate is closed, many messages of as many
//! users are sent and wait for their one round, the gate opens, and the queue drains: each round is one decision. The model
//! records when it answered and when it was called next. The difference is the hand-over time of the permit, with all its steps
//! (return of the answer, return of the permit, decision, wake-up of the next holder).
//!
//! `cargo bench --bench scheduler` prints a table; `-- --quick` runs a tenth of the rounds. The store is in memory: a round
//! needs no commit between two permits, and a disk would only make the ends of turns compete for the processor.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints its results, starts its own load, and an error ends it"
)]

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use annie_actors::{Backend, Extensions, Kernel, KernelLimits, Parts, Profile, Profiles, StreamItem, Submission};
use annie_core::{
    event::{Mode, Scope},
    hooks::Hooks,
    ids::{ConversationId, UserId},
    route::{BackendFacts, RouteMode, RouteTable, default_rules},
};
use annie_store::MemoryStore;
use annie_testkit::{
    env,
    scripted_model::{ScriptedModel, says},
    skills::{FakeSkills, FixedCatalog},
};

const BACKEND: &str = "bench";
const HOLDER: &str = "bench";
/// The lease of the voice gate, in milliseconds; it is renewed while the queue fills.
const GATE_MS: u64 = 60_000;
/// How many messages are sent before the lease of the gate is renewed.
const CHUNK: usize = 250;
/// The minimum number of measured rounds for each queue length.
const ROUNDS_MIN: usize = 10_000;

/// Start and end of each round.
type Rounds = Arc<Mutex<Vec<(Instant, Instant)>>>;

async fn kernel(rounds: Rounds) -> Kernel {
    let mut limits = KernelLimits { mode: Mode::SingleLoop, ..KernelLimits::default() };
    limits.turn.window_calls_max = u32::MAX;
    let model = ScriptedModel::new(move |_, _| {
        let began = Instant::now();
        let reply = says("All is well.");
        rounds.lock().expect("the lock is not poisoned").push((began, Instant::now()));
        Ok(reply)
    });
    let facts = BackendFacts { name: BACKEND.into(), slots: 1, ..BackendFacts::default() };
    let table = RouteTable::new(default_rules(), std::slice::from_ref(&facts)).expect("the rules fit");
    let store = Arc::new(MemoryStore::new());
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
            name: BACKEND.into(),
            slots: 1,
            facts,
            model: Arc::new(model.without_recording()),
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

/// The number of waiting rounds.
async fn waiting_rounds(kernel: &Kernel) -> u64 {
    let (_, view) = kernel.view("/scheduler").await.expect("the scheduler exists");
    view.and_then(|v| v.pointer("/backends/0/ready")?.as_u64()).expect("its view has the number of waiting rounds")
}

/// Sends a message and waits for the end of its turn.
async fn turn(kernel: Kernel, n: usize) {
    let conversation = ConversationId::for_key(&user(n), "bench");
    let message = Submission::new(user(n), "bench", "How are things?").within(conversation);
    let submitted = kernel.submit(message).await.expect("the message is accepted");
    let mut follow = kernel.follow(Scope::User(user(n)), conversation, submitted.seq).await.expect("followed");
    while let Some(item) = follow.next().await.expect("the log can be read") {
        if let StreamItem::Event(event) = item
            && event.task == submitted.task
            && event.body.is_final()
        {
            break;
        }
    }
}

/// Fills the queue while the gate is closed, opens the gate, and waits until all turns have ended. No message arrives while the
/// queue drains.
async fn drain(kernel: &Kernel, waiting: usize) {
    let mut turns = Vec::with_capacity(waiting);
    for from in (0..waiting).step_by(CHUNK) {
        kernel.hold_gate(BACKEND, HOLDER, GATE_MS).await.expect("the gate is closed");
        let to = (from + CHUNK).min(waiting);
        turns.extend((from..to).map(|n| tokio::spawn(turn(kernel.clone(), n))));
        while waiting_rounds(kernel).await < to as u64 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    assert!(
        kernel.release_gate(BACKEND, HOLDER).await.expect("the scheduler answers"),
        "the gate was closed until now"
    );
    for turn in turns {
        turn.await.expect("the turn ends");
    }
}

fn at(sorted: &[f64], of_thousand: usize) -> f64 {
    sorted.get(sorted.len().saturating_sub(1) * of_thousand / 1_000).copied().unwrap_or(0.0)
}

async fn measure(waiting: usize, rounds_min: usize) {
    let rounds = Rounds::default();
    let kernel = kernel(Arc::clone(&rounds)).await;
    drain(&kernel, waiting.min(100)).await;
    rounds.lock().expect("the lock is not poisoned").clear();
    let (mut per_s, mut hand_over_us, mut granted) = (Vec::new(), Vec::new(), 0);
    while granted < rounds_min.max(3 * waiting) {
        drain(&kernel, waiting).await;
        let seen = std::mem::take(&mut *rounds.lock().expect("the lock is not poisoned"));
        assert_eq!(seen.len(), waiting, "one round a turn");
        assert!(seen.is_sorted_by_key(|(began, _)| *began), "one slot: one round at a time");
        granted += seen.len();
        let took = seen.last().expect("there were rounds").1 - seen[0].0;
        per_s.push((seen.len() - 1) as f64 / took.as_secs_f64());
        hand_over_us.extend(seen.windows(2).map(|w| (w[1].0 - w[0].1).as_secs_f64() * 1e6));
    }
    per_s.sort_by(f64::total_cmp);
    hand_over_us.sort_by(f64::total_cmp);
    println!(
        "| {waiting} | {granted} | {:.0} | {:.0} | {:.0} | {:.0} |",
        at(&per_s, 500),
        at(&hand_over_us, 500),
        at(&hand_over_us, 990),
        at(&hand_over_us, 1_000),
    );
    kernel.stop().await;
}

fn main() {
    let quick = std::env::args().any(|a| a == "--quick");
    let rounds_min = if quick { ROUNDS_MIN / 10 } else { ROUNDS_MIN };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        println!("| waiting at first | rounds | decisions/s | hand-over p50 us | p99 us | longest us |");
        println!("|---|---|---|---|---|---|");
        for waiting in [10, 1_000, 5_000] {
            measure(waiting, rounds_min).await;
        }
    });
}
