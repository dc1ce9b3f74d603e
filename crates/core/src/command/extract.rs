//! The commands of a reply. Blocks are found as Markdown finds them, so that a ```` ```cmd ```` shown inside another block
//! is text, and a longer fence can carry a value that itself has fences.

use super::{COMMAND_BYTES_MAX, COMMANDS_MAX, CommandError, lex, start_of};

/// Every command in the `cmd` blocks of a reply, in order: one a line, quoted values and lines that end in a backslash
/// go on. A command that is too long stands as an error in its place; if there are too many, the last entry says so.
#[must_use]
pub fn extract(reply: &str) -> Vec<Result<String, CommandError>> {
    let mut found = Vec::new();
    let mut count = 0;
    for block in blocks(reply) {
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

/// The commands of one block. After a quote that is never closed nothing can be told apart any more: the rest of the
/// block is one broken command, because a line of somebody's text must never run as a command of its own.
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

/// The insides of all `cmd` blocks, without the fence's indentation and with plain line ends.
fn blocks(reply: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(Fence<'_>, Option<String>)> = None;
    for line in reply.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        match &mut open {
            None => open = Fence::of(line).map(|fence| (fence, fence.first_line().map(str::to_owned))),
            Some((fence, block)) if fence.closed_by(line) => {
                blocks.extend(block.take());
                open = None;
            }
            Some((fence, Some(block))) => {
                block.push_str(fence.unindent(line));
                block.push('\n');
            }
            Some((_, None)) => {}
        }
    }
    blocks.extend(open.and_then(|(_, block)| block));
    blocks
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

    /// What a `cmd` block begins with: what follows the word on the fence's own line, mostly nothing.
    fn first_line(&self) -> Option<&'a str> {
        let end = self.info.find(char::is_whitespace).unwrap_or(self.info.len());
        let (word, rest) = self.info.split_at(end);
        word.eq_ignore_ascii_case("cmd").then_some(rest)
    }

    fn closed_by(&self, line: &str) -> bool {
        Fence::of(line).is_some_and(|f| f.marker == self.marker && f.len >= self.len && f.info.is_empty())
    }

    fn unindent<'l>(&self, line: &'l str) -> &'l str {
        let strip = line.bytes().take(self.indent).take_while(|b| matches!(b, b' ' | b'\t')).count();
        &line[strip..]
    }
}
