//! `response:` of a command skill with a request: which part of the response is shown, and what each status means.

use std::collections::BTreeMap;

use serde_yaml_ng::{Mapping, Value};

use super::{
    frontmatter::{Frontmatter, scalar},
    problem::Report,
    request::{bounded, word},
};
use crate::request::{Format, Meaning, ResponseRules};

const KEYS: [&str; 7] = ["type", "pointer", "fields", "items_max", "chars_max", "bytes_max", "status"];
/// The most fields that are shown of each item.
const FIELDS_MAX: usize = 32;
/// How many items of a list are shown: at least one, by default, at most.
const ITEMS: (usize, usize, usize) = (1, 20, 200);
/// How many characters are shown. The default fits into the default limit of results, 8,000 bytes.
const CHARS: (usize, usize, usize) = (1, 6_000, 20_000);
/// The size of a response, in bytes. `egress.reply_bytes_max` holds too.
const BYTES: (usize, usize, usize) = (1, 256 * 1024, 16 * 1024 * 1024);

/// The rules of a file, or the usual ones. Every problem is reported.
pub(super) fn read(front: &Frontmatter, report: &mut Report) -> ResponseRules {
    let (line, none) = (front.line_of("response"), Mapping::new());
    let mut wrong = |what: String, fix: String| report.error(line, what, fix);
    let map = match front.get("response") {
        None => &none,
        Some(value) => value.as_mapping().unwrap_or_else(|| {
            wrong("`response` must be a mapping".to_owned(), "write `pointer: /results` below it".to_owned());
            &none
        }),
    };
    for key in map.keys().map(|key| scalar(key).unwrap_or_default()).filter(|key| !KEYS.contains(&key.as_str())) {
        wrong(format!("`response` has the unknown key `{key}`"), format!("known are {}", KEYS.join(", ")));
    }
    let format = format(map, &mut wrong);
    let pointer = word(map, "pointer").unwrap_or_default();
    let fields = fields(map, &mut wrong);
    for pointer in std::iter::once(&pointer).chain(fields.iter().map(|(_, pointer)| pointer)) {
        if !pointer.is_empty() && !pointer.starts_with('/') {
            wrong(format!("`{pointer}` is no JSON Pointer"), "begin it with a slash: `/results/0/name`".to_owned());
        }
    }
    if format != Format::Json && (!pointer.is_empty() || !fields.is_empty()) {
        let fix = "write `type: json`, or leave them out";
        wrong("`pointer` and `fields` select parts of JSON".to_owned(), fix.to_owned());
    }
    ResponseRules {
        format,
        pointer,
        fields,
        items_max: bounded(map, "items_max", ITEMS, &mut wrong),
        chars_max: bounded(map, "chars_max", CHARS, &mut wrong),
        bytes_max: bounded(map, "bytes_max", BYTES, &mut wrong),
        statuses: statuses(map, &mut wrong),
    }
}

fn format(map: &Mapping, wrong: &mut dyn FnMut(String, String)) -> Format {
    match word(map, "type").as_deref() {
        None | Some("json") => Format::Json,
        Some("text") => Format::Text,
        Some("html") => Format::Html,
        Some("none") => Format::Nothing,
        Some(other) => {
            wrong(format!("`type: {other}` is unknown"), "write json, text, html or none".to_owned());
            Format::Json
        }
    }
}

fn fields(map: &Mapping, wrong: &mut dyn FnMut(String, String)) -> Vec<(String, String)> {
    let Some(value) = map.get("fields") else { return Vec::new() };
    let pairs = value.as_mapping().filter(|fields| fields.len() <= FIELDS_MAX);
    let pairs = pairs.and_then(|fields| {
        fields.iter().map(|(label, pointer)| Some((scalar(label)?, scalar(pointer)?))).collect::<Option<Vec<_>>>()
    });
    pairs.unwrap_or_else(|| {
        let what = format!("`fields` must be a mapping of at most {FIELDS_MAX} labels to JSON Pointers");
        wrong(what, "write `fields: {title: /title}`".to_owned());
        Vec::new()
    })
}

fn statuses(map: &Mapping, wrong: &mut dyn FnMut(String, String)) -> BTreeMap<u16, Meaning> {
    let mut statuses = BTreeMap::new();
    let Some(value) = map.get("status") else { return statuses };
    let Some(pairs) = value.as_mapping() else {
        wrong("`status` must be a mapping".to_owned(), "write `status: {404: empty_result}`".to_owned());
        return statuses;
    };
    for (status, meaning) in pairs {
        let shown = |value: &Value| scalar(value).unwrap_or_default();
        let number = shown(status).parse::<u16>().ok().filter(|status| (100..600).contains(status));
        let meaning = match shown(meaning).as_str() {
            "success" => Ok(Meaning::Success),
            "empty_result" => Ok(Meaning::EmptyResult),
            "transient" => Ok(Meaning::Transient),
            "permanent" => Ok(Meaning::Permanent),
            "blocked" => Ok(Meaning::Blocked),
            other => Err(format!("`{other}` is unknown as the meaning of a status")),
        };
        match (number, meaning) {
            (None, _) => wrong(format!("`{}` is no status", shown(status)), "write one such as 404".to_owned()),
            (_, Err(what)) => {
                wrong(what, "write success, empty_result, transient, permanent or blocked".to_owned());
            }
            (Some(number), Ok(meaning)) => drop(statuses.insert(number, meaning)),
        }
    }
    statuses
}
