//! `annie gate`: closes a server's voice gate as long as the command runs, opens it, shows it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    args::{Gate, OnBackend},
    client::Client,
    failure::Failure,
    site::Site,
    tables::fitted,
};

/// `annie gate`
///
/// # Errors
/// If no server runs, or another holder has the gate.
pub async fn run(site: &Site, command: Gate) -> Result<(), Failure> {
    let client = site.running().await?;
    match command {
        Gate::Show => show(site, &client).await,
        Gate::Hold { on, ttl_ms } => hold(site, &client, &on, ttl_ms).await,
        Gate::Release { on } => {
            let released = release(&client, &on).await?;
            if site.console.is_json() {
                return site.console.json(&json!({"released": released}));
            }
            site.console.line(if released { "the gate is open" } else { "not held by that holder" })
        }
    }
}

async fn show(site: &Site, client: &Client) -> Result<(), Failure> {
    let queue = client.get("/api/v1/queue").await?;
    let backends: Vec<&Value> = queue["backends"].as_array().into_iter().flatten().collect();
    if site.console.is_json() {
        let gates: Vec<Value> =
            backends.iter().map(|one| json!({"backend": one["backend"], "gate": one["gate"]})).collect();
        return site.console.json(&json!({"gates": gates}));
    }
    let rows = backends.iter().map(|one| {
        let gate = &one["gate"];
        let voices = gate["voices"].as_array().map_or(0, Vec::len);
        vec![
            one["backend"].as_str().unwrap_or_default().to_owned(),
            if gate["closed"] == true { "closed" } else { "open" }.to_owned(),
            gate["holder"].as_str().unwrap_or_default().to_owned(),
            voices.to_string(),
            format!("{} s", gate["closed_ms_total"].as_u64().unwrap_or(0) / 1_000),
        ]
    });
    site.console.line(&fitted(
        site.console.columns(),
        &["backend", "gate", "held by", "voices", "closed so far"],
        rows.collect(),
    ))
}

/// Holds the gate until Ctrl-C. If the command is killed, the gate opens when its lease expires, after `ttl_ms`.
async fn hold(site: &Site, client: &Client, on: &OnBackend, ttl_ms: u64) -> Result<(), Failure> {
    let body = json!({"backend": on.backend, "holder": on.holder, "ttl_ms": ttl_ms});
    let mut is_announced = false;
    let mut pressed = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let held = client.post("/api/v1/gate/hold", &body).await?;
        if !is_announced {
            is_announced = true;
            if site.console.is_json() {
                site.console.json(&held)?;
            } else {
                site.console.line("the gate is closed for everything but voice; Ctrl-C opens it")?;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(ttl_ms / 3)) => {}
            pressed = &mut pressed => {
                pressed.map_err(|e| Failure::io("cannot wait for Ctrl-C", &e))?;
                release(client, on).await?;
                site.console.say("the gate is open");
                return Ok(());
            }
        }
    }
}

async fn release(client: &Client, on: &OnBackend) -> Result<bool, Failure> {
    let answer = client.post("/api/v1/gate/release", &json!({"backend": on.backend, "holder": on.holder})).await?;
    Ok(answer["released"] == true)
}
