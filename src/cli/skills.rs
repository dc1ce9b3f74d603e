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
    ops::{
        self,
        skill_problems::SkillProblems,
        skills::{Skill, SkillDetail, SlashCommands},
    },
};

/// `annie skills`
///
/// # Errors
/// If there is no such skill, or a file is not valid.
pub async fn run(site: &Site, command: Skills) -> Result<(), Failure> {
    match command {
        Skills::List { domain } => list(site, domain.as_deref()).await,
        Skills::Commands => commands(site).await,
        Skills::Problems => list_problems(site).await,
        Skills::Help { name } => help(site, &name).await,
        Skills::Run { yes, command } => own::command(site, &command, yes).await,
        Skills::Validate { strict, path } => check(site, path, strict),
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
    // An older server has no such list.
    let problems = problems(site).await.unwrap_or_default()["problems"].as_array().cloned().unwrap_or_default();
    if site.console.is_json() {
        return site.console.json(&json!({"skills": skills, "problems": problems}));
    }
    let text = |skill: &Value, key: &str| skill[key].as_str().unwrap_or_default().to_owned();
    let rows = skills.iter().map(|s| vec![text(s, "name"), text(s, "effect"), text(s, "description")]);
    site.console.line(&fitted(site.console.columns(), &["skill", "effect", "what it does"], rows.collect()))?;
    problems.iter().for_each(|problem| site.console.say(&problem_line(problem)));
    site.console.say(&site.console.ink(Ink::Dim, "`annie skills help NAME` shows how to use one"));
    Ok(())
}

pub(super) const COMMANDS: Listing = Listing {
    command: "skills commands",
    rows: "commands",
    columns: &[("command", "name"), ("arguments", "argument_hint"), ("what it does", "description")],
};

/// Prints all problems, each in full.
async fn list_problems(site: &Site) -> Result<(), Failure> {
    let answer = problems(site).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let rows = answer["problems"].as_array().cloned().unwrap_or_default();
    if rows.is_empty() {
        site.console.say("there are no problems");
    }
    rows.iter().try_for_each(|problem| site.console.line(&problem_line(problem)))
}

/// A problem as a line: how severe it is, the file, what is wrong, and how to fix it.
fn problem_line(problem: &Value) -> String {
    let [severity, file, what, fix] =
        ["severity", "file", "what", "fix"].map(|key| tame(problem[key].as_str().unwrap_or_default()));
    let line = problem["line"].as_u64().map_or(String::new(), |line| format!(":{line}"));
    let fix = if fix.is_empty() { fix } else { format!("; {fix}") };
    format!("{severity:<11}  {file}{line}: {what}{fix}")
}

/// The problems of the skills of the running server or, without one, of the files on this machine.
async fn problems(site: &Site) -> Result<Value, Failure> {
    Ok(match site.server().await? {
        Some(client) => client.get(ops::path_of("skills problems")).await?,
        None => {
            let mut found = catalog(site).problems();
            found.sort_by_key(|problem| problem.severity);
            json!(SkillProblems::from(found))
        }
    })
}

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
    let problem = validate(&checked).ok().and_then(|problems| problems.into_iter().find(Problem::is_error));
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

fn check(site: &Site, path: Option<PathBuf>, strict: bool) -> Result<(), Failure> {
    let path = path.unwrap_or_else(|| site.folder.join("skills"));
    let problems = validate(&path).map_err(|e| Failure::new(Exit::NotFound, e.to_string()))?;
    let errors = problems.iter().filter(|problem| problem.is_error()).count();
    let warnings = problems.iter().filter(|problem| problem.is_failure()).count() - errors;
    let failures = if strict { errors + warnings } else { errors };
    if site.console.is_json() {
        site.console.json(&json!({"valid": failures == 0, "strict": strict, "problems": problems}))?;
    } else {
        problems.iter().map(Problem::to_string).try_for_each(|line| site.console.line(&tame(&line)))?;
    }
    if failures > 0 {
        let what = format!("{} has {failures} problem(s)", path.display());
        return Err(Failure::new(Exit::Failure, what).fix("each line above has a fix"));
    }
    if !site.console.is_json() {
        let note = match warnings {
            0 => String::new(),
            _ => format!(", with {warnings} warning(s), which --strict refuses"),
        };
        site.console.line(&format!("{} is valid{note}", path.display()))?;
    }
    Ok(())
}
