//! `annie breakers`: the circuit breakers of a server's skills.

use serde_json::json;

use super::{
    args::Breakers,
    client::encoded,
    console::clipped,
    failure::{Exit, Failure},
    listing::Listing,
    orders,
    site::Site,
};

pub(super) const LIST: Listing = Listing {
    command: "breakers list",
    rows: "breakers",
    columns: &[
        ("skill", "skill"),
        ("state", "state"),
        ("failures", "failures"),
        ("trips", "trips"),
        ("open since", "opened_at"),
        ("runs", "runs"),
        ("held", "held"),
    ],
};

/// `annie breakers`
///
/// # Errors
/// If no server runs, or there is no such breaker.
pub async fn run(site: &Site, command: Breakers) -> Result<(), Failure> {
    match command {
        Breakers::List => {
            let answer = site.running().await?.get(LIST.path()).await?;
            LIST.print(site, &answer, "no skill was called since the start")
        }
        Breakers::Reset { skill } => reset(site, &skill).await,
        Breakers::Open { skill, because } => orders::open_breaker(site, &skill, &because).await,
    }
}

async fn reset(site: &Site, skill: &str) -> Result<(), Failure> {
    let client = site.running().await?;
    let done = client.post(&format!("/api/v1/breakers/{}/reset", encoded(skill)), &json!({})).await;
    done.map_err(|failure| match failure.exit {
        Exit::NotFound => failure.fix("`annie actors tree` shows the breakers below /breakers"),
        _ => failure,
    })?;
    if site.console.is_json() {
        return site.console.json(&json!({"skill": skill, "reset": true}));
    }
    site.console.line(&format!("the breaker of {} is closed: its next call passes", clipped(skill, 100)))
}
