//! Extracts the commands of a reply. Blocks are parsed like in Markdown, so that a ```` ```cmd ```` block shown inside
//! another block is text, and a longer fence can contain a value that itself has fences.

use super::{COMMAND_BYTES_MAX, COMMANDS_MAX, CommandError, lex, start_of};

/// Every command in the `cmd` blocks of a reply, in order. Each line is one command; quoted values and lines that end in a
/// backslash continue. A command that is too long yields an error in its position. If there are too many commands, the last
/// entry is an error.
#[must_use]
pub fn extract(reply: &str) -> Vec<Result<String, CommandError>> {
    extract_for(reply, &|_| false)
}

/// The same for a model, which also writes commands in blocks of a shell, of no language or of one line, or without any
/// block. Such text counts as commands only if every line begins with the name of one of the model's skills. Text in the
/// model's reasoning never counts.
#[must_use]
pub fn extract_for(reply: &str, is_skill: &dyn Fn(&str) -> bool) -> Vec<Result<String, CommandError>> {
    let reply = without_thinking(reply);
    let all: Vec<Block> = blocks(&reply).into_iter().filter(|block| block.has_commands(is_skill)).collect();
    // If there are commands in a block of another kind, prose in a `cmd` block is a comment on them, and not a command.
    let is_beside = all.iter().any(|block| !block.is_cmd);
    let is_meant = |block: &Block| !(is_beside && block.is_cmd && is_prose(&block.text, is_skill));
    let mut blocks: Vec<String> = all.into_iter().filter(is_meant).map(|block| block.text).collect();
    if blocks.is_empty() {
        blocks.extend(bare(&reply, is_skill));
    }
    let mut found = Vec::new();
    let mut count = 0;
    for block in blocks {
        for command in commands(&block) {
            count += 1;
            if count > COMMANDS_MAX {
                continue;
            }
            found.push(if command.len() > COMMAND_BYTES_MAX {
                Err(CommandError::TooLong { start: start_of(command), bytes: command.len() })
            } else {
                Ok(command.to_owned())
            });
        }
    }
    if count > COMMANDS_MAX {
        found.push(Err(CommandError::TooMany { count }));
    }
    found
}

/// The text of a reply whose `cmd` blocks contain only prose, because small models put answers into the form of a command.
/// `None` if a line may be a command, or there is no such block.
#[must_use]
pub fn prose_in_blocks(reply: &str) -> Option<String> {
    prose_in_blocks_for(reply, &|_| false)
}

