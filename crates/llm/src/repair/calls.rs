//! Parses tool calls that a model wrote as text, in the formats that models were seen to use. A text counts as calls only
//! as a whole: beside calls, tags and fences it may contain one short line of prose before them, and every called name must
//! be offered.

use annie_core::command;
use serde_json::{Map, Value};

use super::{json, names::Names};

/// Length limit for the prose before a call, in characters.
pub(super) const PROSE_CHARS_MAX: usize = 200;
/// The most calls that one text may contain.
const CALLS_MAX: usize = 32;
/// Tags around calls.
const TAGS: [&str; 28] = [
    "<tool_calls>",
    "</tool_calls>",
    "<tool_call>",
    "</tool_call>",
    "<tools>",
    "</tools>",
    "<tool>",
    "</tool>",
    "<function_calls>",
    "</function_calls>",
    "<function_call>",
    "</function_call>",
    "</function>",
    "</invoke>",
    "</parameter>",
    "<|tool_calls|>",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "[TOOL_CALLS]",
    "[/TOOL_CALLS]",
    "[TOOL_CALL]",
    "[/TOOL_CALL]",
    "[TOOL_REQUEST]",
    "[END_TOOL_REQUEST]",
];
/// Keys for the name of a call.
const NAME_KEYS: [&str; 5] = ["name", "tool", "tool_name", "function", "recipient_name"];
/// Keys for the arguments of a call.
const ARGUMENT_KEYS: [&str; 5] = ["arguments", "parameters", "args", "input", "params"];
/// Keys for a list of calls.
const LIST_KEYS: [&str; 2] = ["tool_calls", "function_call"];
/// Keys of a call that are ignored.
const OTHER_KEYS: [&str; 2] = ["id", "type"];
/// Words that mark a line as quoting a call instead of making it.
const QUOTING: [&str; 14] = [
    "example",
    "would",
    "could",
    "e.g.",
    "instance",
    "like this",
    "looks like",
    "such as",
    "format",
    "says:",
    "said:",
    "reads:",
    "contains:",
    "written:",
];

/// Beginnings of calls that contain the called name.
const OPENINGS: [&str; 3] = [ANNOUNCED, "<function=", "<invoke"];
const ANNOUNCED: &str = "[Calling tool";
/// The language tag of a block of commands.
pub(super) const BLOCK: &str = "cmd";

/// Length of the opening line of a command block with its line end, in bytes. Blanks around the language tag are ignored.
fn block_opening(text: &str) -> Option<usize> {
    let (language, _) = text.strip_prefix("```")?.split_once('\n')?;
    (language.trim() == BLOCK).then_some("```".len() + language.len() + 1)
}

/// Whether a text that is still arriving may become a call that begins with a tag.
pub(super) fn may_begin_with_tag(text: &str) -> bool {
    TAGS.iter().chain(&OPENINGS).any(|tag| tag.starts_with(text) || text.starts_with(tag))
}

/// Whether a text that is still arriving may become a key of a call.
pub(super) fn may_become_key(text: &str) -> bool {
    keys().any(|key| key.starts_with(text))
}

/// Whether this is a key of a call.
pub(super) fn is_key(text: &str) -> bool {
    keys().any(|key| key == text)
}

fn keys() -> impl Iterator<Item = &'static str> {
    [&NAME_KEYS[..], &ARGUMENT_KEYS, &LIST_KEYS, &OTHER_KEYS].into_iter().flatten().copied()
}

/// Calls that were found in a text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ParsedCalls {
    /// The prose before the calls.
    pub prose: String,
    /// Name and arguments of each call.
    pub calls: Vec<(String, String)>,
    /// Some part was invalid JSON and was repaired.
    pub is_mended: bool,
}

/// The beginning of the kernel's errors about a call.
pub(super) const ERROR: &str = "Error: ";
/// What stands in such an error before the right call.
const RIGHT_CALL: &str = "Call: ";

/// Length limit of the part of such an error before the call, in bytes. The kernel's own are shorter.
const ERROR_BYTES_MAX: usize = 2_048;

