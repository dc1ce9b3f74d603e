//! Schedules: messages that the kernel submits again and again (ADR 0033). Their form and their rules are in
//! `annie_core::schedule`, because the kernel's worker runs them.

pub(crate) mod cancel;
pub(crate) mod create;
pub(crate) mod list;

use annie_core::{
    schedule::{NumberedSchedule, ScheduleError},
    time::Micros,
};
use chrono_tz::Tz;

use crate::{error::SkillError, text};

/// Bytes of a message that a list shows.
const SHOWN_BYTES_MAX: usize = 80;

/// `#3 "run my digest", every weekday at 8, next 2026-11-23 08:00 CET`.
fn line(found: &NumberedSchedule, zone: Tz) -> String {
    let NumberedSchedule { number, schedule, .. } = found;
    let what = text::brief(&schedule.text, SHOWN_BYTES_MAX);
    let state = match (&schedule.paused, schedule.due_at) {
        (Some(why), _) => format!("paused ({why})"),
        (None, Some(next)) => format!("next {}", local(next, zone)),
        (None, None) => "no next time".to_owned(),
    };
    format!("#{number} \"{what}\", {} ({}), {state}", schedule.when, schedule.timezone)
}

fn local(at: Micros, zone: Tz) -> String {
    at.to_utc().with_timezone(&zone).format("%Y-%m-%d %H:%M %Z").to_string()
}

/// The refused argument of a new schedule.
fn refused(error: &ScheduleError) -> SkillError {
    let flag = match error {
        ScheduleError::When(_) | ScheduleError::Never | ScheduleError::TooOften { .. } => "when",
        ScheduleError::Zone(_) => "timezone",
        ScheduleError::Text => "message",
        ScheduleError::TooMany => return SkillError::Conflict(error.to_string()),
    };
    SkillError::argument(flag, format!("does not fit: {error}"))
}
