//! `annie breakers`: the guarded doors to the skills of a server.

use serde_json::json;

use super::{
    args::Breakers,
    client::encoded,
    console::clipped,
    failure::{Exit, Failure},
    site::Site,
};

/// `annie breakers`
///
/// # Errors
/// If no server runs, or there is no such breaker.
pub async fn run(site: &Site, command: Breakers) -> Result<(), Failure> {
    match command {
        Breakers::Reset { skill } => reset(site, &skill).await,
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
