//! Receipts of effects: the evidence for what a turn claims to have done (invariant 21).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    outcome::{Outcome, Status},
    plan::first_line,
    projection::text_sha256,
    time::Micros,
};

/// Maximum number of ids in one receipt. Calls that act on more things are rare.
const IDS_MAX: usize = 100;
/// Maximum length of a stored title or path, in characters.
const NAME_CHARS_MAX: usize = 120;

/// How much of an effect has happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// The skill ran and succeeded.
    #[default]
    Done,
    /// The skill did a part. The same call may be repeated to do the rest.
    Partial,
    /// A long-running operation was accepted. Its result comes later.
    Accepted,
}

impl Extent {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_done(&self) -> bool {
        *self == Self::Done
    }
}

/// Evidence that a skill with an effect ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The skill.
    pub skill: String,
    /// Fingerprint of the skill and its validated arguments. Equal calls have the same fingerprint.
    pub call: String,
    /// The first line of the result.
    pub line: String,
    /// How much of the effect took place.
    #[serde(default, skip_serializing_if = "Extent::is_done")]
    pub extent: Extent,
    /// The numbers of the things that the call acted on, from its arguments and its evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<u64>,
    /// The titles or paths of the things that the call acted on, if they have no numbers; in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Time at which the effect became known. Receipts of several agents are evaluated in this order.
    #[serde(default, skip_serializing_if = "Micros::is_zero")]
    pub at: Micros,
}

impl Receipt {
    /// The receipt of a call, if its outcome shows an effect.
    #[must_use]
    pub fn of(skill: &str, arguments: &Value, outcome: &Outcome, at: Micros) -> Option<Self> {
        let extent = match outcome.status {
            Status::Success => Extent::Done,
            Status::Partial => Extent::Partial,
            Status::Pending => Extent::Accepted,
            Status::ErrorTransient | Status::ErrorPermanent | Status::ErrorBlocked | Status::Unknown => return None,
        };
        let mut ids = ids_in(arguments);
        ids.extend(ids_in(&outcome.evidence));
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(IDS_MAX);
        let names = if ids.is_empty() { names_in(arguments, &outcome.evidence) } else { Vec::new() };
        let (call, line) = (fingerprint(skill, arguments), first_line(&outcome.data));
        Some(Self { skill: skill.to_owned(), call, line, extent, ids, names, at })
    }

    /// Whether this is the receipt of an equal call.
    #[must_use]
    pub fn is_of(&self, skill: &str, arguments: &Value) -> bool {
        self.skill == skill && self.call == fingerprint(skill, arguments)
    }

    /// Whether a later effect may have undone this one, because both acted on the same thing.
    fn may_be_undone_by(&self, later: &Self) -> bool {
        let has_common_id = self.ids.iter().any(|id| later.ids.contains(id));
        // The same skill with another value has overwritten the first.
        let is_overwritten = later.skill == self.skill && overwrites(&self.skill);
        has_common_id && (!creates(&self.skill) || deletes(&later.skill) || is_overwritten)
            || names_are_undone(&self.skill, &later.skill) && self.names.iter().any(|name| later.names.contains(name))
    }

    /// A one-line summary for a user or a model.
    #[must_use]
    pub fn summary(&self) -> &str {
        if self.line.is_empty() { &self.skill } else { &self.line }
    }
}

/// Returns the receipt that proves that an equal call has had its effect and need not run again. There is none if the effect
/// was partial, because the call may continue it, or if a later effect on the same thing may have undone it.
pub fn standing<'a>(
    receipts: impl IntoIterator<Item = &'a Receipt>,
    skill: &str,
    arguments: &Value,
) -> Option<&'a Receipt> {
    // The receipts come from several agents. The sort is stable: receipts with equal times, and those of old versions
    // without a time, keep their order.
    let mut receipts: Vec<&Receipt> = receipts.into_iter().collect();
    receipts.sort_by_key(|receipt| receipt.at);
    let mut standing: Option<&Receipt> = None;
    for receipt in receipts {
        if receipt.is_of(skill, arguments) {
            standing = (receipt.extent != Extent::Partial).then_some(receipt);
        } else if standing.is_some_and(|standing| standing.may_be_undone_by(receipt)) {
            standing = None;
        }
    }
    standing
}

/// Whether a later call may undo an earlier one, judged by the arguments of both.
#[must_use]
pub fn may_undo((skill, arguments): (&str, &Value), (later, with): (&str, &Value)) -> bool {
    let (ids, names) = (ids_in(with), names_in(with, &Value::Null));
    ids_in(arguments).iter().any(|id| ids.contains(id))
        || names_are_undone(skill, later) && names_in(arguments, &Value::Null).iter().any(|name| names.contains(name))
}

/// Whether a later effect on a thing with some title may undo an earlier effect on a thing with the same title. Two created
/// things may have the same title, so a created thing is undone only by a deletion.
fn names_are_undone(skill: &str, later: &str) -> bool {
    let domain = |skill: &str| skill.split('.').next().unwrap_or_default().to_owned();
    domain(skill) == domain(later) && !creates(later) && (!creates(skill) || deletes(later))
}

/// Whether a skill creates a thing. A later change of that thing is no reason to create it a second time.
fn creates(skill: &str) -> bool {
    has_verb(skill, &["create", "add", "save", "new", "write"])
}

/// Whether a skill that [`creates`] a thing gives a value to an existing thing instead if its arguments name that thing. A second
/// "add" to the same thing is an addition and overwrites nothing.
fn overwrites(skill: &str) -> bool {
    has_verb(skill, &["save", "write"])
}

