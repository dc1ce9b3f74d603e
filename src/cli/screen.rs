//! The live region of a terminal: lines below the output that are drawn again after each write, such as the edited line of a
//! chat and what a turn waits for. Pure: the functions return what is to be written.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// The width that is assumed if the terminal does not state it, in columns.
const COLUMNS: usize = 80;
/// The height that is assumed if the terminal does not state it, in rows.
const ROWS: usize = 24;
/// A tab of an edited line is shown as so many columns.
const TAB: &str = "    ";

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Width, in columns; at least 2.
    pub columns: usize,
    /// Height, in rows; at least 2.
    pub rows: usize,
}

impl Default for Size {
    fn default() -> Self {
        Self { columns: COLUMNS, rows: ROWS }
    }
}

impl Size {
    /// A size as a terminal reports it; zero stands for unknown.
    #[must_use]
    pub fn of(columns: u16, rows: u16) -> Self {
        let or = |value: u16, other| if value == 0 { other } else { usize::from(value).max(2) };
        Self { columns: or(columns, COLUMNS), rows: or(rows, ROWS) }
    }
}

/// A line that is being edited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edited {
    /// The text before the line.
    pub prompt: &'static str,
    /// The text.
    pub text: String,
    /// The position of the cursor in the text, in bytes.
    pub cursor: usize,
}

/// The live region, and the column at which the output above it ends.
#[derive(Debug, Default)]
pub struct Screen {
    /// The line about what a turn waits for.
    status: Option<String>,
    edited: Option<Edited>,
    /// The column of the next output.
    column: usize,
    /// The widths of the drawn rows down to that of the cursor, which counts to the cursor only. Empty if nothing is drawn.
    drawn: Vec<usize>,
    /// A new line was written before the region, because the output ended within a row.
    is_below: bool,
}

impl Screen {
    /// Changes the line about what a turn waits for. False if it is already shown.
    pub fn set_status(&mut self, status: Option<String>) -> bool {
        let is_new = self.status != status;
        self.status = status;
        is_new
    }

    /// Changes the edited line. False if it is already shown.
    pub fn set_edited(&mut self, edited: Option<Edited>) -> bool {
        let is_new = self.edited != edited;
        self.edited = edited;
        is_new
    }

    /// Whether the output ends within a row.
    #[must_use]
    pub const fn is_within_row(&self) -> bool {
        self.column > 0
    }

    /// Removes the region. The cursor is then where the output ends.
    pub fn erase(&mut self, size: Size) -> String {
        let drawn = std::mem::take(&mut self.drawn);
        let Some((cursor, above)) = drawn.split_last() else { return String::new() };
        // A terminal that became narrower has broken the rows.
        let rows = |width: &usize| width.saturating_sub(1) / size.columns + 1;
        let up = above.iter().map(rows).sum::<usize>() + cursor / size.columns + usize::from(self.is_below);
        self.column = self.column.min(size.columns);
        let mut text = String::from("\r");
        if up > 0 {
            text.push_str(&format!("\u{1b}[{up}A"));
        }
        if self.column > 0 {
            text.push_str(&format!("\u{1b}[{}C", self.column));
        }
        text + "\u{1b}[J"
    }

    /// Notes that a text was written as output.
    pub fn advance(&mut self, text: &str, size: Size) {
        let mut is_escape = false;
        for part in text.graphemes(true) {
            match part {
                "\n" | "\r\n" | "\r" => self.column = 0,
                "\u{1b}" => is_escape = true,
                // An escape sequence of a colour ends with a letter and has no width.
                _ if is_escape => is_escape = !part.starts_with(|c: char| c.is_ascii_alphabetic()),
                "\t" => self.column = ((self.column / 8 + 1) * 8).min(size.columns),
                _ => {
                    let width = part.width();
                    let is_full = self.column + width > size.columns;
                    self.column = if is_full { width } else { self.column + width };
                }
            }
        }
    }

    /// Draws the region below the output.
    pub fn draw(&mut self, size: Size) -> String {
        let width = size.columns - 1;
        let mut rows: Vec<String> = self.status.iter().map(|status| dim(&cut(status, width))).collect();
        let mut widths: Vec<usize> = self.status.iter().map(|status| cut(status, width).width()).collect();
        let mut cursor = rows.len().saturating_sub(1);
        if let Some(edited) = &self.edited {
            let (lines, at, column) = laid_out(edited, width, size.rows.saturating_sub(2).max(1));
            cursor = rows.len() + at;
            widths.extend(lines.iter().map(|line| line.width()));
            rows.extend(lines);
            widths.truncate(cursor);
            widths.push(column);
        }
        if rows.is_empty() {
            return String::new();
        }
        self.is_below = self.column > 0 && self.column < size.columns;
        let mut text = String::new();
        if self.column > 0 {
            text.push('\n');
        }
        if self.column >= size.columns {
            // The next output begins a row anyway.
            self.column = 0;
        }
        let up = rows.len() - 1 - cursor;
        text.push_str(&rows.join("\n"));
        if up > 0 {
            text.push_str(&format!("\u{1b}[{up}A"));
        }
        text.push('\r');
        let column = widths.last().copied().unwrap_or(0);
        if column > 0 {
            text.push_str(&format!("\u{1b}[{column}C"));
        }
        self.drawn = widths;
        text
    }
}

