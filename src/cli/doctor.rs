//! `annie doctor`: checks everything that a start needs, and prints a fix for each problem.

pub(super) mod probe;
mod records;
mod sandbox;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use annie_core::{
    event::Scope,
    ports::{Before, Catalog, Store},
    time::Micros,
};
use annie_skillkit::Severity;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    args,
    console::{Ink, tame},
    failure::{Exit, Failure},
    secret,
    site::Site,
    skills, status, workflows,
};
use crate::{
    api::{Feature, Warning},
    boot::{self, BootError, Mark, NotesFolder, NotesProblem},
    config::Loaded,
    system,
};

/// Free space below which the doctor reports a warning, and below which it reports an error, in bytes.
const FREE_BYTES_WARN: u64 = 1024 * 1024 * 1024;
const FREE_BYTES_MIN: u64 = 64 * 1024 * 1024;
/// A correct clock is never before this time: 2025-01-01.
const CLOCK_MIN: Micros = Micros(1_735_689_600_000_000);
/// How far the clock may be behind the newest stored event, in milliseconds.
const CLOCK_BEHIND_MS_MAX: u64 = 60_000;

/// The result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    Warning,
    Error,
}

/// One check and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Finding {
    fn ok(what: &'static str, detail: impl Into<String>) -> Self {
        Self { what, state: State::Ok, detail: detail.into(), fix: None }
    }

    fn warning(what: &'static str, detail: impl Into<String>, fix: &str) -> Self {
        Self { what, state: State::Warning, detail: detail.into(), fix: Some(fix.to_owned()) }
    }

    fn error(what: &'static str, failure: &Failure) -> Self {
        Self { what, state: State::Error, detail: failure.what.clone(), fix: failure.fix.clone() }
    }
}

/// `annie doctor`
///
/// # Errors
/// If an error prevents a start.
pub async fn run(site: &Site, options: &args::Doctor) -> Result<(), Failure> {
    if options.probe {
        return probe::run(site, options).await;
    }
    let mut found = vec![configuration(site), folder(&site.folder)];
    found.extend(disk(&site.folder));
    found.extend(parts(site));
    found.extend(data(site).await?);
    if options.check || options.repair {
        found.extend(records::run(site, options).await?);
    }
    found.extend(skill_files(site));
    found.extend(workflow_files(site));
    found.push(sandbox::check(site).await);
    found.extend(hooks(site).await?);
    found.extend(backends(site, troubles(site).await?).await);
    let errors = found.iter().filter(|f| f.state == State::Error).count();
    for finding in &found {
        if site.console.is_json() {
            site.console.json(finding)?;
            continue;
        }
        let sign = match finding.state {
            State::Ok => "ok     ",
            State::Warning => "warning",
            State::Error => "ERROR  ",
        };
        site.console.line(&format!("{sign}  {:<14} {}", finding.what, tame(&finding.detail)))?;
        if let Some(fix) = &finding.fix {
            site.console.line(&format!("{:<24} fix: {}", "", tame(fix)))?;
        }
    }
    if errors > 0 {
        return Err(
            Failure::new(Exit::Failure, format!("{errors} error(s)")).fix("fix the lines that are marked ERROR above")
        );
    }
    site.console.say(&site.console.ink(Ink::Good, "Ready to start."));
    Ok(())
}

fn configuration(site: &Site) -> Finding {
    let files: Vec<String> = site.loaded.files.iter().map(|f| f.display().to_string()).collect();
    Finding::ok("configuration", if files.is_empty() { "defaults, no file".to_owned() } else { files.join(", ") })
}

fn folder(path: &Path) -> Finding {
    const WHAT: &str = "data folder";
    let shown = path.display();
    match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Finding::ok(WHAT, format!("{shown} is not there yet; the first start makes it"))
        }
        Err(e) => Finding::error(WHAT, &Failure::io(&format!("cannot look at {shown}"), &e)),
        Ok(there) if !there.is_dir() => {
            let failure = Failure::new(Exit::Failure, format!("{shown} is no folder"));
            Finding::error(WHAT, &failure.fix("name another with --data"))
        }
        Ok(there) => {
            let mode = std::os::unix::fs::PermissionsExt::mode(&there.permissions()) & 0o777;
            if mode & 0o077 == 0 {
                return Finding::ok(WHAT, shown.to_string());
            }
            let detail = format!("{shown} is open to other users of this machine (mode {mode:o})");
            Finding::warning(WHAT, detail, "chmod 700 it")
        }
    }
}

