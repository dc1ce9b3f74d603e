//! The stores that the suite runs on.

use std::sync::Arc;

use annie_core::ports::Store;
use annie_store::{Durability, MemoryStore, SqliteOptions, SqliteStore};
use tempfile::TempDir;

/// A store and whatever must live as long as it.
pub struct Bench {
    pub store: Arc<dyn Store>,
    _folder: Option<TempDir>,
}

/// No case pulls the plug, so that none has to wait for the disk.
pub fn quick() -> SqliteOptions {
    SqliteOptions { durability: Durability::Normal, ..SqliteOptions::default() }
}

pub async fn sqlite() -> Bench {
    let folder = TempDir::new().unwrap();
    let store = SqliteStore::open(folder.path(), quick()).await.unwrap();
    Bench { store: Arc::new(store), _folder: Some(folder) }
}

pub async fn memory() -> Bench {
    Bench { store: Arc::new(MemoryStore::new()), _folder: None }
}
