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
    let minutes = overview["minutes"].as_array().cloned().unwrap_or_default();
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
        ]
    });
    table(&["from", "turns", "failed", "first token (p95)", "waiting (most)", "restarts"], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overview_adds_five_minutes_in_one_line() {
        let minute = |n: u64| serde_json::json!({"at": format!("2026-01-01T10:0{n}:00Z"), "turns": 2, "failures": 1, "waiting_max": n, "restarts": 0});
        let overview = serde_json::json!({"minutes": (0..6).map(minute).collect::<Vec<_>>()});
        let text = rendered(&overview);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["10:00", "UTC", "10", "5", "-", "4", "0"], "{text}");
        assert_eq!(lines[2], ["10:05", "UTC", "2", "1", "-", "5", "0"], "{text}");
    }
}
