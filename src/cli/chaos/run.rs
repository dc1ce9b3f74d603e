//! `annie chaos run`: for each scenario sends load, injects faults and checks the results.

use std::time::Duration;

use annie_chaos::{EffectLog, Effects};
use serde::Serialize;
use tokio::{sync::watch, time::Instant};

use super::{
    FaultApi,
    inject::Victim,
    load::{Found, Load, Sent},
    own::Own,
    scenarios::{Play, SCENARIOS, Scenario},
};
use crate::{
    cli::{
        args::Run,
        client::Client,
        console::{Ink, table},
        failure::{Exit, Failure},
        serve::Signals,
        site::Site,
    },
    system,
};

/// The name for all scenarios.
const ALL: &str = "all";
/// The name that lists the scenarios.
const LIST: &str = "list";
/// Maximum number of reported examples of wrong results.
const EXAMPLES_MAX: usize = 5;

/// The result of a scenario.
#[derive(Debug, Serialize)]
struct Report {
    scenario: &'static str,
    seed: u64,
    /// Messages that were acknowledged.
    acknowledged: u64,
    /// Messages that were never accepted, although they were sent repeatedly.
    not_taken: u64,
    answered: u64,
    /// Tasks that ended with a visible failure or a cancellation.
    failed: u64,
    lost: u64,
    doubled: u64,
    /// Conversations with a gap in their log.
    gaps: u64,
    /// Effects that happened, counted outside of the server.
    effects: u64,
    /// Effects that happened more than once.
    repeated: u64,
    /// Answers that claim an effect that did not happen.
    untrue: u64,
    /// Number of injections.
    injections: u64,
    /// Number of deaths of the process.
    deaths: u64,
    ack_ms_p50: u64,
    ack_ms_p99: u64,
    ms: u64,
    /// Markers or conversations with wrong results.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    examples: Vec<String>,
}

impl Report {
    const fn is_fine(&self) -> bool {
        self.lost + self.doubled + self.gaps + self.repeated + self.untrue + self.not_taken == 0
            // A fault that ends the process is lost with its count, so a death counts as an injection.
            && (self.injections > 0 || self.deaths > 0)
            && self.acknowledged > 0
    }
}

/// The server of a run.
struct Target {
    client: Client,
    faults_api: FaultApi,
    own: Option<Own>,
    /// The file of counted effects, if it is on this machine.
    effects: Option<EffectLog>,
}

/// `annie chaos run`
///
/// # Errors
/// If a message or effect was lost, doubled or repeated, or no fault was injected.
pub async fn run(site: &Site, options: Run) -> Result<(), Failure> {
    if options.scenario.as_deref() == Some(LIST) {
        return list_scenarios(site);
    }
    let seed = options.seed.unwrap_or_else(|| system::env().entropy.next_u64() % 1_000_000);
    // An unknown name or a plan that is wrong is reported before a server is started.
    plays(&options, seed, true)?;
    // Signals are handled before a server is started, so that it is not left behind.
    let mut signals = Signals::new()?;
    let target = target(site, &options).await?;
    let plays = plays(&options, seed, target.own.is_some())?;
    site.console.say(&format!("seed {seed}, server {}", target.client.url()));
    let all = async {
        let mut reports = Vec::new();
        for one in plays {
            site.console.say(&format!("{}: {}", one.name, one.about));
            let report = play(&target, &one, seed, &options).await?;
            if site.console.is_json() {
                site.console.json(&report)?;
            }
            reports.push(report);
        }
        Ok::<_, Failure>(reports)
    };
    let played = async {
        match &target.own {
            Some(own) => tokio::select! {
                reports = all => reports,
                failure = own.keep_alive() => Err(failure),
            },
            None => all.await,
        }
    };
    let reports = tokio::select! {
        reports = played => reports,
        () = signals.next() => Err(Failure::interrupted()),
    };
    match &target.own {
        Some(own) => own.end().await,
        // Remove the faults. If this fails, the server is gone, and its faults with it.
        None if reports.is_err() => drop(target.faults_api.clear(0).await),
        None => {}
    }
    conclude(site, &reports?, seed)
}

