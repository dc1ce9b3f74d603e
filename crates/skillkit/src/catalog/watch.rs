//! Watches the data folder's skills, and reloads when the files have stopped changing.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use notify::{Event, EventKind, RecursiveMode, Watcher, event::ModifyKind};
use tokio::{sync::mpsc, time};

use super::FileCatalog;
use crate::error::SkillError;

/// How long files must be unchanged before they are read, in milliseconds, so that one save causes one reload.
const REST_MS: u64 = 250;
/// How long a reload is delayed at most while files keep changing, in milliseconds.
const RELOAD_DELAY_MS_MAX: u64 = 2_000;

impl FileCatalog {
    /// Reloads whenever the folder changes, until the future is dropped. The caller chooses the task that runs it. Returns
    /// at once if there is no folder to watch.
    ///
    /// # Errors
    /// Fails if the folder cannot be watched (any more); the caller may call again to retry.
    pub async fn watch(self: Arc<Self>) -> Result<(), SkillError> {
        let Some(folder) = self.folder.clone() else { return Ok(()) };
        std::fs::create_dir_all(&folder).map_err(|e| SkillError::io("cannot make the skills folder", e))?;
        let (sender, mut events) = mpsc::channel(1);
        let is_gone = Arc::new(AtomicBool::new(false));
        let (watched, gone) = (std::path::absolute(&folder).unwrap_or_else(|_| folder.clone()), is_gone.clone());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if removes(&event, &watched) {
                gone.store(true, SeqCst);
            }
            if matters(&event) {
                // A full channel means that a reload is pending already.
                let _ = sender.try_send(());
            }
        })
        .map_err(|e| SkillError::Watch(e.to_string()))?;
        watcher.watch(&folder, RecursiveMode::Recursive).map_err(|e| SkillError::Watch(e.to_string()))?;
        // Changes from before the watch began are not reported.
        self.reload_blocking().await?;
        while events.recv().await.is_some() {
            rest(&mut events).await;
            // Another folder of the same name may exist already, which this watch does not cover.
            let vanished = is_gone.load(SeqCst) || !folder.is_dir();
            self.reload_blocking().await?;
            if vanished {
                return Err(SkillError::Watch("the folder was removed".to_owned()));
            }
        }
        Ok(())
    }

    async fn reload_blocking(self: &Arc<Self>) -> Result<u64, SkillError> {
        let catalog = Arc::clone(self);
        tokio::task::spawn_blocking(move || catalog.reload()).await.map_err(|e| SkillError::Watch(e.to_string()))
    }
}

/// Reading the files is an event too, and must not cause another reload.
fn matters(event: &notify::Result<Event>) -> bool {
    !matches!(event, Ok(Event { kind: EventKind::Access(_), .. }))
}

/// Whether the watched folder itself was removed or renamed: the watch is bound to the folder, not to its name.
fn removes(event: &notify::Result<Event>, folder: &Path) -> bool {
    matches!(
        event,
        Ok(Event { kind: EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)), paths, .. })
            if paths.iter().any(|path| path == folder)
    )
}

/// Waits until no event has arrived for `REST_MS`.
async fn rest(events: &mut mpsc::Receiver<()>) {
    let quiet =
        async { while let Ok(Some(())) = time::timeout(Duration::from_millis(REST_MS), events.recv()).await {} };
    // Both results mean that it is time to read.
    let _ = time::timeout(Duration::from_millis(RELOAD_DELAY_MS_MAX), quiet).await;
}
