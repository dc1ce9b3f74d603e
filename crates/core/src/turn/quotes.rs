//! Commands and calls in third-party text (invariant 20). A model repeats what it reads with other quotation marks, other flags
//! or in another notation, so a call is compared by its words and not by its characters.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// How far from a skill's name the values of its call may be, in bytes in addition to their own length.
const CALL_BYTES_MAX: usize = 256;
/// The most bytes that one byte of a value occupies in a text with escapes.
const ESCAPED_BYTES: usize = 6;
/// The words that users use for the verb of a skill, in English and German.
const VERB_SYNONYMS: [(&str, &str); 7] = [
    (
        "create",
        "add new make remember remind note save book plan schedule put erstelle erinnere notiere füge trage lege",
    ),
    ("drop", "delete remove lösche lösch entferne streiche"),
    ("delete", "remove drop erase cancel lösche lösch entferne streiche"),
    (
        "update",
        "mark change set move rename postpone reschedule complete finish reopen close edit tick check ändere markiere setze \
         verschiebe erledige hake",
    ),
    ("edit", "change append add rewrite update put ändere ergänze füge"),
    ("save", "remember store note keep merke merk speichere"),
    ("send", "mail write sende schicke schreibe"),
];

/// The name and the values by which a call is recognised in a text.
pub(super) struct CallPattern {
    name: String,
    values: Vec<String>,
    /// How much of a text around the name is searched, in bytes.
    near_bytes: usize,
}

impl CallPattern {
    pub(super) fn of(name: &str, arguments: &Map<String, Value>) -> Self {
        let mut values = Vec::new();
        arguments.values().for_each(|value| collect(value, &mut values));
        let len_bytes: usize = values.iter().map(String::len).sum();
        Self { name: plain_words(name), values, near_bytes: CALL_BYTES_MAX + ESCAPED_BYTES * len_bytes }
    }

    /// Whether the user's words request the call: they contain its verb, or a synonym, and every value.
    pub(super) fn is_asked_for_in(&self, user_words: &str) -> bool {
        let verb = self.name.split_whitespace().next_back().unwrap_or_default();
        let others = VERB_SYNONYMS.iter().find(|(name, _)| *name == verb).map_or("", |(_, others)| others);
        let is_present = |word: &str| user_words.contains(&format!(" {word} "));
        (is_present(verb) || others.split_whitespace().any(is_present))
            && self.values.iter().all(|v| user_words.contains(v))
    }

    /// Whether the call appears in a text: its name where a call can begin, and every value near it.
    pub(super) fn appears_in(&self, text: &str) -> bool {
        let mut before = None;
        names(text).any(|(at, word)| {
            let to = at + word.len();
            // "tasks create" is a call of `tasks.create`, too.
            let pair = before.replace(at).filter(|from| self.is_name(&text[*from..to]));
            let from = if self.is_name(word) { Some(at) } else { pair };
            from.is_some_and(|from| self.appears_around(text, from, to))
        })
    }

    fn is_name(&self, text: &str) -> bool {
        let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let mut wanted = self.name.split_whitespace();
        words.all(|word| wanted.next().is_some_and(|name| name.eq_ignore_ascii_case(word))) && wanted.next().is_none()
    }

    fn appears_around(&self, text: &str, from: usize, to: usize) -> bool {
        let is_mark = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '*' | '\\' | '”' | '’');
        let behind = text[to..].trim_start_matches(is_mark);
        // In prose, the next word of the sentence follows the name.
        let words = plain_words(near(behind, self.near_bytes));
        let begins_with_value = || self.values.iter().any(|value| words.starts_with(value.as_str()));
        let is_prose = behind.starts_with(char::is_alphabetic) && !is_assignment(behind) && !begins_with_value();
        if is_prose || text[..to].ends_with('.') {
            return false;
        }
        // In JSON the arguments may precede the name.
        let is_quoted = text[..from].ends_with(['"', '\'']);
        let lead = if is_quoted { plain_words(near_end(&text[..from], self.near_bytes)) } else { String::new() };
        self.values.iter().all(|value| words.contains(value.as_str()) || lead.contains(value.as_str()))
    }
}

/// Whether a text may contain a command or a call: something like `tasks.create`, `dispatch_agent` or a flag.
pub(super) fn may_hold_calls(text: &str) -> bool {
    text.split(|c| !is_name(c)).any(|word| is_skill_like(word) || is_flag(word))
}

const fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// The words of a text that may be names, with their byte positions.
fn names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut end = 0;
    let parts = text.split_inclusive(|c| !is_name(c)).map(move |part| {
        end += part.len();
        (end - part.len(), part.trim_end_matches(|c| !is_name(c)))
    });
    parts.filter(|(_, word)| !word.is_empty())
}

/// Whether a word looks like `tasks.create` or `dispatch_agent`, and not like the end of a sentence.
fn is_skill_like(word: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    word.contains(['.', '_']) && word.split('.').all(part)
}

