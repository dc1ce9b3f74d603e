//! The page names only kinds of events that exist, and every creature has a drawing and a place on the stage.

use std::{collections::BTreeSet, fs, path::Path};

/// Kinds that the page makes itself: a commit of the log, a notification, and a changed set of skills are no events of the log.
const OWN_KINDS: [&str; 3] = ["commit", "notification", "skills_changed"];
/// The creatures of the source document, which has 42 and proposes 6 more.
const CREATURES: usize = 48;

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The kinds of events: each has a golden file.
fn kinds() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/core/tests/golden/event_v1");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect()
}

fn word_before(text: &str, end: usize) -> &str {
    let start = text[..end].rfind(|c: char| !(c.is_ascii_lowercase() || c == '_')).map_or(0, |at| at + 1);
    &text[start..end]
}

#[test]
fn creatures_react_to_kinds_of_events_that_exist() {
    let (map, known) = (text("web/creatures/map.js"), kinds());
    let reactions = [": (e) =>", ": (e, f) =>", ": () =>", ": decided("];
    let named: BTreeSet<&str> =
        reactions.iter().flat_map(|sign| map.match_indices(sign).map(|(at, _)| word_before(&map, at))).collect();
    // `"*"` stands for every kind.
    let is_known =
        |kind: &&str| kind.is_empty() || known.contains(*kind) || OWN_KINDS.contains(kind) || *kind == "actor";
    let unknown: Vec<&&str> = named.iter().filter(|kind| !is_known(kind)).collect();
    assert!(unknown.is_empty(), "web/creatures/map.js reacts to {unknown:?}, which are no kinds of events");
    assert!(named.len() > 20, "{named:?}");
}

#[test]
fn audit_offers_kinds_of_events_that_exist() {
    let (audit, known) = (text("web/pages/audit.js"), kinds());
    let list = audit.split("KINDS = [").nth(1).and_then(|rest| rest.split(']').next()).expect("a list of kinds");
    let offered: BTreeSet<String> = list.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    let unknown: Vec<&String> = offered.difference(&known).collect();
    assert!(
        unknown.is_empty() && offered.len() > 20,
        "web/pages/audit.js offers {unknown:?}, which are no kinds of events"
    );
}

#[test]
fn creatures_have_a_drawing_and_a_place_each() {
    let (map, drawings) = (text("web/creatures/map.js"), text("web/creatures/drawings.js"));
    let ids = |text: &str| -> Vec<String> {
        text.split("{ id: \"")
            .skip(1)
            .filter(|rest| rest.contains("zone:"))
            .map(|rest| rest.split('"').next().unwrap().to_owned())
            .collect()
    };
    let creatures: Vec<String> = map.lines().filter(|line| line.contains("zone: \"")).flat_map(ids).collect();
    let all: BTreeSet<&String> = creatures.iter().collect();
    assert_eq!((creatures.len(), all.len()), (CREATURES, CREATURES), "{creatures:?}");
    let without: Vec<&String> = creatures
        .iter()
        .filter(|id| !drawings.contains(&format!("\n  {id}:")) && !drawings.contains(&format!("\n  \"{id}\":")))
        .collect();
    assert!(without.is_empty(), "no drawing of {without:?} in web/creatures/drawings.js");
}
