//! `annie reminders`: to-dos of which the user is notified at a time.

use serde_json::{Value, json};

use super::{
    args::Reminders,
    client::Client,
    failure::{Exit, Failure},
    listing::{Listing, print_change},
    own,
    site::Site,
};

pub(super) const LIST: Listing = Listing {
    command: "reminders list",
    rows: "reminders",
    columns: &[("number", "number"), ("at", "remind_at"), ("to-do", "title"), ("due", "due")],
};

/// The texts of a reminder that are shown.
const KEYS: [&str; 4] = ["title", "remind_at", "due", "conversation_id"];

/// `annie reminders`
///
/// # Errors
/// If no server runs, there is no such reminder, or a new one is refused.
pub async fn run(site: &Site, command: Reminders) -> Result<(), Failure> {
    let client = site.running().await?;
    match command {
        Reminders::List => {
            let answer = client.get(LIST.path()).await?;
            LIST.print(site, &answer, "no reminders are to come: annie reminders add \"in 10 minutes\" stretch")
        }
        Reminders::Add { when, title } => own::remind(site, &when, &title.join(" ")).await,
        Reminders::Cancel { number } => {
            let changed = post(&client, number, "cancel", json!({})).await?;
            print_change(
                site,
                &format!("the reminder of to-do {number} is cancelled; the to-do stays"),
                &changed,
                &KEYS,
            )
        }
        Reminders::Snooze { number, minutes } => {
            let changed = post(&client, number, "snooze", json!({"minutes": minutes})).await?;
            print_change(site, &format!("you are reminded of to-do {number} in {minutes} minutes"), &changed, &KEYS)
        }
    }
}

async fn post(client: &Client, number: u64, what: &str, body: Value) -> Result<Value, Failure> {
    let changed = client.post(&format!("{}/{number}/{what}", LIST.path()), &body).await;
    changed.map_err(|failure| match failure.exit {
        Exit::NotFound => failure.fix("`annie reminders list` and `annie todos list` show the numbers"),
        _ => failure,
    })
}
