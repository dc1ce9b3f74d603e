//! Formats stored dates for people: `2026-11-22 (tomorrow)`, `2026-11-19 (overdue by 2 days)`.

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};

use super::When;

/// Whether a stored date is overdue: a day after its end, a time after it has passed.
#[must_use]
pub fn is_overdue(due: &str, now: NaiveDateTime) -> bool {
    stored(due).is_some_and(|when| match when.time {
        Some(time) => when.date.and_time(time) < now,
        None => when.date < now.date(),
    })
}

/// A stored date with its distance from now; `open` is true if being late matters. A text that is not a stored date is
/// returned unchanged.
#[must_use]
pub fn describe_due(due: &str, open: bool, now: NaiveDateTime) -> String {
    let Some(when) = stored(due) else { return due.to_owned() };
    let day = when.date.format("%Y-%m-%d").to_string();
    let shown = when.time.map_or_else(|| day.clone(), |time| format!("{day} {}", time.format("%H:%M")));
    let days = (when.date - now.date()).num_days();
    let distance = if open && is_overdue(due, now) {
        match days {
            0 => "overdue since today".to_owned(),
            -1 => "overdue since yesterday".to_owned(),
            _ => format!("overdue by {} days", -days),
        }
    } else {
        match days {
            0 => "today".to_owned(),
            1 => "tomorrow".to_owned(),
            -1 => "yesterday".to_owned(),
            2..=6 => when.date.format("%A").to_string(),
            7.. => format!("in {days} days"),
            _ => format!("{} days ago", -days),
        }
    };
    format!("{shown} ({distance})")
}

fn stored(due: &str) -> Option<When> {
    let (date, time) = due.split_once('T').map_or((due, None), |(date, time)| (date, Some(time)));
    let date = NaiveDate::parse_from_str(date, "%Y-%m-%d").ok()?;
    let time = time.map(|t| NaiveTime::parse_from_str(t, "%H:%M")).transpose().ok()?;
    Some(When::new(date, time))
}
