//! One run: all steps of the seed happen, then the faults end, time passes, and everything that was accepted must end.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Once},
    time::Duration,
};

use annie_core::{
    event::{EventBody, Scope},
    ids::{ConversationId, Seq, TaskId},
    ports::{DeadLetters, Log, Operations, Outbox, Records, TaskState},
    time::Micros,
};
use annie_testkit::sim::{Injection, Plan};
use futures_util::FutureExt;
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

use super::{
    forces, people,
    scenario::{self, Step, USERS, What},
    tables,
    town::{Town, pass_ms},
    voice,
    watch::now,
};

/// Simulated time within which everything must end once no faults are injected any more, in milliseconds.
const END_MS_MAX: u64 = 4 * 3_600_000;

/// Simulated time of a whole run, and of its steps alone, in milliseconds.
const RUN_MS_MAX: u64 = 8 * 3_600_000;
const STEPS_MS_MAX: u64 = 1_800_000;

/// Before every n-th step the tables are compared with their rebuild from the log.
const TABLES_EVERY: usize = 4;

/// A seed and what to change in its run.
#[derive(Debug, Clone, Default)]
pub struct Planned {
    pub seed: u64,
    pub plan: Plan,
    /// Steps that are left out.
    pub without: BTreeSet<u64>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// Everything that was stored, done and injected, with its times.
    pub log: Vec<String>,
    pub wrong: Vec<String>,
    pub fault_at: Vec<Injection>,
    pub steps: Vec<Step>,
    pub tally: Tally,
}

/// Counts of what happened.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    pub events: u64,
    pub acked: u64,
    pub effects: u64,
    pub fenced: u64,
    pub runs: u64,
    pub simulated_ms: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, acked, effects, fenced, runs, simulated_ms } = self;
        write!(
            f,
            "{events} events, {acked} acknowledged, {effects} effects, {fenced} fenced, {runs} runs, {simulated_ms} ms"
        )
    }
}

impl Report {
    /// The kinds of what is wrong: the messages without names, numbers and times.
    pub fn kinds(&self) -> BTreeSet<String> {
        let is_end = |w: &&str| w.chars().all(|c| c.is_alphabetic() || c == ',');
        self.wrong.iter().map(|w| w.split_whitespace().take(12).filter(is_end).collect::<Vec<_>>().join(" ")).collect()
    }

    /// Two runs with the same fingerprint were the same run.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for line in &self.log {
            hash.update(line);
            hash.update([0]);
        }
        format!("{:x}", hash.finalize())
    }
}

thread_local! {
    /// Panics on this thread that were not injected.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// The run reports panics that happen in it. Injected panics are not reported.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_a_runs = PANICS.with_borrow_mut(|panics| {
                let Some(panics) = panics else { return false };
                let text = info.to_string();
                if !text.contains("injected") {
                    panics.push(text);
                }
                true
            });
            if !is_a_runs {
                before(info);
            }
        }));
    });
}

