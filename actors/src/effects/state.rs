//! Values of the state in the texts of a turn: rules of the operator, and workflows (ADR 0059). They are read when the turn begins, and
//! recorded with its facts.

use std::collections::BTreeMap;

use annie_core::{
    context::Frames,
    ids::{ConversationId, TaskId, UserId},
    ports::StoreError,
    state::{STATE, StateEntry, StateKey, StatePlace, StateText, Unset, fill, placeholders, shown},
};

use crate::wiring::Wiring;

/// The stored values that these texts name. Those of a turn are not stored.
pub(crate) async fn state_in(
    wiring: &Wiring,
    (user, conversation): (&UserId, ConversationId),
    texts: &[&str],
) -> Result<BTreeMap<String, StateText>, StoreError> {
    let mut found = BTreeMap::new();
    let named = texts.iter().flat_map(|text| placeholders(text)).filter(|placeholder| placeholder.is_stored());
    for key in named.map(|placeholder| placeholder.key) {
        let Ok(place) = StatePlace::of(key.scope, user, Some(conversation)) else { continue };
        let hits = wiring.documents.find_documents(place.user.clone(), &STATE, place.one(&key)).await?;
        let entry = hits.first().map(|hit| StateEntry::of(&hit.document)).transpose()?.flatten();
        found.extend(entry.map(|entry| {
            let text = StateText { text: shown(&entry.value), origin: entry.origin };
            (key.to_string(), text)
        }));
    }
    Ok(found)
}

/// The rules of the operator with the values that they name. A rule with a value that is not set says so, and is logged.
pub(super) async fn with_state(
    wiring: &Wiring,
    (user, conversation, task): (&UserId, ConversationId, TaskId),
    rules: &[String],
) -> Vec<String> {
    let texts: Vec<&str> = rules.iter().map(String::as_str).collect();
    if texts.iter().all(|text| placeholders(text).is_empty()) {
        return rules.to_vec();
    }
    let read = state_in(wiring, (user, conversation), &texts).await;
    let why = if read.is_ok() { "is not set" } else { "could not be read" };
    let values = read.unwrap_or_else(|error| {
        tracing::warn!(%error, "the values in the rules of the operator could not be read");
        BTreeMap::new()
    });
    // A rule is never what others wrote.
    let value_of = |key: &StateKey| {
        let found = values.get(&key.to_string()).cloned()?;
        let text = format!("({key} is not used, because it comes from text of others)");
        Some(if found.origin.is_empty() { found } else { StateText { text, origin: Vec::new() } })
    };
    let filled = |rule: &String| {
        fill(rule, &Frames::of(task), &value_of).unwrap_or_else(|Unset(keys)| {
            let keys = keys.join(", ");
            tracing::warn!(keys, why, "a rule of the operator lacks values");
            let missing = |key: &StateKey| {
                let text = format!("({key} {why})");
                value_of(key).or(Some(StateText { text, origin: Vec::new() }))
            };
            fill(rule, &Frames::of(task), &missing).unwrap_or_else(|_| rule.clone())
        })
    };
    rules.iter().map(filled).collect()
}
