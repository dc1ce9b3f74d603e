//! `annie usage`: what model calls cost.

use serde_json::Value;

use super::{
    args::UsageArgs,
    client::encoded,
    failure::Failure,
    listing::{Listing, plain},
    site::Site,
};

pub(super) const LIST: Listing = Listing {
    command: "usage",
    rows: "usage",
    columns: &[
        ("", "key"),
        ("rounds", "rounds"),
        ("input", "input_tokens"),
        ("cached", "cached_tokens"),
        ("written", "cache_written_tokens"),
        ("output", "output_tokens"),
        ("reasoning", "reasoning_tokens"),
        ("US$", "cost_usd"),
    ],
};

/// `annie usage`
///
/// # Errors
/// If no server runs, or the key may not see it.
pub async fn run(site: &Site, options: UsageArgs) -> Result<(), Failure> {
    let mut query = vec![format!("by={}", options.by.as_str()), format!("limit={}", options.limit)];
    query.extend(options.from.map(|day| format!("from={}", encoded(&day))));
    query.extend(options.to.map(|day| format!("to={}", encoded(&day))));
    query.extend(options.all.then(|| "all=true".to_owned()));
    let mut answer = site.running().await?.get(&format!("{}?{}", LIST.path(), query.join("&"))).await?;
    if !site.console.is_json() {
        with_total(&mut answer);
    }
    LIST.print_with(site, &answer, "no model call has been counted", |row, key| {
        let text = match key {
            "key" if row[key] == "" => "-".to_owned(),
            "cost_usd" => format!("{:.4}", row[key].as_f64().unwrap_or_default()),
            _ => plain(&row[key]),
        };
        Some(text)
    })
}

/// Adds the sum of all as the last row, if there are any rows.
fn with_total(answer: &mut Value) {
    let mut total = answer["total"].take();
    total["key"] = "total".into();
    if let Some(rows) = answer["usage"].as_array_mut().filter(|rows| !rows.is_empty()) {
        rows.push(total);
    }
}
