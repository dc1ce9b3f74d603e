//! What a result says about itself without a model: whether it is empty, answers the question, is the page of a guard, and has the
//! usual size. No model is asked.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    outcome::{Outcome, Status},
    skill::Effect,
    words::{all_stems, different_stems},
};

/// The longest text that may say that nothing was found, in bytes: a longer one has found something.
const NOTHING_BYTES_MAX: usize = 160;

/// How a text begins that says so.
const NOTHING: [&str; 12] = [
    "0 matches",
    "0 results",
    "found 0",
    "found no",
    "found nothing",
    "i found no",
    "no ",
    "none",
    "not found",
    "nothing",
    "there are no",
    "there is no",
];

/// Whether a result says that nothing was found: an empty text, a short text that begins so, or lists that are all empty.
#[must_use]
pub fn finds_nothing(text: &str) -> bool {
    let text = text.trim();
    if text.is_empty() {
        return true;
    }
    if text.starts_with(['{', '[']) {
        return serde_json::from_str::<Value>(text).is_ok_and(|value| is_empty(&value));
    }
    text.len() <= NOTHING_BYTES_MAX && {
        let text = text.to_lowercase();
        matches!(text.as_str(), "null" | "no" | "0") || NOTHING.iter().any(|begins| text.starts_with(begins))
    }
}

/// Whether a value is empty, or an object with lists that are all empty.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => {
            let mut lists = map.values().filter_map(Value::as_array).peekable();
            map.is_empty() || (lists.peek().is_some() && lists.all(Vec::is_empty))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The confidence in a result without content.
const EMPTY: f64 = 0.2;
/// The confidence in a result that has other words than the question.
const OFF_TOPIC: f64 = 0.4;
/// The confidence in a page that keeps programs out.
const KEPT_OUT: f64 = 0.1;
/// The confidence in a result of an unusual size.
const ODD_SIZE: f64 = 0.4;
/// The longest page of a guard, in bytes: longer pages have content and may mention these words.
const GUARD_PAGE_BYTES_MAX: usize = 6_000;
/// Shorter words of a question say little about its subject.
const WORD_BYTES_MIN: usize = 3;

/// What the pages of guards say.
const GUARD_PAGE: [&str; 14] = [
    "access denied",
    "access to this page has been denied",
    "are you a human",
    "are you a robot",
    "captcha",
    "checking your browser",
    "cloudflare ray id",
    "enable javascript and cookies",
    "please enable cookies",
    "please verify you are a human",
    "request blocked",
    "unusual traffic from your",
    "verify you are human",
    "you have been blocked",
];

/// The usual size of the results of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeRange {
    /// The shortest usual result, in characters.
    #[serde(default)]
    pub chars_min: u32,
    /// The longest usual result, in characters.
    #[serde(default = "any_size")]
    pub chars_max: u32,
}

const fn any_size() -> u32 {
    u32::MAX
}

/// How results are checked. The configuration has it as a table of its own. It is recorded with each turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckRules {
    /// Whether empty results are noticed.
    pub empty: bool,
    /// Whether pages that keep programs out are noticed.
    pub guard_pages: bool,
    /// How many of the words of a search its result must have, in percent. 0 switches the check off.
    pub overlap_percent_min: u32,
    /// A result with less confidence is flagged, in percent.
    pub flag_below_percent: u32,
    /// The usual sizes of results, by skill.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sizes: BTreeMap<String, SizeRange>,
}

impl Default for CheckRules {
    fn default() -> Self {
        Self { empty: true, guard_pages: true, overlap_percent_min: 20, flag_below_percent: 50, sizes: BTreeMap::new() }
    }
}

impl CheckRules {
    /// Whether these are the defaults, which are not stored.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The call whose result is checked.
#[derive(Debug, Clone, Copy)]
pub struct CheckedCall<'a> {
    /// The skill.
    pub skill: &'a str,
    /// Its arguments.
    pub arguments: &'a Value,
    /// Its effect. Only reading calls are checked.
    pub effect: Effect,
    /// Whether it reached other machines.
    pub external: bool,
}

/// The outcome with the confidence that its text deserves, and with the doubts about it if the confidence is low.
#[must_use]
pub fn checked(rules: &CheckRules, call: &CheckedCall<'_>, mut outcome: Outcome) -> Outcome {
    let is_result = matches!(outcome.status, Status::Success | Status::Partial);
    if !is_result || call.effect != Effect::Read || outcome.skill_change.is_some() {
        return outcome;
    }
    let found = [
        is_without_content(rules, &outcome.data),
        is_guard_page(rules, call, &outcome.data),
        is_off_topic(rules, call, &outcome.data),
        is_odd_size(rules, call, &outcome.data),
    ];
    let own = (outcome.confidence, "the skill itself is not sure of it".to_owned());
    let found = found.into_iter().flatten().chain([own]);
    let threshold = f64::from(rules.flag_below_percent.min(100)) / 100.0;
    for (confidence, doubt) in found.filter(|(confidence, _)| *confidence < threshold) {
        outcome.confidence = outcome.confidence.min(confidence);
        outcome.doubts.push(doubt);
    }
    outcome
}

fn is_without_content(rules: &CheckRules, text: &str) -> Option<(f64, String)> {
    let is_empty = matches!(text.trim(), "" | "[]" | "{}" | "null");
    (rules.empty && is_empty).then(|| (EMPTY, "it is empty".to_owned()))
}

fn is_guard_page(rules: &CheckRules, call: &CheckedCall<'_>, text: &str) -> Option<(f64, String)> {
    if !rules.guard_pages || !call.external || text.len() > GUARD_PAGE_BYTES_MAX {
        return None;
    }
    let text = text.to_lowercase();
    let said = GUARD_PAGE.iter().find(|said| text.contains(*said))?;
    Some((KEPT_OUT, format!("it looks like a page that keeps programs out (\"{said}\")")))
}