fn disk(path: &Path) -> Option<Finding> {
    const WHAT: &str = "disk";
    let there = path.ancestors().find(|p| p.exists())?;
    let space = match rustix::fs::statvfs(there) {
        Ok(space) => space,
        Err(e) => return Some(Finding::warning(WHAT, format!("cannot tell the free space: {e}"), "check the mount")),
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let detail = format!("{} MB free", free / (1024 * 1024));
    Some(match free {
        0..FREE_BYTES_MIN => {
            let failure = Failure::new(Exit::Failure, format!("only {detail}"));
            Finding::error(WHAT, &failure.fix("make room, or take another folder with --data"))
        }
        FREE_BYTES_MIN..FREE_BYTES_WARN => Finding::warning(WHAT, format!("only {detail}"), "make room soon"),
        _ => Finding::ok(WHAT, detail),
    })
}

/// Checks the parts that a start makes from the configuration alone, before and beside the database: the key of secrets, the
/// channels, and the client of requests to other machines.
fn parts(site: &Site) -> Vec<Finding> {
    let Loaded { config, environment, .. } = &site.loaded;
    let failed = |what: &'static str, error: BootError| Finding::error(what, &error.into());
    let key = config.secrets.key(environment).err().map(|error| failed("secrets", error.into()));
    let channels = config.channels(environment, &system::env().clock).err();
    let channels = channels.map(|error| failed("channels", error.into()));
    let egress = boot::egress(config, None).err().map(|error| failed("egress", error));
    key.into_iter().chain(channels).chain(egress).collect()
}

/// Checks lock, database, clock and keys. If a server runs, it is asked instead, because it holds the lock.
async fn data(site: &Site) -> Result<Vec<Finding>, Failure> {
    const WHAT: &str = "database";
    if let Some(client) = site.server().await? {
        let mut found = vec![Finding::ok("server", format!("runs at {}", client.url()))];
        match client.get("/readyz").await {
            Ok(ready) => {
                found.push(Finding::ok(WHAT, "the server reports that it answers"));
                // A key without access to the status sees only that the notes do not work.
                let shown = client.get("/api/v1/status").await.unwrap_or(ready);
                found.extend(shown["warnings"].as_array().into_iter().flatten().filter_map(warned));
            }
            Err(failure) => found.push(Finding::error(WHAT, &failure)),
        }
        return Ok(found);
    }
    let now = system::env().now();
    if now < CLOCK_MIN {
        let failure = Failure::new(Exit::Failure, format!("it is not {now}")).fix("set the clock");
        return Ok(vec![Finding::error("clock", &failure)]);
    }
    let address = match site.loaded.config.store.address(&site.loaded.environment) {
        Ok(address) => address,
        Err(error) => return Ok(vec![Finding::error(WHAT, &error.into())]),
    };
    if address.is_none() && !site.has_database() {
        let lost = emptied(site, Mark::default());
        let no_data = lost.unwrap_or_else(|| Finding::ok(WHAT, "not there yet; the first start makes it"));
        return Ok(vec![no_data, Finding::ok("clock", now.to_string())]);
    }
    let store = match site.store().await {
        Ok(store) => store,
        Err(failure) => return Ok(vec![Finding::error(WHAT, &failure)]),
    };
    let mut found = Vec::new();
    found.extend(opened(site, store.as_ref(), address.as_ref().map(ToString::to_string)).await);
    let config = &site.loaded.config;
    let notes = NotesFolder::inspect(config.data.separate_notes, store.as_ref(), site.folder.join("notes")).await;
    if let Some(NotesProblem { what, fix }) = notes.ok().and_then(|notes| notes.problem()) {
        found.push(Finding::warning("notes", what, &fix));
    }
    found.extend(sealed_secrets(site, store.as_ref()).await);
    let newest = store
        .conversations(Scope::Operator, Before::NEWEST, 1)
        .await
        .ok()
        .and_then(|rows| rows.first().map(|r| r.updated_at));
    let behind_ms = newest.map_or(0, |newest| newest.since_ms(now));
    found.push(if behind_ms > CLOCK_BEHIND_MS_MAX {
        let detail = format!("{now} is {} s behind the newest stored event", behind_ms / 1_000);
        Finding::warning("clock", detail, "set the clock")
    } else {
        Finding::ok("clock", now.to_string())
    });
    let config = &site.loaded.config.server;
    let has_keys = store.keys().await.map(|keys| !keys.is_empty()).unwrap_or(false);
    if !has_keys && (config.require_key || !config.bind.ip().is_loopback()) {
        let failure = Failure::new(Exit::Failure, format!("{} needs a key, and there is none", config.bind));
        found.push(Finding::error("keys", &failure.fix("annie key create NAME --scope admin")));
    }
    store.close().await;
    Ok(found)
}

/// Reports stored secrets that the configured key does not open. A key that cannot be read is a finding of [`parts`].
async fn sealed_secrets(site: &Site, store: &dyn Store) -> Option<Finding> {
    let key = site.loaded.config.secrets.key(&site.loaded.environment).ok()?;
    let (what, fix) = secret::problem(store, key.as_ref()).await?;
    Some(Finding::warning("secrets", what, fix))
}

/// A warning of a running server. In the public readiness it is a text, about the notes or about a paused class.
fn warned(warning: &Value) -> Option<Finding> {
    let public = || {
        let text = warning.as_str()?.to_owned();
        let about = if text.starts_with("class ") { Feature::Orders } else { Feature::Notes };
        Some(Warning { about, text })
    };
    let Warning { about, text } = Warning::deserialize(warning).ok().or_else(public)?;
    let (what, fix) = match about {
        Feature::Notes => ("notes", "then start the server again"),
        Feature::Extensions => (
            "extensions",
            "annie actors tree --under /infra/extensions shows its actor; the server's log says why it ends",
        ),
        Feature::Orders => {
            ("orders", "`annie orders` lists the orders of operators, and `annie --help` how each is lifted")
        }
        Feature::Hooks => {
            ("hooks", "the server's log has the reason of each failure; repair the program or the service")
        }
        Feature::Skills => (
            "skills",
            "the server's log has the details; rename or remove the skill, or restore the connection of its source",
        ),
    };
    Some(Finding::warning(what, text, fix))
}

/// Checks that an opened database can be read. A database that answers may still lack a table or a column.
async fn opened(site: &Site, store: &dyn Store, address: Option<String>) -> Vec<Finding> {
    const WHAT: &str = "database";
    let mark = match store.ping().await {
        Ok(()) => Mark::of(store).await,
        Err(e) => Err(e),
    };
    match mark {
        Ok(mark) => {
            let shown = address.map_or_else(String::new, |address| format!("PostgreSQL, {address}: "));
            let good = Finding::ok(WHAT, format!("{shown}opens, answers, and its tables are up to date"));
            std::iter::once(good).chain(emptied(site, mark)).collect()
        }
        Err(e) => vec![Finding::error(WHAT, &e.into())],
    }
}

/// Reports a database that lacks data which the folder's mark records. A start refuses such a database.
fn emptied(site: &Site, present: Mark) -> Option<Finding> {
    let missing = Mark::read(&site.folder).missing_in(present)?;
    let emptied = BootError::Emptied { folder: site.folder.clone(), missing };
    let error = Finding::error("keys", &emptied.into());
    let is_accepted = site.loaded.config.data.accept_empty_database;
    Some(if is_accepted { Finding { state: State::Warning, ..error } } else { error })
}

/// The files of workflows that a message could not start.
fn workflow_files(site: &Site) -> Vec<Finding> {
    const WHAT: &str = "workflows";
    let files = std::fs::read_dir(site.folder.join(WHAT)).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    files.sort();
    let mut found = Vec::new();
    for file in &files {
        let fix = format!("annie workflows validate {}", file.display());
        match workflows::problems_of(site, file) {
            Ok(problems) => found.extend(problems.first().map(|first| Finding::warning(WHAT, first.clone(), &fix))),
            Err(failure) => found.push(Finding::warning(WHAT, failure.what, &fix)),
        }
    }
    if !files.is_empty() {
        found.insert(0, Finding::ok(WHAT, format!("{} of them", files.len())));
    }
    found
}

fn skill_files(site: &Site) -> Vec<Finding> {
    const WHAT: &str = "skills";
    let catalog = skills::catalog(site);
    let mut found = vec![Finding::ok(WHAT, format!("{} of them", catalog.skills().iter().count()))];
    found.extend(catalog.problems().iter().map(|problem| match problem.severity {
        Severity::Error => {
            let failure = Failure::new(Exit::Failure, problem.to_string());
            Finding { state: State::Warning, ..Finding::error(WHAT, &failure) }
        }
        Severity::Lenient | Severity::Unsupported => {
            Finding::warning(WHAT, problem.to_string(), "annie skills validate --strict")
        }
        // Nothing is wrong, and the operator may not have meant it.
        Severity::Notice => {
            let detail = format!("{}: {}", problem.file, problem.what);
            Finding { fix: Some(problem.fix.clone()), ..Finding::ok(WHAT, detail) }
        }
    }));
    found
}

/// Reports programs of hooks that cannot be started, and patterns of hooks that match no skill: of the running server, which
/// has the skills of all sources, otherwise of the files.
async fn hooks(site: &Site) -> Result<Vec<Finding>, Failure> {
    const WHAT: &str = "hooks";
    let config = &site.loaded.config;
    if config.hook.is_empty() {
        return Ok(Vec::new());
    }
    let broken = config.broken_hook_programs().into_iter().map(|(hook, program)| {
        let detail = format!("hook `{hook}` fails: {} is no executable file", program.display());
        Finding::warning(WHAT, detail, "correct the path, or make the file executable")
    });
    let skills = match site.server().await? {
        Some(client) => client.get("/api/v1/skills").await.map(|list| {
            let names = list["skills"].as_array().into_iter().flatten().filter_map(|skill| skill["name"].as_str());
            names.map(str::to_owned).collect()
        }),
        None => Ok(skills::catalog(site).skills().iter().map(|skill| skill.name.clone()).collect::<Vec<_>>()),
    };
    let skills = match skills {
        Ok(skills) => skills,
        Err(failure) => {
            let detail = format!("the server does not list its skills: {}", failure.what);
            let unread = Finding::warning(WHAT, detail, "show a key that the server accepts");
            return Ok(broken.chain([unread]).collect());
        }
    };
    let idle = config.idle_hooks(&skills).into_iter().map(|(hook, pattern)| {
        let detail = format!("hook `{hook}` names `{pattern}`, and there is no such skill");
        Finding::warning(WHAT, detail, "correct the pattern, or remove it from the hook")
    });
    Ok(broken.chain(idle).collect())
}

/// The backends whose rounds fail in the running server, by name. Such a backend may still list its models.
async fn troubles(site: &Site) -> Result<BTreeMap<String, Finding>, Failure> {
    const WHAT: &str = "backend";
    let Some(client) = site.server().await? else { return Ok(BTreeMap::new()) };
    let status = match client.get("/api/v1/status").await {
        Ok(status) => status,
        Err(failure) => {
            let detail = format!("the server does not report whether its rounds are answered: {}", failure.what);
            let finding = Finding::warning(WHAT, detail, "show a key that may read its status, and see annie status");
            return Ok(BTreeMap::from([(String::new(), finding)]));
        }
    };
    let all = status["backends"].as_array().into_iter().flatten();
    let failing = all.filter_map(|backend| {
        let name = backend["name"].as_str()?;
        let trouble = status::trouble(backend);
        let detail = format!("{name} ({}){trouble}", backend["model"].as_str().unwrap_or("?"));
        let fix = format!("check its key and its own log; annie doctor --probe --backend {name} asks as turns do");
        let error = Finding::error(WHAT, &Failure::new(Exit::Failure, detail).fix(fix));
        (!trouble.is_empty()).then(|| (name.to_owned(), error))
    });
    Ok(failing.collect())
}

/// Checks each backend. `failing` are the backends that fail in the running server.
async fn backends(site: &Site, mut failing: BTreeMap<String, Finding>) -> Vec<Finding> {
    const WHAT: &str = "backend";
    let loaded = &site.loaded;
    let all = match boot::backends(&loaded.config, &loaded.environment, &system::env()) {
        Ok(all) => all,
        Err(e) => return vec![Finding::error(WHAT, &e.into())],
    };
    let mut found = Vec::new();
    for backend in all {
        let shown = format!("{} ({}, {})", backend.name, backend.model.id(), backend.model.about());
        found.push(match (backend.model.check().await, failing.remove(&backend.name)) {
            (Ok(()), Some(error)) => error,
            (Ok(()), None) if loaded.config.backend.is_empty() => {
                Finding::warning(WHAT, shown, "configure a language model: annie setup looks for one")
            }
            (Ok(()), None) => Finding::ok(WHAT, format!("{shown} answers")),
            (Err(e), _) => {
                let failure = Failure::new(Exit::Failure, format!("{shown}: {e}"));
                Finding::error(
                    WHAT,
                    &failure.fix(if backend.facts.acts {
                        "check program and folder: both must be there, and the program executable"
                    } else {
                        "check base_url, the key, and whether the server runs"
                    }),
                )
            }
        });
    }
    found.extend(failing.into_values());
    let idle = loaded.config.idle_rules(&loaded.config.facts());
    found.extend(idle.iter().map(|rule| {
        let detail = format!("rule `{rule}` requires what no backend has, and never matches");
        Finding::warning("routing", detail, "give a backend the required capabilities or privacy, or remove the rule")
    }));
    found
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[test]
    fn doctor_names_the_feature_that_a_warning_is_about() {
        for (warning, what) in [
            (json!({"about": "notes", "text": "x"}), "notes"),
            (json!({"about": "skills", "text": "x"}), "skills"),
            (json!({"about": "extensions", "text": "x"}), "extensions"),
            (json!("the notes skills do not work"), "notes"),
        ] {
            let found = warned(&warning).map(|finding| (finding.what, finding.state));
            assert_eq!(found, Some((what, State::Warning)), "{warning}");
        }
        assert_eq!(warned(&json!({"about": "x"})), None);
    }

    #[test]
    fn doctor_fix_of_a_warning_about_extensions_begins_with_a_command_of_the_command_line() {
        let fix = warned(&json!({"about": "extensions", "text": "x"})).and_then(|finding| finding.fix).unwrap();
        let (command, _) = fix.split_once(" shows its actor").unwrap();
        assert!(args::Cli::try_parse_from(command.split(' ')).is_ok(), "{command}");
    }
}
