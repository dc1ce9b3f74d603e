//! `annie chaos run`: load, faults and a check, scenario by scenario.

use std::time::Duration;

use serde::Serialize;
use tokio::{sync::watch, time::Instant};

use super::{
    Door,
    load::{Found, Load, Sent},
    own::Own,
    scenarios::{SCENARIOS, Scenario},
    strike::Struck,
};
use crate::{
    chaos::effects::{EffectLog, Effects},
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

/// The word for all scenarios.
const ALL: &str = "all";
/// The word that names them.
const LIST: &str = "list";
/// Examples of what went wrong that are told.
const EXAMPLES_MAX: usize = 5;

/// What a scenario came to.
#[derive(Debug, Serialize)]
struct Report {
    scenario: &'static str,
    seed: u64,
    /// Messages that were acknowledged.
    acknowledged: u64,
    /// Messages that were never taken, though they were sent again and again.
    not_taken: u64,
    answered: u64,
    /// With a visible failure.
    failed: u64,
    lost: u64,
    doubled: u64,
    /// Conversations with a gap in their log.
    gaps: u64,
    /// Effects that took place, counted outside of the server.
    effects: u64,
    /// Effects that took place more than once.
    repeated: u64,
    /// Answers that tell of an effect that did not take place.
    untrue: u64,
    /// How often a fault struck.
    strikes: u64,
    /// How often the process died.
    deaths: u64,
    ack_ms_p50: u64,
    ack_ms_p99: u64,
    ms: u64,
    /// Markers to look for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    examples: Vec<String>,
}

impl Report {
    const fn is_fine(&self) -> bool {
        self.lost + self.doubled + self.gaps + self.repeated + self.untrue + self.not_taken == 0
            // What struck a life that died of it is forgotten with that life.
            && (self.strikes > 0 || self.deaths > 0)
            && self.acknowledged > 0
    }
}

/// The server of a run.
struct Target {
    client: Client,
    door: Door,
    own: Option<Own>,
    /// Where its effects are counted, if that is on this machine.
    effects: Option<EffectLog>,
}

/// `annie chaos run`
///
/// # Errors
/// If something was lost, doubled or repeated, or no fault struck.
pub async fn run(site: &Site, wish: Run) -> Result<(), Failure> {
    if wish.scenario == LIST {
        return tell_scenarios(site);
    }
    // A wrong word is told before a server is started for it.
    chosen(&wish.scenario, true)?;
    // Heard from before there is a server that would be left behind.
    let mut signals = Signals::new()?;
    let target = target(site, &wish).await?;
    let scenarios = chosen(&wish.scenario, target.own.is_some())?;
    let seed = wish.seed.unwrap_or_else(|| system::env().entropy.next_u64() % 1_000_000);
    site.console.say(&format!("seed {seed}, server {}", target.client.url()));
    let all = async {
        let mut reports = Vec::new();
        for scenario in scenarios {
            site.console.say(&format!("{}: {}", scenario.name, scenario.about));
            let report = play(&target, scenario, seed, &wish).await?;
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
        // Nothing of it goes on striking; if this fails the server is gone, and its faults with it.
        None if reports.is_err() => drop(target.door.clear(0).await),
        None => {}
    }
    conclude(site, &reports?, seed)
}

fn tell_scenarios(site: &Site) -> Result<(), Failure> {
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

/// The server that is named, or one of its own.
async fn target(site: &Site, wish: &Run) -> Result<Target, Failure> {
    use crate::config::Place;
    let is_named = ["folder", "url"]
        .iter()
        .zip(["data", "client"])
        .any(|(key, part)| matches!(site.loaded.origin(&[part, key]), Place::Flag(_) | Place::Environment(_)));
    if is_named {
        if wish.keep.is_some() {
            let what = "--keep is for a server of the run's own, and another one is named";
            return Err(Failure::new(Exit::Usage, what).fix("leave out --keep, or --url and --data"));
        }
        let client = site.running().await?;
        let door = Door::of(&client)?;
        // Whether it takes faults at all is said before anything is sent.
        door.clear(0).await?;
        let is_here = site.loaded.config.client.url.is_none();
        let effects = is_here.then(|| EffectLog::in_folder(&site.folder));
        return Ok(Target { client, door, own: None, effects });
    }
    let own = Own::start(wish.keep.as_deref()).await?;
    let client = Client::new(&own.url, None)?;
    let door = Door::of(&client)?;
    let effects = Some(EffectLog::in_folder(&own.folder));
    Ok(Target { client, door, own: Some(own), effects })
}

fn chosen(name: &str, is_own: bool) -> Result<Vec<&'static Scenario>, Failure> {
    let found: Vec<&Scenario> =
        SCENARIOS.iter().filter(|s| s.name == name || (name == ALL && (is_own || !s.needs_own))).collect();
    match found.as_slice() {
        [] => {
            let known: Vec<&str> = SCENARIOS.iter().map(|s| s.name).collect();
            let what = format!("there is no scenario {name:?}; there are {}, and {ALL}", known.join(", "));
            Err(Failure::new(Exit::Usage, what))
        }
        [one] if one.needs_own && !is_own => {
            let what = format!("{name} ends the server, and only a server of its own is started again");
            Err(Failure::new(Exit::Usage, what).fix("leave out --url and --data"))
        }
        _ => Ok(found),
    }
}

async fn play(target: &Target, scenario: &'static Scenario, seed: u64, wish: &Run) -> Result<Report, Failure> {
    let from = Instant::now();
    let prefix = format!("{}-{}", scenario.name, system::env().uuid().simple());
    let http = annie_llm::http_client().no_proxy().build();
    let load = Load {
        client: &target.client,
        http: http.map_err(|e| Failure::new(Exit::Failure, format!("cannot build the HTTP client: {e}")))?,
        prefix: prefix.clone(),
        as_users: target.own.is_some(),
        patience: Duration::from_millis(wish.patience_ms),
    };
    let deaths_before = target.own.as_ref().map_or(0, Own::deaths);
    let (done, is_done) = watch::channel(false);
    let striking = async {
        let struck = Struck { door: &target.door, client: &target.client, own: target.own.as_ref() };
        let strikes = struck.take(&(scenario.steps)(seed, wish.window_ms)).await;
        done.send_replace(true);
        strikes
    };
    let (strikes, sent) = tokio::join!(striking, load.send_all(wish.users, wish.messages, &is_done));
    let (strikes, (sent, never)) = (strikes?, sent?);
    let found = load.find(&sent).await;
    let effects = effects(target, &prefix).await?;
    let mut report = report_of(scenario, seed, &sent, &never, &found, &effects);
    report.strikes = strikes;
    report.deaths = target.own.as_ref().map_or(0, Own::deaths) - deaths_before;
    report.ms = u64::try_from(from.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(report)
}

/// What was counted: read from its file where that is here, and asked for where it is not.
async fn effects(target: &Target, prefix: &str) -> Result<Effects, Failure> {
    if let Some(log) = &target.effects {
        return log.read(prefix).map_err(|e| Failure::io("cannot read what was counted", &e));
    }
    let said = target.door.effects(prefix).await?;
    // The server names only what was repeated; the rest is told by its number.
    let mut effects = Effects::default();
    effects.by_marker.extend(said.repeated.into_iter().map(|marker| (marker, 2)));
    let once = said.markers.saturating_sub(effects.by_marker.len() as u64);
    effects.by_marker.extend((0..once).map(|n| (format!("#{n}"), 1)));
    Ok(effects)
}

fn report_of(
    scenario: &'static Scenario,
    seed: u64,
    sent: &[Sent],
    never: &[String],
    found: &Found,
    effects: &Effects,
) -> Report {
    // Without the file it is not known which marker an effect belongs to.
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
        scenario: scenario.name,
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
        strikes: 0,
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
            "scenario", "acked", "answered", "failed", "lost", "doubled", "gaps", "effects", "repeated", "untrue",
            "strikes", "deaths", "ack p50", "p99 ms",
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
                r.strikes,
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
        site.console.say(&site.console.ink(Ink::Good, "nothing was lost, doubled or repeated"));
        return Ok(());
    }
    let named: Vec<String> = bad
        .iter()
        .map(|r| {
            let why = match (r.strikes.max(u64::from(r.deaths > 0)), r.acknowledged) {
                (0, _) => "no fault struck".to_owned(),
                (_, 0) => "nothing was acknowledged".to_owned(),
                _ => r.examples.join(", "),
            };
            format!("{} ({why})", r.scenario)
        })
        .collect();
    Err(Failure::new(Exit::Failure, format!("not as it should be: {}", named.join("; ")))
        .fix(format!("run it again with --seed {seed}, and --keep DIR to look into the log")))
}
