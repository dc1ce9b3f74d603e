//! `annie overview`: how a server was doing in the last hour.

use serde_json::Value;

use super::{console::table, failure::Failure, site::Site};
use annie_api::ops::path_of;

/// Minutes in one line of the table.
const STEP: usize = 5;

/// `annie overview`
///
/// # Errors
/// If no server runs, or it refuses.
pub async fn run(site: &Site) -> Result<(), Failure> {
    let client = site.running().await?;
    let overview = client.get(path_of("overview")).await?;
    if site.console.is_json() {
        return site.console.json(&overview);
    }
    site.console.line(&rendered(&overview))
}

fn rendered(overview: &Value) -> String {
    let mut minutes = overview["minutes"].as_array().cloned().unwrap_or_default();
    // Nothing is known about the minutes before the start of the server. Times of RFC 3339 in UTC are in the order of their text.
    let since = overview["since"].as_str().unwrap_or_default();
    let is_counted = |minute: &Value| minute["at"].as_str().is_none_or(|at| at.get(..16) >= since.get(..16));
    let before = minutes.len();
    minutes.retain(is_counted);
    let note = match since.get(..16).filter(|_| minutes.len() < before) {
        Some(at) => format!("\ncounted since the start of the server at {} UTC", at.replace('T', " ")),
        None => String::new(),
    };
    let rows = minutes.chunks(STEP).map(|minutes| {
        let sum = |key: &str| minutes.iter().filter_map(|m| m[key].as_u64()).sum::<u64>().to_string();
        let most = |key: &str| minutes.iter().filter_map(|m| m[key].as_u64()).max();
        let shown = |number: Option<u64>, unit: &str| number.map_or("-".to_owned(), |n| format!("{n}{unit}"));
        let from = minutes.first().and_then(|m| m["at"].as_str()).and_then(|at| at.get(11..16)).unwrap_or("?");
        vec![
            format!("{from} UTC"),
            sum("turns"),
            sum("failures"),
            shown(most("first_token_p95_ms"), " ms"),
            shown(most("waiting_max"), ""),
            sum("restarts"),
            sum("output_tokens"),
        ]
    });
    let table = table(
        &["from", "turns", "failed", "first token (p95)", "waiting (most)", "restarts", "tokens out"],
        rows.collect(),
    );
    format!("{}{note}", table.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overview_adds_five_minutes_in_one_line() {
        let minute = |n: u64| serde_json::json!({"at": format!("2026-01-01T10:0{n}:00Z"), "turns": 2, "failures": 1, "waiting_max": n, "restarts": 0, "output_tokens": 3});
        let overview = serde_json::json!({"minutes": (0..6).map(minute).collect::<Vec<_>>()});
        let text = rendered(&overview);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["10:00", "UTC", "10", "5", "-", "4", "0", "15"], "{text}");
        assert_eq!(lines[2], ["10:05", "UTC", "2", "1", "-", "5", "0", "3"], "{text}");
        let mut young = overview;
        young["since"] = "2026-01-01T10:04:30.000Z".into();
        let text = rendered(&young);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("10:04 UTC") && lines.len() == 3, "{text}");
        assert_eq!(lines[2], "counted since the start of the server at 2026-01-01 10:04 UTC");
    }
}