fn is_flag(word: &str) -> bool {
    word.strip_prefix("--").is_some_and(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// Whether a text begins like `title="Buy milk"`.
fn is_assignment(text: &str) -> bool {
    text.trim_start_matches(is_name).starts_with('=')
}

fn near(text: &str, bytes_max: usize) -> &str {
    &text[..crate::outcome::floor_char_boundary(text, bytes_max)]
}

fn near_end(text: &str, bytes_max: usize) -> &str {
    let mut from = text.len().saturating_sub(bytes_max);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// The letters and digits of a text in lower case, with one blank before and after each word. JSON escapes are decoded, because
/// a note may be inside a string of a result.
pub(super) fn plain_words(text: &str) -> String {
    let mut words = String::from(" ");
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let c = if c == '\\' { unescaped(&mut rest) } else { c };
        if c.is_alphanumeric() {
            words.extend(c.to_lowercase());
        } else if !words.ends_with(' ') {
            words.push(' ');
        }
    }
    if !words.ends_with(' ') {
        words.push(' ');
    }
    words
}

/// The character that a backslash and the characters after it encode, or a blank.
fn unescaped(rest: &mut std::str::Chars<'_>) -> char {
    let behind = rest.as_str().trim_start_matches('\\');
    let code = behind.strip_prefix('u').and_then(|hex| u32::from_str_radix(hex.get(..4)?, 16).ok());
    let (used, meant) = match (code.and_then(char::from_u32), behind.chars().next()) {
        (Some(meant), _) => (5, meant),
        (None, Some('n' | 'r' | 't')) => (1, ' '),
        (None, _) => (0, ' '),
    };
    *rest = behind[used..].chars();
    meant
}

/// A text with its HTML entities decoded, including entities that were escaped several times.
pub(super) fn without_entities(text: &str) -> Cow<'_, str> {
    const ESCAPED_TIMES_MAX: usize = 3;
    let mut text = Cow::Borrowed(text);
    for _ in 0..ESCAPED_TIMES_MAX {
        let mut read = String::new();
        let mut rest = &*text;
        while let Some(at) = rest.find('&') {
            read.push_str(&rest[..at]);
            let (meant, len_bytes) = entity(&rest[at..]).unwrap_or(('&', 1));
            read.push(meant);
            rest = &rest[at + len_bytes..];
        }
        if rest.len() == text.len() {
            break;
        }
        read.push_str(rest);
        text = Cow::Owned(read);
    }
    text
}

/// The character of an entity at the beginning of a text, and the entity's length in bytes.
fn entity(text: &str) -> Option<(char, usize)> {
    // "&", a name, and ";".
    const ENTITY_BYTES_MAX: usize = 12;
    const NAMED: [(&str, char); 9] = [
        ("lt", '<'),
        ("gt", '>'),
        ("amp", '&'),
        ("quot", '"'),
        ("apos", '\''),
        ("nbsp", ' '),
        ("period", '.'),
        ("lowbar", '_'),
        ("grave", '`'),
    ];
    let text = &text[..crate::outcome::floor_char_boundary(text, ENTITY_BYTES_MAX)];
    let name = text.strip_prefix('&')?.split_once(';')?.0;
    let meant = match name.strip_prefix('#') {
        Some(code) => {
            let hex = code.strip_prefix(['x', 'X']).map(|hex| u32::from_str_radix(hex, 16));
            char::from_u32(hex.unwrap_or_else(|| code.parse()).ok()?)
        }
        None => NAMED.iter().find(|(named, _)| *named == name).map(|(_, meant)| *meant),
    };
    Some((meant?, name.len() + 2))
}

/// Whether the user's words contain what a call stores: every significant word of its texts. Values of a single word are kinds
/// and tags and are ignored.
pub(super) fn is_in_user_words(user_words: &str, arguments: &Value) -> bool {
    const SAYS_SOMETHING_CHARS_MIN: usize = 4;
    /// Short words that reverse the meaning of a statement.
    const WEIGHTY: [&str; 12] = ["not", "no", "nor", "any", "all", "off", "don", "non", "pas", "nie", "nur", "nein"];
    const OF_STATEMENTS: [&str; 12] =
        ["user", "users", "always", "should", "must", "please", "prefers", "wants", "likes", "that", "their", "they"];
    let mut values = Vec::new();
    collect(arguments, &mut values);
    let texts: Vec<&String> = values.iter().filter(|text| text.split_whitespace().nth(1).is_some()).collect();
    let is_present = |word: &str| {
        word.chars().count() < SAYS_SOMETHING_CHARS_MIN && !WEIGHTY.contains(&word)
            || OF_STATEMENTS.contains(&word)
            || user_words.contains(&format!(" {word} "))
    };
    !texts.is_empty() && texts.iter().all(|text| text.split_whitespace().all(is_present))
}

/// The words of every text and number in a call's arguments.
fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(plain_words(text)),
        Value::Number(number) => found.push(plain_words(&number.to_string())),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(map) => map.values().for_each(|item| collect(item, found)),
        Value::Null | Value::Bool(_) => {}
    }
}
