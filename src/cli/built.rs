//! `annie skills new`, `show`, `approve` and `withdraw`: skills that a person begins, and those that conversations wrote.

use std::{
    fs::OpenOptions,
    io::{IsTerminal as _, Write as _},
};

use annie_core::{hidden::visible, ports::Catalog};
use annie_skillkit::{DecisionError, Problem, SkillDecision, SkillTemplate};
use serde_json::{Value, json};

use super::{
    args::SkillKind,
    client::encoded,
    console::tame,
    dlq::confirmed,
    failure::{Exit, Failure},
    site::Site,
    skills::catalog,
};
use crate::{
    boot,
    ops::{
        self,
        built::{BuiltSkillView, BuiltSkills},
        skills::SkillDetail,
    },
    system,
};

/// Writes the files of a new skill. A file that exists is never changed.
pub fn new(site: &Site, name: &str, kind: SkillKind) -> Result<(), Failure> {
    let template = match kind {
        SkillKind::Prompt => SkillTemplate::Prompt,
        SkillKind::Request => SkillTemplate::Request,
        SkillKind::Script => SkillTemplate::Script,
    };
    let files = template.files(name).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::new(Exit::Usage, lines.join("\n"))
    })?;
    if let Some(known) = catalog(site).skills().get(name) {
        let what = format!("there is a skill {name} already ({})", known.source);
        return Err(Failure::new(Exit::Usage, what).fix("use another name"));
    }
    let folder = site.folder.join("skills");
    let taken = files.keys().map(|path| folder.join(path)).find(|path| path.exists());
    if let Some(path) = taken {
        return Err(Failure::new(Exit::Usage, format!("{} exists", path.display())).fix("use another name"));
    }
    for (path, text) in &files {
        let path = folder.join(path);
        let failed = |error| Failure::new(Exit::Failure, format!("cannot write {}: {error}", path.display()));
        path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
    }
    let paths: Vec<String> = files.keys().map(|path| folder.join(path).display().to_string()).collect();
    if site.console.is_json() {
        return site.console.json(&json!({"skill": name, "files": paths}));
    }
    paths.iter().try_for_each(|path| site.console.line(path))?;
    site.console.say(&format!("edit it, then: annie skills validate && annie skills test {name}"));
    if kind == SkillKind::Request && !site.loaded.config.egress.enabled {
        site.console.say("it is listed only with `enabled = true` in `[egress]` of annie.toml: requests are off");
    }
    Ok(())
}

/// The skills that conversations wrote.
async fn built(site: &Site) -> Result<Vec<Value>, Failure> {
    let answer = match site.server().await? {
        Some(client) => client.get(ops::path_of("skills show")).await?,
        None => {
            let own = boot::assemble(&site.loaded, &site.folder).await?;
            let found = own.skills.built(&site.user()).await;
            own.stop().await;
            json!(BuiltSkills::from(found.map_err(|e| Failure::new(Exit::Failure, e.to_string()))?))
        }
    };
    Ok(answer["skills"].as_array().cloned().unwrap_or_default())
}

/// Shows the file of a skill, where it comes from, and whether it may run.
pub async fn show(site: &Site, name: &str) -> Result<(), Failure> {
    let found = built(site).await?.into_iter().find(|skill| skill["name"] == name);
    let detail = match site.server().await? {
        Some(client) => {
            let found = client.get(&format!("/api/v1/skills/{}", encoded(name))).await;
            found.map_err(
                |failure| if failure.exit == Exit::NotFound { not_loaded(site, name, failure) } else { failure },
            )?
        }
        None => match catalog(site).skills().get(name) {
            Some(spec) => json!(SkillDetail::from(spec.clone())),
            None => {
                let failure = Failure::new(Exit::NotFound, format!("there is no skill {name:?}"));
                return Err(not_loaded(site, name, failure));
            }
        },
    };
    if site.console.is_json() {
        return site.console.json(&json!({"skill": detail, "built": found}));
    }
    site.console.line(&format!("{}\n  file      {}", text(&detail, "name"), text(&detail, "source")))?;
    let Some(built) = found else {
        site.console.line("  state     usable; a person wrote the file")?;
        return site.console.line(&format!("\n{}", text(&detail, "help")));
    };
    describe(site, &built)
}

