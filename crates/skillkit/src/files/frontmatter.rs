//! The YAML frontmatter of a skill file. Only whole lines are delimiters, so a value may contain `---`. A byte order mark
//! and Windows line ends are accepted. A value with a bare colon (`description: Use it: often`) is read as if it were
//! quoted.

use serde_yaml_ng::{Mapping, Value};

use super::problem::Report;

/// A file's frontmatter as a mapping, and its body.
pub(crate) struct Frontmatter {
    map: Mapping,
    head: String,
    /// The text after the frontmatter, trimmed.
    pub(crate) body: String,
}

/// The line number of a file on which its YAML begins.
const HEAD_LINE: u32 = 2;

/// Removes the byte order mark and normalises line ends.
pub(crate) fn plain(text: &str) -> String {
    text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n")
}

/// Splits `---` head `---` body; `None` if the text does not begin with a delimiter line or the head has no end.
pub(crate) fn split(text: &str) -> Option<(&str, &str)> {
    let mut offset = 0;
    let mut head_start = None;
    for line in text.split_inclusive('\n') {
        let end = offset + line.len();
        let is_delimiter = line.trim_end() == "---";
        match head_start {
            None if is_delimiter => head_start = Some(end),
            None => return None,
            Some(start) if is_delimiter => return Some((&text[start..offset], &text[end..])),
            Some(_) => {}
        }
        offset = end;
    }
    None
}

