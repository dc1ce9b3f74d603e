//! `annie top`: what the server does now: backends, queue, and the busiest actors.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::{
    args::{Top, TopBy, Watch},
    client::Client,
    console::table,
    failure::Failure,
    queue,
    repeated::repeated,
    site::Site,
};

/// Actors that are read. A larger tree is measured in part, and the output says so.
const ACTORS_MAX: u32 = 5_000;

/// The counters of an actor: incarnation, messages handled, time in handlers in microseconds.
type Counters = BTreeMap<String, (u64, u64, u64)>;

/// `annie top`
///
/// # Errors
/// If no server runs, or it refuses.
pub async fn run(site: &Site, options: &Top) -> Result<(), Failure> {
    let client = site.running().await?;
    let mut before = counters(&actors(&client).await?);
    // The first picture needs a span to measure over.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut since = tokio::time::Instant::now() - Duration::from_millis(500);
    let watch = Watch { watch: (!options.once).then_some(options.every) };
    repeated(site, watch, async || {
        let (tree, queue) = (actors(&client).await?, client.get("/api/v1/queue").await?);
        let now = tokio::time::Instant::now();
        let measured = measured(&tree, &before, now.duration_since(since));
        (before, since) = (counters(&tree), now);
        let rows = busiest(measured, options.by, options.number);
        if site.console.is_json() {
            return site.console.json(&json!({"actors": rows, "queue": queue, "total": tree["total"]}));
        }
        site.console.line(&format!("{}\n\n{}", queue::rendered(&queue, site.console.columns()), rendered(&rows, &tree)))
    })
    .await
}

async fn actors(client: &Client) -> Result<Value, Failure> {
    client.get(&format!("/api/v1/actors?limit={ACTORS_MAX}")).await
}

fn counters(tree: &Value) -> Counters {
    let number = |actor: &Value, key: &str| actor[key].as_u64().unwrap_or(0);
    let of = |actor: &Value| {
        let counted = (number(actor, "incarnation"), number(actor, "handled"), number(actor, "busy_us"));
        (actor["path"].as_str().unwrap_or_default().to_owned(), counted)
    };
    tree["actors"].as_array().into_iter().flatten().map(of).collect()
}

/// The actors with what they did in the span: messages per second, and the percentage of the time in handlers.
fn measured(tree: &Value, before: &Counters, span: Duration) -> Vec<Value> {
    let seconds = span.as_secs_f64().max(0.001);
    #[expect(clippy::cast_precision_loss, reason = "counters of one span")]
    let of = |actor: &Value| {
        let number = |key: &str| actor[key].as_u64().unwrap_or(0);
        let path = actor["path"].as_str().unwrap_or_default();
        // A new incarnation counts from zero.
        let known = before.get(path).filter(|(incarnation, ..)| *incarnation == number("incarnation"));
        let (_, handled, busy_us) = known.copied().unwrap_or_default();
        let rate = number("handled").saturating_sub(handled) as f64 / seconds;
        let busy = number("busy_us").saturating_sub(busy_us) as f64 / seconds / 10_000.0;
        json!({
            "path": path, "kind": actor["kind"], "incarnation": number("incarnation"), "mailbox": number("mailbox_depth"),
            "mailbox_high": number("mailbox_depth_high"), "messages_per_second": rate, "busy_percent": busy,
            "current": actor["current"], "current_ms": number("current_ms"),
        })
    };
    tree["actors"].as_array().into_iter().flatten().map(of).collect()
}

fn busiest(mut rows: Vec<Value>, by: TopBy, number: usize) -> Vec<Value> {
    let key = match by {
        TopBy::Busy => "busy_percent",
        TopBy::Messages => "messages_per_second",
        TopBy::Mailbox => "mailbox",
    };
    let value = |row: &Value| row[key].as_f64().unwrap_or(0.0);
    rows.sort_by(|a, b| value(b).total_cmp(&value(a)).then_with(|| a["path"].as_str().cmp(&b["path"].as_str())));
    rows.truncate(number);
    rows
}

fn rendered(rows: &[Value], tree: &Value) -> String {
    let cells = rows.iter().map(|row| {
        let number = |key: &str| row[key].as_f64().map_or(String::new(), |n| format!("{n:.1}"));
        let whole = |key: &str| row[key].as_u64().unwrap_or(0).to_string();
        let current = row["current"].as_str().map(|what| format!("{what} for {} ms", whole("current_ms")));
        vec![
            number("busy_percent"),
            number("messages_per_second"),
            format!("{} (high {})", whole("mailbox"), whole("mailbox_high")),
            row["path"].as_str().unwrap_or_default().to_owned(),
            whole("incarnation"),
            current.unwrap_or_default(),
        ]
    });
    let text = table(&["busy %", "msg/s", "mailbox", "actor", "incarnation", "doing"], cells.collect());
    let (total, read) = (tree["total"].as_u64().unwrap_or(0), tree["actors"].as_array().map_or(0, Vec::len) as u64);
    let of = if total > read { format!("{read} of {total} actors measured") } else { format!("{total} actors") };
    format!("{of}\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_measures_the_span_and_counts_a_new_incarnation_from_zero() {
        let actor = |path: &str, incarnation: u64, handled: u64, busy_us: u64| json!({"path": path, "incarnation": incarnation, "handled": handled, "busy_us": busy_us, "mailbox_depth": handled});
        let tree = |actors: Vec<Value>| json!({"total": actors.len(), "actors": actors});
        let before = counters(&tree(vec![actor("/a", 1, 100, 0), actor("/b", 2, 100, 0)]));
        let now = tree(vec![actor("/a", 1, 120, 1_000_000), actor("/b", 3, 40, 500_000)]);
        let rows = measured(&now, &before, Duration::from_secs(2));
        assert_eq!(
            (rows[0]["messages_per_second"].as_f64(), rows[0]["busy_percent"].as_f64()),
            (Some(10.0), Some(50.0))
        );
        assert_eq!(rows[1]["messages_per_second"].as_f64(), Some(20.0));
        let first = |by| busiest(rows.clone(), by, 1)[0]["path"].clone();
        assert_eq!(
            (first(TopBy::Busy), first(TopBy::Messages), first(TopBy::Mailbox)),
            (json!("/a"), json!("/b"), json!("/a"))
        );
        assert!(rendered(&rows, &now).contains("2 actors"));
    }
}
