//! The soak: clients use the real program while actors, the process and its database are killed, and everything that they
//! did and saw is checked afterwards. The same driver runs the short soak of every test run (`minute.rs`) and `just soak`
//! (`benches/soak.rs`), so nothing in this module names the rest of the tests.
//!
//! `history.rs` holds the records, `check.rs` the invariants, `checks.rs` tests the checker, `clients.rs` sends messages,
//! `nemesis.rs` injects faults, `site.rs` controls the process, `database.rs` the data store.

pub mod check;
mod clients;
pub mod database;
mod gather;
pub mod history;
pub mod model;
mod nemesis;
mod pace;
pub mod report;
pub mod site;

use std::{
    fmt::Write as _,
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use annie_core::faults::FaultSpec;
use tokio::task::JoinSet;

use clients::{Client, Session, SharedState};
use database::{Database, Postgres, SmallDisk};
pub use gather::fsync_ms;
use history::{Found, History};
use nemesis::{Disruption, Nemesis};
use report::Report;
use site::{OPERATOR, Setting, Site};

/// The small disk of a soak with full disks, in megabytes.
const DISK_MB: u32 = 384;

/// The parameters of a soak.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program under test.
    pub program: &'static str,
    pub postgres: bool,
    /// The data is on a small disk, which is filled now and then.
    pub small_disk: bool,
    pub clients: usize,
    pub users: usize,
    pub seed: u64,
    pub time: Duration,
    /// The faults, each as often as its `--injections` say, in random order.
    pub faults: Vec<FaultSpec>,
}

/// The faults of a plan: each line of its grammar with the number of injections; 0 leaves it out.
///
/// # Panics
/// If a line is not a fault.
pub fn faults<const N: usize>(lines: [(&str, u32); N]) -> Vec<FaultSpec> {
    let needed = lines.into_iter().filter(|(_, times)| *times > 0);
    needed
        .map(|(line, times)| {
            let spec: FaultSpec = line.parse().unwrap_or_else(|why| panic!("{line}: {why}"));
            FaultSpec { injections_max: u64::from(times), ..spec }
        })
        .collect()
}

impl Plan {
    fn name(&self) -> String {
        let store = if self.postgres { "PostgreSQL" } else { "SQLite" };
        if self.small_disk { format!("{store}, small disk") } else { store.to_owned() }
    }

    /// All disruptions, one by one.
    fn disruptions(&self) -> Vec<Disruption> {
        let times = |spec: &FaultSpec| usize::try_from(spec.injections_max.max(1)).expect("a smaller number");
        self.faults.iter().flat_map(|spec| std::iter::repeat_n(Disruption::of(spec), times(spec))).collect()
    }
}

/// Runs a plan. Returns nothing if something that the plan needs is missing, which is reported. If there is a violation,
/// the folder is kept.
pub async fn run(plan: &Plan) -> Option<Report> {
    let folder = tempfile::Builder::new().prefix("annie-soak-").tempdir().expect("a folder");
    let mut tasks = JoinSet::new();
    let mut database = Database::default();
    let data = folder.path().join("data");
    if plan.small_disk {
        let at = if plan.postgres { folder.path().join("disk") } else { data.clone() };
        let _ = std::fs::set_permissions(folder.path(), Permissions::from_mode(0o711));
        database.disk = SmallDisk::mount(&at, DISK_MB);
        if database.disk.is_none() {
            println!("SKIPPED: a soak with full disks needs a tmpfs, which may not be mounted here");
            return None;
        }
    }
    if plan.postgres {
        database.postgres = Some(Postgres::start(&mut tasks, database.disk.as_ref()).await?);
    }
    let model = model::start().await;
    let store_url = database.postgres.as_ref().map(|p| p.url.clone());
    let setting = Setting { model_url: &model.base_url(), store_url: store_url.as_deref() };
    let mut site = Site::new(plan.program, folder.path(), &data, &setting);
    site.spawn();
    site.ready().await;
    let (mut nemesis, shared, clients) = people(plan, site, database).await;
    let from = Instant::now();
    let mut running_clients: JoinSet<()> = clients.into_iter().map(Client::run).collect();
    nemesis.inject_all(plan.disruptions(), plan.time).await;
    shared.over.store(true, Relaxed);
    while let Some(ended) = {
        nemesis.look_after().await;
        tokio::time::timeout(Duration::from_millis(100), running_clients.join_next()).await.unwrap_or(Some(Ok(())))
    } {
        ended.expect("a client task does not panic");
    }
    let seconds = from.elapsed().as_secs();
    let (history, found) = gather::gather(&mut nemesis, &shared).await;
    let injected = std::mem::take(&mut nemesis.injected);
    let mut report = Report::new(&plan.name(), plan.seed, &history, &found, injected);
    report.seconds = seconds;
    report.fsync_ms = fsync_ms(folder.path());
    if !report.is_good() {
        nemesis.site.kill();
        let kept = keep(folder.keep(), &data, &report, &history, &found);
        println!("the folder is kept: {}", kept.display());
    }
    Some(report)
}

/// Creates the clients with their users' keys, and the fault injector.
async fn people(plan: &Plan, mut site: Site, database: Database) -> (Nemesis, Arc<SharedState>, Vec<Client>) {
    let shared = Arc::new(SharedState::new(site.url()));
    let mut keys = Vec::new();
    for n in 0..plan.users {
        let user = format!("user{n}");
        keys.push((user.clone(), site.key(&user).await));
    }
    let session = |client: usize, user: &str, key: &str| Session {
        client,
        user: user.to_owned(),
        key: key.to_owned(),
        http: annie_llm::http_client().build().unwrap(),
        shared: shared.clone(),
    };
    let mut clients = Vec::new();
    for n in 0..plan.clients {
        let (user, key) = &keys[n % keys.len()];
        let client = Client::new(session(n, user, key), plan.seed);
        client.prepare().await;
        clients.push(client);
    }
    let operator = session(plan.clients, OPERATOR, &site.admin);
    (Nemesis::new(site, operator, database, plan.seed), shared, clients)
}

/// Writes the violations with everything about them beside the data.
fn keep(folder: PathBuf, data: &Path, report: &Report, history: &History, found: &Found) -> PathBuf {
    let mut text = format!("{}\n{}\n", report.table(), report.json());
    for violation in report.violations.iter().take(20) {
        let _ = writeln!(text, "\n{violation}");
        for submit in history.submits.iter().filter(|s| concerns(&violation.about, &violation.detail, &s.token)) {
            let _ = writeln!(text, "  {submit:?}");
        }
        for (conversation, log) in &found.logs {
            let is_it = violation.about == *conversation
                || log.events.iter().any(|e| e.kind == "received" && e.tokens.contains(&violation.about));
            if is_it {
                let _ = writeln!(text, "  {conversation} of {}:", log.user);
                for event in &log.events {
                    let _ = writeln!(
                        text,
                        "    {} {} {} {} {} {} {:?}",
                        event.seq, event.task, event.agent, event.kind, event.class, event.code, event.tokens
                    );
                }
            }
        }
    }
    let _ = std::fs::write(folder.join("wrong.txt"), text);
    // A disk in memory is lost at its unmount, so its data is copied.
    let _ = std::process::Command::new("cp").arg("-a").arg(data).arg(folder.join("data-kept")).output();
    folder
}

fn concerns(about: &str, detail: &str, token: &str) -> bool {
    about == token || detail.contains(token)
}
