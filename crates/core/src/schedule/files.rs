//! Schedules that skill files ask for: the stored schedules of a user follow the files.

use super::{NewSchedule, NumberedSchedule, ScheduleChange};
use crate::ids::{ConversationId, UserId};

/// The schedule that a skill file asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSchedule {
    /// The skill of the file.
    pub skill: String,
    /// The message: the skill's command.
    pub text: String,
    /// The times, in words or as a cron expression.
    pub when: String,
    /// The IANA zone of the times; absent means that of the user.
    pub timezone: Option<String>,
}

/// What makes the stored schedules those of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileChange {
    /// A file asks for a schedule that is not stored.
    Create(NewSchedule),
    /// The file of this schedule asks for other times.
    Change(u64, ScheduleChange),
    /// The file of this schedule is gone, or asks for none any more.
    Remove(u64),
}

/// The changes after which the schedules of a user are those that the files ask for. Schedules without a file stay. A schedule that
/// the user has paused stays paused, unless its file asks for other times.
#[must_use]
pub fn follow_files(user: &UserId, zone: &str, stored: &[NumberedSchedule], files: &[FileSchedule]) -> Vec<FileChange> {
    let mut changes = Vec::new();
    for NumberedSchedule { number, schedule, .. } in stored {
        let Some(skill) = &schedule.file else { continue };
        match files.iter().find(|file| file.skill == *skill) {
            None => changes.push(FileChange::Remove(*number)),
            Some(FileSchedule { text, when, timezone, .. }) => {
                let timezone = timezone.as_deref().unwrap_or(zone);
                if (schedule.text != *text) || (schedule.when != *when) || (schedule.timezone != timezone) {
                    let (text, when, timezone) = (text.clone(), when.clone(), timezone.to_owned());
                    changes.push(FileChange::Change(*number, ScheduleChange::Rewrite { text, when, timezone }));
                }
            }
        }
    }
    let is_stored = |file: &FileSchedule| stored.iter().any(|found| found.schedule.file.as_ref() == Some(&file.skill));
    changes.extend(files.iter().filter(|file| !is_stored(file)).map(|file| {
        FileChange::Create(NewSchedule {
            text: file.text.clone(),
            when: file.when.clone(),
            timezone: file.timezone.clone().unwrap_or_else(|| zone.to_owned()),
            conversation: Some(ConversationId::for_key(user, &format!("schedule of the file {}", file.skill))),
            reply_to: None,
            file: Some(file.skill.clone()),
        })
    }));
    changes
}