/// The failure to find a skill. If this machine has its file, the failure says why that is not loaded.
fn not_loaded(site: &Site, name: &str, failure: Failure) -> Failure {
    let is_its = |problem: &Problem| {
        let path = problem.file.strip_suffix(".md").unwrap_or(&problem.file).replace('/', ".");
        path.strip_suffix(".SKILL").unwrap_or(&path) == name
    };
    let why: Vec<String> = catalog(site).problems().iter().filter(|p| is_its(p)).map(Problem::to_string).collect();
    if why.is_empty() {
        return failure.fix("`annie skills list` shows all");
    }
    let what = format!("there is no skill {name:?}, because its file is not loaded:\n{}", tame(&why.join("\n")));
    Failure::new(Exit::NotFound, what).fix("each line above has a fix; `annie skills validate` checks all files")
}

fn text(value: &Value, key: &str) -> String {
    tame(&visible(value[key].as_str().unwrap_or_default()))
}

/// Shows a skill that a conversation wrote: where it comes from, its state, and the whole content that an approval covers.
fn describe(site: &Site, built: &Value) -> Result<(), Failure> {
    for (label, key) in
        [("kind", "kind"), ("written", "built_at"), ("for", "by"), ("in", "conversation_id"), ("by task", "task_id")]
    {
        site.console.line(&format!("  {label:<9} {}", text(built, key)))?;
    }
    site.console.line(&format!("  hash      {}\n  state     {}\n", text(built, "hash"), text(built, "state")))?;
    site.console.line(&text(built, "text"))
}

/// Approves the content of a skill with this hash. Without a hash the content is shown at a terminal, and the person is asked.
pub async fn approve(site: &Site, name: &str, hash: Option<String>) -> Result<(), Failure> {
    let hash = match hash {
        Some(hash) => hash,
        None => read_and_agreed(site, name).await?,
    };
    decide(site, name, SkillDecision::Approve { hash }).await
}

/// The hash of the content that the person has been shown and agrees to.
async fn read_and_agreed(site: &Site, name: &str) -> Result<String, Failure> {
    let found = built(site).await?.into_iter().find(|skill| skill["name"] == name);
    let unknown = || Failure::new(Exit::NotFound, format!("no conversation has written a skill {name:?}"));
    let built = found.ok_or_else(unknown)?;
    let is_read = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if site.console.is_json() || !is_read {
        let what = format!("not approved: the content of {name} was not shown");
        let fix =
            format!("read it with `annie skills show {name}`, and approve it with the hash that is shown: --hash HASH");
        return Err(Failure::new(Exit::Usage, what).fix(fix));
    }
    describe(site, &built)?;
    confirmed(site, &format!("approve exactly this content of {name}?")).await?;
    Ok(text(&built, "hash"))
}

/// Withdraws the approval of a skill.
pub async fn withdraw(site: &Site, name: &str) -> Result<(), Failure> {
    decide(site, name, SkillDecision::Withdraw).await
}

async fn decide(site: &Site, name: &str, decision: SkillDecision) -> Result<(), Failure> {
    let answer = match site.server().await? {
        Some(client) => {
            let (what, body) = match &decision {
                SkillDecision::Approve { hash } => ("approve", json!({"hash": hash})),
                SkillDecision::Withdraw => ("withdraw", json!({})),
            };
            client.post(&format!("/api/v1/built-skills/{}/{what}", encoded(name)), &body).await?
        }
        None => {
            let own = boot::assemble(&site.loaded, &site.folder).await?;
            let (user, at) = (site.user(), system::env().clock.now());
            let decided = own.skills.decide(&user, user.as_str(), name, decision, at).await;
            own.stop().await;
            json!(BuiltSkillView::from(decided.map_err(|error| refused(&error))?))
        }
    };
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    site.console.line(&format!("{name} is {}", answer["state"].as_str().unwrap_or_default()))
}

fn refused(error: &DecisionError) -> Failure {
    let exit = match error {
        DecisionError::Unknown(_) => Exit::NotFound,
        DecisionError::NotTheOwner(_) | DecisionError::NotNeeded(_) | DecisionError::Changed { .. } => Exit::Usage,
        DecisionError::Failed(_) => Exit::Failure,
    };
    Failure::new(exit, error.to_string())
}
