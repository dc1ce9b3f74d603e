//! Checks the notes folder in the background. A file-system call on a hanging mount does not return. Therefore each check runs
//! on a blocking thread, and request handlers read only the last result. At most one check runs at a time.

use std::{sync::Arc, time::Duration};

use annie_core::{ports::Clock, time::Micros};
use tokio::sync::{Semaphore, watch};

use super::{NotesFolder, NotesProblem};

/// The check function.
type Check = Arc<dyn Fn() -> Option<NotesProblem> + Send + Sync>;

/// The check interval and the time after which a check counts as hanging.
#[derive(Debug, Clone, Copy)]
pub struct NotesPace {
    /// The pause between the end of a check and the next one.
    pub every: Duration,
    /// A check that has not returned after this time is reported.
    pub patience: Duration,
}

impl Default for NotesPace {
    fn default() -> Self {
        Self { every: Duration::from_secs(30), patience: Duration::from_secs(5) }
    }
}

/// The state of the notes folder according to the last check.
pub struct NotesWatch {
    check: Check,
    pace: NotesPace,
    clock: Arc<dyn Clock>,
    /// Outlives a restart of [`Self::run`]: a hanging check keeps its permit.
    one: Arc<Semaphore>,
    state: watch::Sender<State>,
}

#[derive(Clone)]
enum State {
    Checked(Option<NotesProblem>),
    /// The check that began at this time has not returned.
    Hanging(Micros),
}

impl NotesWatch {
    /// The watch of a folder that is checked once here, at the start of the process.
    #[must_use]
    pub fn of(folder: NotesFolder, clock: Arc<dyn Clock>) -> Self {
        let first = folder.problem();
        Self::new(Arc::new(move || folder.problem()), first, NotesPace::default(), clock)
    }

    /// The watch of any check function, with the result of the first check.
    #[must_use]
    pub fn new(check: Check, first: Option<NotesProblem>, pace: NotesPace, clock: Arc<dyn Clock>) -> Self {
        let (one, state) = (Arc::new(Semaphore::new(1)), watch::channel(State::Checked(first)).0);
        Self { check, pace, clock, one, state }
    }

    /// The current problem; nothing if notes can be read and written. Makes no file-system call.
    #[must_use]
    pub fn problem(&self) -> Option<NotesProblem> {
        match &*self.state.borrow() {
            State::Checked(problem) => problem.clone(),
            State::Hanging(since) => Some(NotesProblem {
                what: format!("the notes folder has not answered a check since {since}"),
                fix: "check the mount that it is on".to_owned(),
            }),
        }
    }

    /// Checks the folder repeatedly.
    ///
    /// # Errors
    /// If a check panicked.
    pub async fn run(&self) -> Result<(), String> {
        loop {
            tokio::time::sleep(self.pace.every).await;
            self.check().await?;
        }
    }

    async fn check(&self) -> Result<(), String> {
        let permit = self.one.clone().acquire_owned().await.map_err(|e| e.to_string())?;
        let (check, began) = (self.check.clone(), self.clock.now());
        let mut running = tokio::task::spawn_blocking(move || (check(), permit).0);
        let found = match tokio::time::timeout(self.pace.patience, &mut running).await {
            Ok(found) => found,
            Err(_) => {
                tracing::warn!(%began, "the notes folder does not answer a check");
                self.state.send_replace(State::Hanging(began));
                running.await
            }
        };
        self.state.send_replace(State::Checked(found.map_err(|e| e.to_string())?));
        Ok(())
    }
}
