//! `annie status`: how the server is.

use serde_json::Value;

use super::{
    console::{Ink, clipped},
    failure::Failure,
    site::Site,
};

/// `annie status`
///
/// # Errors
/// If no server runs, or it does not tell.
pub async fn run(site: &Site) -> Result<(), Failure> {
    let client = site.running().await?;
    let status = client.get("/api/v1/status").await?;
    if site.console.is_json() {
        return site.console.json(&status);
    }
    site.console.line(&told(client.url(), &status))?;
    if status["ready"] != true {
        site.console.say(&site.console.ink(Ink::Bad, "it takes no messages at present"));
    }
    Ok(())
}

fn told(url: &str, status: &Value) -> String {
    let number = |key: &str| status[key].as_u64().unwrap_or(0);
    let mut lines = vec![
        format!("server    {url}, version {}, up {}", text(&status["version"]), span(number("uptime_s"))),
        format!("state     {}", if status["ready"] == true { "ready" } else { "not ready" }),
        format!("actors    {} alive, {} crashed since the start", number("actors"), number("crashes_total")),
        format!("skills    {}", number("skills")),
        format!("store     {}", text(&status["store"])),
        format!(
            "keys      {}",
            if status["needs_keys"] == true { "needed" } else { "none: only this machine is let in" }
        ),
    ];
    if status["chaos"] == true {
        lines.push("chaos     enabled: an admin may inject faults here".to_owned());
    }
    for backend in status["backends"].as_array().into_iter().flatten() {
        let (name, model) = (text(&backend["name"]), text(&backend["model"]));
        lines.push(format!("backend   {name}: {model}, {}", text(&backend["about"])));
    }
    for problem in status["problems"].as_array().into_iter().flatten() {
        lines.push(format!("problem   {}", text(problem)));
    }
    lines.join("\n")
}

fn text(value: &Value) -> String {
    clipped(value.as_str().unwrap_or("?"), 200)
}

/// A time span for people.
fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_with_what_answers_and_what_is_wrong() {
        let status = serde_json::json!({
            "version": "1", "uptime_s": 3_725, "store": "sqlite", "needs_keys": false, "ready": false,
            "problems": ["shutting down"], "actors": 7, "crashes_total": 1, "skills": 12,
            "backends": [{"name": "offline", "model": "planner", "about": "not a language model"}],
        });
        let told = told("http://x", &status);
        assert!(told.starts_with("server    http://x, version 1, up 1 h 2 min\nstate     not ready\n"), "{told}");
        assert!(told.ends_with("backend   offline: planner, not a language model\nproblem   shutting down"), "{told}");
    }
}
