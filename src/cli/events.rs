//! `annie events`: searches the events of all conversations of a server.

use super::{args::Events, client::encoded, failure::Failure, listing::Listing, site::Site};
use crate::system;

pub(super) const LIST: Listing = Listing {
    command: "events",
    rows: "events",
    columns: &[
        ("time", "at"),
        ("kind", "kind"),
        ("agent", "agent"),
        ("task", "task_id"),
        ("conversation", "conversation_id"),
    ],
};

/// `annie events`
///
/// # Errors
/// If no server runs, or the filter is refused.
pub async fn run(site: &Site, wanted: Events) -> Result<(), Failure> {
    let now = system::env().now();
    let ago = |ms: i64| now.plus_ms(ms.saturating_neg()).to_string();
    let given = [
        ("kind", wanted.kind),
        ("text", Some(wanted.text.join(" ")).filter(|text| !text.is_empty())),
        ("from", wanted.from.or_else(|| wanted.newer_than.map(ago))),
        ("before", wanted.before.or_else(|| wanted.older_than.map(ago))),
        ("everyone", wanted.everyone.then(|| "true".to_owned())),
        ("cursor", wanted.cursor),
    ];
    let given = given.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", encoded(&value?))));
    let query = given.collect::<Vec<_>>().join("&");
    let answer = site.running().await?.get(&format!("{}?{query}", LIST.path())).await?;
    LIST.print(site, &answer, "no event matches in the conversations that were searched")?;
    let left_out = answer["left_out"].as_u64().unwrap_or_default();
    if !site.console.is_json() && left_out > 0 {
        site.console.say(&format!("{left_out} older events of these conversations were not searched or are not shown"));
    }
    if let (false, Some(cursor)) = (site.console.is_json(), answer["cursor"].as_str()) {
        site.console.say(&format!("more conversations: --cursor {cursor}"));
    }
    Ok(())
}
