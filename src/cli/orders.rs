//! `annie actions`, `annie orders`, `annie classes` and `annie log`: what operators did, and the orders that they give.

use annie_core::{event::Priority, ids::ConversationId};
use serde_json::{Value, json};

use super::{
    args::{Actions, Because, BudgetArgs, Classes, LogCommand},
    client::{Client, encoded},
    console::{clipped, tame},
    failure::Failure,
    listing::Listing,
    site::Site,
};
use crate::system;

/// The most characters of an order or an effect that are printed.
const SHOWN_CHARS_MAX: usize = 1_000;

pub(super) const ACTIONS: Listing = Listing {
    command: "actions",
    rows: "actions",
    columns: &[
        ("at", "at"),
        ("by", "by"),
        ("action", "action"),
        ("target", "target"),
        ("reason", "reason"),
        ("result", "result"),
    ],
};

pub(super) const ORDERS: Listing = Listing {
    command: "orders",
    rows: "orders",
    columns: &[("since", "at"), ("order", "kind"), ("target", "target"), ("by", "by"), ("reason", "reason")],
};

/// `annie actions`
///
/// # Errors
/// If no server runs, or the filter is refused.
pub async fn actions(site: &Site, wanted: Actions) -> Result<(), Failure> {
    let now = system::env().now();
    let given = [
        ("under", wanted.under),
        ("from", wanted.from.or_else(|| wanted.newer_than.map(|ms| now.plus_ms(ms.saturating_neg()).to_string()))),
        ("before", wanted.before),
        ("next", wanted.next),
        ("limit", Some(wanted.limit.to_string())),
    ];
    let given = given.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", encoded(&value?))));
    let query = given.collect::<Vec<_>>().join("&");
    let answer = site.running().await?.get(&format!("{}?{query}", ACTIONS.path())).await?;
    ACTIONS.print_with(site, &answer, "no recorded action matches", |row, key| {
        let detail = row["detail"].as_str().unwrap_or_default();
        (key == "result").then(|| match row["result"].as_str() {
            Some(result) if detail.is_empty() => result.to_owned(),
            Some(result) => format!("{result}: {}", clipped(detail, 200)),
            None => "no end recorded".to_owned(),
        })
    })
}

/// `annie orders`
///
/// # Errors
/// If no server runs.
pub async fn orders(site: &Site) -> Result<(), Failure> {
    let answer = site.running().await?.get(ORDERS.path()).await?;
    ORDERS.print(
        site,
        &answer,
        "no order is in force: nothing is paused, suspended, held open or in quarantine by a person",
    )
}

/// `annie classes`
///
/// # Errors
/// If no server runs, or the order is refused.
pub async fn classes(site: &Site, command: Classes) -> Result<(), Failure> {
    let client = site.running().await?;
    match command {
        Classes::Pause { class, because } => {
            let body = with_reason(json!({"priority": Priority::from(class).as_str()}), &because);
            give(site, &client, "/api/v1/classes/pause", &body).await
        }
        Classes::Resume { class, reason } => {
            let class = Priority::from(class).as_str();
            let body = json!({"priority": class, "reason": reason});
            lift(site, &client, "/api/v1/classes/resume", &body, &format!("class {class}")).await
        }
    }
}

/// `annie log`
///
/// # Errors
/// If no server runs, or the level is refused.
pub async fn log(site: &Site, command: LogCommand) -> Result<(), Failure> {
    let client = site.running().await?;
    let answer = match command {
        LogCommand::Show => client.get("/api/v1/log-level").await?,
        LogCommand::Level { level, reason } => {
            client.post("/api/v1/log-level", &json!({"level": level, "reason": reason})).await?
        }
    };
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let text = |key: &str| tame(answer[key].as_str().unwrap_or_default());
    site.console.line(&match text("level") == text("configured") {
        true => format!("log level {}", text("level")),
        false => format!("log level {} until the next start; configured: {}", text("level"), text("configured")),
    })
}

/// `annie drain`
///
/// # Errors
/// If no server runs, or the order is refused.
pub async fn drain(site: &Site, because: &Because) -> Result<(), Failure> {
    let client = site.running().await?;
    give(site, &client, "/api/v1/drain", &with_reason(json!({}), because)).await
}

/// `annie undrain`
///
/// # Errors
/// If no server runs.
pub async fn undrain(site: &Site, reason: Option<&str>) -> Result<(), Failure> {
    let client = site.running().await?;
    lift(site, &client, "/api/v1/undrain", &json!({"reason": reason}), "the server").await
}

/// `annie breakers open`
///
/// # Errors
/// If no server runs, or the order is refused.
pub async fn open_breaker(site: &Site, skill: &str, because: &Because) -> Result<(), Failure> {
    let client = site.running().await?;
    let path = format!("/api/v1/breakers/{}/open", encoded(skill));
    give(site, &client, &path, &with_reason(json!({}), because)).await
}

/// `annie conversations suspend`
///
/// # Errors
/// If no server runs, or the order is refused.
pub async fn suspend(site: &Site, id: ConversationId, because: &Because) -> Result<(), Failure> {
    let client = site.running().await?;
    give(site, &client, &format!("/api/v1/conversations/{id}/suspend"), &with_reason(json!({}), because)).await
}

/// `annie conversations continue`
///
/// # Errors
/// If no server runs, or there is no such conversation.
pub async fn continue_conversation(site: &Site, id: ConversationId, reason: Option<&str>) -> Result<(), Failure> {
    let client = site.running().await?;
    let path = format!("/api/v1/conversations/{id}/continue");
    lift(site, &client, &path, &json!({"reason": reason}), &id.to_string()).await
}

/// `annie conversations quarantine`
///
/// # Errors
/// If no server runs, or the order is refused.
pub async fn quarantine(site: &Site, id: ConversationId, because: &Because, force: bool) -> Result<(), Failure> {
    let client = site.running().await?;
    let body = with_reason(json!({"force": force}), because);
    give(site, &client, &format!("/api/v1/conversations/{id}/quarantine"), &body).await
}

/// `annie actors reset-budget`
///
/// # Errors
/// If no server runs, or the actor has no restart budget of its own.
pub async fn reset_budget(site: &Site, client: &Client, asked: &BudgetArgs) -> Result<(), Failure> {
    let body = json!({"path": asked.path, "incarnation": asked.incarnation, "reason": asked.reason});
    let answer = client.post("/api/v1/actors/reset-budget", &body).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    site.console.line(&format!("{} restarts are left below {}", answer["restarts_left"], clipped(&asked.path, 200)))
}

fn with_reason(mut body: Value, because: &Because) -> Value {
    body["reason"] = because.reason.as_str().into();
    body["dry_run"] = because.dry_run.into();
    body
}

/// Gives an order, and says what it does.
async fn give(site: &Site, client: &Client, path: &str, body: &Value) -> Result<(), Failure> {
    let answer = client.post(path, body).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    site.console.line(&effect(&answer))
}

/// What an operation did, or would do.
pub(super) fn effect(answer: &Value) -> String {
    let effect = clipped(answer["effect"].as_str().unwrap_or_default(), SHOWN_CHARS_MAX);
    if answer["dry_run"] == true { format!("nothing was done; it would mean: {effect}") } else { effect }
}

async fn lift(site: &Site, client: &Client, path: &str, body: &Value, what: &str) -> Result<(), Failure> {
    let answer = client.post(path, body).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let is_lifted = answer["lifted"] == true;
    site.console.line(&format!("{what} {}", if is_lifted { "goes on" } else { "was not held" }))
}
