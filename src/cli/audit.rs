//! `annie audit`: verifies the audit chain, and exports the audit trail of conversations.

use annie_core::ids::ConversationId;
use serde_json::{Value, json};

use super::{
    args::Audit,
    client::{Client, encoded},
    console::tame,
    failure::{Exit, Failure},
    site::Site,
};

/// Seals and rows that are read at a time.
const AT_ONCE: u32 = 500;
/// The most differences that are shown.
const SHOWN_MAX: usize = 50;

/// `annie audit`
///
/// # Errors
/// If no server runs, or the stored events are not those that were sealed.
pub async fn run(site: &Site, command: Audit) -> Result<(), Failure> {
    match command {
        Audit::Verify { head } => verify(site, head.as_deref()).await,
        Audit::Export { conversation: Some(named) } => export(site, Some(site.conversation(named).await?)).await,
        Audit::Export { conversation: None } => export(site, None).await,
    }
}

async fn verify(site: &Site, head: Option<&str>) -> Result<(), Failure> {
    let head = head.map(noted).transpose()?;
    let client = site.running().await?;
    let (mut seals, mut events, mut erased, mut total, mut broken) = (0, 0, 0, 0, Vec::new());
    let (mut last, mut next) = (Value::Null, None::<String>);
    let unsealed = loop {
        let cursor = next.map(|next| format!("&next={}", encoded(&next))).unwrap_or_default();
        let page = client.get(&format!("/api/v1/audit/verify?limit={AT_ONCE}{cursor}")).await?;
        let number = |key: &str| page[key].as_u64().unwrap_or(0);
        erased += number("erased");
        (seals, events, total) = (seals + number("seals"), events + number("events"), total + number("broken_total"));
        broken.extend(page["broken"].as_array().into_iter().flatten().cloned());
        broken.truncate(SHOWN_MAX);
        if page["last_number"].is_u64() {
            last = json!({"number": page["last_number"], "digest": page["last_digest"]});
        }
        next = page["next"].as_str().map(str::to_owned);
        if next.is_none() {
            break number("unsealed");
        }
    };
    if let Some((number, digest)) = head
        && let Some(what) = differs(&client, number, &digest).await?
    {
        total += 1;
        broken.push(json!({"number": number, "what": what}));
    }
    let actions = verified_actions(&client).await?;
    total += actions.broken_total;
    if site.console.is_json() {
        site.console.json(&json!({
            "seals": seals, "events": events, "erased": erased, "unsealed": unsealed, "broken_total": total,
            "broken": broken, "last": last, "actions": actions.json(),
        }))?;
    } else {
        site.console.line(&described((seals, events, erased, unsealed), &broken, &last))?;
        site.console.line(&actions.text())?;
    }
    if total == 0 {
        return Ok(());
    }
    let what = format!("the stored events or actions differ from what was sealed, in {total} places");
    Err(Failure::new(Exit::Failure, what).fix("they were changed after they were sealed: compare it with a backup"))
}

/// What the verification of the recorded actions found.
#[derive(Default)]
struct VerifiedActions {
    entries: u64,
    broken_total: u64,
    broken: Vec<Value>,
    last: Value,
}

impl VerifiedActions {
    fn json(&self) -> Value {
        let Self { entries, broken_total, broken, last } = self;
        json!({"entries": entries, "broken_total": broken_total, "broken": broken, "last": last})
    }

    fn text(&self) -> String {
        let mut lines = vec![format!("{} entries of operators' actions were verified", self.entries)];
        let what =
            |one: &Value| tame(&format!("entry {}: {}", one["number"], one["what"].as_str().unwrap_or_default()));
        lines.extend(self.broken.iter().map(what));
        if let Some(digest) = self.last["digest"].as_str() {
            lines.push(format!("last entry {}:{digest}", self.last["number"]));
        }
        lines.join("\n")
    }
}

/// Verifies the chain of the recorded actions.
async fn verified_actions(client: &Client) -> Result<VerifiedActions, Failure> {
    let (mut found, mut next) = (VerifiedActions::default(), None::<String>);
    loop {
        let cursor = next.map(|next| format!("&next={}", encoded(&next))).unwrap_or_default();
        let page = client.get(&format!("/api/v1/actions/verify?limit={AT_ONCE}{cursor}")).await?;
        found.entries += page["entries"].as_u64().unwrap_or(0);
        found.broken_total += page["broken_total"].as_u64().unwrap_or(0);
        found.broken.extend(page["broken"].as_array().into_iter().flatten().cloned());
        found.broken.truncate(SHOWN_MAX);
        if page["last_number"].is_u64() {
            found.last = json!({"number": page["last_number"], "digest": page["last_digest"]});
        }
        next = page["next"].as_str().map(str::to_owned);
        if next.is_none() {
            return Ok(found);
        }
    }
}

