//! Calls that a model wrote as text and that no client could extract, because they name nothing that was offered. Users do
//! not see them (invariant 21).

use serde_json::Value;

/// The tags around calls in a text. Without the closing tag, a call extends to the end of the text.
const TAGS: [(&str, &str); 7] = [
    ("<tool_call>", "</tool_call>"),
    ("<tools>", "</tools>"),
    ("<function_call>", "</function_call>"),
    ("<function_calls>", "</function_calls>"),
    ("<function=", "</function>"),
    ("<invoke ", "</invoke>"),
    ("[TOOL_CALLS]", "[/TOOL_CALLS]"),
];
/// Closing tags that may be left over after their opening tags were removed.
const STRAY: [&str; 3] = ["</tool_call>", "</tools>", "</function_calls>"];
const FENCE: &str = "```";
/// The first keys of a call written as JSON.
const CALL_KEYS: [&str; 5] = ["\"name\"", "\"function\"", "\"tool\"", "\"tool_name\"", "\"tool_calls\""];
/// The beginning of the tags that the kernel puts around results.
const RESULT: &str = "<result";
/// Tags of results: the kernel's, and the one of the chat templates of Qwen and its relatives.
const RESULTS: [&str; 2] = [RESULT, "<tool_response"];
/// All tags of [`RESULTS`] with their ends.
const RESULT_TAGS: [&str; 4] = [RESULT, "</result", "<tool_response", "</tool_response"];

/// A text without the calls in it; `None` if it contains none. Text in a code block is not a call, unless the block is the
/// whole text.
pub(super) fn without_calls(text: &str) -> Option<String> {
    let whole = unfenced(text.trim());
    if is_call(whole) {
        return Some(String::new());
    }
    let mut text =
        if whole.len() < text.trim().len() && whole.starts_with(['<', '[']) { whole } else { text }.to_owned();
    let mut has_calls = false;
    while let Some((from, to)) = tagged(&text) {
        text.replace_range(from..to, "");
        has_calls = true;
    }
    if !has_calls {
        return None;
    }
    for stray in STRAY {
        text = text.replace(stray, "");
    }
    Some(text.trim().to_owned())
}

/// Whether a text for the user describes a call of a tool or a skill: JSON of the tool that runs skills or agents in a code
/// block, or the whole text is one empty element whose name looks like that of a skill (`<notes.read title="x" />`).
pub(super) fn describes_call(text: &str) -> bool {
    let text = text.trim();
    let json = || {
        let names_tool = ["\"use_skill\"", "\"dispatch_agent\""].iter().any(|tool| text.contains(tool));
        text.contains(FENCE) && names_tool && text.contains("\"arguments\"")
    };
    let tag = || {
        let name = text.strip_prefix('<')?.split(|c: char| c.is_whitespace() || matches!(c, '>' | '/')).next()?;
        let (domain, verb) = name.split_once('.')?;
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let is_empty = text.ends_with("/>") && text.matches('<').count() == 1
            || text.ends_with(&format!("></{name}>")) && text.matches('<').count() == 2;
        (is_word(domain) && is_word(verb) && is_empty).then_some(())
    };
    json() || tag().is_some()
}

/// Whether a text that was cut off is only the beginning of a call.
pub(super) fn is_cut_call(text: &str) -> bool {
    let text = text.trim();
    let fenced =
        text.strip_prefix(FENCE).map(|text| text.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '_'));
    let text = fenced.unwrap_or(text).trim_start();
    if TAGS.iter().any(|(opening, _)| text.starts_with(opening)) {
        return true;
    }
    let object = text.trim_start_matches(['{', '[', ' ', '\n']);
    if object.len() == text.len() || !CALL_KEYS.iter().any(|name| object.starts_with(name)) {
        return false;
    }
    // An object with a name is as often data.
    let named = object.split('"').nth(3).unwrap_or_default();
    let is_skill = named.contains(['_', '.']) && !named.contains(' ');
    is_skill || ["\"arguments\"", "\"parameters\"", "\"args\""].iter().any(|key| object.contains(key))
}