/// Whether an error of the kernel that a text repeats may still end with a call.
pub(super) fn may_be_repeated_error(text: &str) -> bool {
    let Some(error) = text.strip_prefix(ERROR) else { return ERROR.starts_with(text) };
    let error = error.split(RIGHT_CALL).next().unwrap_or_default();
    error.len() <= ERROR_BYTES_MAX && !is_explained(error)
}

/// Whether the words before a call are more than the one line that the kernel writes, or only quote the call.
fn is_explained(error: &str) -> bool {
    let lower = error.to_lowercase();
    error.contains('\n') || QUOTING.iter().any(|word| lower.contains(word))
}

/// The calls that a repeated error of the kernel ends with. Small models copy the whole error in place of the call in it.
fn calls_of_repeated_error(text: &str, names: &Names) -> Option<ParsedCalls> {
    let error = text.trim_start().strip_prefix(ERROR)?;
    // The call itself may contain the same word.
    let ends = error.match_indices(RIGHT_CALL).take_while(|(at, _)| *at <= ERROR_BYTES_MAX);
    let mut calls = ends.filter(|(at, _)| !is_explained(&error[..*at]));
    calls.find_map(|(at, _)| calls_only(&error[at + RIGHT_CALL.len()..], names))
}

/// Returns the calls of a text if it contains nothing else.
pub(super) fn parse_calls(text: &str, names: &Names) -> Option<ParsedCalls> {
    calls_of_repeated_error(text, names).or_else(|| calls_only(text, names))
}

fn calls_only(text: &str, names: &Names) -> Option<ParsedCalls> {
    let mut reader = Reader { rest: text, names, parsed: ParsedCalls::default() };
    while reader.step()? {}
    (!reader.parsed.calls.is_empty()).then_some(reader.parsed)
}

/// Returns a call by its name and the text of its arguments, if the name is offered and the arguments are an object.
pub(super) fn named(name: &str, arguments: &str, names: &Names) -> Option<(String, String)> {
    let arguments = match arguments.trim() {
        "" => Value::Object(Map::new()),
        text => json::read(text)?.value,
    };
    Some((names.find(name)?.to_owned(), object(arguments)?.to_string()))
}

/// Repairs invalid JSON in the arguments of a native call: a stray fence, or one missing brace.
pub(crate) fn mended_arguments(text: &str) -> Option<String> {
    let read = json::read(text.trim())?;
    let behind = text.trim()[read.used..].trim_matches(|c: char| c.is_whitespace() || matches!(c, '`' | '}' | ';'));
    (read.value.is_object() && behind.is_empty()).then(|| read.value.to_string())
}

struct Reader<'a> {
    rest: &'a str,
    names: &'a Names,
    parsed: ParsedCalls,
}

