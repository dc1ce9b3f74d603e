//! `annie breakers`: the circuit breakers of a server's skills.

use serde_json::{Value, json};

use super::{
    args::Breakers,
    client::encoded,
    console::{clipped, table},
    failure::{Exit, Failure},
    site::Site,
};

/// `annie breakers`
///
/// # Errors
/// If no server runs, or there is no such breaker.
pub async fn run(site: &Site, command: Breakers) -> Result<(), Failure> {
    match command {
        Breakers::List => list(site).await,
        Breakers::Reset { skill } => reset(site, &skill).await,
    }
}

async fn list(site: &Site) -> Result<(), Failure> {
    let answer = site.running().await?.get("/api/v1/breakers").await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let breakers: Vec<&Value> = answer["breakers"].as_array().into_iter().flatten().collect();
    if breakers.is_empty() {
        site.console.say("no skill was called since the start");
        return Ok(());
    }
    let rows = breakers.iter().map(|one| {
        let number = |key: &str| one[key].as_u64().unwrap_or(0).to_string();
        let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        vec![text("skill"), text("state"), number("failures"), number("trips"), text("opened_at"), number("runs")]
    });
    site.console.line(&table(&["skill", "state", "failures", "trips", "open since", "runs"], rows.collect()))
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
