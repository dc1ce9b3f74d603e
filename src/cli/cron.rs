//! `annie cron`: schedules, whose messages are submitted again and again at fixed times.

use serde_json::{Value, json};

use super::{
    args::Cron,
    client::Client,
    failure::{Exit, Failure},
    listing::{Listing, plain, print_change},
    site::Site,
};
use crate::ops;

pub(super) const LIST: Listing = Listing {
    command: "cron list",
    rows: "schedules",
    columns: &[
        ("number", "number"),
        ("when", "when"),
        ("zone", "timezone"),
        ("next", "next_at"),
        ("paused", "paused"),
        ("runs", "runs"),
        ("message", "text"),
        ("skill file", "skill"),
    ],
};

/// The texts of a schedule that are shown.
const KEYS: [&str; 9] =
    ["text", "when", "cron", "timezone", "next_at", "paused", "last_at", "skill", "conversation_id"];

/// `annie cron`
///
/// # Errors
/// If no server runs, there is no such schedule, or a new one is refused.
pub async fn run(site: &Site, command: Cron) -> Result<(), Failure> {
    let client = site.running().await?;
    match command {
        Cron::List => {
            let answer = client.get(LIST.path()).await?;
            LIST.print(site, &answer, "no schedules yet: annie cron add \"every weekday at 8\" \"run my digest\"")
        }
        Cron::Add { when, text, timezone, conversation } => {
            let mut body = json!({"when": when, "text": text.join(" "), "timezone": timezone.unwrap_or_default()});
            if let Some(named) = conversation {
                body["conversation_id"] = json!(site.conversation(named).await?);
            }
            let added = client.post(LIST.path(), &body).await?;
            warn_of_unknown_command(site, &client, &plain(&added["text"])).await?;
            print_change(site, &format!("schedule {} is added", plain(&added["number"])), &added, &KEYS)
        }
        Cron::Pause { number } => {
            let paused = post(&client, number, "pause").await?;
            print_change(site, &format!("schedule {number} is paused"), &paused, &KEYS)
        }
        Cron::Resume { number } => {
            let resumed = post(&client, number, "resume").await?;
            print_change(site, &format!("schedule {number} runs again"), &resumed, &KEYS)
        }
        Cron::Remove { number } => {
            post(&client, number, "remove").await?;
            if site.console.is_json() {
                return site.console.json(&json!({"number": number, "removed": true}));
            }
            site.console.line(&format!("schedule {number} is removed"))
        }
        Cron::RunNow { number } => {
            let sent = post(&client, number, "run").await?;
            let done = format!("the message of schedule {number} is sent; `annie tasks show` tells how its task ends");
            print_change(site, &done, &sent, &["task_id", "conversation_id"])
        }
        Cron::Next { number } => {
            let answer = client.get(&route(number, "next")).await.map_err(known)?;
            if site.console.is_json() {
                return site.console.json(&answer);
            }
            let times: Vec<String> = answer["times"].as_array().into_iter().flatten().map(plain).collect();
            if times.is_empty() {
                return site
                    .console
                    .line(&format!("schedule {number} is paused: `annie cron resume {number}` lets it run again"));
            }
            let list = client.get(LIST.path()).await?;
            let mut all = list[LIST.rows].as_array().into_iter().flatten();
            if all.any(|one| one["number"] == number && one["paused"].is_string()) {
                site.console.say_always(&format!("schedule {number} is paused; if it is resumed, it runs at:"));
            }
            site.console.line(&times.join("\n"))
        }
    }
}

/// Warns of a message `/name` that calls no skill and no workflow: a model would read it as a text.
async fn warn_of_unknown_command(site: &Site, client: &Client, text: &str) -> Result<(), Failure> {
    let Some(name) = text.strip_prefix('/').and_then(|call| call.split_whitespace().next()) else { return Ok(()) };
    let commands = client.get(ops::path_of("skills commands")).await?;
    let workflows = client.get(ops::path_of("workflows list")).await?;
    let has = |list: &Value, rows: &str, name: &str| {
        list[rows].as_array().into_iter().flatten().any(|row| row["name"].as_str() == Some(name))
    };
    if !has(&commands, "commands", &format!("/{name}")) && !has(&workflows, "workflows", name) {
        site.console.say_always(&format!(
            "warning: there is no skill or workflow /{name}, so that the message is a text for the model; `annie skills commands` and \
             `annie workflows list` show those that exist"
        ));
    }
    Ok(())
}

fn route(number: u64, what: &str) -> String {
    format!("{}/{number}/{what}", LIST.path())
}

async fn post(client: &Client, number: u64, what: &str) -> Result<Value, Failure> {
    client.post(&route(number, what), &json!({})).await.map_err(known)
}

fn known(failure: Failure) -> Failure {
    match failure.exit {
        Exit::NotFound => failure.fix("`annie cron list` shows the schedules and their numbers"),
        _ => failure,
    }
}