/// The text without result tags, if it begins with a tag of the kernel's results, which the model then invented. `None` for
/// any other text.
pub(super) fn invented_result(text: &str) -> Option<String> {
    // "<results>" is other XML.
    let is_tag = |text: &str, tag: &str| {
        let behind = text.strip_prefix(tag).map(|behind| behind.chars().next());
        behind.is_some_and(|next| next.is_none_or(|c| c == '>' || c == '-' || c.is_whitespace()))
    };
    let mut rest = text.trim();
    if !RESULTS.iter().any(|tag| is_tag(rest, tag)) {
        return None;
    }
    let mut words = String::new();
    let first = |rest: &str| {
        let tags = rest.match_indices('<').map(|(at, _)| at);
        tags.into_iter().find(|at| RESULT_TAGS.iter().any(|tag| is_tag(&rest[*at..], tag)))
    };
    while let Some(at) = first(rest) {
        words.push_str(&rest[..at]);
        rest = rest[at..].split_once('>').map_or("", |(_, behind)| behind);
    }
    words.push_str(rest);
    Some(words.trim().to_owned())
}

/// Whether a text that is still being written begins like an invented result, or is a call written as JSON.
pub(super) fn begins_as_call_or_result(text: &str) -> bool {
    let text = text.trim();
    RESULTS.iter().any(|tag| text.starts_with(tag)) || is_cut_call(text) || is_call(unfenced(text))
}

/// Whether a text that is still being written may become an invented result or a call.
pub(super) fn may_begin_as_call_or_result(text: &str) -> bool {
    RESULTS.iter().any(|tag| tag.starts_with(text.trim_start())) || may_become_call(text)
}

/// The beginning of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// An opening tag of a call.
    Tag,
    /// Only the beginning of such a tag.
    PartOfTag,
    Other,
}

pub(super) fn opening_of(text: &str) -> Opening {
    let mut tags = TAGS.iter().map(|(opening, _)| *opening);
    if tags.clone().any(|tag| text.starts_with(tag)) {
        Opening::Tag
    } else if tags.any(|tag| tag.starts_with(text)) {
        Opening::PartOfTag
    } else {
        Opening::Other
    }
}

/// Whether a text that is still being written may become a call written as JSON. Its second key decides.
fn may_become_call(text: &str) -> bool {
    const QUOTES_DECIDING: usize = 6;
    let text = text.trim_start();
    if !text.is_empty() && FENCE.starts_with(text) {
        return true;
    }
    let fenced = text.strip_prefix(FENCE).map(|t| t.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '_'));
    let inside = fenced.unwrap_or(text).trim_start();
    if inside.is_empty() {
        return fenced.is_some();
    }
    let object = inside.trim_start_matches(['{', '[', ' ', '\n']);
    object.len() < inside.len()
        && CALL_KEYS.iter().any(|key| {
            key.starts_with(object) || object.starts_with(key) && object.matches('"').count() < QUOTES_DECIDING
        })
}

/// Whether a position is outside of code.
fn is_bare(text: &str, at: usize) -> bool {
    !text[..at].ends_with('`') && text[..at].matches(FENCE).count().is_multiple_of(2)
}

/// The byte range of the first call between tags.
fn tagged(text: &str) -> Option<(usize, usize)> {
    let found = TAGS.iter().filter_map(|(opening, end)| {
        let from = text.match_indices(opening).map(|(at, _)| at).find(|at| is_bare(text, *at))?;
        let inside = from + opening.len();
        let (content, to) = match text[inside..].find(end) {
            Some(at) => (&text[inside..inside + at], inside + at + end.len()),
            None => (&text[inside..], text.len()),
        };
        // A text that only mentions a tag is not a call.
        let has_end = text[inside..].contains(end);
        let is_named = match *opening {
            "<invoke " => has_end || content.trim_start().starts_with("name="),
            "<function=" => has_end || content.contains('>'),
            _ => false,
        };
        let is_call = is_named || content.contains('{') && !opening.ends_with(['=', ' ']);
        is_call.then_some((from, to))
    });
    found.min()
}

/// Whether a text is one fenced code block with a language name.
pub(super) fn is_shown_code(text: &str) -> bool {
    let text = text.trim();
    unfenced(text).len() < text.len()
        && text.trim_start_matches('`').starts_with(|c: char| c.is_ascii_alphabetic())
        && !text.contains('<')
}

/// The content of a text that is one fenced block; any other text unchanged.
fn unfenced(text: &str) -> &str {
    let Some(inner) = text.strip_prefix(FENCE).and_then(|text| text.strip_suffix(FENCE)) else { return text };
    if inner.contains(FENCE) {
        return text;
    }
    inner.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '_').trim()
}

/// Whether a text is only a call: `{"name": …, "arguments": {…}}`, a list of those, `name {…}`.
fn is_call(text: &str) -> bool {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))).unwrap_or(text.len());
    let (name, behind) = text.split_at(end);
    let is_name = name.contains(['_', '.']) && name.starts_with(|c: char| c.is_ascii_alphabetic());
    let behind = behind.trim_start_matches('(').trim().trim_end_matches(')');
    if is_name && matches!(serde_json::from_str(behind), Ok(Value::Object(_))) {
        return true;
    }
    // Small models copy the doubled braces of a template.
    let single = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}")).map(|text| format!("{{{text}}}"));
    let parsed = serde_json::from_str(text).or_else(|_| serde_json::from_str(single.as_deref().unwrap_or_default()));
    parsed.is_ok_and(|value| is_call_object(&value))
}

