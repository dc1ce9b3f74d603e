//! The title and the readable text of an HTML page. It needs neither a tree nor a correct page: it reads the page once from
//! front to back, in time proportional to its length, and leaves out what a browser does not show.

use annie_core::hidden::is_hidden;

use crate::text::brief;

/// Maximum length of a title, in bytes.
const TITLE_BYTES_MAX: usize = 200;
/// Elements whose content is not text of the page.
const NOT_SHOWN: [&str; 11] =
    ["button", "canvas", "iframe", "math", "noscript", "object", "script", "select", "style", "svg", "template"];
/// Elements with an empty line before and after them.
const PARAGRAPHS: [&str; 15] = [
    "article",
    "aside",
    "blockquote",
    "dl",
    "figure",
    "footer",
    "form",
    "header",
    "hr",
    "main",
    "nav",
    "ol",
    "p",
    "section",
    "ul",
];
/// Elements that begin a line.
const LINES: [&str; 10] = ["br", "caption", "dd", "div", "dt", "figcaption", "option", "summary", "table", "tr"];
/// The longest character reference that is decoded, in bytes, without `&` and `;`.
const ENTITY_BYTES_MAX: usize = 10;
/// The named character references that occur in ordinary text.
const ENTITIES: [(&str, char); 34] = [
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("nbsp", ' '),
    ("ndash", '–'),
    ("mdash", '—'),
    ("hellip", '…'),
    ("lsquo", '‘'),
    ("rsquo", '’'),
    ("ldquo", '“'),
    ("rdquo", '”'),
    ("bdquo", '„'),
    ("laquo", '«'),
    ("raquo", '»'),
    ("bull", '•'),
    ("middot", '·'),
    ("copy", '©'),
    ("reg", '®'),
    ("trade", '™'),
    ("euro", '€'),
    ("pound", '£'),
    ("deg", '°'),
    ("times", '×'),
    ("auml", 'ä'),
    ("ouml", 'ö'),
    ("uuml", 'ü'),
    ("Auml", 'Ä'),
    ("Ouml", 'Ö'),
    ("Uuml", 'Ü'),
    ("szlig", 'ß'),
    ("eacute", 'é'),
    ("egrave", 'è'),
];

/// What a reader sees of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// The title in one line. Empty if there is none.
    pub(super) title: String,
    /// The text, with headings as `#`, list items as `-`, and cells separated by `|`.
    pub(super) text: String,
}

/// Reads a page.
pub(super) fn page(html: &str) -> Page {
    let mut reader = Reader::default();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        reader.text(&rest[..at]);
        rest = reader.markup(&rest[at + 1..]);
    }
    reader.text(rest);
    Page { title: reader.title, text: reader.out }
}

/// A text that is not HTML, without characters that no reader sees.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|c| is_shown(*c)).collect::<String>().trim().to_owned()
}

#[derive(Default)]
struct Reader {
    title: String,
    out: String,
    /// Line ends to write before the next character.
    breaks: usize,
    /// The beginning of the next line: the mark of a heading or of a list item.
    lead: String,
    /// What separates the next character from the last one in the same line.
    gap: &'static str,
    /// Number of open `pre` elements.
    pre: u32,
}

impl Reader {
    fn text(&mut self, text: &str) {
        decode(text, |c| self.put(c));
    }

    fn put(&mut self, c: char) {
        if self.pre > 0 && matches!(c, '\n' | ' ' | '\t') {
            if c == '\n' {
                self.breaks += usize::from(self.breaks < 2 && !self.out.is_empty());
            } else {
                self.flush();
                self.out.push(c);
            }
        } else if c.is_whitespace() {
            self.gap = if self.gap.is_empty() { " " } else { self.gap };
        } else if is_shown(c) {
            self.flush();
            self.out.push(c);
        }
    }

    /// Writes what stands between the last character and the next one.
    fn flush(&mut self) {
        if self.breaks > 0 || self.out.is_empty() {
            for _ in 0..self.breaks.min(2) {
                if !self.out.is_empty() {
                    self.out.push('\n');
                }
            }
            self.out.push_str(&self.lead);
        } else {
            self.out.push_str(self.gap);
        }
        self.lead.clear();
        (self.breaks, self.gap) = (0, "");
    }