fn dim(text: &str) -> String {
    format!("\u{1b}[2m{text}\u{1b}[0m")
}

/// A text as one row of at most so many columns; what is longer ends with an ellipsis.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut width = 0;
    for part in text.graphemes(true) {
        width += part.width();
        if width + 1 > columns {
            break;
        }
        short.push_str(part);
    }
    short + "…"
}

/// The rows of an edited line, and row and column of its cursor. Of more than `rows_max` rows those around the cursor are given.
fn laid_out(edited: &Edited, columns: usize, rows_max: usize) -> (Vec<String>, usize, usize) {
    let mut rows = vec![edited.prompt.to_owned()];
    let mut width = edited.prompt.width();
    let mut cursor = (0, width);
    for (at, part) in edited.text.grapheme_indices(true) {
        let shown = match part {
            "\t" => TAB,
            "\n" => "",
            _ if part.chars().any(char::is_control) => "\u{fffd}",
            _ => part,
        };
        if width + shown.width() > columns && at != edited.cursor {
            rows.push(String::new());
            width = 0;
        } else if width + shown.width() > columns {
            rows.push(String::new());
            (width, cursor) = (0, (rows.len() - 1, 0));
        }
        if at == edited.cursor {
            cursor = (rows.len() - 1, width);
        }
        if part == "\n" {
            rows.push(String::new());
            width = 0;
        }
        if let Some(row) = rows.last_mut() {
            row.push_str(shown);
            width += shown.width();
        }
    }
    if edited.cursor >= edited.text.len() {
        cursor = (rows.len() - 1, width);
    }
    let from = (cursor.0 + 1).saturating_sub(rows_max);
    let shown: Vec<String> = rows.into_iter().skip(from).take(rows_max).collect();
    (shown, cursor.0 - from, cursor.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Size = Size { columns: 11, rows: 5 };

    fn edited(text: &str, cursor: usize) -> Edited {
        Edited { prompt: "> ", text: text.to_owned(), cursor }
    }

    #[test]
    fn region_is_drawn_below_unfinished_output_and_erased_back_to_it() {
        let mut screen = Screen::default();
        screen.advance("one\ntwo", SMALL);
        assert!(screen.set_edited(Some(edited("ab", 1))));
        assert_eq!(screen.draw(SMALL), "\n> ab\r\u{1b}[3C");
        assert_eq!(screen.erase(SMALL), "\r\u{1b}[1A\u{1b}[3C\u{1b}[J");
        assert_eq!(screen.erase(SMALL), "", "nothing is drawn any more");
        screen.advance("\n", SMALL);
        assert_eq!(screen.draw(SMALL), "> ab\r\u{1b}[3C");
        assert_eq!(screen.erase(SMALL), "\r\u{1b}[J");
    }

    #[test]
    fn region_after_a_full_row_begins_at_the_next_row() {
        let mut screen = Screen::default();
        screen.advance("12345678901", SMALL);
        screen.set_edited(Some(edited("", 0)));
        assert_eq!(screen.draw(SMALL), "\n> \r\u{1b}[2C");
        assert_eq!(screen.erase(SMALL), "\r\u{1b}[J");
    }

    #[test]
    fn edited_line_is_broken_at_the_width_and_its_part_at_the_cursor_is_shown() {
        assert_eq!(laid_out(&edited("abcdefghij", 10), 10, 3), (vec!["> abcdefgh".into(), "ij".into()], 1, 2));
        assert_eq!(laid_out(&edited("abcdefghij", 8), 10, 3), (vec!["> abcdefgh".into(), "ij".into()], 1, 0));
        assert_eq!(laid_out(&edited("a\nb\nc\nd", 7), 10, 2), (vec!["c".into(), "d".into()], 1, 1));
        // A wide character takes two columns, and a control character cannot move the cursor.
        assert_eq!(laid_out(&edited("日本\u{1b}", 3), 10, 2), (vec!["> 日本\u{fffd}".into()], 0, 4));
        assert_eq!(cut("ein langer Satz", 8), "ein lan…");
    }

    #[test]
    fn narrower_terminal_is_erased_with_the_rows_that_it_has_broken() {
        let mut screen = Screen::default();
        screen.set_status(Some("0123456789012345678".to_owned()));
        screen.set_edited(Some(edited("x", 1)));
        screen.draw(Size { columns: 20, rows: 5 });
        assert_eq!(screen.erase(Size { columns: 10, rows: 5 }), "\r\u{1b}[2A\u{1b}[J");
    }

    #[test]
    fn colours_have_no_width() {
        let mut screen = Screen::default();
        screen.advance("\u{1b}[2mab\u{1b}[0m", SMALL);
        assert_eq!(screen.column, 2);
        assert_eq!((Size::of(0, 0), Size::of(1, 50)), (Size::default(), Size { columns: 2, rows: 50 }));
    }
}