/// The same, but a line that begins with the name of a skill, also in two words, is a command.
#[must_use]
pub fn prose_in_blocks_for(reply: &str, is_skill: &dyn Fn(&str) -> bool) -> Option<String> {
    let reply = without_thinking(reply);
    let found: Vec<Block> = blocks(&reply).into_iter().filter(|block| block.has_commands(is_skill)).collect();
    if found.is_empty() || !found.iter().all(|block| block.is_cmd && is_prose(&block.text, is_skill)) {
        return None;
    }
    let lines = reply.lines().filter(|line| Fence::of(line).is_none());
    let text = lines.collect::<Vec<_>>().join("\n");
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Whether every line reads as a sentence: a word with a capital initial or an apostrophe, no dot within words, no flags,
/// and no skill's name.
fn is_prose(text: &str, is_skill: &dyn Fn(&str) -> bool) -> bool {
    const WORDS_MIN: usize = 3;
    let is_sentence = |line: &str| {
        // A line of a result, or a comment; never a command.
        if line.starts_with('#') {
            return true;
        }
        let mut words = line.split_whitespace().map(str::to_lowercase);
        let (one, two) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if is_skill(&one) || is_skill(&format!("{one}.{two}")) {
            return false;
        }
        let first = line.split_whitespace().next().unwrap_or_default();
        let name = first.trim_end_matches(['.', ',', '!', ':', '?']);
        let begins_one = name.chars().next().is_some_and(char::is_uppercase) || name.contains('\'');
        let is_long = line.split_whitespace().count() >= WORDS_MIN || line.ends_with(['.', '!', '?']);
        begins_one && !name.contains('.') && is_long && !line.contains(" --")
    };
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    lines.peek().is_some() && lines.all(is_sentence)
}

/// The commands of one block. After a quote that is never closed, commands cannot be separated reliably: the rest of the
/// block is one invalid command, because a line of quoted text must never run as a command.
fn commands(block: &str) -> Vec<&str> {
    let mut commands = Vec::new();
    let mut rest = block;
    while !rest.is_empty() {
        let line_end = rest.find('\n').map_or(rest.len(), |at| at + 1);
        let line = rest[..line_end].trim();
        if line.is_empty() || line.starts_with('#') {
            rest = &rest[line_end..];
            continue;
        }
        let read = lex::line(rest);
        let len = if read.open_quote.is_some() { rest.len() } else { read.len_bytes };
        commands.push(rest[..len].trim());
        rest = &rest[len..];
    }
    commands
}

/// Languages of fences that may contain commands.
const SHELLS: [&str; 12] =
    ["", "bash", "sh", "shell", "zsh", "console", "terminal", "command", "commands", "text", "plaintext", "plain"];

/// The content of a block.
struct Block {
    /// Whether the fence is `cmd`, whatever the content.
    is_cmd: bool,
    text: String,
}

impl Block {
    /// Whether the block contains commands.
    fn has_commands(&self, is_skill: &dyn Fn(&str) -> bool) -> bool {
        self.is_cmd || all_are(&self.text, |line| is_skill(first_word(line)))
    }
}

/// Whether a text consists of at least one command, and all of its commands satisfy the predicate.
fn all_are(text: &str, is_one: impl Fn(&str) -> bool) -> bool {
    let all = commands(text);
    !all.is_empty() && all.into_iter().all(is_one)
}

/// The name at the beginning of a command, after a prompt sign copied from documentation.
fn first_word(line: &str) -> &str {
    let line = line.trim_start_matches("$ ").trim_start();
    let line = line.strip_prefix("cmd ").unwrap_or(line).trim_start();
    line.split(|c: char| c.is_whitespace() || c == '{' || c == '(').next().unwrap_or_default()
}

/// A reply that consists only of commands without a block. Their arguments must look like arguments, because a report may
/// begin with the name of a skill too.
fn bare(reply: &str, is_skill: &dyn Fn(&str) -> bool) -> Option<String> {
    let is_command = |line: &str| {
        let name = first_word(line);
        let at = line.find(name).unwrap_or_default() + name.len();
        let rest = line[at..].trim_start();
        let assigned = rest.split_once('=').is_some_and(|(key, _)| lex::is_name(key));
        let reads = rest.is_empty() || assigned || rest.starts_with(['{', '(']) || rest.starts_with("--");
        let dashed = rest.starts_with(['\u{2014}', '\u{2013}']);
        name.contains('.') && is_skill(name) && (reads || dashed)
    };
    let text: String = reply.lines().map(|line| format!("{}\n", line.trim().trim_matches('`'))).collect();
    all_are(&text, is_command).then_some(text)
}

/// The reply without the model's reasoning. A closing tag without an opening tag ends reasoning that began before the reply.
fn without_thinking(reply: &str) -> std::borrow::Cow<'_, str> {
    /// In lower case, because the lower-case reply is searched.
    const TAGS: [(&str, &str); 8] = [
        ("<think>", "</think>"),
        ("<thinking>", "</thinking>"),
        ("<thought>", "</thought>"),
        ("<reasoning>", "</reasoning>"),
        ("<reflection>", "</reflection>"),
        ("<seed:think>", "</seed:think>"),
        ("[think]", "[/think]"),
        ("\u{25c1}think\u{25b7}", "\u{25c1}/think\u{25b7}"),
    ];
    if !reply.contains(['<', '[', '\u{25c1}']) {
        return reply.into();
    }
    let mut text = reply.to_owned();
    for (open, close) in TAGS {
        let lower = text.to_ascii_lowercase();
        let next = |word: &str, at: usize| lower[at..].find(word).map(|found| at + found);
        let (mut from, mut to) = (next(open, 0), next(close, 0));
        if from.is_none() && to.is_none() {
            continue;
        }
        let (mut kept, mut at) = (String::with_capacity(text.len()), 0);
        loop {
            match (from, to) {
                (None, None) => {
                    kept.push_str(&text[at..]);
                    break;
                }
                // The opening tag is missing: all text before the closing tag is reasoning.
                (None, Some(_)) => kept.clear(),
                (Some(begin), Some(end)) if end < begin => kept.clear(),
                (Some(begin), Some(_)) => kept.push_str(&text[at..begin]),
                (Some(begin), None) => {
                    kept.push_str(&text[at..begin]);
                    break;
                }
            }
            at = to.map_or(text.len(), |end| end + close.len());
            if from.is_some_and(|begin| begin < at) {
                from = next(open, at);
            }
            to = next(close, at);
        }
        text = kept;
    }
    text.into()
}

