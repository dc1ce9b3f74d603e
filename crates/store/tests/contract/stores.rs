//! The stores that the suite runs on.

use std::sync::Arc;

use annie_core::ports::Storage;
use annie_store::{Durability, MemoryStore, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};
use annie_testkit::postgres::{Database, database};
use tempfile::TempDir;

/// A store and the resources that it needs.
pub struct Bench {
    pub store: Arc<dyn Storage>,
    _folder: Option<TempDir>,
    _database: Option<Database>,
}

/// Options without waits for the disk, because no case simulates a power cut.
pub fn quick() -> SqliteOptions {
    SqliteOptions { durability: Durability::Normal, ..SqliteOptions::default() }
}

pub async fn sqlite() -> Option<Bench> {
    let folder = TempDir::new().unwrap();
    let store = SqliteStore::open(folder.path(), quick()).await.unwrap();
    Some(Bench { store: Arc::new(store), _folder: Some(folder), _database: None })
}

pub async fn memory() -> Option<Bench> {
    Some(Bench { store: Arc::new(MemoryStore::new()), _folder: None, _database: None })
}

/// `None` where PostgreSQL is not installed; then the test is reported as skipped.
pub async fn postgres() -> Option<Bench> {
    let database = database().await?;
    let store = at(&database.url).await;
    Some(Bench { store: Arc::new(store), _folder: None, _database: Some(database) })
}

/// A store of its own on a database, as another process would have it.
pub async fn at(url: &str) -> PostgresStore {
    PostgresStore::open(&url.parse().unwrap(), PostgresOptions::default()).await.unwrap()
}