fn list_scenarios(site: &Site) -> Result<(), Failure> {
    if site.console.is_json() {
        for one in SCENARIOS {
            site.console
                .json(&serde_json::json!({"name": one.name, "about": one.about, "needs_own": one.needs_own}))?;
        }
        return Ok(());
    }
    let rows = SCENARIOS.iter().map(|one| vec![one.name.to_owned(), one.about.to_owned()]);
    site.console.line(&table(&["scenario", "what happens"], rows.collect()))
}

/// The named server, or else a new one.
async fn target(site: &Site, options: &Run) -> Result<Target, Failure> {
    use crate::config::Location;
    let is_named = ["folder", "url"]
        .iter()
        .zip(["data", "client"])
        .any(|(key, part)| matches!(site.loaded.origin(&[part, key]), Location::Flag(_) | Location::Environment(_)));
    if is_named {
        if options.keep.is_some() {
            let what = "--keep is for a server that the run starts, and another server is named";
            return Err(Failure::new(Exit::Usage, what).fix("leave out --keep, or --url and --data"));
        }
        let client = site.running().await?;
        let faults_api = FaultApi::of(&client)?;
        // Fails before any message is sent if the server does not allow faults.
        faults_api.clear(0).await?;
        let is_here = site.loaded.config.client.url.is_none();
        let effects = is_here.then(|| EffectLog::in_folder(&site.folder));
        return Ok(Target { client, faults_api, own: None, effects });
    }
    let own = Own::start(options.keep.as_deref()).await?;
    let client = Client::new(&own.url, None)?;
    let faults_api = FaultApi::of(&client)?;
    let effects = Some(EffectLog::in_folder(&own.folder));
    Ok(Target { client, faults_api, own: Some(own), effects })
}

/// What the options name: one scenario, all of them, or a plan.
fn plays(options: &Run, seed: u64, is_own: bool) -> Result<Vec<Play>, Failure> {
    let plays: Vec<Play> = match (&options.plan, &options.scenario) {
        (Some(file), _) => vec![Play::read(file)?],
        (None, name) => {
            let name = name.as_deref().unwrap_or(ALL);
            let is_meant = |s: &&Scenario| s.name == name || (name == ALL && (is_own || !s.needs_own));
            SCENARIOS.iter().filter(is_meant).map(|s| Play::of(s, seed, options.window_ms)).collect()
        }
    };
    match plays.as_slice() {
        [] => {
            let known: Vec<&str> = SCENARIOS.iter().map(|s| s.name).collect();
            let name = options.scenario.as_deref().unwrap_or_default();
            let what = format!("there is no scenario {name:?}; there are {}, and {ALL}", known.join(", "));
            Err(Failure::new(Exit::Usage, what))
        }
        [one] if one.needs_own && !is_own => {
            let what = format!("{} ends the server, and only a server that the run started is restarted", one.name);
            Err(Failure::new(Exit::Usage, what).fix("leave out --url and --data"))
        }
        _ => Ok(plays),
    }
}

