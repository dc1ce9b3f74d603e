//! Schedules as front ends see them.

use annie_core::{
    ids::{IntentId, UserId},
    ports::StoreError,
    schedule::{
        FileChange, FileSchedule, NewSchedule, NumberedSchedule, SCHEDULE, SCHEDULES, ScheduleChange, ScheduleError,
        all, follow_files,
    },
    time::Micros,
};

use super::{Kernel, KernelError, Submitted};
use crate::{
    observe::Path,
    schedules::{Schedules, change, message_of},
    worker::{Chore, WorkerMsg},
};

/// Occurrences that [`Kernel::occurrences`] returns, at most.
const OCCURRENCES_MAX: usize = 10;

impl Kernel {
    /// The user's IANA time zone.
    #[must_use]
    pub fn timezone(&self, user: &UserId) -> &str {
        &self.wiring.profiles.of(user).timezone
    }

    /// A user's schedules, by number.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn schedules(&self, user: &UserId) -> Result<Vec<NumberedSchedule>, KernelError> {
        let hits = self.wiring.documents.find_documents(user.clone(), &SCHEDULES, all()).await?;
        let mut found: Vec<NumberedSchedule> =
            hits.iter().map(|hit| NumberedSchedule::of(&hit.document)).collect::<Result<_, StoreError>>()?;
        found.sort_by_key(|schedule| schedule.number);
        Ok(found)
    }

    /// A schedule.
    ///
    /// # Errors
    /// `NotFound` if the user has none with this number.
    pub async fn schedule(&self, user: &UserId, number: u64) -> Result<NumberedSchedule, KernelError> {
        let document = self.wiring.documents.document(user.clone(), &SCHEDULES, number).await?;
        Ok(NumberedSchedule::of(&document.ok_or(KernelError::NotFound("schedule"))?)?)
    }

    /// Creates a schedule.
    ///
    /// # Errors
    /// `Invalid` if its times, its message or its address is refused, or the user has too many; `NotFound` for a conversation
    /// that the user does not have.
    pub async fn create_schedule(&self, user: &UserId, new: NewSchedule) -> Result<NumberedSchedule, KernelError> {
        if let Some(conversation) = new.conversation {
            self.conversation(annie_core::event::Scope::User(user.clone()), conversation).await?;
        }
        if let Some(address) = &new.reply_to {
            self.check_address(user, address).await?;
        }
        let intent = IntentId::from_uuid(self.wiring.env.uuid());
        let write = new.write(user.clone(), intent, self.now()).map_err(invalid)?;
        let written = self.wiring.documents.write_document(write).await?;
        let document = written.document.ok_or_else(|| invalid(ScheduleError::TooMany))?;
        self.schedules_changed();
        Ok(NumberedSchedule::of(&document)?)
    }

    /// Changes a schedule for its user, and returns it.
    ///
    /// # Errors
    /// `NotFound` if the user has none with this number.
    pub async fn change_schedule(
        &self,
        user: &UserId,
        number: u64,
        what: ScheduleChange,
    ) -> Result<NumberedSchedule, KernelError> {
        let found = self.schedule(user, number).await?;
        if let (ScheduleChange::Remove, Some(skill)) = (&what, &found.schedule.file) {
            let why = format!(
                "the file of the skill `{skill}` asks for this schedule: remove `schedule` from it, or pause it"
            );
            return Err(KernelError::Invalid(why));
        }
        let changed = change(&self.wiring, user, number, what).await?;
        self.schedules_changed();
        Ok(match changed {
            Some(schedule) => NumberedSchedule { schedule, ..found },
            // The schedule was in the requested state already.
            None => found,
        })
    }

    /// Makes the schedules of a user those that the skill files ask for, beside those without a file.
    ///
    /// # Errors
    /// If the store fails. A schedule that is refused is logged.
    pub async fn follow_file_schedules(&self, user: &UserId, files: &[FileSchedule]) -> Result<(), KernelError> {
        let stored = self.schedules(user).await?;
        let changes = follow_files(user, self.timezone(user), &stored, files);
        if changes.is_empty() {
            return Ok(());
        }
        for file_change in changes {
            match file_change {
                FileChange::Create(new) => {
                    let skill = new.file.clone().unwrap_or_default();
                    let intent = IntentId::from_uuid(self.wiring.env.uuid());
                    match new.write(user.clone(), intent, self.now()) {
                        Ok(write) => drop(self.wiring.documents.write_document(write).await?),
                        Err(error) => tracing::warn!(skill, %error, "the schedule of a skill file is refused"),
                    }
                }
                FileChange::Change(number, what) => drop(change(&self.wiring, user, number, what).await?),
                FileChange::Remove(number) => {
                    change(&self.wiring, user, number, ScheduleChange::Remove).await?;
                }
            }
        }
        self.schedules_changed();
        Ok(())
    }

    /// Submits the message of a schedule now. Its next occurrence stays as it is.
    ///
    /// # Errors
    /// `NotFound` if the user has none with this number; otherwise as [`Kernel::submit`].
    pub async fn run_schedule(&self, user: &UserId, number: u64) -> Result<Submitted, KernelError> {
        let NumberedSchedule { schedule, .. } = self.schedule(user, number).await?;
        let id = format!("{SCHEDULE}:{}:now:{}", schedule.id.simple(), self.wiring.env.uuid().simple());
        self.accept(message_of(user, &schedule, id)).await
    }

    /// The next ten occurrences of a schedule; none while it is paused.
    ///
    /// # Errors
    /// `NotFound` if the user has none with this number.
    pub async fn occurrences(&self, user: &UserId, number: u64) -> Result<Vec<Micros>, KernelError> {
        let NumberedSchedule { schedule, .. } = self.schedule(user, number).await?;
        let times = schedule.recurrence().map_err(invalid)?;
        let all = std::iter::successors(schedule.due_at, |at| times.next_after(*at));
        Ok(all.take(OCCURRENCES_MAX).collect())
    }

    /// Makes the worker read the schedules.
    pub(super) fn schedules_changed(&self) {
        let path = Path::root().child("infra").child(Schedules::KIND);
        self.system.handle::<WorkerMsg<Schedules>>(&path).tell(WorkerMsg::New(()));
    }
}

fn invalid(error: ScheduleError) -> KernelError {
    KernelError::Invalid(error.to_string())
}
