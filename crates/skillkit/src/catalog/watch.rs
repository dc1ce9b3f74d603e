//! Watches the data folder's skills and reloads when its files have come to rest.

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

/// How long files must rest before they are read, so that one save is one reload.
const REST_MS: u64 = 250;
/// How long a reload is put off at most while files keep changing.
const PUT_OFF_MS_MAX: u64 = 2_000;

impl FileCatalog {
    /// Reloads whenever the folder changes, until the future is dropped. Who calls it decides in which task it lives. Returns
    /// at once if there is no folder to watch.
    ///
    /// # Errors
    /// If the folder cannot be watched (any more); call again to try again.
    pub async fn watch(self: Arc<Self>) -> Result<(), SkillError> {
        let Some(folder) = self.folder.clone() else { return Ok(()) };
        std::fs::create_dir_all(&folder).map_err(|e| SkillError::io("cannot make the skills folder", e))?;
        let (tell, mut told) = mpsc::channel(1);
        let is_gone = Arc::new(AtomicBool::new(false));
        let (watched, gone) = (std::path::absolute(&folder).unwrap_or_else(|_| folder.clone()), is_gone.clone());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if removes(&event, &watched) {
                gone.store(true, SeqCst);
            }
            if matters(&event) {
                // A full channel means that a reload is coming anyway.
                let _ = tell.try_send(());
            }
        })
        .map_err(|e| SkillError::Watch(e.to_string()))?;
        watcher.watch(&folder, RecursiveMode::Recursive).map_err(|e| SkillError::Watch(e.to_string()))?;
        // What changed before the watch began is not told.
        self.reload_beside().await?;
        while told.recv().await.is_some() {
            rest(&mut told).await;
            // Another folder of this name may stand there already, which this watch does not see.
            let vanished = is_gone.load(SeqCst) || !folder.is_dir();
            self.reload_beside().await?;
            if vanished {
                return Err(SkillError::Watch("the folder was removed".to_owned()));
            }
        }
        Ok(())
    }

    async fn reload_beside(self: &Arc<Self>) -> Result<u64, SkillError> {
        let catalog = Arc::clone(self);
        tokio::task::spawn_blocking(move || catalog.reload()).await.map_err(|e| SkillError::Watch(e.to_string()))
    }
}

/// Reading the files is an event too, and must not lead to another reading.
fn matters(event: &notify::Result<Event>) -> bool {
    !matches!(event, Ok(Event { kind: EventKind::Access(_), .. }))
}

/// Whether the watched folder itself was removed or renamed: the watch belongs to the folder, and not to its name.
fn removes(event: &notify::Result<Event>, folder: &Path) -> bool {
    matches!(
        event,
        Ok(Event { kind: EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)), paths, .. })
            if paths.iter().any(|path| path == folder)
    )
}

/// Waits until nothing was told for a while.
async fn rest(told: &mut mpsc::Receiver<()>) {
    let quiet = async { while let Ok(Some(())) = time::timeout(Duration::from_millis(REST_MS), told.recv()).await {} };
    // Both ends mean the same: it is time to read.
    let _ = time::timeout(Duration::from_millis(PUT_OFF_MS_MAX), quiet).await;
}