/// The contents of all blocks that may contain commands, without the fence's indentation and with plain line ends.
fn blocks(reply: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(Fence<'_>, Option<Block>)> = None;
    for line in reply.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        match &mut open {
            None => match one_line(line) {
                Some(block) => blocks.push(block),
                None => open = Fence::of(line).map(|fence| (fence, fence.block())),
            },
            Some((fence, block)) if fence.closed_by(line) => {
                blocks.extend(block.take());
                open = None;
            }
            Some((fence, Some(block))) => {
                block.text.push_str(fence.unindent(line));
                block.text.push('\n');
            }
            Some((_, None)) => {}
        }
    }
    blocks.extend(open.and_then(|(_, block)| block));
    blocks
}

/// A block that opens and closes on one line. It is treated like a shell block, even if its language is `cmd`, because in
/// prose such a line often only shows what a command looks like.
fn one_line(line: &str) -> Option<Block> {
    let inner = line.trim().strip_prefix("```")?.strip_suffix("```").filter(|inner| !inner.contains('`'))?;
    let (word, rest) = inner.split_once(char::is_whitespace).unwrap_or(("", inner));
    let is_word = word.eq_ignore_ascii_case("cmd") || SHELLS.iter().any(|shell| word.eq_ignore_ascii_case(shell));
    Some(Block { is_cmd: false, text: if is_word { rest } else { inner }.trim().to_owned() })
}

#[derive(Clone, Copy)]
struct Fence<'a> {
    marker: char,
    len: usize,
    indent: usize,
    info: &'a str,
}

impl<'a> Fence<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let text = line.trim_start_matches([' ', '\t']);
        let marker = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let info = text.trim_start_matches(marker);
        let len = text.len() - info.len();
        let is_fence = len >= 3 && !(marker == '`' && info.contains('`'));
        is_fence.then_some(Self { marker, len, indent: line.len() - text.len(), info: info.trim() })
    }

    /// The beginning of a block that may contain commands: the text after the language on the fence's own line, usually
    /// empty.
    fn block(&self) -> Option<Block> {
        let end = self.info.find(char::is_whitespace).unwrap_or(self.info.len());
        let (word, rest) = self.info.split_at(end);
        let is_cmd = word.eq_ignore_ascii_case("cmd");
        let is_shell = SHELLS.iter().any(|shell| word.eq_ignore_ascii_case(shell));
        (is_cmd || is_shell).then(|| Block { is_cmd, text: rest.to_owned() })
    }

    fn closed_by(&self, line: &str) -> bool {
        Fence::of(line).is_some_and(|f| f.marker == self.marker && f.len >= self.len && f.info.is_empty())
    }

    fn unindent<'l>(&self, line: &'l str) -> &'l str {
        let strip = line.bytes().take(self.indent).take_while(|b| matches!(b, b' ' | b'\t')).count();
        &line[strip..]
    }
}
