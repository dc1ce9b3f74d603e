//! Removes commands from drafts: `cmd` blocks in a model's reply are not a part of the answer that listeners see.

/// Passes streamed text through, piece by piece, without its `cmd` blocks.
#[derive(Debug, Default)]
pub struct DraftFilter {
    /// The beginning of a line that may become a fence.
    held: String,
    /// The fence that closes the current `cmd` block, if the text is inside one.
    block: Option<String>,
    /// Whether it is already decided if the rest of the line is shown.
    in_line: bool,
}

impl DraftFilter {
    /// Returns the part of this piece, and of the text withheld before it, that may be shown.
    pub fn push(&mut self, piece: &str) -> String {
        let mut shown = String::with_capacity(piece.len());
        for c in piece.chars() {
            if self.in_line {
                shown.push(c);
                self.in_line = c != '\n';
                continue;
            }
            self.held.push(c);
            if c == '\n' {
                self.end_line(&mut shown);
            } else if self.block.is_none() && !may_be_fence(&self.held) {
                shown.push_str(&std::mem::take(&mut self.held));
                self.in_line = true;
            }
        }
        shown
    }

    fn end_line(&mut self, shown: &mut String) {
        let line = std::mem::take(&mut self.held);
        let text = line.trim();
        let marker = text.trim_start_matches(['`', '~']);
        let fence = &text[..text.len() - marker.len()];
        match &self.block {
            Some(open) => {
                if marker.is_empty() && fence.starts_with(open.as_str()) {
                    self.block = None;
                }
            }
            None if fence.len() >= 3 && is_cmd(marker) => {
                let is_closed = marker.ends_with(fence);
                self.block = (!is_closed).then(|| fence.to_owned());
            }
            None => shown.push_str(&line),
        }
    }
}

/// Whether a line with this beginning may open a block of commands.
fn may_be_fence(line: &str) -> bool {
    let text = line.trim_start();
    let info = text.trim_start_matches(['`', '~']);
    let fence = text.len() - info.len();
    text.is_empty()
        || info.is_empty()
        || (fence >= 3 && ("cmd".starts_with(&info.trim().to_ascii_lowercase()) || is_cmd(info)))
}

fn is_cmd(info: &str) -> bool {
    let word = info.trim_start().split(char::is_whitespace).next().unwrap_or_default();
    word.eq_ignore_ascii_case("cmd")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, size: usize) -> String {
        let mut filter = DraftFilter::default();
        let chars: Vec<char> = text.chars().collect();
        chars.chunks(size).map(|piece| filter.push(&piece.iter().collect::<String>())).collect()
    }

    #[test]
    fn draft_filter_removes_commands_regardless_of_chunking() {
        for (text, want) in [
            ("On it.\n```cmd\ntasks.create --title x\n```\nDone.", "On it.\nDone."),
            ("````cmd\na.b --x \"```\ncode\n```\"\n````\nüber", "über"),
            ("~~~ CMD\na.b\n~~~\n", ""),
            ("```python\nprint(1)\n```\n", "```python\nprint(1)\n```\n"),
            ("Use `x` and\n  ```\n  y\n  ```\n", "Use `x` and\n  ```\n  y\n  ```\n"),
            ("```command\na\n```\n", "```command\na\n```\n"),
            ("```cmd\na.b", ""),
            ("```cmd a.b```\nDone.", "Done."),
        ] {
            for size in 1..8 {
                assert_eq!(shown(text, size), want, "{text:?} in pieces of {size}");
            }
        }
    }
}
