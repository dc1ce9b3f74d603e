//! `annie status`: the state of the server.

use annie_core::route::BackendState;
use serde::Deserialize;
use serde_json::Value;

use super::{
    console::{Ink, clipped},
    failure::Failure,
    site::Site,
};

/// `annie status`
///
/// # Errors
/// If no server runs, or it rejects the request.
pub async fn run(site: &Site) -> Result<(), Failure> {
    let client = site.running().await?;
    let status = client.get("/api/v1/status").await?;
    if site.console.is_json() {
        return site.console.json(&status);
    }
    site.console.line(&rendered(client.url(), &status))?;
    if status["ready"] != true {
        site.console.say(&site.console.ink(Ink::Bad, "the server accepts no messages at present"));
    }
    Ok(())
}

/// The state of a server that accepts messages while none of its models answers.
const NO_BACKEND_ANSWERS: &str =
    "accepts messages, but no backend answers: waiting users get an error, other work is deferred";

/// Maximum number of characters of a warning, which contains paths and a fix.
const WARNING_CHARS_MAX: usize = 2_000;

fn rendered(url: &str, status: &Value) -> String {
    let backends = status["backends"].as_array();
    let is_mute = backends.is_some_and(|all| !all.is_empty() && all.iter().all(|one| one["up"] == false));
    let state = match (status["ready"] == true, is_mute) {
        (true, false) => "ready",
        (true, true) => NO_BACKEND_ANSWERS,
        (false, _) => "not ready",
    };
    let number = |key: &str| status[key].as_u64().unwrap_or(0);
    let mut lines = vec![
        format!("server    {url}, version {}, up {}", text(&status["version"]), span(number("uptime_s"))),
        format!("state     {state}"),
        format!("actors    {} alive, {} crashed since the start", number("actors"), number("crashes_total")),
        format!("skills    {}", number("skills")),
        format!("store     {}", text(&status["store"])),
        format!(
            "keys      {}",
            if status["needs_keys"] == true { "needed" } else { "none: only this machine has access" }
        ),
    ];
    if status["chaos"] == true {
        lines.push("chaos     enabled: an admin may inject faults here".to_owned());
    }
    for backend in backends.into_iter().flatten() {
        let (name, model) = (text(&backend["name"]), text(&backend["model"]));
        lines.push(format!("backend   {name}: {model}, {}{}", text(&backend["about"]), trouble(backend)));
        lines.extend(settings(backend).map(|settings| format!("          {settings}")));
    }
    for problem in status["problems"].as_array().into_iter().flatten() {
        lines.push(format!("problem   {}", text(problem)));
    }
    for warning in status["warnings"].as_array().into_iter().flatten() {
        lines.push(format!("warning   {}", clipped(warning["text"].as_str().unwrap_or("?"), WARNING_CHARS_MAX)));
    }
    lines.join("\n")
}

/// Kind of server, window and slots of a backend, each with its source; nothing for a backend that is not a server.
fn settings(backend: &Value) -> Option<String> {
    backend["profile"].as_object()?;
    let from = |setting: &Value| setting["from"].as_str().map_or(String::new(), |from| format!(" ({from})"));
    let number = |setting: &Value| setting["value"].as_u64().map(|value| format!("{value}{}", from(setting)));
    let window = number(&backend["context_tokens_max"]).map_or("window unknown".to_owned(), |w| format!("window {w}"));
    let slots = number(&backend["slots"]).unwrap_or_default();
    let profile = format!("{}{}", text(&backend["profile"]["value"]), from(&backend["profile"]));
    let server = backend["server"].as_str().map_or(String::new(), |server| format!("{}; ", clipped(server, 80)));
    Some(format!("{server}profile {profile}, {window}, slots {slots}"))
}