    fn break_lines(&mut self, count: usize) {
        self.breaks = self.breaks.max(count);
        self.gap = "";
    }

    /// Reads a comment or a tag, whose `<` was read before. Returns what stands behind it.
    fn markup<'a>(&mut self, inner: &'a str) -> &'a str {
        let is_letter = |c: char| c.is_ascii_alphabetic();
        if let Some(comment) = inner.strip_prefix("!--") {
            return comment.split_once("-->").map_or("", |(_, behind)| behind);
        }
        let is_end = inner.starts_with('/');
        let tag = inner.strip_prefix('/').unwrap_or(inner);
        if !tag.starts_with(is_letter) {
            if is_end || inner.starts_with(['!', '?']) {
                return inner.split_once('>').map_or("", |(_, behind)| behind);
            }
            self.put('<');
            return inner;
        }
        let len = tag.find(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>')).unwrap_or(tag.len());
        let (name, attributes) = (tag[..len].to_ascii_lowercase(), &tag[len..]);
        let behind = behind_tag(attributes);
        let is_empty = attributes[..attributes.len() - behind.len()].ends_with("/>");
        if !is_end && name == "title" {
            let (title, behind) = element(behind, &name);
            if self.title.is_empty() {
                decode(title, |c| self.title.extend(Some(c).filter(|c| c.is_whitespace() || is_shown(*c))));
                self.title = brief(&self.title, TITLE_BYTES_MAX);
            }
            return behind;
        }
        if !is_end && !is_empty && NOT_SHOWN.contains(&name.as_str()) {
            return element(behind, &name).1;
        }
        self.tag(&name, is_end);
        behind
    }

    /// Applies a tag to the layout.
    fn tag(&mut self, name: &str, is_end: bool) {
        match name {
            "pre" => {
                self.break_lines(2);
                self.pre = if is_end { self.pre.saturating_sub(1) } else { self.pre.saturating_add(1) };
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.break_lines(2);
                let level = name[1..].parse().unwrap_or(1);
                self.lead = if is_end { String::new() } else { format!("{} ", "#".repeat(level)) };
            }
            "li" => {
                self.break_lines(1);
                self.lead = if is_end { String::new() } else { "- ".to_owned() };
            }
            "td" | "th" if !is_end => self.gap = " | ",
            _ if PARAGRAPHS.contains(&name) => self.break_lines(2),
            _ if LINES.contains(&name) => self.break_lines(1),
            _ => {}
        }
    }
}

/// What stands behind a tag whose name was read. A quoted value may contain `>`. Nothing stands behind a tag without an end.
fn behind_tag(attributes: &str) -> &str {
    let (mut quote, mut last) = (None, b' ');
    for (at, byte) in attributes.bytes().enumerate() {
        match quote {
            Some(open) if byte == open => (quote, last) = (None, byte),
            Some(_) => {}
            None if byte == b'>' => return &attributes[at + 1..],
            None if last == b'=' && matches!(byte, b'"' | b'\'') => quote = Some(byte),
            None if !byte.is_ascii_whitespace() => last = byte,
            None => {}
        }
    }
    ""
}

/// The content of an element whose first tag was read, and what stands behind its last tag. An element without a last tag
/// contains the rest of the page.
fn element<'a>(rest: &'a str, name: &str) -> (&'a str, &'a str) {
    let mut from = 0;
    while let Some(found) = rest[from..].find("</") {
        let at = from + found;
        let end = &rest[at + 2..];
        let is_name = end.as_bytes().get(..name.len()).is_some_and(|bytes| bytes.eq_ignore_ascii_case(name.as_bytes()));
        if is_name && !end[name.len()..].starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return (&rest[..at], behind_tag(&end[name.len()..]));
        }
        from = at + 2;
    }
    (rest, "")
}

/// Passes on the characters of a text with its character references decoded. Unknown references stay as they are.
fn decode(text: &str, mut put: impl FnMut(char)) {
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        rest[..at].chars().for_each(&mut put);
        rest = &rest[at + 1..];
        match reference(rest) {
            Some((c, len)) => {
                put(c);
                rest = &rest[len..];
            }
            None => put('&'),
        }
    }
    rest.chars().for_each(put);
}

