//! The keys `schedule` and `timezone` of a skill file: when the skill runs by itself (ADR 0033).

use annie_core::{
    schedule::{FileSchedule, Recurrence},
    skill::{SkillFormat, SkillSpec},
    time::Micros,
};

use super::{frontmatter::Frontmatter, problem::Report};

/// The keys.
pub(crate) const SCHEDULE: &str = "schedule";
pub(crate) const TIMEZONE: &str = "timezone";
/// An instant from which the distance of two runs is checked: the check needs no present time.
const CHECKED_FROM: Micros = Micros(1_767_225_600_000_000);

/// The times that a file asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Times {
    when: String,
    timezone: Option<String>,
    line: Option<u32>,
}

/// Reads the keys from the top level or from below `metadata`. Times that are not understood are an error of the file.
pub(crate) fn read(front: &Frontmatter, report: &mut Report) -> Option<Times> {
    let text = |key: &str, report: &mut Report| match front.text(key, report) {
        Some(text) => Some(text),
        None => front.metadata(key),
    };
    let (when, timezone) = (text(SCHEDULE, report), text(TIMEZONE, report));
    let line = front.line_of(SCHEDULE);
    let Some(when) = when else {
        if timezone.is_some() {
            let fix = "write `schedule: every weekday at 8`, or leave `timezone` out";
            report.lenient(front.line_of(TIMEZONE), "`timezone` without `schedule` has no effect", fix);
        }
        return None;
    };
    let zone = timezone.as_deref().unwrap_or("UTC");
    if let Err(error) = Recurrence::parse(&when, zone).and_then(|times| times.first(CHECKED_FROM)) {
        let fix = "write for example `schedule: every weekday at 8` and `timezone: Europe/Prague`";
        report.error(line, format!("`schedule: {when}` is refused: {error}"), fix);
        return None;
    }
    Some(Times { when, timezone, line })
}

impl Times {
    /// The schedule of a skill. A skill that needs arguments cannot run by itself.
    pub(crate) fn of(self, spec: &SkillSpec, report: &mut Report) -> FileSchedule {
        let text = match spec.format {
            SkillFormat::Prompt { .. } => format!("/{}", spec.name),
            SkillFormat::Command => spec.name.clone(),
        };
        if let Some(arg) = spec.args.iter().find(|arg| arg.required) {
            let what = format!("`schedule` runs the skill without arguments, and it needs `{}`", arg.name);
            report.error(self.line, what, "give the argument a default, or create a schedule with `annie cron add`");
        }
        if matches!(spec.format, SkillFormat::Prompt { user_invocable: false, .. }) {
            let what = "`schedule` runs the skill as its user would, and `user-invocable` is false";
            report.error(self.line, what, "leave one of the two out");
        }
        FileSchedule { skill: spec.name.clone(), text, when: self.when, timezone: self.timezone }
    }
}