/// Runs the plan on one thread with virtual time, which passes when no task can proceed.
pub fn run(planned: &Planned) -> Report {
    catch_panics();
    PANICS.set(Some(Vec::new()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let mut report = runtime.block_on(async {
        let town = Town::new(planned.seed, planned.plan.clone());
        let mut steps = scenario::steps(town.dice);
        steps.retain(|step| !planned.without.contains(&step.id));
        let whole = tokio::time::timeout(Duration::from_millis(RUN_MS_MAX), live(&town, &steps));
        match AssertUnwindSafe(whole).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => town.watch.wrong("the run never comes to an end".to_owned()),
            Err(_) => town.watch.wrong("the run itself broke down".to_owned()),
        }
        report(&town, steps)
    });
    drop(runtime);
    let panics = PANICS.take().unwrap_or_default();
    report.wrong.extend(panics.into_iter().map(|text| format!("a panic that was not injected: {text}")));
    report
}

/// Runs all steps until they are over or something is wrong.
async fn live(town: &Arc<Town>, steps: &[Step]) {
    let mut background = JoinSet::new();
    background.spawn(town.clone().manage());
    background.spawn(forces::bring_results(town.clone()));
    background.spawn(voice::watch_voice(town.clone()));
    let mut under_way = JoinSet::new();
    let begun = tokio::time::Instant::now();
    for (n, step) in steps.iter().enumerate() {
        tokio::time::sleep_until(begun + Duration::from_millis(step.at_ms)).await;
        if n % TABLES_EVERY == 0 {
            tables::check(town);
        }
        if !town.watch.is_well() {
            return;
        }
        let set = if matches!(step.what, What::Listen { .. }) { &mut background } else { &mut under_way };
        begin(town, step, set);
    }
    let all = async { while under_way.join_next().await.is_some() {} };
    if tokio::time::timeout(Duration::from_millis(STEPS_MS_MAX), all).await.is_err() {
        town.watch.wrong(format!("a step waits for ever for an answer\n{}", describe(town).await));
        return;
    }
    town.schedule.disarm();
    if town.watch.is_well() {
        end(town).await;
    }
    town.ends();
}

fn begin(town: &Arc<Town>, step: &Step, set: &mut JoinSet<()>) {
    let (town, id) = (town.clone(), step.id);
    town.watch.note(&format!("STEP {step:?}"));
    match step.what.clone() {
        What::Say(say) => set.spawn(people::say(town, id, say)),
        What::Control { user, verb } => set.spawn(at_most(people::control(town, user, verb))),
        What::Listen { user, conversation } => set.spawn(people::listen(town, id, user, conversation)),
        What::Spy { user } => set.spawn(at_most(people::spy(town, user))),
        What::Injection { position, how } => set.spawn(at_most(forces::operate_on_actor(town, position, how))),
        What::Gate { backend, ms } => set.spawn(at_most(forces::gate(town, backend, ms))),
        What::PowerCut => set.spawn(forces::power_cut(town)),
        What::Restart => set.spawn(forces::restart(town)),
        What::Freeze { ms, wakes_ms } => set.spawn(forces::freeze(town, ms, wakes_ms)),
        What::Jump { ms } => set.spawn(async move { forces::jump(&town, ms) }),
        What::Tidy => set.spawn(at_most(forces::tidy(town))),
    };
}

/// A process that dies in the middle never answers, so each call has a time limit.
async fn at_most(question: impl Future<Output = ()>) {
    let _ = tokio::time::timeout(Duration::from_secs(120), question).await;
}

/// No faults are injected any more. Everything that was accepted must end, and nothing may be left over.
async fn end(town: &Arc<Town>) {
    let mut waited_ms = 0;
    loop {
        let open = list_open(town);
        if open.is_empty() {
            break;
        }
        if waited_ms >= END_MS_MAX || !town.watch.is_well() {
            town.watch.wrong(format!("never comes to its end: {open:#?}\n{}", describe(town).await));
            return;
        }
        // Tasks that users suspended are resumed at the end.
        if waited_ms % 10_000 == 0 {
            let held = now(town.data.tasks(Scope::Operator, true, Micros(i64::MAX).into(), 500));
            for row in held.into_iter().filter(|row| row.state == TaskState::Suspended) {
                let kernel = town.process().await.kernel;
                let _ = kernel.control(Scope::Operator, row.id, annie_actors::Control::Continue, "the end").await;
            }
        }
        let step_ms = if waited_ms < 60_000 { 500 } else { 10_000 };
        pass_ms(step_ms).await;
        waited_ms += step_ms;
    }
    // A timer of a deadline that no longer matters may restart the idle time.
    pass_ms(2 * town.passivate_after_ms() + 10_000).await;
    nothing_is_left(town).await;
    everything_is_notified(town);
    tables::check(town);
    let process = town.process().await;
    forces::stop(town, &process).await;
    town.watch.finish();
}

/// Everything that has no end yet.
fn list_open(town: &Town) -> Vec<String> {
    let never = Micros(i64::MAX);
    let tasks = now(town.data.tasks(Scope::Operator, true, never.into(), 500));
    let mut open: Vec<String> = tasks.iter().map(|t| format!("{} {} {:?}", t.id, t.state, t.title)).collect();
    let dead_letters = now(town.data.dead_letters_waiting());
    if dead_letters.count > 0 {
        open.push(format!("dead letters: {dead_letters:?}"));
    }
    let operations = now(town.data.operations(Scope::Operator, true, never.into(), 500));
    open.extend(operations.iter().map(|o| format!("operation {} until {}", o.id, o.expires_at)));
    open.extend(now(town.data.outbox(500)).iter().map(|entry| format!("undelivered: {entry:?}")));
    // A result may be due although no process knows that it is awaited: its receipt died with a process.
    open.extend((town.skills.to_bring() > 0).then(|| "results that are still to be brought".to_owned()));
    open
}

/// The process as operators see it, for the message of a failure.
async fn describe(town: &Town) -> String {
    let Some(process) = town.present() else { return "there is no process".to_owned() };
    let queue = process.kernel.queue().await;
    let mut text = format!("queue: {queue:?}\ncrashes: {:#?}\n", process.kernel.crashes());
    for node in process.kernel.tree() {
        let view = process.kernel.view(node.path.as_str()).await.ok().and_then(|(_, view)| view);
        text.push_str(&format!("{} {}\n", node.path, view.unwrap_or_default()));
    }
    text
}

/// Checks that no permit is out, no task waits, and every Engine is passivated.
async fn nothing_is_left(town: &Town) {
    let process = town.process().await;
    match process.kernel.queue().await {
        Ok(queue) => {
            // The notification of a task's end may have been lost. The scheduler then removes the task from its table
            // only when it refuses another. But no task may wait for a round.
            let asks = |entry: &serde_json::Value| !entry["backend"].is_null();
            let running = queue["running"].as_array().cloned().unwrap_or_default();
            let waiting = queue["waiting"].as_array().cloned().unwrap_or_default();
            if !running.is_empty() || waiting.iter().any(asks) {
                town.watch.wrong(format!("all has ended, and these run: {running:?}, and wait: {waiting:?}"));
            }
        }
        Err(e) => town.watch.wrong(format!("the queue cannot be seen: {e}")),
    }
    let tree = process.kernel.tree();
    let left: Vec<_> = tree.iter().filter(|n| matches!(n.kind, "engine" | "sub_agent")).map(|n| &n.path).collect();
    if !left.is_empty() {
        town.watch.wrong(format!("all has ended, and these are still alive: {left:?}\n{}", describe(town).await));
    }
}

/// Checks that every acknowledged message has its end, every listener received all of it, no effect came twice, and no
/// user was notified twice.
fn everything_is_notified(town: &Town) {
    for task in town.all_acked() {
        match now(town.data.task(Scope::Operator, task)) {
            Some(row) if row.state.is_ended() => {}
            other => town.watch.wrong(format!("{task} was acknowledged, and is {other:?}")),
        }
    }
    for (listener, (conversation, seen)) in town.all_received() {
        let row = now(town.data.conversation(Scope::Operator, conversation));
        let last = row.map_or(Seq(0), |row| row.last_seq);
        if last != seen {
            town.watch.wrong(format!("listener {listener} of {conversation} received up to {seen} of {last}"));
        }
    }
    let mut done: BTreeMap<_, u32> = BTreeMap::new();
    for effect in town.skills.effects() {
        if matches!(effect.skill.as_str(), "sim.send" | "sim.ring" | "sim.order") {
            *done.entry((effect.intent, effect.skill)).or_default() += 1;
        }
    }
    for ((intent, skill), times) in done.into_iter().filter(|(_, times)| *times > 1) {
        town.watch.wrong(format!("{skill} was done {times} times for {intent}"));
    }
    notified_once(town);
}

/// Checks that no user is notified of the same end twice. A task has one final event, and one more if it is archived
/// later.
fn notified_once(town: &Town) {
    let mut ends: BTreeMap<TaskId, u32> = BTreeMap::new();
    for conversation in conversations(town) {
        for event in now(town.data.events(Scope::Operator, conversation, Seq(0), u32::MAX)) {
            let is_end = event.body.is_final() || matches!(event.body, EventBody::DeadLetterMoved { .. });
            *ends.entry(event.task).or_default() += u32::from(is_end);
        }
    }
    for (n, user) in USERS.iter().enumerate() {
        for task in now(town.data.notifications(people::user(n), 0, 10_000)).iter().flat_map(|notice| &notice.tasks) {
            match ends.get_mut(task) {
                Some(left) if *left > 0 => *left -= 1,
                _ => town.watch.wrong(format!("{user} was notified of {task} too often")),
            }
        }
    }
}

fn report(town: &Town, steps: Vec<Step>) -> Report {
    town.watch.settle();
    let (log, fault_at) = (town.watch.journal(), town.schedule.injected());
    let events = log.iter().filter(|line| line.contains("\"seq\":")).count() as u64;
    let (acked, effects) = (town.acked().len() as u64, town.skills.effect_count() as u64);
    let (_, fenced) = town.watch.counts();
    let simulated_ms = annie_core::ports::Clock::monotonic_us(town.clock.as_ref()) / 1_000;
    let tally = Tally { events, acked, effects, fenced, runs: u64::from(town.run_count()), simulated_ms };
    Report { log, wrong: town.watch.all_wrong(), fault_at, steps, tally }
}

fn conversations(town: &Town) -> Vec<ConversationId> {
    let rows = now(town.data.conversations(Scope::Operator, Micros(i64::MAX).into(), 10_000));
    let mut ids: Vec<_> = rows.into_iter().map(|row| row.id).collect();
    ids.sort();
    ids
}
