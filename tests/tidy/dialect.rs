//! One word per idea: words that the glossary has replaced are not used again, in names, comments, interfaces or documents.

use super::tree::{Source, all_well, files, sources};

/// Replaced words, each with its replacement. They are concatenated so that this list does not find itself.
const REPLACED: &[(&str, &str)] = &[
    (concat!("do", "or"), "front end, `api`, breaker"),
    (concat!("do", "ors"), "front ends, `api`, breakers"),
    (concat!("se", "at"), "child, slot"),
    (concat!("se", "ats"), "children, slots"),
    (concat!("tha", "w"), "activate"),
    (concat!("tha", "ws"), "activates"),
    (concat!("hiber", "nate"), "passivate"),
    (concat!("hiber", "nates"), "passivates"),
    (concat!("rou", "se"), "activate"),
    (concat!("vac", "ate"), "evict"),
    (concat!("str", "uck"), "injected"),
    (concat!("de", "ed"), "fault, effect"),
    (concat!("de", "eds"), "faults, effects"),
    (concat!("kee", "per"), "background worker"),
    (concat!("kee", "pers"), "background workers"),
    (concat!("look", "out"), "due timer"),
    (concat!("lob", "by"), "admission queue"),
    (concat!("wi", "sh"), "options, request, handle"),
    (concat!("wi", "shes"), "options, requests"),
    (concat!("who", "ever"), "the component's name"),
    (concat!("some", "body"), "the component's name"),
    (concat!("no", "body"), "the component's name"),
    (concat!("every", "body"), "the component's name"),
    (concat!("stand", "in"), "fallback backend"),
];
/// Words that are replaced only in names: in a sentence they have a common meaning, too.
const REPLACED_IN_NAMES: &[(&str, &str)] = &[
    (concat!("li", "fe"), "incarnation, run, epoch"),
    (concat!("li", "ves"), "incarnations, runs"),
    (concat!("to", "ld"), "notified, reported"),
    (concat!("hea", "rd"), "received"),
    (concat!("hea", "rs"), "receives"),
    (concat!("des", "k"), "task table"),
    (concat!("asi", "de"), "detached"),
    (concat!("stri", "ke"), "inject"),
    (concat!("par", "ked"), "quarantined, preempted"),
];
/// Files in which such a word belongs to others: what people type, names of other systems, and this project's own history.
const ALLOWED: &[(&str, &[&str])] = &[
    ("STYLE.md", &["*"]),
    ("docs/decisions/", &["*"]),
    ("crates/planner/", &["*"]),
    ("crates/testkit/src/postgres/", &[concat!("no", "body")]),
    ("skills/", &["*"]),
    ("crates/skillkit/src/builtin/system/await.rs", &[concat!("no", "body")]),
    ("scripts/real_", &["*"]),
];

fn is_allowed(path: &str, word: &str) -> bool {
    ALLOWED.iter().any(|(start, words)| path.starts_with(start) && (words.contains(&"*") || words.contains(&word)))
}

/// The comments of a Rust file; everything else is spaces. Lines keep their numbers.
fn comments(source: &Source) -> String {
    let bytes = source.text.bytes().zip(source.code.bytes());
    let kept = bytes.map(|(text, code)| if code == b' ' || text == b'\n' { text } else { b' ' });
    String::from_utf8_lossy(&kept.collect::<Vec<u8>>()).into_owned()
}

/// The words of a text in lower case, each with its line. Names are split at underscores and capital letters.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let (mut word, mut was_small) = (String::new(), false);
        for c in text.chars().chain([' ']) {
            if (!c.is_alphabetic() || (c.is_uppercase() && was_small)) && !word.is_empty() {
                found.push((line + 1, std::mem::take(&mut word).to_lowercase()));
            }
            if c.is_alphabetic() {
                word.push(c);
            }
            was_small = c.is_lowercase();
        }
    }
    found
}

fn check(wrong: &mut Vec<String>, path: &str, text: &str, replaced: &[(&str, &str)]) {
    for (line, word) in words(text) {
        let Some((_, instead)) = replaced.iter().find(|(old, _)| *old == word) else { continue };
        if !is_allowed(path, &word) {
            wrong.push(format!("{path}:{line}: {word}: say {instead}"));
        }
    }
}

#[test]
fn words_that_the_glossary_replaced_are_not_used() {
    let mut wrong = Vec::new();
    for source in sources() {
        check(&mut wrong, &source.path, &comments(source), REPLACED);
        check(&mut wrong, &source.path, &source.code, REPLACED);
        check(&mut wrong, &source.path, &source.code, REPLACED_IN_NAMES);
    }
    let is_document = |path: &str| path.ends_with(".md") || path.ends_with(".proto") || path.ends_with(".toml");
    for file in files().iter().filter(|f| is_document(&f.path) || f.path == "docs/openapi.json") {
        check(&mut wrong, &file.path, &file.text, REPLACED);
    }
    all_well("the glossary has another word for it", &wrong);
}

#[test]
fn words_are_found_in_names_of_both_cases_and_in_sentences() {
    let old = concat!("do", "or");
    let text = format!("struct Open{}Limits; // a {old}, not a {old}knob\nfn {old}_of() {{}}", "Door");
    let mut wrong = Vec::new();
    check(&mut wrong, "x.rs", &text, REPLACED);
    let lines: Vec<&str> = wrong.iter().filter_map(|w| w.split(':').nth(1)).collect();
    assert_eq!(lines, ["1", "1", "2"], "{wrong:?}");
}
