//! Citations resolve: cited sections are in the list of sources, decisions and invariants are in this repository. A
//! reader cannot follow any other citation, so a number that points elsewhere is an error.

use std::collections::BTreeSet;

use super::tree::{File, all_well, files, read};

/// The list of source documents and of their cited sections.
const LIST: &str = "docs/sources.md";
/// Documents that are neither in the repository nor in the list. A number behind one of these words points nowhere.
const ELSEWHERE: &[&str] = &[
    concat!("rul", "ing"),
    concat!("rul", "ings"),
    concat!("des", "ign"),
    concat!("iss", "ue"),
    concat!("inter", "faces"),
    concat!("dura", "bility"),
];

/// Every occurrence of a word with the text behind it. The character before a word must not be part of a longer word.
fn occurrences<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let at = text.match_indices(word).map(|(at, _)| at);
    let whole = at.filter(move |at| !text[..*at].chars().next_back().is_some_and(is_part));
    whole.map(move |at| (at, &text[at + word.len()..]))
}

/// The number at the start of a text, after one space.
fn number_behind(text: &str) -> Option<u32> {
    let digits = text.strip_prefix(' ')?;
    digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())].parse().ok()
}

fn location(file: &File, at: usize) -> String {
    format!("{}:{}", file.path, file.text[..at].matches('\n').count() + 1)
}

/// Citations of sections, each with its byte offset.
fn citations(text: &str) -> Vec<(usize, String)> {
    let found = text.match_indices("[S").filter_map(|(at, _)| {
        let (inside, _) = text[at + 2..].split_once(']')?;
        let (document, section) = inside.split_once(' ')?;
        let is_document = document.len() == 1 && document.bytes().all(|b| b.is_ascii_digit());
        let is_one = is_document && !section.is_empty() && !section.contains(['[', '\n']);
        is_one.then(|| (at, inside.to_owned()))
    });
    found.collect()
}

/// All lines of the list: the section without its brackets, and what it fixes.
fn listed() -> Vec<(String, String)> {
    let list = read(LIST);
    let rows = list.lines().filter_map(|l| l.strip_prefix("| [S")?.strip_suffix(" |")?.split_once("] | "));
    rows.map(|(section, fixes)| (section.to_owned(), fixes.to_owned())).collect()
}

/// A sort key for sections: 5.9 before 5.10, and 6 before 6.1 before 6A.
fn order(section: &str) -> Vec<(u32, String)> {
    let parts = section.split(['.', ' ']).map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        (part[..digits].parse().unwrap_or(0), part[digits..].to_owned())
    });
    parts.collect()
}

#[test]
fn citations_of_sections_are_listed_and_every_listed_section_is_cited() {
    let listed: BTreeSet<String> = listed().into_iter().map(|(section, _)| section).collect();
    assert!(listed.len() > 40, "only {} sections were found in {LIST}", listed.len());
    let (mut wrong, mut cited) = (Vec::new(), BTreeSet::new());
    for file in files().iter().filter(|f| f.path != LIST) {
        for (at, section) in citations(&file.text) {
            if !listed.contains(&section) {
                wrong.push(format!("{}: {LIST} has no line for [S{section}]", location(file, at)));
            }
            cited.insert(section);
        }
    }
    wrong.extend(listed.difference(&cited).map(|section| format!("{LIST}: [S{section}] is cited nowhere")));
    // The list may refer to itself, but only to sections that it has.
    let own = citations(&read(LIST)).into_iter().filter(|(_, section)| !listed.contains(section));
    wrong.extend(own.map(|(_, section)| format!("{LIST}: there is no line for [S{section}]")));
    all_well("citations of sections", &wrong);
}

#[test]
fn sources_are_sorted_and_each_line_says_what_its_section_fixes() {
    let listed = listed();
    let mut wrong = Vec::new();
    for pair in listed.windows(2) {
        if order(&pair[0].0) >= order(&pair[1].0) {
            wrong.push(format!("[S{}] stands before [S{}]", pair[0].0, pair[1].0));
        }
    }
    wrong.extend(listed.iter().filter(|(_, f)| f.len() < 30).map(|(s, f)| format!("[S{s}] says too little: {f}")));
    let rows = read(LIST).lines().filter(|l| l.starts_with("| [")).count();
    assert_eq!(rows, listed.len(), "a line of {LIST} is not `| [S<document> <section>] | <what it fixes> |`");
    all_well(LIST, &wrong);
}

#[test]
fn citations_do_not_point_outside_the_repository() {
    let mut wrong = Vec::new();
    for file in files() {
        let bare = occurrences(&file.text, "S").filter(|(at, rest)| {
            rest.starts_with(|c: char| c.is_ascii_digit())
                && number_behind(&rest[1..]).is_some()
                && !file.text[..*at].ends_with('[')
        });
        wrong.extend(bare.map(|(at, rest)| format!("{}: S{} has no brackets", location(file, at), &rest[..3])));
        let text = file.text.to_ascii_lowercase();
        for word in ELSEWHERE {
            let numbered = occurrences(&text, word).filter_map(|(at, rest)| Some((at, number_behind(rest)?)));
            wrong.extend(numbered.map(|(at, number)| format!("{}: {word} {number}", location(file, at))));
        }
    }
    all_well("give the reason in place, or cite a section that docs/sources.md explains", &wrong);
}

#[test]
fn citations_of_decisions_and_invariants_name_existing_ones() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    let page = read("ARCHITECTURE.md");
    for file in files() {
        for (at, rest) in
            occurrences(&file.text, "ADR ").filter(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            let name = format!("docs/decisions/{}-", rest.chars().take(4).collect::<String>());
            seen += 1;
            if !files().iter().any(|f| f.path.starts_with(&name)) {
                wrong.push(format!("{}: there is no {name}", location(file, at)));
            }
        }
        for (at, number) in
            occurrences(&file.text, "invariant").filter_map(|(at, rest)| Some((at, number_behind(rest)?)))
        {
            seen += 1;
            if !page.contains(&format!("\n- **{number}.** ")) {
                wrong.push(format!("{}: ARCHITECTURE.md has no invariant {number}", location(file, at)));
            }
        }
    }
    assert!(seen > 10, "only {seen} citations were found");
    all_well("citations of decisions and invariants", &wrong);
}