fn deletes(skill: &str) -> bool {
    has_verb(skill, &["delete", "remove", "forget", "cancel", "archive", "discard", "clear", "undo"])
}

fn has_verb(skill: &str, verbs: &[&str]) -> bool {
    let name = skill.rsplit('.').next().unwrap_or_default();
    verbs.iter().any(|verb| name.starts_with(verb))
}

/// The titles and paths of things in a call's arguments and in a result's evidence.
fn names_in(arguments: &Value, evidence: &Value) -> Vec<String> {
    const KEYS: [&str; 5] = ["title", "path", "name", "note", "file"];
    let named = [arguments, evidence].into_iter().filter_map(Value::as_object);
    let named = named.flat_map(|map| KEYS.iter().filter_map(|key| map.get(*key)?.as_str()));
    let mut names: Vec<String> =
        named.map(|name| name.trim().to_lowercase().chars().take(NAME_CHARS_MAX).collect()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The numbers of things in a call's arguments or in a result's evidence.
#[must_use]
pub fn ids_in(value: &Value) -> Vec<u64> {
    let mut found = Vec::new();
    collect_ids(value, false, &mut found);
    found
}

fn collect_ids(value: &Value, is_id: bool, found: &mut Vec<u64>) {
    match value {
        Value::Number(n) if is_id => found.extend(n.as_u64()),
        Value::Array(items) => items.iter().for_each(|item| collect_ids(item, is_id, found)),
        Value::Object(map) => {
            for (key, item) in map {
                collect_ids(item, matches!(key.as_str(), "id" | "ids" | "number" | "numbers"), found);
            }
        }
        _ => {}
    }
}

/// Fingerprint of a call, by which equal calls are recognised.
pub(crate) fn fingerprint(skill: &str, arguments: &Value) -> String {
    let digest = text_sha256(&format!("{skill} {arguments}"));
    digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn receipt_matches_only_same_skill_with_equal_arguments() {
        let outcome = Outcome::success("Created task #1 x\nmore");
        let receipt = Receipt::of("tasks.create", &json!({"title": "x"}), &outcome, Micros(0)).unwrap();
        assert!(receipt.is_of("tasks.create", &json!({"title": "x"})));
        assert!(!receipt.is_of("tasks.create", &json!({"title": "y"})));
        assert!(!receipt.is_of("tasks.update", &json!({"title": "x"})));
        assert_eq!((receipt.summary(), receipt.extent), ("Created task #1 x", Extent::Done));
    }

    #[test]
    fn receipt_is_absent_for_outcome_without_effect() {
        let arguments = json!({"id": 7});
        assert_eq!(Receipt::of("tasks.update", &arguments, &Outcome::transient("timeout", "slow"), Micros(0)), None);
        assert_eq!(Receipt::of("tasks.update", &arguments, &Outcome::unknown("?", json!({})), Micros(0)), None);
    }

    #[test]
    fn receipt_stands_until_another_effect_on_its_thing() {
        let update = |status: &str| json!({"id": 7, "status": status});
        let of =
            |arguments: &Value| Receipt::of("tasks.update", arguments, &Outcome::success("ok"), Micros(0)).unwrap();
        let (done, open) = (of(&update("done")), of(&update("open")));
        let other = of(&json!({"id": 8, "status": "open"}));
        let is_proved =
            |receipts: &[&Receipt]| standing(receipts.iter().copied(), "tasks.update", &update("done")).is_some();
        assert!(is_proved(&[&done, &other]));
        assert!(!is_proved(&[&done, &open]));
        assert!(is_proved(&[&done, &open, &done]));
        let created = Outcome::success("Created task #7 x").with_evidence(json!({"number": 7}));
        let created = Receipt::of("tasks.create", &json!({"title": "x"}), &created, Micros(0)).unwrap();
        assert_eq!(created.ids, [7]);
        let made = standing([&created, &open], "tasks.create", &json!({"title": "x"}));
        assert!(made.is_some(), "a change of the created thing is no reason to create it again");
        let deleted = Receipt::of("tasks.delete", &json!({"id": 7}), &Outcome::success("ok"), Micros(0)).unwrap();
        let made = standing([&created, &open, &deleted], "tasks.create", &json!({"title": "x"}));
        assert!(made.is_none(), "the created thing no longer exists");
        let part = Receipt { extent: Extent::Partial, ..done };
        assert!(!is_proved(&[&part]));
    }

    #[test]
    fn receipt_of_overwriting_skill_stands_until_it_saves_another_value() {
        let of = |skill: &str, value: u64| {
            Receipt::of(skill, &json!({"id": 5, "value": value}), &Outcome::success("ok"), Micros(0)).unwrap()
        };
        for (skill, is_overwritten) in [("x.save", true), ("x.write_value", true), ("x.add", false), ("x.set", true)] {
            let (first, second) = (of(skill, 1), of(skill, 2));
            let standing = standing([&first, &second], skill, &json!({"id": 5, "value": 1}));
            assert_eq!(standing.is_none(), is_overwritten, "{skill}");
        }
    }

    #[test]
    fn receipt_of_an_older_version_is_read_as_done() {
        let old = r#"{"skill":"tasks.create","call":"c","line":"Created"}"#;
        let receipt: Receipt = serde_json::from_str(old).unwrap();
        assert_eq!((receipt.extent, receipt.ids.as_slice()), (Extent::Done, &[][..]));
        assert_eq!(serde_json::to_string(&receipt).unwrap(), old);
    }
}