async fn play(target: &Target, play: &Play, seed: u64, options: &Run) -> Result<Report, Failure> {
    let from = Instant::now();
    let prefix = format!("{}-{}", play.name, system::env().uuid().simple());
    let http = annie_llm::http_client().no_proxy().build();
    let load = Load {
        client: &target.client,
        http: http.map_err(|e| Failure::new(Exit::Failure, format!("cannot build the HTTP client: {e}")))?,
        prefix: prefix.clone(),
        as_users: target.own.is_some(),
        patience: Duration::from_millis(options.patience_ms),
    };
    let deaths_before = target.own.as_ref().map_or(0, Own::deaths);
    let (done, is_done) = watch::channel(false);
    let injecting = async {
        let victim = Victim { faults_api: &target.faults_api, client: &target.client, own: target.own.as_ref() };
        let injections = victim.execute(&play.steps).await;
        done.send_replace(true);
        injections
    };
    let (injections, sent) = tokio::join!(injecting, load.send_all(options.users, options.messages, &is_done));
    let (injections, (sent, never)) = (injections?, sent?);
    let found = load.find(&sent).await;
    let effects = effects(target, &prefix).await?;
    let mut report = report_of(play.name, seed, &sent, &never, &found, &effects);
    report.injections = injections;
    report.deaths = target.own.as_ref().map_or(0, Own::deaths) - deaths_before;
    report.ms = u64::try_from(from.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(report)
}

/// The counted effects: read from the file if it is on this machine, otherwise requested from the server.
async fn effects(target: &Target, prefix: &str) -> Result<Effects, Failure> {
    if let Some(log) = &target.effects {
        return log.read(prefix).map_err(|e| Failure::io("cannot read the counted effects", &e));
    }
    let reply = target.faults_api.effects(prefix).await?;
    // The server names only the repeated markers; of the others it returns the number.
    let mut effects = Effects::default();
    effects.by_marker.extend(reply.repeated.into_iter().map(|marker| (marker, 2)));
    let once = reply.markers.saturating_sub(effects.by_marker.len() as u64);
    effects.by_marker.extend((0..once).map(|n| (format!("#{n}"), 1)));
    Ok(effects)
}

fn report_of(
    scenario: &'static str,
    seed: u64,
    sent: &[Sent],
    never: &[String],
    found: &Found,
    effects: &Effects,
) -> Report {
    // Without the file the markers of single effects are not known.
    let is_known = !effects.by_marker.keys().any(|marker| marker.starts_with('#'));
    let untrue: Vec<&String> =
        found.claimed.iter().filter(|marker| is_known && !effects.by_marker.contains_key(*marker)).collect();
    let repeated = effects.repeated();
    let mut acks: Vec<u64> = sent.iter().map(|one| one.ack_ms).collect();
    acks.sort_unstable();
    let part = |permille: usize| acks.get((acks.len() * permille / 1_000).min(acks.len().saturating_sub(1)));
    let wrong = found.lost.iter().chain(&found.doubled).chain(&found.gaps).chain(untrue.iter().copied()).chain(never);
    let examples = wrong.cloned().chain(repeated.iter().map(|marker| (*marker).to_owned())).take(EXAMPLES_MAX);
    Report {
        scenario,
        seed,
        acknowledged: sent.len() as u64,
        not_taken: never.len() as u64,
        answered: found.answered,
        failed: found.failed,
        lost: found.lost.len() as u64,
        doubled: found.doubled.len() as u64,
        gaps: found.gaps.len() as u64,
        effects: effects.total(),
        repeated: repeated.len() as u64,
        untrue: untrue.len() as u64,
        injections: 0,
        deaths: 0,
        ack_ms_p50: part(500).copied().unwrap_or(0),
        ack_ms_p99: part(990).copied().unwrap_or(0),
        ms: 0,
        examples: examples.collect(),
    }
}

fn conclude(site: &Site, reports: &[Report], seed: u64) -> Result<(), Failure> {
    if !site.console.is_json() {
        let headings = [
            "scenario",
            "acked",
            "answered",
            "failed",
            "lost",
            "doubled",
            "gaps",
            "effects",
            "repeated",
            "untrue",
            "injections",
            "deaths",
            "ack p50",
            "p99 ms",
        ];
        let rows = reports.iter().map(|r| {
            let numbers = [
                r.acknowledged,
                r.answered,
                r.failed,
                r.lost,
                r.doubled,
                r.gaps,
                r.effects,
                r.repeated,
                r.untrue,
                r.injections,
                r.deaths,
                r.ack_ms_p50,
                r.ack_ms_p99,
            ];
            std::iter::once(r.scenario.to_owned()).chain(numbers.iter().map(u64::to_string)).collect()
        });
        site.console.line(&table(&headings, rows.collect()))?;
    }
    let bad: Vec<&Report> = reports.iter().filter(|r| !r.is_fine()).collect();
    if bad.is_empty() {
        site.console.say(&site.console.ink(Ink::Good, "no message or effect was lost, doubled or repeated"));
        return Ok(());
    }
    let named: Vec<String> = bad
        .iter()
        .map(|r| {
            let why = match (r.injections.max(u64::from(r.deaths > 0)), r.acknowledged) {
                (0, _) => "no fault was injected".to_owned(),
                (_, 0) => "nothing was acknowledged".to_owned(),
                _ => r.examples.join(", "),
            };
            format!("{} ({why})", r.scenario)
        })
        .collect();
    Err(Failure::new(Exit::Failure, format!("failed scenarios: {}", named.join("; ")))
        .fix(format!("run it again with --seed {seed}, and --keep DIR to look into the log")))
}
