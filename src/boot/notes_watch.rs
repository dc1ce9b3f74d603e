//! Checks the notes folder in the background. A file-system call on a mount that hangs does not return, so each check runs
//! on a blocking thread, and request handlers read the last result only. At most one check runs at a time.

use std::{sync::Arc, time::Duration};

use annie_core::{ports::Clock, time::Micros};
use tokio::sync::{Semaphore, watch};

use super::{NotesFolder, NotesProblem};

/// The check itself.
type Check = Arc<dyn Fn() -> Option<NotesProblem> + Send + Sync>;

/// How often the folder is checked, and after how long a check counts as hanging.
#[derive(Debug, Clone, Copy)]
pub struct NotesPace {
    /// Between the end of a check and the next one.
    pub every: Duration,
    /// Until a check that has not returned is reported.
    pub patience: Duration,
}

impl Default for NotesPace {
    fn default() -> Self {
        Self { every: Duration::from_secs(30), patience: Duration::from_secs(5) }
    }
}

/// The state of the notes folder as the last check found it.
pub struct NotesWatch {
    check: Check,
    pace: NotesPace,
    clock: Arc<dyn Clock>,
    /// Survives a restart of [`Self::run`]: a check that hangs keeps its permit.
    one: Arc<Semaphore>,
    state: watch::Sender<State>,
}

#[derive(Clone)]
enum State {
    Checked(Option<NotesProblem>),
    /// The check that began then has not returned.
    Hanging(Micros),
}

impl NotesWatch {
    /// The watch of a folder that was checked once, at the start of the process.
    #[must_use]
    pub fn of(folder: NotesFolder, clock: Arc<dyn Clock>) -> Self {
        let first = folder.problem();
        Self::new(Arc::new(move || folder.problem()), first, NotesPace::default(), clock)
    }

    /// The watch of anything that can be checked.
    #[must_use]
    pub fn new(check: Check, first: Option<NotesProblem>, pace: NotesPace, clock: Arc<dyn Clock>) -> Self {
        let (one, state) = (Arc::new(Semaphore::new(1)), watch::channel(State::Checked(first)).0);
        Self { check, pace, clock, one, state }
    }

    /// What is wrong with the folder; nothing if notes can be read and written. Calls no file system.
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

    /// Checks the folder again and again.
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
