//! `annie skills`: lists skills, of the running server or, without one, from the files on this machine.

use std::path::PathBuf;

use annie_core::{
    ports::Catalog,
    skill::{edit_distance, slash_commands},
};
use annie_skillkit::{FileCatalog, Problem, validate};
use serde_json::{Value, json};

use super::{
    args::Skills,
    built,
    client::encoded,
    console::{Ink, tame},
    failure::{Exit, Failure},
    listing::Listing,
    own,
    site::Site,
    tables::fitted,
};
use crate::{
    boot,
    ops::skills::{Skill, SkillDetail, SlashCommands},
};

/// `annie skills`
///
/// # Errors
/// If there is no such skill, or a file is not valid.
pub async fn run(site: &Site, command: Skills) -> Result<(), Failure> {
    match command {
        Skills::List { domain } => list(site, domain.as_deref()).await,
        Skills::Commands => commands(site).await,
        Skills::Help { name } => help(site, &name).await,
        Skills::Run { command } => own::command(site, &command).await,
        Skills::Validate { path } => check(site, path),
        Skills::New { name, kind } => built::new(site, &name, kind),
        Skills::Show { name } => built::show(site, &name).await,
        Skills::Test { yes, command } => own::test(site, &command, yes).await,
        Skills::Approve { name, hash } => built::approve(site, &name, hash).await,
        Skills::Withdraw { name } => built::withdraw(site, &name).await,
    }
}

/// The catalogue of this machine. A missing data folder is not created.
pub fn catalog(site: &Site) -> FileCatalog {
    let config = &site.loaded.config;
    if site.folder.is_dir() {
        boot::catalog(config, &site.folder)
    } else {
        boot::allowed(config, FileCatalog::bundled())
    }
}

async fn list(site: &Site, domain: Option<&str>) -> Result<(), Failure> {
    let mut skills: Vec<Value> = match site.server().await? {
        Some(client) => client.get("/api/v1/skills").await?["skills"].as_array().cloned().unwrap_or_default(),
        None => catalog(site).skills().iter().map(|spec| json!(Skill::from(spec.as_ref()))).collect(),
    };
    if let Some(domain) = domain {
        skills.retain(|skill| skill["domain"] == domain);
        if skills.is_empty() {
            let what = format!("there is no skill in a domain {domain:?}");
            return Err(Failure::new(Exit::NotFound, what).fix("`annie skills list` shows all"));
        }
    }
    if site.console.is_json() {
        return site.console.json(&json!({"skills": skills}));
    }
    let text = |skill: &Value, key: &str| skill[key].as_str().unwrap_or_default().to_owned();
    let rows = skills.iter().map(|s| vec![text(s, "name"), text(s, "effect"), text(s, "description")]);
    site.console.line(&fitted(site.console.columns(), &["skill", "effect", "what it does"], rows.collect()))?;
    site.console.say(&site.console.ink(Ink::Dim, "`annie skills help NAME` shows how to use one"));
    Ok(())
}

pub(super) const COMMANDS: Listing = Listing {
    command: "skills commands",
    rows: "commands",
    columns: &[("command", "name"), ("arguments", "argument_hint"), ("what it does", "description")],
};

async fn commands(site: &Site) -> Result<(), Failure> {
    let answer = match site.server().await? {
        Some(client) => client.get(COMMANDS.path()).await?,
        None => json!(SlashCommands::from(slash_commands(&catalog(site).skills()))),
    };
    COMMANDS.print(site, &answer, "there are no commands")
}

async fn help(site: &Site, name: &str) -> Result<(), Failure> {
    let skill = match site.server().await? {
        Some(client) => client
            .get(&format!("/api/v1/skills/{}", encoded(name)))
            .await
            .map_err(|failure| missing(site, name, failure))?,
        None => match catalog(site).skills().get(name) {
            Some(spec) => json!(SkillDetail::from(spec.clone())),
            None => return Err(not_listed(site, name, Failure::new(Exit::NotFound, ""))),
        },
    };
    if site.console.is_json() {
        return site.console.json(&skill);
    }
    site.console.line(tame(skill["help"].as_str().unwrap_or_default()).trim_end())
}

/// The failure of a request about one skill.
pub(super) fn missing(site: &Site, name: &str, failure: Failure) -> Failure {
    if failure.exit == Exit::NotFound { not_listed(site, name, failure) } else { failure }
}

/// Explains why a skill is not known: its file may exist, and have problems or be switched off.
pub(super) fn not_listed(site: &Site, name: &str, failure: Failure) -> Failure {
    let failure = Failure { exit: Exit::NotFound, what: format!("there is no skill {name:?}"), ..failure };
    let folder = site.folder.join("skills");
    let file = match name.split_once('.') {
        Some((domain, verb)) => folder.join(domain).join(format!("{verb}.md")),
        None => folder.join(name).join("SKILL.md"),
    };
    let is_name = name.split('.').all(|part| !part.is_empty() && !part.contains(['/', '\\']));
    if !is_name || !file.is_file() {
        let set = catalog(site).skills();
        return Failure { fix: unknown(name, set.iter().map(|s| s.name.as_str())).fix, ..failure };
    }
    let shown = file.display();
    let is_request =
        std::fs::read_to_string(&file).is_ok_and(|text| text.lines().any(|line| line.starts_with("request:")));
    if is_request && !site.loaded.config.egress.enabled {
        let what = format!("the skill {name} is not usable, because it sends a request and requests are off ({shown})");
        return Failure { what, ..failure }
            .fix("set `enabled = true` in [egress] of the configuration, and start the server again");
    }
    // A prompt skill is its folder.
    let checked = if name.contains('.') { file.clone() } else { folder.join(name) };
    let problem = validate(&checked).ok().and_then(|problems| problems.into_iter().find(Problem::is_failure));
    if let Some(problem) = problem {
        let what =
            format!("the skill {name} is not usable, because its file has problems: {}", tame(&problem.to_string()));
        return Failure { what, ..failure }.fix(format!("`annie skills validate {shown}` shows all of them"));
    }
    failure
        .fix(format!("{shown} is there, but the server does not list it: see its log, or `annie skills show {name}`"))
}

fn unknown<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Failure {
    let failure = Failure::new(Exit::NotFound, format!("there is no skill {name:?}"));
    let near = all.map(|known| (edit_distance(name, known), known)).min();
    match near {
        Some((distance, known)) if distance <= 3 => failure.fix(format!("did you mean {known}?")),
        _ => failure.fix("`annie skills list` shows all"),
    }
}

fn check(site: &Site, path: Option<PathBuf>) -> Result<(), Failure> {
    let path = path.unwrap_or_else(|| site.folder.join("skills"));
    let problems = validate(&path).map_err(|e| Failure::new(Exit::NotFound, e.to_string()))?;
    let failures = problems.iter().filter(|p| p.is_failure()).count();
    if site.console.is_json() {
        site.console.json(&json!({"valid": failures == 0, "problems": problems}))?;
    } else {
        problems.iter().map(Problem::to_string).try_for_each(|line| site.console.line(&tame(&line)))?;
    }
    if failures > 0 {
        let what = format!("{} has {failures} problem(s)", path.display());
        return Err(Failure::new(Exit::Failure, what).fix("each line above has a fix"));
    }
    if !site.console.is_json() {
        site.console.line(&format!("{} is valid", path.display()))?;
    }
    Ok(())
}
