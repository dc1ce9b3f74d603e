//! The times of a schedule: a cron expression in a time zone.
//!
//! A local time that a change of the clocks skips counts as the first instant after the change. A local time that occurs twice
//! counts once, the first time; expressions with steps or lists keep their real distance.

use std::str::FromStr;

use chrono::{Days, TimeZone};
use chrono_tz::Tz;
use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};

use super::{ScheduleError, words};
use crate::time::Micros;

/// The least distance between two occurrences, in milliseconds. An occurrence is a turn, which takes seconds.
pub const INTERVAL_MS_MIN: u64 = 60_000;
/// Occurrences whose distances are checked: all times of a day, if each minute has one.
const CHECKED_MAX: usize = 1_440;
/// How far occurrences are checked, in milliseconds: more than a year, after which the times of day of a yearly schedule repeat.
const CHECKED_MS_MAX: u64 = 400 * 86_400_000;
/// The search is tried again from so many further days, because it fails at a day that the zone skipped, such as 2011-12-30 in
/// Apia.
const SKIPPED_DAYS_MAX: u64 = 2;
/// The longest expression, in bytes.
const BYTES_MAX: usize = 200;

/// When a schedule runs.
#[derive(Debug, Clone)]
pub struct Recurrence {
    cron: Cron,
    zone: Tz,
}

impl Recurrence {
    /// The recurrence of an expression and an IANA zone. The expression is cron's grammar (five fields, or six with seconds;
    /// names; `@daily`) or words such as `every weekday at 8`.
    ///
    /// # Errors
    /// If the expression or the zone is invalid. The text says what is accepted.
    pub fn parse(expression: &str, timezone: &str) -> Result<Self, ScheduleError> {
        let expression = expression.trim();
        if expression.is_empty() || expression.len() > BYTES_MAX {
            return Err(ScheduleError::When(format!("the time of a schedule has 1 to {BYTES_MAX} bytes")));
        }
        let zone = Tz::from_str(timezone).map_err(|_| ScheduleError::Zone(timezone.to_owned()))?;
        let fields = if is_cron(expression) { expression.to_owned() } else { words::to_cron(expression)? };
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(&fields).map_err(|error| {
            ScheduleError::When(format!(
                "`{fields}` is no cron expression ({error}): give minute, hour, day of month, month and day of week, such as \
                 `0 8 * * MON-FRI`, or words such as `every weekday at 8`"
            ))
        })?;
        Ok(Self { cron, zone })
    }

    /// The cron expression, also of words.
    #[must_use]
    pub fn cron(&self) -> String {
        self.cron.to_string()
    }

    /// The first occurrence after an instant; `None` if there is none.
    #[must_use]
    pub fn next_after(&self, after: Micros) -> Option<Micros> {
        let start = after.to_utc().with_timezone(&self.zone);
        let mut midnights = (1..=SKIPPED_DAYS_MAX).filter_map(|days| {
            let midnight = start.date_naive().checked_add_days(Days::new(days))?.and_hms_opt(0, 0, 0)?;
            self.zone.from_local_datetime(&midnight).earliest()
        });
        let later = || midnights.find_map(|midnight| self.cron.find_next_occurrence(&midnight, true).ok());
        let found = self.cron.find_next_occurrence(&start, false).ok().or_else(later)?;
        Some(Micros::from_utc(found.to_utc())).filter(|at| *at > after)
    }

    /// The first occurrence of a new schedule.
    ///
    /// # Errors
    /// If there is none, or if two occurrences are closer than [`INTERVAL_MS_MIN`].
    pub fn first(&self, now: Micros) -> Result<Micros, ScheduleError> {
        let first = self.next_after(now).ok_or(ScheduleError::Never)?;
        let mut at = first;
        for _ in 0..CHECKED_MAX {
            let Some(next) = self.next_after(at) else { break };
            let interval_ms = next.since_ms(at);
            if interval_ms < INTERVAL_MS_MIN {
                return Err(ScheduleError::TooOften { interval_ms });
            }
            if next.since_ms(first) > CHECKED_MS_MAX {
                break;
            }
            at = next;
        }
        Ok(first)
    }

    /// The occurrence that is run now: the last one from `due_at` until `now` that is not older than `window_ms`; `None` if all
    /// are older.
    #[must_use]
    pub fn to_run(&self, due_at: Micros, now: Micros, window_ms: u64) -> Option<Micros> {
        let oldest = now.plus_ms(0_i64.saturating_sub_unsigned(window_ms));
        let mut at = if due_at >= oldest { due_at } else { self.next_after(Micros(oldest.0 - 1))? };
        if at > now {
            return None;
        }
        while let Some(next) = self.next_after(at).filter(|next| *next <= now) {
            at = next;
        }
        Some(at)
    }
}

/// Whether the text is in cron's grammar and not in words: it begins with a nickname or with two fields without letters.
fn is_cron(expression: &str) -> bool {
    let is_field = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || b"*,-/?".contains(&byte));
    let parts: Vec<&str> = expression.split_whitespace().collect();
    expression.starts_with('@') || (parts.len() > 2 && parts[..2].iter().all(|part| is_field(part)))
}
