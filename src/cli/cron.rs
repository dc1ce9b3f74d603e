//! `annie cron`: schedules, whose messages are submitted again and again at fixed times.

use serde_json::{Value, json};

use super::{
    args::Cron,
    client::Client,
    failure::{Exit, Failure},
    listing::{Listing, plain, print_object},
    site::Site,
};

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
            if let Some(conversation) = conversation {
                body["conversation_id"] = json!(conversation);
            }
            let added = client.post(LIST.path(), &body).await?;
            site.console.say(&format!("schedule {}", plain(&added["number"])));
            print_object(site, &added, &KEYS)
        }
        Cron::Pause { number } => print_object(site, &post(&client, number, "pause").await?, &KEYS),
        Cron::Resume { number } => print_object(site, &post(&client, number, "resume").await?, &KEYS),
        Cron::Remove { number } => {
            post(&client, number, "remove").await?;
            if site.console.is_json() {
                return site.console.json(&json!({"number": number, "removed": true}));
            }
            site.console.line(&format!("schedule {number} is removed"))
        }
        Cron::RunNow { number } => {
            let sent = post(&client, number, "run").await?;
            print_object(site, &sent, &["task_id", "conversation_id"])
        }
        Cron::Next { number } => {
            let answer = client.get(&route(number, "next")).await.map_err(known)?;
            if site.console.is_json() {
                return site.console.json(&answer);
            }
            let times: Vec<String> = answer["times"].as_array().into_iter().flatten().map(plain).collect();
            if times.is_empty() {
                site.console.say("the schedule is paused");
                return Ok(());
            }
            site.console.line(&times.join("\n"))
        }
    }
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
