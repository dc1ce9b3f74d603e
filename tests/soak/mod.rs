//! The soak: clients talk to the real program while actors, the process and its database are killed, and everything they did
//! and saw is checked afterwards. One driver for the minute of every test run (`minute.rs`) and for `just soak`
//! (`benches/soak.rs`), which is why nothing in here names the rest of the tests.
//!
//! `history.rs` is what is written down, `check.rs` what must be so of it, `checks.rs` shows that the checker catches each
//! kind of wrong, `clients.rs` talks, `nemesis.rs` kills, `site.rs` is the process, `database.rs` what keeps its data.

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

use tokio::task::JoinSet;

use clients::{Around, Client, Voice};
use database::{Database, Postgres, SmallDisk};
pub use gather::fsync_ms;
use history::{Found, History};
use nemesis::Nemesis;
pub use nemesis::Stroke;
use report::Report;
use site::{OPERATOR, Setting, Site};

/// The small disk of a soak with full disks, in megabytes.
const DISK_MB: u32 = 384;

/// What a soak is made of.
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
    pub strokes: Vec<(Stroke, u32)>,
}

impl Plan {
    fn name(&self) -> String {
        let store = if self.postgres { "PostgreSQL" } else { "SQLite" };
        if self.small_disk { format!("{store}, small disk") } else { store.to_owned() }
    }

    /// All strokes, one by one.
    fn strokes(&self) -> Vec<Stroke> {
        self.strokes.iter().flat_map(|(stroke, times)| std::iter::repeat_n(*stroke, *times as usize)).collect()
    }
}

/// Carries a plan out. Nothing where what it needs is not there, which was said. If something is wrong the folder is kept.
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
    let (mut nemesis, around, clients) = people(plan, site, database).await;
    let from = Instant::now();
    let mut talking: JoinSet<()> = clients.into_iter().map(Client::live).collect();
    nemesis.strike(plan.strokes(), plan.time).await;
    around.over.store(true, Relaxed);
    while let Some(ended) = {
        nemesis.look_after().await;
        tokio::time::timeout(Duration::from_millis(100), talking.join_next()).await.unwrap_or(Some(Ok(())))
    } {
        ended.expect("a client lives");
    }
    let seconds = from.elapsed().as_secs();
    let (history, found) = gather::gather(&mut nemesis, &around).await;
    let deeds = std::mem::take(&mut nemesis.deeds);
    let mut report = Report::new(&plan.name(), plan.seed, &history, &found, deeds);
    report.seconds = seconds;
    report.fsync_ms = fsync_ms(folder.path());
    if !report.is_good() {
        nemesis.site.kill();
        let kept = keep(folder.keep(), &data, &report, &history, &found);
        println!("the folder is kept: {}", kept.display());
    }
    Some(report)
}

/// Clients with their users' keys, and who kills.
async fn people(plan: &Plan, mut site: Site, database: Database) -> (Nemesis, Arc<Around>, Vec<Client>) {
    let around = Arc::new(Around::new(site.url()));
    let mut keys = Vec::new();
    for n in 0..plan.users {
        let user = format!("user{n}");
        keys.push((user.clone(), site.key(&user).await));
    }
    let voice = |client: usize, user: &str, key: &str| Voice {
        client,
        user: user.to_owned(),
        key: key.to_owned(),
        http: annie_llm::http_client().build().unwrap(),
        around: around.clone(),
    };
    let mut clients = Vec::new();
    for n in 0..plan.clients {
        let (user, key) = &keys[n % keys.len()];
        let client = Client::new(voice(n, user, key), plan.seed);
        client.prepare().await;
        clients.push(client);
    }
    let operator = voice(plan.clients, OPERATOR, &site.admin);
    (Nemesis::new(site, operator, database, plan.seed), around, clients)
}

/// Writes down what was wrong, with everything about it, beside the data.
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
    // What is on a disk in memory goes with it.
    let _ = std::process::Command::new("cp").arg("-a").arg(data).arg(folder.join("data-kept")).output();
    folder
}

fn concerns(about: &str, detail: &str, token: &str) -> bool {
    about == token || detail.contains(token)
}
