//! Events are routed exhaustively: a `match` on an event names every kind, so that a new kind does not compile before every
//! reader of the log has decided about it. A filter for some kinds is an `if let`, a `let else` or a `matches!`.

use super::tree::{all_well, sources};

/// A match with this in a pattern is a match on an event.
const EVENT: &str = "EventBody::";

#[test]
fn match_on_an_event_has_no_catch_all() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (at, patterns) in matches(&source.code) {
            let is_on_event = patterns.iter().filter_map(|p| p.split(" if ").next()).any(|p| p.contains(EVENT));
            for pattern in patterns.iter().filter(|pattern| is_on_event && is_catch_all(pattern)) {
                wrong.push(format!("{}:{}: `{pattern} =>`", source.path, source.line_of(at)));
            }
        }
    }
    all_well("name every kind of event, or filter with `if let`", &wrong);
}

#[test]
fn catch_all_is_found_in_nested_and_guarded_matches() {
    let code =
        "match a { E::X { .. } if b => match c { _ => 1 }, E::Y(d) => { e } body if f => 2, (_, g) => 3, _ => 4 }";
    let found: Vec<Vec<&str>> = matches(code).into_iter().map(|(_, patterns)| patterns).collect();
    assert_eq!(found, [vec!["E::X { .. } if b", "E::Y(d)", "body if f", "(_, g)", "_"], vec!["_"]]);
    let catch_alls: Vec<&str> = found[0].iter().copied().filter(|pattern| is_catch_all(pattern)).collect();
    assert_eq!(catch_alls, ["(_, g)", "_"]);
}

/// Whether a pattern takes every value: it has no guard and names no variant, constant or literal.
fn is_catch_all(pattern: &str) -> bool {
    let is_literal = ["true", "false"].iter().any(|word| pattern.contains(word));
    let names_a_value = pattern.contains(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '"');
    !pattern.contains(" if ") && !is_literal && !names_a_value
}

/// The offset of every `match` in the code and the patterns of its arms, with their guards.
fn matches(code: &str) -> Vec<(usize, Vec<&str>)> {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'!'));
    let bytes = code.as_bytes();
    let keywords = code.match_indices("match").map(|(at, word)| (at, at + word.len()));
    let keywords = keywords.filter(|(at, end)| !is_word(bytes[..*at].last()) && !is_word(bytes.get(*end)));
    keywords.map(|(at, end)| (at, patterns(&code[end..]))).collect()
}

/// The patterns of the match whose scrutinee starts here.
fn patterns(code: &str) -> Vec<&str> {
    let Some(open) = end_of(code, |rest| rest.starts_with('{')) else { return Vec::new() };
    let mut arms = &code[open + 1..];
    let mut patterns = Vec::new();
    while let Some(arrow) = end_of(arms, |rest| rest.starts_with("=>")) {
        patterns.push(arms[..arrow].trim());
        let body = arms[arrow + 2..].trim_start();
        let is_block = body.starts_with('{');
        let rest = if is_block { &body[1..] } else { body };
        let end = end_of(rest, |rest| rest.starts_with(if is_block { '}' } else { ',' }));
        arms = end.map_or("", |end| rest[end + 1..].trim_start_matches([',', ' ', '\n']));
    }
    patterns
}

/// Where `is_end` first holds outside of brackets, within the brackets that enclose the start.
fn end_of(code: &str, is_end: impl Fn(&str) -> bool) -> Option<usize> {
    let mut depth = 0_u32;
    for (at, c) in code.char_indices() {
        if depth == 0 && is_end(&code[at..]) {
            return Some(at);
        }
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}
