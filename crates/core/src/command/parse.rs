//! Parses one command into name, flags and remaining words, without knowledge of the skills.

use super::{
    COMMAND_BYTES_MAX, CommandError,
    lex::{self, Word},
    start_of,
};

/// The parts of a command, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The first word: a skill, a domain, or `help`.
    pub name: String,
    /// The flags in order, in snake case, with their values: `--due-date 3` and `--due_date=3` both give
    /// `("due_date", Some("3"))`. A flag that is followed by another flag, or is last, has no value.
    pub flags: Vec<(String, Option<String>)>,
    /// Whether the command has `--help` or `-h`, or begins with `help`.
    pub help: bool,
    /// Words like `title="Buy milk"` that belong to no flag, with their names in the form of flags.
    pub assigned: Vec<(String, String)>,
    /// The remaining words.
    pub positional: Vec<Loose>,
    /// Number of unquoted remaining words before the first flag. They may be a part of the name, as in `tasks create`.
    pub name_words: usize,
}

/// A word that belongs to no flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loose {
    /// The word.
    pub text: String,
    /// Whether the word is quoted or after `--`, so that it is a value whatever it looks like.
    pub is_quoted: bool,
}

/// Parses one command.
///
/// # Errors
/// If the command is empty or too long, has an unclosed quote (with its position), or an invalid flag.
pub fn parse(line: &str) -> Result<Parsed, CommandError> {
    if line.len() > COMMAND_BYTES_MAX {
        return Err(CommandError::TooLong { start: start_of(line), bytes: line.len() });
    }
    let mut words = lex::words(line)?.into_iter().map(with_plain_dashes).peekable();
    // Skip a prompt sign copied from documentation, and the name of the block.
    words.next_if(|w| !w.quoted && w.text == "$");
    words.next_if(|w| !w.quoted && w.text == "cmd");
    let first = words.next().ok_or(CommandError::Empty)?;
    if !first.quoted && first.text.starts_with('-') && !is_help(&first) {
        return Err(CommandError::NoName { flag: start_of(&first.text) });
    }
    let mut parsed = Parsed::default();
    if is_help(&first) || (!first.quoted && first.text == "help") {
        parsed.help = true;
        parsed.name = words.next_if(|w| !is_flag_like(w)).map(|w| w.text).unwrap_or_default();
    } else {
        parsed.name = first.text;
    }
    let mut before_flags = true;
    while let Some(word) = words.next() {
        if let Some(pair) = assignment(&word) {
            before_flags = false;
            parsed.assigned.push(pair);
            continue;
        }
        if word.quoted || !word.text.starts_with('-') || is_number(&word.text) || word.text == "-" {
            parsed.name_words += usize::from(before_flags && !word.quoted);
            before_flags &= !word.quoted;
            parsed.positional.push(Loose { is_quoted: word.quoted, text: word.text });
            continue;
        }
        before_flags = false;
        if word.text == "--" {
            parsed.positional.extend(words.map(|w| Loose { text: w.text, is_quoted: true }));
            break;
        }
        if is_help(&word) {
            parsed.help = true;
            continue;
        }
        let (name, value) = flag(&word.text)?;
        let value = value.or_else(|| words.next_if(|next| !is_flag_like(next)).map(|next| next.text));
        parsed.flags.push((name, value));
    }
    Ok(parsed)
}

/// Replaces a typographic dash before a name by two plain dashes, from which editors make it.
fn with_plain_dashes(word: Word) -> Word {
    let name = word.text.trim_start_matches(['—', '–', '−']);
    let is_flag = !word.quoted && name.len() < word.text.len() && name.starts_with(char::is_alphabetic);
    if is_flag { Word { text: format!("--{name}"), ..word } } else { word }
}

/// Parses `name=value`.
fn assignment(word: &Word) -> Option<(String, String)> {
    let (name, value) = word.text.split_once('=').filter(|_| !word.quoted)?;
    lex::is_name(name).then(|| (name.replace('-', "_").to_lowercase(), value.to_owned()))
}

fn flag(text: &str) -> Result<(String, Option<String>), CommandError> {
    let Some(body) = text.strip_prefix("--") else {
        return Err(CommandError::ShortFlag { flag: start_of(text) });
    };
    let (name, value) = body.split_once(['=', ':']).map_or((body, None), |(n, v)| (n, Some(v.to_owned())));
    // In `--title: "Buy milk"`, the value is the next word.
    let value = value.filter(|value| !value.is_empty() || !body.ends_with(':'));
    let fits = name.starts_with(char::is_alphanumeric)
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if fits {
        Ok((name.replace('-', "_").to_lowercase(), value))
    } else {
        Err(CommandError::BadFlag { flag: start_of(text) })
    }
}

fn is_help(word: &Word) -> bool {
    !word.quoted && matches!(word.text.as_str(), "--help" | "-h")
}

/// Whether a word after a flag is the next flag and not its value. Words with a single dash are values, because there are no
/// short flags.
fn is_flag_like(word: &Word) -> bool {
    !word.quoted && (word.text.starts_with("--") || word.text == "-h")
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok()
}
