//! `annie workflows`: steps that a file lists, and their runs.

use std::path::Path;

use annie_core::{ids::TaskId, ports::Catalog, workflow::problems_with};
use annie_skillkit::validate_workflow;
use serde_json::{Map, Value, json};

use super::{
    args::Workflows,
    client::encoded,
    console::tame,
    failure::{Exit, Failure},
    listing::{Listing, lines, plain, print_object},
    site::Site,
    skills::catalog,
};

pub(super) const LIST: Listing = Listing {
    command: "workflows list",
    rows: "workflows",
    columns: &[("workflow", "name"), ("what it does", "description"), ("problems", "problems")],
};

pub(super) const STEPS: Listing = Listing {
    command: "workflows show",
    rows: "steps",
    columns: &[
        ("step", "id"),
        ("work", "work"),
        ("state", "state"),
        ("visits", "visits"),
        ("outcome", "outcome"),
        ("error", "error"),
        ("result", "text"),
    ],
};

/// `annie workflows`
///
/// # Errors
/// If no server runs, there is no such workflow or run, the arguments do not fit, or a file is not valid.
pub async fn run(site: &Site, command: Workflows) -> Result<(), Failure> {
    match command {
        Workflows::List => {
            let answer = site.running().await?.get(LIST.path()).await?;
            let cell = |row: &Value, key: &str| {
                (key == "problems").then(|| row["problems"].as_array().map_or(0, Vec::len)).map(|count| match count {
                    0 => String::new(),
                    count => count.to_string(),
                })
            };
            LIST.print_with(site, &answer, "no workflows: put a file NAME.md into the folder workflows", cell)
        }
        Workflows::Show { what } => show(site, &what).await,
        Workflows::Run { name, args, key, private } => {
            let body = json!({"arguments": arguments(&args)?, "key": key.unwrap_or_default(), "private": private});
            let path = format!("{}/{}/run", LIST.path(), encoded(&name));
            let started = site.running().await?.post(&path, &body).await;
            let started = started.map_err(|failure| match failure.exit {
                Exit::Usage if failure.what.starts_with("The workflow was not started") => {
                    let first = failure.what.lines().next().unwrap_or_default().to_owned();
                    let fix =
                        format!("give its arguments with --arg NAME=VALUE; `annie workflows show {name}` lists them");
                    Failure { what: first, ..failure }.fix(fix)
                }
                _ => known(failure),
            })?;
            site.console.say(&format!("annie workflows show {}", plain(&started["task_id"])));
            print_object(site, &started, &["task_id", "conversation_id"])
        }
        Workflows::Validate { file } => check(site, &file),
    }
}

async fn show(site: &Site, what: &str) -> Result<(), Failure> {
    let client = site.running().await?;
    let Ok(task) = what.parse::<TaskId>() else {
        let workflow = client.get(&format!("{}/{}", LIST.path(), encoded(what))).await.map_err(known)?;
        if site.console.is_json() {
            return site.console.json(&workflow);
        }
        let mut text = lines(&workflow, &["name", "description", "synopsis"]);
        let listed = |key: &str| workflow[key].as_array().cloned().unwrap_or_default();
        text.extend(listed("steps").iter().map(|step| format!("{:<16} {}", "step", tame(&plain(step)))));
        text.extend(listed("problems").iter().map(|found| format!("{:<16} {}", "problem", tame(&plain(found)))));
        return site.console.line(&text.join("\n"));
    };
    let run = client.get(&format!("/api/v1/workflow-runs/{task}")).await?;
    if site.console.is_json() {
        return site.console.json(&run);
    }
    let mut text = lines(&run, &["workflow", "status", "present", "failure", "conversation_id"]);
    text.retain(|line| line.split_whitespace().count() > 1);
    if run["awaits_approval"] == true {
        text.push(format!("{:<16} a person: `annie approvals` lists the request", "waits for"));
    }
    site.console.line(&text.join("\n"))?;
    STEPS.print(site, &run, "it has not begun")
}

/// The arguments of `NAME=VALUE`.
fn arguments(given: &[String]) -> Result<Value, Failure> {
    let mut arguments = Map::new();
    for one in given {
        let Some((name, value)) = one.split_once('=') else {
            return Err(Failure::new(Exit::Usage, format!("{one:?} is no argument")).fix("write --arg NAME=VALUE"));
        };
        arguments.insert(name.trim().to_owned(), value.into());
    }
    Ok(Value::Object(arguments))
}

fn known(failure: Failure) -> Failure {
    match failure.exit {
        Exit::NotFound => failure.fix("`annie workflows list` shows all"),
        _ => failure,
    }
}

/// What is wrong with the file of a workflow, a line each. The tools of MCP servers are known to a running server only.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn problems_of(site: &Site, file: &Path) -> Result<Vec<String>, Failure> {
    let limits = &site.loaded.config.workflows;
    let (problems, workflow) =
        validate_workflow(file, limits).map_err(|e| Failure::new(Exit::NotFound, e.to_string()))?;
    let mut found: Vec<String> = problems.iter().map(ToString::to_string).collect();
    if let Some(workflow) = &workflow {
        let problems = problems_with(workflow, &catalog(site).skills());
        let problems = problems.iter().filter(|problem| !problem.is_about_mcp());
        found.extend(problems.map(|problem| format!("{}: error: {problem}", file.display())));
    }
    Ok(found)
}

fn check(site: &Site, file: &Path) -> Result<(), Failure> {
    let found = problems_of(site, file)?;
    if site.console.is_json() {
        site.console.json(&json!({"valid": found.is_empty(), "problems": found}))?;
    } else {
        found.iter().try_for_each(|line| site.console.line(&tame(line)))?;
    }
    if !found.is_empty() {
        let what = format!("{} has {} problem(s)", file.display(), found.len());
        return Err(Failure::new(Exit::Failure, what).fix("each line above has a fix"));
    }
    if !site.console.is_json() {
        site.console.line(&format!("{} is valid", file.display()))?;
    }
    Ok(())
}