impl<'a> Reader<'a> {
    /// Consumes the next element of the text. Returns `Some(false)` at the end, and `None` if the text is not a call.
    fn step(&mut self) -> Option<bool> {
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return Some(false);
        }
        if let Some(tag) = TAGS.iter().find(|tag| self.rest.starts_with(**tag)) {
            self.skip(tag.len());
        } else if let Some(opening) = block_opening(self.rest).filter(|_| self.names.takes_blocks()) {
            self.block(opening)?;
        } else if let Some(behind) = self.rest.strip_prefix("```") {
            self.rest = behind.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '_');
        } else if self.rest.starts_with(ANNOUNCED) {
            self.announced()?;
        } else if OPENINGS.iter().any(|begin| self.rest.starts_with(begin)) {
            self.marked_up()?;
        } else if self.rest.starts_with(['{', '[']) {
            let read = json::read(self.rest)?;
            self.parsed.is_mended |= read.is_mended;
            self.skip(read.used);
            self.collect(read.value)?;
        } else if !self.by_name()? {
            self.other()?;
        }
        (self.parsed.calls.len() <= CALLS_MAX).then_some(true)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn push(&mut self, name: &str, arguments: Value) -> Option<()> {
        let name = self.names.find(name)?.to_owned();
        self.parsed.calls.push((name, object(arguments)?.to_string()));
        Some(())
    }

    /// One JSON value: a call, a list of calls, or an object that contains such a list.
    fn collect(&mut self, value: Value) -> Option<()> {
        match value {
            Value::Array(items) => items.into_iter().try_for_each(|item| self.collect(item)),
            Value::Object(mut call) => {
                for list in LIST_KEYS {
                    if let Some(inner) = call.remove(list) {
                        return self.collect(inner);
                    }
                }
                if let Some(Value::Object(function)) = call.get_mut("function") {
                    let function = std::mem::take(function);
                    return self.collect(Value::Object(function));
                }
                let name = NAME_KEYS.iter().find_map(|k| {
                    let is_text = call.get(*k).is_some_and(Value::is_string);
                    is_text.then(|| call.remove(*k)).flatten()
                })?;
                let given = ARGUMENT_KEYS.iter().find_map(|k| call.remove(*k));
                let arguments = given.unwrap_or_else(|| {
                    call.retain(|key, _| !OTHER_KEYS.contains(&key.as_str()));
                    Value::Object(call)
                });
                self.push(name.as_str()?, arguments)
            }
            _ => None,
        }
    }

    /// A block in which every line is a command with flags only. Positional arguments would need the skill's schema.
    fn block(&mut self, opening: usize) -> Option<()> {
        let body = &self.rest[opening..];
        let end = body.find("\n```").map_or(body.len(), |at| at + "\n```".len());
        let block = &self.rest[..opening + end];
        for line in command::extract(block) {
            let parsed = command::parse(&line.ok()?).ok()?;
            if parsed.help || !parsed.positional.is_empty() {
                return None;
            }
            let flags =
                parsed.flags.into_iter().map(|(flag, value)| (flag, value.map_or(Value::Bool(true), Value::String)));
            let assigned = parsed.assigned.into_iter().map(|(flag, value)| (flag, Value::String(value)));
            self.push(&parsed.name, Value::Object(every_value(flags.chain(assigned))))?;
        }
        self.skip(block.len());
        Some(())
    }

    /// `[Calling tool: NAME {…}]`
    fn announced(&mut self) -> Option<()> {
        let from = self.rest.find(':')? + 1;
        self.rest = self.rest[from..].trim_start();
        let name = word(self.rest);
        self.skip(name.len());
        let end = self.rest.find([']', '{'])?;
        let has_object = self.rest[end..].starts_with('{');
        self.skip(end);
        let arguments = if has_object { self.value()? } else { Value::Null };
        self.push(name, arguments)?;
        let end = self.rest.find(']')?;
        let between = &self.rest[..end];
        between.trim_matches(|c: char| c.is_whitespace() || c == ')').is_empty().then(|| self.skip(end + 1))
    }

    /// `<function=NAME><parameter=KEY>VALUE</parameter></function>`, `<invoke name="NAME"><parameter name="KEY">…`; closing
    /// tags may be missing.
    fn marked_up(&mut self) -> Option<()> {
        let name = self.tag_name()?;
        let mut arguments = Map::new();
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.starts_with("<parameter") {
                let key = self.tag_name()?;
                let ends = ["</parameter>", "<parameter", "</function>", "</invoke>", "</tool_call>"];
                let mut tags = self.rest.match_indices('<').map(|(at, _)| at);
                let is_end = |at: &usize| ends.iter().any(|end| self.rest[*at..].starts_with(end));
                let end = tags.find(is_end).unwrap_or(self.rest.len());
                arguments.insert(key.to_owned(), plain_value(&self.rest[..end]));
                self.skip(end);
                self.rest = self.rest.strip_prefix("</parameter>").unwrap_or(self.rest);
            } else if self.rest.starts_with('{') && arguments.is_empty() {
                let Value::Object(given) = self.value()? else { return None };
                arguments = given;
            } else {
                break;
            }
        }
        self.push(name, Value::Object(arguments))
    }

    /// Consumes a tag `<word=NAME>` or `<word name="NAME">` and returns the name.
    fn tag_name(&mut self) -> Option<&'a str> {
        let end = self.rest.find('>')?;
        let (_, name) = self.rest[..end].split_once('=')?;
        self.skip(end + 1);
        Some(name.trim().trim_matches(['"', '\'']))
    }

    /// `NAME {…}`, `NAME({…})`, `NAME[ARGS]{…}`, `NAME` and `<arg_key>` pairs.
    fn by_name(&mut self) -> Option<bool> {
        let name = word(self.rest);
        if name.is_empty() || self.names.find(name).is_none() {
            return Some(false);
        }
        let behind = self.rest[name.len()..].trim_start();
        let behind = behind.strip_prefix("[ARGS]").or_else(|| behind.strip_prefix('(')).unwrap_or(behind).trim_start();
        if behind.starts_with("<arg_key>") {
            self.rest = behind;
            let arguments = self.pairs()?;
            self.push(name, arguments)?;
            return Some(true);
        }
        if !behind.starts_with('{') {
            return Some(false);
        }
        self.rest = behind;
        let arguments = self.value()?;
        self.push(name, arguments)?;
        self.rest = self.rest.trim_start().strip_prefix(')').unwrap_or(self.rest);
        Some(true)
    }

    fn pairs(&mut self) -> Option<Value> {
        let mut arguments = Map::new();
        while let Some(behind) = self.rest.trim_start().strip_prefix("<arg_key>") {
            let (key, behind) = behind.split_once("</arg_key>")?;
            let behind = behind.trim_start().strip_prefix("<arg_value>")?;
            let (value, behind) = behind.split_once("</arg_value>")?;
            arguments.insert(key.trim().to_owned(), plain_value(value));
            self.rest = behind;
        }
        Some(Value::Object(arguments))
    }

    fn value(&mut self) -> Option<Value> {
        let read = json::read(self.rest)?;
        self.parsed.is_mended |= read.is_mended;
        self.skip(read.used);
        Some(read.value)
    }

    /// One line of prose before the first call, or a stray closing character after a call.
    fn other(&mut self) -> Option<()> {
        if !self.parsed.calls.is_empty() {
            let stray = self.rest.chars().next().filter(|c| matches!(c, '}' | ']' | ')' | ',' | ';'))?;
            self.skip(stray.len_utf8());
            return Some(());
        }
        let line = self.rest.lines().next().unwrap_or_default().trim_end();
        if !self.parsed.prose.is_empty() || !may_stand_before_calls(line) {
            return None;
        }
        self.parsed.prose = line.to_owned();
        self.skip(line.len());
        Some(())
    }
}

