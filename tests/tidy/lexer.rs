//! As much of Rust's grammar as the repository's rules need: where comments, strings, functions and test modules are.

use std::ops::Range;

/// The text with comments replaced by spaces and the content of strings by `_`. Every byte keeps its offset and line.
pub fn code_of(text: &str) -> String {
    let mut lexer = Lexer { bytes: text.as_bytes(), at: 0, out: Vec::with_capacity(text.len()) };
    while lexer.at < lexer.bytes.len() {
        lexer.step();
    }
    String::from_utf8(lexer.out).expect("only whole characters are replaced")
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

impl<'a> Lexer<'a> {
    fn step(&mut self) {
        let bytes: &'a [u8] = self.bytes;
        let rest = &bytes[self.at..];
        if rest.starts_with(b"//") {
            let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            return self.hide(end, b' ');
        }
        if rest.starts_with(b"/*") {
            return self.hide(block_comment(rest), b' ');
        }
        let in_word = self.at > 0 && is_word(self.bytes[self.at - 1]);
        if !in_word && let Some((before, inside)) = raw_string(rest) {
            self.keep(before);
            self.hide(inside, b'_');
            return self.keep(before - rest.iter().position(|b| matches!(b, b'#' | b'"')).unwrap_or(0));
        }
        match rest[0] {
            b'"' => {
                self.keep(1);
                self.hide(quoted(&rest[1..], b'"'), b'_');
                self.keep(1);
            }
            b'\'' => match character(&rest[1..]) {
                Some(len) => {
                    self.keep(1);
                    self.hide(len, b'_');
                    self.keep(1);
                }
                None => self.keep(1),
            },
            _ => self.keep(1),
        }
    }

    fn keep(&mut self, len: usize) {
        let end = (self.at + len).min(self.bytes.len());
        self.out.extend_from_slice(&self.bytes[self.at..end]);
        self.at = end;
    }

    fn hide(&mut self, len: usize, with: u8) {
        let end = (self.at + len).min(self.bytes.len());
        self.out.extend(self.bytes[self.at..end].iter().map(|b| if *b == b'\n' { b'\n' } else { with }));
        self.at = end;
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The lengths of the opening of a raw string and of its content.
fn raw_string(rest: &[u8]) -> Option<(usize, usize)> {
    let prefix = [&b"r"[..], b"br", b"cr"].into_iter().find(|p| rest.starts_with(p))?.len();
    let hashes = rest[prefix..].iter().take_while(|b| **b == b'#').count();
    let open = prefix + hashes + 1;
    if rest.get(open - 1) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let inside = rest[open..].windows(close.len()).position(|w| w == close).unwrap_or(rest.len() - open);
    Some((open, inside))
}

fn quoted(rest: &[u8], end: u8) -> usize {
    let mut at = 0;
    while at < rest.len() && rest[at] != end {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at
}

/// The length of a character literal, or nothing if the quote begins a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.first() == Some(&b'\\') {
        return Some(2 + quoted(rest.get(2..)?, b'\''));
    }
    let len = std::str::from_utf8(&rest[..rest.len().min(4)])
        .unwrap_or_else(|e| std::str::from_utf8(&rest[..e.valid_up_to()]).unwrap_or_default())
        .chars()
        .next()?
        .len_utf8();
    (rest.get(len) == Some(&b'\'')).then_some(len)
}

/// A function: its name and its byte range, from `fn` to its last brace.
pub struct Function {
    pub name: String,
    pub span: Range<usize>,
    /// The range between its braces.
    pub body: Range<usize>,
}

/// All functions with a body, in order.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if at > 0 && is_word(code.as_bytes()[at - 1]) {
            continue;
        }
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if let Some(body) = (!name.is_empty()).then(|| body_after(code, at + 3 + name.len())).flatten() {
            found.push(Function { name, span: at..body.end + 1, body });
        }
    }
    found
}

/// The byte ranges of test-only code: each `#[cfg(test)]` with the item behind it.
pub fn test_regions(code: &str) -> Vec<Range<usize>> {
    let of = |(at, found): (usize, &str)| {
        let from = at + found.len();
        let end =
            body_after(code, from).map_or_else(|| code[from..].find(';').map(|n| from + n), |body| Some(body.end));
        at..end.map_or(code.len(), |end| end + 1)
    };
    code.match_indices("#[cfg(test)]").map(of).collect()
}

/// The range between the next braces.
pub fn block_after(code: &str, from: usize) -> Option<Range<usize>> {
    let open = from + code[from..].find('{')?;
    Some(open + 1..matching_brace(code, open))
}

/// The items between commas, without those inside of brackets.
pub fn enclosed_items(code: &str) -> Vec<&str> {
    let (mut items, mut depth, mut from) = (Vec::new(), 0_i32, 0);
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                items.push(&code[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    items.push(&code[from..]);
    items.retain(|item| !item.trim().is_empty());
    items
}

/// The range between the braces of the next item, or nothing if the item has none.
fn body_after(code: &str, from: usize) -> Option<Range<usize>> {
    let mut depth = 0_i32;
    for (n, byte) in code.as_bytes().iter().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(n + 1..matching_brace(code, n)),
            _ => {}
        }
    }
    None
}

fn matching_brace(code: &str, open: usize) -> usize {
    let mut depth = 0_i32;
    for (n, byte) in code.as_bytes().iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return n;
        }
    }
    code.len()
}

#[test]
fn lexer_hides_strings_and_comments() {
    let text =
        "a(\"fn x() { \\\" }\", 'b', '\\'', 'é', r#\"}\"\"#); // }\n/* /* } */ } */ fn b<'a>(x: &'a [u8; 2]) { '{' }";
    let code = code_of(text);
    assert_eq!((code.len(), code.lines().count()), (text.len(), 2));
    assert_eq!(code.matches(['{', '}']).count(), 2, "{code}");
    let found = functions(&code);
    assert_eq!(found.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(code[found[0].body.clone()].trim(), "'_'");
}

#[test]
fn lexer_test_regions_end_with_their_items() {
    let code =
        code_of("fn a() {}\n#[cfg(test)]\nmod tests;\nfn b() {}\n#[cfg(test)]\nmod more {\n fn c() {}\n}\nfn d() {}");
    let regions = test_regions(&code);
    let outside = |name: &str| {
        let at = code.find(name).unwrap();
        !regions.iter().any(|r| r.contains(&at))
    };
    assert!(outside("fn a") && outside("fn b") && !outside("fn c") && outside("fn d"), "{regions:?}");
}