/// A seal that was noted earlier: its number and its digest.
fn noted(text: &str) -> Result<(u64, String), Failure> {
    let parts = text.split_once(':').and_then(|(number, digest)| Some((number.parse::<u64>().ok()?, digest)));
    match parts.filter(|(number, digest)| *number > 0 && digest.len() == 64) {
        Some((number, digest)) => Ok((number, digest.to_ascii_lowercase())),
        None => {
            let failure = Failure::new(Exit::Usage, format!("{text:?} names no seal"));
            Err(failure.fix("write it as `annie audit verify` printed it: NUMBER:DIGEST"))
        }
    }
}

/// What is wrong with a seal that was noted earlier.
async fn differs(client: &Client, number: u64, digest: &str) -> Result<Option<String>, Failure> {
    let page = client.get(&format!("/api/v1/audit/verify?limit=1&next={}", number - 1)).await?;
    let is_there = page["last_number"] == number;
    Ok(match page["last_digest"].as_str() {
        Some(stored) if is_there && stored == digest => None,
        Some(stored) if is_there => Some(format!("the noted digest is {digest}, the stored one {stored}")),
        _ => Some("the noted seal does not exist any more".to_owned()),
    })
}

fn described((seals, events, erased, unsealed): (u64, u64, u64, u64), broken: &[Value], last: &Value) -> String {
    let mut lines = vec![format!("{seals} seals over {events} events were verified")];
    if unsealed > 0 {
        lines.push(format!(
            "{unsealed} newer events have no seal yet and were not verified: the server seals events every `audit.seal_ms`"
        ));
    }
    if erased > 0 {
        lines.push(format!("the content of {erased} events was erased, as the log records"));
    }
    for one in broken {
        let conversation = one["conversation"].as_str().map(|id| format!(" of {id}")).unwrap_or_default();
        lines.push(tame(&format!(
            "seal {}{conversation}: {}",
            one["number"],
            one["what"].as_str().unwrap_or_default()
        )));
    }
    match last["digest"].as_str() {
        Some(digest) => lines.push(format!("last seal {}:{digest}", last["number"])),
        None => lines.push("nothing is sealed yet".to_owned()),
    }
    lines.join("\n")
}

async fn export(site: &Site, conversation: Option<ConversationId>) -> Result<(), Failure> {
    let client = site.running().await?;
    if let Some(id) = conversation {
        return trail(site, &client, &id.to_string()).await;
    }
    let mut next: Option<String> = None;
    loop {
        let cursor = next.map(|next| format!("&next={}", encoded(&next))).unwrap_or_default();
        let page = client.get(&format!("/api/v1/conversations?limit={AT_ONCE}&stateless=true{cursor}")).await?;
        for row in page["conversations"].as_array().into_iter().flatten() {
            trail(site, &client, row["id"].as_str().unwrap_or_default()).await?;
        }
        next = page["next"].as_str().map(str::to_owned);
        if next.is_none() {
            return Ok(());
        }
    }
}

async fn trail(site: &Site, client: &Client, id: &str) -> Result<(), Failure> {
    let mut next: Option<String> = None;
    loop {
        let cursor = next.map(|next| format!("&next={}", encoded(&next))).unwrap_or_default();
        let page = client.get(&format!("/api/v1/conversations/{id}/audit?limit={AT_ONCE}{cursor}")).await?;
        page["rows"].as_array().into_iter().flatten().try_for_each(|row| site.console.json(row))?;
        next = page["next"].as_str().map(str::to_owned);
        if next.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_text_names_broken_seals_and_the_head_to_note() {
        let broken = [json!({"number": 3, "conversation": "conv_1", "what": "the seal was changed"})];
        let text = described((4, 20, 0, 0), &broken, &json!({"number": 4, "digest": "ab"}));
        assert_eq!(
            text,
            "4 seals over 20 events were verified\nseal 3 of conv_1: the seal was changed\nlast seal 4:ab"
        );
        assert!(described((4, 20, 3, 0), &[], &Value::Null).contains("content of 3 events"));
        assert!(described((4, 20, 0, 84), &[], &Value::Null).contains("84 newer events have no seal yet"));
        assert!(described((0, 0, 0, 0), &[], &Value::Null).contains("nothing is sealed yet"));
    }

    #[test]
    fn audit_head_is_a_number_and_a_digest() {
        let digest = "a".repeat(64);
        assert_eq!(noted(&format!("7:{digest}")).ok(), Some((7, digest.clone())));
        for wrong in ["7", "x:1", &format!("0:{digest}"), "7:ab"] {
            assert!(noted(wrong).is_err(), "{wrong}");
        }
    }
}
