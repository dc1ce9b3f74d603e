//! Tables that fit the width of a terminal, and times relative to now. In a pipe a table keeps its natural width, and a time
//! its absolute form.

use annie_core::time::Micros;
use chrono::DateTime;
use unicode_width::UnicodeWidthStr as _;

use super::{
    console::{clipped, table},
    screen::cut,
    short_ids::is_id,
};

/// Columns between two columns of a table.
const GAP: usize = 2;
/// Maximum length of a cell, in characters, as in [`table`].
const CELL_CHARS_MAX: usize = 100;
/// A column that is cut keeps at least this width.
const CUT_COLUMNS_MIN: usize = 14;
/// The columns that are left out of a table that is still too wide, by their headings, the first one first.
const LEFT_OUT: [&str; 18] = [
    "ends within",
    "held by",
    "voices",
    "trips",
    "reasoning",
    "written",
    "cached",
    "round",
    "agent",
    "starts in",
    "waited",
    "position",
    "incarnation",
    "effect",
    "retry at",
    "awaited until",
    "expires",
    "class",
];

/// A table for a terminal of this width, or for a pipe.
#[must_use]
pub fn fitted(columns: Option<usize>, headings: &[&str], rows: Vec<Vec<String>>) -> String {
    match columns {
        Some(columns) => within(headings, rows, columns),
        None => table(headings, rows),
    }
}

/// A table of at most so many columns of a terminal. Long cells end with an ellipsis; ids, numbers and times are not cut, because
/// a part of them is of no use.
fn within(headings: &[&str], rows: Vec<Vec<String>>, columns: usize) -> String {
    let mut headings = headings.to_vec();
    let mut rows = rows;
    loop {
        let (widths, least) = widths_of(&headings, &rows);
        let gaps = GAP * headings.len().saturating_sub(1);
        if least.iter().sum::<usize>() + gaps <= columns {
            let widths = shrunk(widths, &least, columns - gaps);
            for row in &mut rows {
                for (cell, width) in row.iter_mut().zip(&widths) {
                    *cell = cut(&clipped(cell, CELL_CHARS_MAX), *width);
                }
            }
            return table(&headings, rows);
        }
        let left_out = LEFT_OUT.iter().find_map(|name| headings.iter().position(|heading| heading == name));
        let Some(left_out) = left_out else {
            // Rows are cut rather than broken.
            return table(&headings, rows).lines().map(|line| cut(line, columns)).collect::<Vec<_>>().join("\n");
        };
        headings.remove(left_out);
        rows.iter_mut().for_each(|row| drop(row.remove(left_out)));
    }
}

/// The natural width of each column, and its least one.
fn widths_of(headings: &[&str], rows: &[Vec<String>]) -> (Vec<usize>, Vec<usize>) {
    let of_column = |(n, heading): (usize, &&str)| {
        let cells = || rows.iter().filter_map(move |row| row.get(n)).map(|cell| clipped(cell, CELL_CHARS_MAX));
        let width = cells().map(|cell| cell.width()).max().unwrap_or(0).max(heading.width());
        let is_text =
            cells().any(|cell| cell.contains(' ') || cell.width() > CUT_COLUMNS_MIN) && !cells().any(|c| is_id(&c));
        let least = if is_text { width.min(CUT_COLUMNS_MIN.max(heading.width())) } else { width };
        (width, least)
    };
    headings.iter().enumerate().map(of_column).unzip()
}

/// Makes the widest columns narrower until all have room.
fn shrunk(mut widths: Vec<usize>, least: &[usize], room: usize) -> Vec<usize> {
    while widths.iter().sum::<usize>() > room {
        let may_shrink = widths.iter().zip(least).enumerate().filter(|(_, (width, least))| width > least);
        let Some(widest) = may_shrink.max_by_key(|(_, (width, _))| **width).map(|(n, _)| n) else { break };
        widths[widest] -= 1;
    }
    widths
}

/// A time relative to now, such as `2 min ago`; nothing if the text is no time in the form of the API.
#[must_use]
pub fn relative(text: &str, now: Micros) -> Option<String> {
    // Other texts that are times for the parser, such as dates, stay as they are.
    if text.len() < 20 || text.as_bytes().get(10) != Some(&b'T') {
        return None;
    }
    let at = DateTime::parse_from_rfc3339(text).ok()?.timestamp_micros();
    let seconds = now.0.saturating_sub(at) / 1_000_000;
    let amount = match seconds.unsigned_abs() {
        0..=4 => return Some("now".to_owned()),
        s @ 5..=89 => format!("{s} s"),
        s @ 90..=5_399 => format!("{} min", (s + 30) / 60),
        s @ 5_400..=129_599 => format!("{} h", (s + 1_800) / 3_600),
        s @ 129_600..=5_183_999 => format!("{} days", (s + 43_200) / 86_400),
        _ => return text.get(..10).map(str::to_owned),
    };
    Some(if seconds < 0 { format!("in {amount}") } else { format!("{amount} ago") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_cut_to_the_width_and_ids_stay_whole() {
        let id = "task_01980000000070008000000000000000".to_owned();
        let rows = vec![vec![id.clone(), "high".to_owned(), "a long message of many words".to_owned()]];
        let headings = ["id", "class", "message"];
        let wide = within(&headings, rows.clone(), 200);
        assert_eq!(wide, table(&headings, rows.clone()));
        let cut_text = within(&headings, rows.clone(), 65);
        assert!(cut_text.contains(&id) && cut_text.contains("class") && cut_text.contains('…'), "{cut_text}");
        assert!(cut_text.lines().all(|line| line.width() <= 65), "{cut_text}");
        let without = within(&headings, rows.clone(), 54);
        assert!(without.contains(&id) && !without.contains("class") && without.contains("a long"), "{without}");
        let tiny = within(&headings, rows, 20);
        assert!(tiny.lines().all(|line| line.width() <= 20) && tiny.lines().count() == 2, "{tiny}");
    }

    #[test]
    fn times_are_relative_to_now() {
        let now = Micros(1_771_408_800_000_000);
        for (at, wanted) in [
            ("2026-02-18T10:00:00.000Z", "now"),
            ("2026-02-18T09:59:30.000Z", "30 s ago"),
            ("2026-02-18T09:58:00.000Z", "2 min ago"),
            ("2026-02-18T12:00:00.000Z", "in 2 h"),
            ("2026-02-15T10:00:00.000Z", "3 days ago"),
            ("2025-02-15T10:00:00.000Z", "2025-02-15"),
        ] {
            assert_eq!(relative(at, now).as_deref(), Some(wanted), "{at}");
        }
        for text in ["2026-02-18", "a text of more than twenty characters", "2026-02-18T99:00:00.000Z"] {
            assert_eq!(relative(text, now), None, "{text}");
        }
    }
}