/// Whether a text may be prose before calls: at most one short line that does not quote calls.
pub(super) fn may_stand_before_calls(text: &str) -> bool {
    let lower = text.to_lowercase();
    let is_quoting = text.ends_with('?') || QUOTING.iter().any(|word| lower.contains(word));
    !text.contains('\n') && text.chars().count() <= PROSE_CHARS_MAX && !is_quoting
}

/// The values of flags by name. The values of a repeated flag become a list, so that none is lost; if the skill takes one
/// value, the kernel refuses the list.
fn every_value(flags: impl Iterator<Item = (String, Value)>) -> Map<String, Value> {
    let mut values = Map::new();
    for (flag, value) in flags {
        match values.get_mut(&flag) {
            None => {
                values.insert(flag, value);
            }
            Some(Value::Array(list)) => list.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    values
}

/// The name at the beginning of a text.
pub(super) fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))).unwrap_or(text.len());
    &text[..end]
}

fn object(arguments: Value) -> Option<Value> {
    match arguments {
        Value::Null => Some(Value::Object(Map::new())),
        Value::String(text) if text.trim().is_empty() => Some(Value::Object(Map::new())),
        Value::String(text) => json::read(text.trim()).map(|read| read.value).filter(Value::is_object),
        object @ Value::Object(_) => Some(object),
        _ => None,
    }
}

/// A value between tags, parsed as JSON only if it is a list or an object. The kernel converts numbers in texts.
fn plain_value(text: &str) -> Value {
    let text = text.strip_prefix('\n').unwrap_or(text);
    let text = text.strip_suffix('\n').unwrap_or(text);
    let compound = text.trim_start().starts_with(['{', '[']).then(|| serde_json::from_str(text.trim()).ok()).flatten();
    compound.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests;
