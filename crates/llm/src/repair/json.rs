//! Reads the JSON of small models: comments, trailing commas, line ends inside strings, Python literals, doubled braces,
//! one missing brace at the end.

use serde_json::Value;

/// Extra capacity for characters that a repair adds, in bytes.
const ADDED_BYTES: usize = 16;

/// A parsed value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Read {
    pub value: Value,
    /// Length of the consumed text, in bytes.
    pub used: usize,
    /// The text was invalid JSON and was repaired.
    pub is_mended: bool,
}

/// Reads the object or array at the beginning of the text, and ignores the text after it.
pub(super) fn read(text: &str) -> Option<Read> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    if let Some(Ok(value)) = values.next() {
        return Some(Read { value, used: values.byte_offset(), is_mended: false });
    }
    if text.starts_with("{{") {
        // `{{"name": …, "arguments": {{…}}}}`, or only the outermost brace doubled; then one closing brace remains in the
        // text.
        let whole = halved(text).and_then(|(halved, used)| Some(Read { used, ..mended(&halved)? }));
        return whole.or_else(|| mended(&text[1..]).map(|read| Read { used: read.used + 1, ..read }));
    }
    mended(text)
}

/// Replaces doubled braces outside strings by single ones. Returns the result and the length of the consumed text.
fn halved(text: &str) -> Option<(String, usize)> {
    let mut out = String::with_capacity(text.len());
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        out.push(c);
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => in_string = true,
            '{' | '}' => {
                chars.next_if(|(_, next)| *next == c)?;
                depth = if c == '{' { depth + 1 } else { depth.checked_sub(1)? };
                if depth == 0 {
                    return Some((out, at + 2));
                }
            }
            _ => {}
        }
    }
    None
}

fn mended(text: &str) -> Option<Read> {
    let (clean, used) = clean(text)?;
    let value = serde_json::from_str(&clean).ok()?;
    Some(Read { value, used, is_mended: true })
}

/// Rewrites the first object or array of a text as valid JSON. Adds at most one closing brace.
fn clean(text: &str) -> Option<(String, usize)> {
    let mut out = String::with_capacity(text.len() + ADDED_BYTES);
    let mut open: Vec<char> = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let mut step = c.len_utf8();
        match c {
            '"' => {
                step = string(rest, &mut out)?;
            }
            '/' if rest.starts_with("//") => step = rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => step = rest.find("*/")? + 2,
            '{' | '[' => {
                open.push(if c == '{' { '}' } else { ']' });
                out.push(c);
            }
            '}' | ']' => {
                drop_comma(&mut out);
                if open.pop() != Some(c) {
                    return None;
                }
                out.push(c);
                if open.is_empty() {
                    return Some((out, at + 1));
                }
            }
            // A fence or a closing tag in place of a closing brace.
            '`' | '<' => break,
            _ if c.is_ascii_alphabetic() => {
                let word = rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
                step = word.len();
                out.push_str(match word {
                    "True" => "true",
                    "False" => "false",
                    "None" => "null",
                    other => other,
                });
            }
            _ => out.push(c),
        }
        at += step;
    }
    let [missing] = open[..] else { return None };
    drop_comma(&mut out);
    out.push(missing);
    Some((out, at))
}

fn drop_comma(out: &mut String) {
    let kept = out.trim_end().trim_end_matches(',').len();
    out.truncate(kept);
}

/// Copies the string literal at the beginning of the text with its line ends escaped. Returns its length in bytes.
fn string(text: &str, out: &mut String) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
        if at > 0 && c == '"' && !escaped {
            return Some(at + 1);
        }
        escaped = at > 0 && c == '\\' && !escaped;
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Option<Value> {
        read(text).map(|read| read.value)
    }

    #[test]
    fn json_of_small_models_is_repaired() {
        for text in [
            r#"{"a": {"b": 1}}"#,
            r#"{{"a": {{"b": 1}}}}"#,
            r#"{{"a": {"b": 1}}}"#,
            r#"{"a": {"b": 1}"#,
            "{\"a\": {\"b\": 1}\n```",
            "{\"a\": {\"b\": 1}</tool_call>",
            "{\"a\": {\"b\": 1, // the number\n}}",
            r#"{"a": {"b": /* one */ 1,},}"#,
        ] {
            assert_eq!(value(text), Some(json!({"a": {"b": 1}})), "{text}");
        }
        assert_eq!(value("{\"a\": \"two\nlines // no comment\"}"), Some(json!({"a": "two\nlines // no comment"})));
        assert_eq!(value(r#"{"a": True, "b": None}"#), Some(json!({"a": true, "b": null})));
    }

    #[test]
    fn json_with_more_than_one_mistake_of_balance_is_refused() {
        for text in [r#"{"a": {"b": {"c": 1}"#, r#"{"a": "open"#, r#"{"a": ]}"#, "", r#"{"a" 1}"#] {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn json_reader_returns_length_of_value() {
        assert_eq!(read(r#"{"a":1} and more"#).map(|r| (r.used, r.is_mended)), Some((7, false)));
        assert_eq!(read(r#"{{"a":1}} x"#).map(|r| r.used), Some(9));
        assert_eq!(read("{\"a\":1,} x").map(|r| (r.used, r.is_mended)), Some((8, true)));
    }
}