/// A description of a backend's problem; empty if it has none.
pub(super) fn trouble(backend: &Value) -> String {
    let error = match (backend["last_error"]["kind"].as_str(), backend["last_error"]["detail"].as_str()) {
        (Some(kind), Some(detail)) => format!(" ({kind}: {})", clipped(detail, 200)),
        _ => String::new(),
    };
    match (BackendState::deserialize(&backend["state"]).ok(), backend["up"].as_bool()) {
        (Some(BackendState::Failing), _) => {
            let since = backend["failing_since"].as_str().unwrap_or("now");
            let rounds = backend["failed_rounds"].as_u64().unwrap_or(0);
            format!("; FAILING since {since}, {rounds} rounds{error}")
        }
        (_, Some(false)) => format!("; DOWN, not asked at present{error}"),
        _ => String::new(),
    }
}

fn text(value: &Value) -> String {
    clipped(value.as_str().unwrap_or("?"), 200)
}

/// Formats a duration for people.
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
    fn status_shows_backends_problems_and_warnings() {
        let status = serde_json::json!({
            "version": "1", "uptime_s": 3_725, "store": "sqlite", "needs_keys": false, "ready": false,
            "problems": ["shutting down"], "actors": 7, "crashes_total": 1, "skills": 12,
            "backends": [{"name": "offline", "model": "planner", "about": "not a language model"}],
            "warnings": [{"about": "notes", "text": "notes cannot be kept in /x: read-only; check its disk"}],
        });
        let text = rendered("http://x", &status);
        assert!(text.starts_with("server    http://x, version 1, up 1 h 2 min\nstate     not ready\n"), "{text}");
        assert!(
            text.ends_with(
                "backend   offline: planner, not a language model\nproblem   shutting down\n\
             warning   notes cannot be kept in /x: read-only; check its disk"
            ),
            "{text}"
        );
    }

    #[test]
    fn status_shows_settings_of_a_backend_with_their_source() {
        let status = serde_json::json!({"version": "1", "ready": true, "backends": [
            {"name": "gpu", "model": "m", "about": "a model", "up": true, "server": "llama.cpp b5200",
             "profile": {"value": "llamacpp", "from": "server"}, "slots": {"value": 1, "from": "server"},
             "context_tokens_max": {"value": 4096, "from": "configured"}},
            {"name": "cloud", "model": "n", "about": "a model", "up": true, "slots": {"value": 4, "from": "default"},
             "profile": {"value": "generic", "from": "default"}, "context_tokens_max": {"from": "default"}}]});
        let text = rendered("http://x", &status);
        let words =
            "          llama.cpp b5200; profile llamacpp (server), window 4096 (configured), slots 1 (server)\n";
        assert!(text.contains(words), "{text}");
        assert!(text.ends_with("\n          profile generic (default), window unknown, slots 4 (default)"), "{text}");
    }

    #[test]
    fn status_of_a_server_without_an_available_model_is_not_ready() {
        let one = |name: &str, up: bool| serde_json::json!({"name": name, "model": "m", "about": "a model", "up": up});
        let status = |backends| serde_json::json!({"version": "1", "ready": true, "backends": backends});
        let away = rendered("http://x", &status([one("gpu", false), one("cloud", false)]));
        assert!(away.contains("state     accepts messages, but no backend answers"), "{away}");
        assert!(away.contains("backend   gpu: m, a model; DOWN, not asked at present"), "{away}");
        let refused = serde_json::json!({"name": "gpu", "model": "m", "about": "a model", "up": false, "state": "failing",
            "failed_rounds": 4, "failing_since": "2026-01-01T00:00:00Z",
            "last_error": {"kind": "auth", "detail": "HTTP 401: no such key"}});
        let refused = rendered("http://x", &status([refused, one("cloud", true)]));
        let words = "FAILING since 2026-01-01T00:00:00Z, 4 rounds (auth: HTTP 401: no such key)";
        assert!(refused.contains(words), "{refused}");
        let half = rendered("http://x", &status([one("gpu", false), one("cloud", true)]));
        assert!(half.contains("state     ready\n") && half.ends_with("backend   cloud: m, a model"), "{half}");
    }
}