fn is_call_object(value: &Value) -> bool {
    const NAMES: [&str; 4] = ["name", "function", "tool", "tool_name"];
    const ARGUMENTS: [&str; 3] = ["arguments", "parameters", "args"];
    match value {
        Value::Array(items) => !items.is_empty() && items.iter().all(is_call_object),
        Value::Object(map) => {
            let has_name = NAMES.iter().any(|key| map.get(*key).is_some_and(|v| v.is_string() || is_call_object(v)));
            let has_arguments =
                ARGUMENTS.iter().any(|key| map.get(*key).is_some_and(|v| v.is_object() || v.is_string()));
            let is_nested = map.get("function").is_some_and(is_call_object);
            map.get("tool_calls").is_some_and(is_call_object)
                || is_nested
                || (has_name && has_arguments && map.len() <= 4)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_calls_are_removed_and_other_text_is_kept() {
        for (text, rest) in [
            ("{\"name\": \"launch\", \"arguments\": {}}", ""),
            ("{{\"name\": \"launch\", \"arguments\": {\"at\": 1}}}", ""),
            ("```json\n[{\"name\": \"a\", \"parameters\": {}}, {\"name\": \"b\", \"parameters\": {}}]\n```", ""),
            ("make_task {\"title\": \"x\"}", ""),
            ("{\"tool_calls\": [{\"function\": {\"name\": \"a\", \"arguments\": \"{}\"}}]}", ""),
            ("I do it.\n<tool_call>\n{\"name\": \"launch\"}\n</tool_call>", "I do it."),
            ("<tools>{\"name\": \"launch\"}", ""),
            ("<function=launch><parameter=at>1</parameter></function>\nOk.", "Ok."),
            ("```xml\n<tool_call>{\"name\": \"x\"}</tool_call>\n```", ""),
            ("[TOOL_CALLS][{\"name\": \"launch\", \"arguments\": {}}]", ""),
        ] {
            assert_eq!(without_calls(text).as_deref(), Some(rest), "{text}");
        }
    }

    #[test]
    fn markup_cut_call_is_distinguished_from_cut_answer() {
        for text in [
            "{\"name\": \"tasks.create\", \"argum",
            "```json\n{\"name\": \"add\", \"arguments\": {\"title\": \"Bu",
            "<tool_call>\n{\"name\": \"x",
            "[{\"function\": {\"name\": \"a\", \"parameters\": {",
        ] {
            assert!(is_cut_call(text), "{text}");
        }
        for text in
            ["Once upon a", "{\"name\": \"Bob\", \"age\": 7, \"frien", "[1, 2, 3", "```json\n{\"a\": 1", "\"name\""]
        {
            assert!(!is_cut_call(text), "{text}");
        }
    }

    #[test]
    fn markup_answer_that_mentions_calls_is_unchanged() {
        for text in [
            "Hello!",
            "{\"name\": \"Bob\", \"age\": 7}",
            "Models write `<tool_call>{}</tool_call>` around a call.",
            "For example:\n```json\n{\"name\": \"a\", \"arguments\": {}}\n```\nThat is all.",
            "The <tools> tag opens the list.",
            "Write <invoke to begin a call, and then {\"the\": \"rest\"} of it.",
            "A call begins with <function= and its name.",
            "fn main() {}",
            "```rust\nfn main() {}\n```",
        ] {
            assert_eq!(without_calls(text), None, "{text}");
        }
    }

    #[test]
    fn markup_invented_result_is_recognised_and_other_markup_is_not() {
        assert_eq!(invented_result("<result>Done.</result>").as_deref(), Some("Done."));
        assert_eq!(
            invented_result("<result-x1 status=\"ok\">Done.</result-x1> So it is.").as_deref(),
            Some("Done. So it is.")
        );
        assert_eq!(invented_result("<tool_response>\nDone.\n</tool_response>").as_deref(), Some("Done."));
        assert_eq!(invented_result("<result\nstatus=\"ok\">Done.").as_deref(), Some("Done."));
        for text in ["<results><row>1</row></results>", "<resultset/>", "The <result> tag.", "Hello"] {
            assert_eq!(invented_result(text), None, "{text}");
        }
    }
}