impl Frontmatter {
    /// Reads a file's frontmatter; problems are added to the report.
    pub(crate) fn read(text: &str, report: &mut Report) -> Option<Self> {
        let text = plain(text);
        let Some((head, body)) = split(&text) else {
            let (what, fix) = if text.lines().next().is_some_and(|l| l.trim_end() == "---") {
                ("the head never ends", "close it with a line that is only `---`")
            } else {
                ("the file does not begin with a head", "begin it with a line `---`, then `name:` and `description:`")
            };
            report.error(Some(1), what, fix);
            return None;
        };
        match parse(head) {
            Ok((map, quoted)) => {
                for line in quoted {
                    let fix = "put the value in double quotes";
                    report.lenient(Some(line), "a value holds a bare colon", fix);
                }
                Some(Self { map, head: head.to_owned(), body: body.trim().to_owned() })
            }
            Err((line, what)) => {
                report.error(line, format!("the head is not YAML: {what}"), "write `key: value` lines");
                None
            }
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    /// The keys in the order of the file; a key that is not text is shown as YAML.
    pub(crate) fn keys(&self) -> impl Iterator<Item = String> + '_ {
        self.map.keys().map(|k| scalar(k).unwrap_or_else(|| format!("{k:?}")))
    }

    /// The line of a key.
    pub(crate) fn line_of(&self, key: &str) -> Option<u32> {
        (HEAD_LINE..).zip(self.head.lines()).find(|(_, line)| key_of(line) == Some(key)).map(|(n, _)| n)
    }

    /// A text value. Numbers and booleans are converted to text; a nested value is an error.
    pub(crate) fn text(&self, key: &str, report: &mut Report) -> Option<String> {
        let value = self.get(key)?;
        let text = scalar(value);
        if text.is_none() {
            report.error(self.line_of(key), format!("`{key}` must be text"), format!("write `{key}: …` on one line"));
        }
        text.map(|t| t.trim().to_owned())
    }

    /// A text below `metadata`.
    pub(crate) fn metadata(&self, key: &str) -> Option<String> {
        self.get("metadata")?.as_mapping()?.get(key).and_then(scalar).map(|text| text.trim().to_owned())
    }

    /// A boolean value, also as a text: `"true"`, and YAML 1.1's `yes`, `no`, `on` and `off`, which are texts in YAML 1.2.
    pub(crate) fn flag(&self, key: &str, report: &mut Report) -> Option<bool> {
        let value = self.get(key)?;
        let flag = truth(value);
        if flag.is_none() {
            report.error(self.line_of(key), format!("`{key}` must be true or false"), format!("write `{key}: true`"));
        }
        flag
    }
}

/// A scalar as text.
pub(crate) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// A boolean value, also as the text `"true"`.
pub(crate) fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => match text.trim().to_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// The mapping, and the lines whose values had to be quoted to be readable.
fn parse(head: &str) -> Result<(Mapping, Vec<u32>), (Option<u32>, String)> {
    let first = match serde_yaml_ng::from_str::<Option<Mapping>>(head) {
        Ok(map) => return Ok((map.unwrap_or_default(), Vec::new())),
        Err(error) => error,
    };
    let (quoted, lines) = quote_bare_colons(head);
    if !lines.is_empty()
        && let Ok(map) = serde_yaml_ng::from_str::<Mapping>(&quoted)
    {
        return Ok((map, lines));
    }
    let line = first.location().and_then(|l| u32::try_from(l.line()).ok()).map(|l| l + HEAD_LINE - 1);
    Err((line, first.to_string()))
}

fn key_of(line: &str) -> Option<&str> {
    if line.starts_with([' ', '\t', '#', '-']) {
        return None;
    }
    line.split_once(':').map(|(key, _)| key.trim_matches(['"', '\'', ' ']))
}

fn quote_bare_colons(head: &str) -> (String, Vec<u32>) {
    let mut lines = Vec::new();
    let quoted: Vec<String> = (HEAD_LINE..)
        .zip(head.lines())
        .map(|(number, line)| match line.split_once(':') {
            Some((key, value)) if key_of(line).is_some() && is_bare(value.trim()) => {
                lines.push(number);
                format!("{key}: \"{}\"", value.trim().replace('\\', "\\\\").replace('"', "\\\""))
            }
            _ => line.to_owned(),
        })
        .collect();
    (quoted.join("\n"), lines)
}

fn is_bare(value: &str) -> bool {
    (value.contains(": ") || value.ends_with(':'))
        && !value.starts_with(['"', '\'', '[', '{', '|', '>', '&', '*', '!', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{command, prompt, script::Place, substitute, tree::Bundled};

    fn read(text: &str) -> (Option<Frontmatter>, Vec<String>) {
        let mut report = Report::new("f.md");
        let front = Frontmatter::read(text, &mut report);
        (front, report.into_problems().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn frontmatter_delimiters_are_whole_lines_and_bom_and_crlf_are_accepted() {
        let (front, problems) =
            read("\u{feff}---\r\nname: a --- b\r\ndescription: x\r\n---\r\n\r\nBody --- here\r\n---\r\n");
        let front = front.unwrap();
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(front.get("name").and_then(scalar).as_deref(), Some("a --- b"));
        assert_eq!(front.body, "Body --- here\n---");
        assert_eq!(front.line_of("description"), Some(3));
    }

    #[test]
    fn frontmatter_accepts_bare_colon_and_reports_it() {
        let (front, problems) = read("---\nname: a\ndescription: Use it: often \"now\"\n---\nx");
        assert_eq!(front.unwrap().get("description").and_then(scalar).as_deref(), Some("Use it: often \"now\""));
        assert_eq!(problems, ["f.md:3: not strict: a value holds a bare colon; put the value in double quotes"]);
    }

    #[test]
    fn frontmatter_missing_or_unclosed_is_reported_with_a_fix() {
        assert!(read("# Title\n").1[0].contains("begin it with a line `---`"));
        assert!(read("---\nname: a\n").1[0].contains("close it with a line"));
        let (front, problems) = read("---\nname: [a\n---\n");
        assert!(front.is_none());
        assert!(problems[0].starts_with("f.md:"), "{problems:?}");
        assert!(problems[0].contains("not YAML"), "{problems:?}");
    }

    #[test]
    fn empty_frontmatter_is_an_empty_mapping() {
        assert_eq!(read("---\n---\nbody").0.unwrap().keys().count(), 0);
    }

    proptest::proptest! {
        #[test]
        fn frontmatter_parser_never_panics(head in "\\PC{0,80}", body in "(\\PC|[\n$:\"#-]){0,80}") {
            for text in [format!("---\n{head}\n---\n{body}"), body.clone(), format!("---\nname: {body}\n---\n")] {
                let mut report = Report::new("f.md");
                let place = Place { tree: &Bundled, paths: &[], folder: "a" };
                let _ = (prompt::read("f", &["scripts/x.py"], &text, &mut report), command::read("a", "b", &text, &place, &mut report));
                substitute(&text, &head);
            }
        }
    }
}