/// The character of a reference behind its `&`, and the length of the reference with its semicolon, in bytes.
fn reference(text: &str) -> Option<(char, usize)> {
    let len = text.bytes().take(ENTITY_BYTES_MAX + 1).position(|byte| byte == b';')?;
    let name = &text[..len];
    let c = match name.strip_prefix('#') {
        Some(number) => {
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)?
        }
        None => ENTITIES.iter().find(|(known, _)| *known == name)?.1,
    };
    Some((c, len + 1))
}

/// Whether a reader sees a character. Others could hide text from people and show it to a model, or turn it around.
fn is_shown(c: char) -> bool {
    !is_hidden(c) && (!c.is_control() || matches!(c, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(html: &str) -> String {
        page(html).text
    }

    #[test]
    fn page_shows_title_headings_paragraphs_lists_and_cells() {
        let html = "<!DOCTYPE html><html><head><title> A &amp; B\n </title><style>p { x: '<p>' }</style></head><body>\n\
                    <h1>Head</h1><p>One  <b>bold</b>\n word.<p>Two<br>lines</p><ul><li>a</li><li> b </ul>\
                    <table><tr><th>k<th>v</tr><tr><td>1</td><td>2</td></tr></table><pre>x\n  y</pre>end</body></html>";
        let page = page(html);
        assert_eq!(page.title, "A & B");
        assert_eq!(page.text, "# Head\n\nOne bold word.\n\nTwo\nlines\n\n- a\n- b\n\nk | v\n1 | 2\n\nx\n  y\n\nend");
    }

    #[test]
    fn page_leaves_out_what_a_browser_does_not_show() {
        for html in [
            "<script>if (a < b) { '</p>' }</script>",
            "<SCRIPT type='x>y'>z</SCRIPT >",
            "<!-- <p>no</p> -->",
            "<style>x</style><template><p>no</p></template><noscript>no</noscript>",
            "<svg><title>no</title><text>no</text></svg>",
            "<iframe src=x>no</iframe><?php no ?><!x no>",
            "\u{200b}\u{202e}\u{e0041}\u{0}\u{7}",
            "&#0;&#x200b;&#8238;",
        ] {
            assert_eq!(text(&format!("<p>a{html}b")), "ab", "{html}");
        }
    }

    #[test]
    fn page_with_broken_markup_keeps_its_text() {
        for (html, shown) in [
            ("a < b && c > d", "a < b && c > d"),
            ("1 <2", "1 <2"),
            ("<a href='x>y' title=it's>link</a>", "link"),
            ("<p>a</nothing>b</p", "ab"),
            ("a<!-- no end", "a"),
            ("a<script>no end", "a"),
            ("a<b attribute=\"no end", "a"),
            ("</ >a<>b", "a<>b"),
            ("&amp;lt; &unknown; &#xffffffff; &#65 &#65;&nbsp;x", "&lt; &unknown; &#xffffffff; &#65 A x"),
            ("<svg/>a<br/>b", "a\nb"),
            ("", ""),
        ] {
            assert_eq!(text(html), shown, "{html}");
        }
        assert_eq!(page("<title>one</title><title>two</title>x"), Page { title: "one".into(), text: "x".into() });
        assert_eq!(plain(" a\u{202e}b\u{0}\n c "), "ab\n c");
    }

    #[test]
    fn page_of_repeated_markup_is_read_in_one_pass() {
        for part in ["<", "</", "<a '", "<a x=\"", "<script>", "<!--", "&", "&#", "<li>", "<pre>\n", "<title>"] {
            let html = part.repeat(200_000);
            assert!(page(&html).text.len() <= html.len());
        }
    }

    proptest! {
        #[test]
        fn page_of_any_text_has_only_visible_characters(html in "(<|>|/|&|;|#|p|pre|li|script|'|\"|=| |\\PC|\u{202e}){0,60}") {
            prop_assert!(text(&html).chars().all(is_shown));
        }
    }
}