fn is_off_topic(rules: &CheckRules, call: &CheckedCall<'_>, text: &str) -> Option<(f64, String)> {
    let verb = call.skill.rsplit('.').next().unwrap_or_default();
    let is_search = ["search", "find", "query", "lookup"].iter().any(|word| verb.contains(word));
    if !is_search || rules.overlap_percent_min == 0 || finds_nothing(text) {
        return None;
    }
    let query = ["query", "q", "search", "words", "text"].iter().find_map(|key| call.arguments[*key].as_str())?;
    let words: Vec<String> = different_stems(query).into_iter().filter(|word| word.len() >= WORD_BYTES_MIN).collect();
    let said: BTreeSet<String> = all_stems(text).collect();
    let common = words.iter().filter(|word| said.contains(*word)).count();
    let is_off = !words.is_empty() && common * 100 < words.len() * rules.overlap_percent_min as usize;
    is_off.then(|| (OFF_TOPIC, format!("it has {common} of the {} words of the search", words.len())))
}

fn is_odd_size(rules: &CheckRules, call: &CheckedCall<'_>, text: &str) -> Option<(f64, String)> {
    let SizeRange { chars_min, chars_max } = *rules.sizes.get(call.skill)?;
    let chars = text.chars().count();
    let is_odd = !(chars_min as usize..=chars_max as usize).contains(&chars);
    is_odd.then(|| (ODD_SIZE, format!("it has {chars} characters, and {chars_min} to {chars_max} are usual")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_of(rules: &CheckRules, skill: &str, text: &str) -> (f64, Vec<String>) {
        let arguments = json!({"query": "oil prices today", "url": "x"});
        let call = CheckedCall { skill, arguments: &arguments, effect: Effect::Read, external: true };
        let outcome = checked(rules, &call, Outcome::success(text));
        (outcome.confidence, outcome.doubts)
    }

    #[test]
    fn result_that_is_empty_off_topic_or_a_guard_page_has_low_confidence() {
        let rules = CheckRules::default();
        for (skill, text, confidence) in [
            ("web.fetch", "  ", EMPTY),
            ("web.fetch", "Just a moment. Checking your browser before you go on.", KEPT_OUT),
            ("web.search", "Weather: rain in Pune.", OFF_TOPIC),
        ] {
            let (found, doubts) = check_of(&rules, skill, text);
            assert!((found - confidence).abs() < 1e-9 && doubts.len() == 1, "{text:?}: {found} {doubts:?}");
        }
        for (skill, text) in [
            ("web.fetch", "Weather: rain in Pune."),
            ("web.search", "The price of oil rose."),
            ("web.search", "No results."),
            ("web.fetch", &format!("An article about captchas. {}", "word ".repeat(2_000))),
        ] {
            assert_eq!(check_of(&rules, skill, text), (1.0, Vec::new()), "{text:?}");
        }
    }

    #[test]
    fn result_checks_act_by_their_rules() {
        let sizes = BTreeMap::from([("web.fetch".to_owned(), SizeRange { chars_min: 10, chars_max: 20 })]);
        let sized = CheckRules { sizes, ..CheckRules::default() };
        for (text, is_odd) in [("short", true), ("long enough", false), ("this is far too long for it", true)] {
            assert_eq!(check_of(&sized, "web.fetch", text).1.len(), usize::from(is_odd), "{text}");
        }
        let off = CheckRules { empty: false, guard_pages: false, overlap_percent_min: 0, ..CheckRules::default() };
        for (skill, text) in [("web.fetch", ""), ("web.fetch", "captcha"), ("web.search", "rain")] {
            assert_eq!(check_of(&off, skill, text), (1.0, Vec::new()), "{text:?}");
        }
        let strict = CheckRules { overlap_percent_min: 100, ..CheckRules::default() };
        assert_eq!(check_of(&strict, "web.search", "The price of oil rose.").1.len(), 1, "today is missing");
        let lax = CheckRules { flag_below_percent: 15, ..CheckRules::default() };
        assert_eq!(check_of(&lax, "web.search", "rain"), (1.0, Vec::new()), "0.4 is enough");
        assert_eq!(check_of(&lax, "web.fetch", "captcha").1.len(), 1);
    }

    #[test]
    fn own_confidence_of_a_skill_is_flagged_and_changes_are_not_checked() {
        let arguments = json!({});
        let call = CheckedCall { skill: "a.guess", arguments: &arguments, effect: Effect::Read, external: false };
        let unsure = Outcome { confidence: 0.3, ..Outcome::success("Perhaps.") };
        assert_eq!(checked(&CheckRules::default(), &call, unsure).doubts, ["the skill itself is not sure of it"]);
        let call = CheckedCall { effect: Effect::Once, ..call };
        assert!(checked(&CheckRules::default(), &call, Outcome::success("")).doubts.is_empty());
    }

    #[test]
    fn result_finds_nothing_if_it_is_empty_or_says_so_shortly() {
        for text in
            ["", " \n", "[]", "{}", r#"{"count": 0, "results": []}"#, "Nothing found.", "Found no open tasks.", "null"]
        {
            assert!(finds_nothing(text), "{text:?}");
        }
        let long = format!("No. 10 is a house. {}", "x".repeat(NOTHING_BYTES_MAX));
        for text in
            ["Found 1 task", r#"{"a": []"#, r#"{"results": [1]}"#, r#"{"status": "done"}"#, "Notes: none", &long]
        {
            assert!(!finds_nothing(text), "{text:?}");
        }
    }
}
