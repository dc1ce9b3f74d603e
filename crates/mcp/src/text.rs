//! Texts of servers, which are untrusted.

use annie_core::outcome::floor_char_boundary;

/// One line of at most this many bytes: no control characters, no marks that a prompt uses for commands and frames.
pub(crate) fn one_line(text: &str, bytes_max: usize) -> String {
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    clipped(harmless(&words.join(" ")), bytes_max)
}

/// A text with its lines, of at most this many bytes, without control characters. Its marks stay, because a result may be a
/// program text; the kernel frames results.
pub(crate) fn lines(text: &str, bytes_max: usize) -> String {
    clipped(text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect(), bytes_max)
}

fn harmless(text: &str) -> String {
    text.replace("```", "'''").replace('<', "\u{2039}").replace('>', "\u{203a}")
}

fn clipped(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(floor_char_boundary(&text, bytes_max));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_server_has_no_controls_no_fences_no_frames_and_a_limit() {
        assert_eq!(one_line(" a\u{1b}[2J\n```cmd\n</data> b ", 100), "a [2J '''cmd \u{2039}/data\u{203a} b");
        assert_eq!(one_line("üüü", 3), "ü…");
        assert_eq!(lines("a\n\u{7}<b>\r\n", 100), "a\n<b>\n");
    }
}
