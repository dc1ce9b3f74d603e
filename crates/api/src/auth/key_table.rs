//! The keys as this process last read them. Requests are checked against this table. Therefore a wrong key does not cause a
//! database read of its own, and an unknown key id takes as long as a known one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use annie_core::{
    ports::{ApiKey, Env, Store, StoreError},
    time::Micros,
};

/// How long the table is used without a refresh, in microseconds: another process may have revoked a key. Together with
/// [`super::access::CHECK_EVERY`] this bounds how long a stream outlives the revocation of its key (10 s are promised).
pub(super) const BELIEVED_US: u64 = 5_000_000;
/// The minimum age of the table at which a wrong key triggers a refresh, in microseconds. Bounds the reads that wrong keys
/// cause.
pub(super) const WRONG_KEY_US: u64 = 1_000_000;

#[derive(Clone)]
struct Entry {
    key: Arc<ApiKey>,
    used_minute: i64,
}

struct Table {
    entries: HashMap<String, Entry>,
    read_at_us: u64,
}

pub(super) struct KeyTable {
    table: Mutex<Table>,
    /// Held while all rows are read, or a row is written, so that a read never overwrites a newer revocation.
    rows: tokio::sync::Mutex<()>,
}

impl KeyTable {
    pub async fn load(store: &dyn Store, env: &Env) -> Result<Self, StoreError> {
        let read_at_us = env.clock.monotonic_us();
        let entries = entries_of(store.keys().await?, &HashMap::new());
        Ok(Self { table: Mutex::new(Table { entries, read_at_us }), rows: tokio::sync::Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_older(&self, env: &Env, age_us: u64) -> bool {
        env.clock.monotonic_us().saturating_sub(self.table().read_at_us) >= age_us
    }

    /// Refreshes the table if it has at least this age.
    pub async fn refresh_if_older(&self, store: &dyn Store, env: &Env, age_us: u64) -> Result<(), StoreError> {
        if !self.is_older(env, age_us) {
            return Ok(());
        }
        let _rows = self.rows.lock().await;
        // The previous holder of the lock may have refreshed the table.
        if !self.is_older(env, age_us) {
            return Ok(());
        }
        let read_at_us = env.clock.monotonic_us();
        let keys = store.keys().await?;
        let mut table = self.table();
        *table = Table { entries: entries_of(keys, &table.entries), read_at_us };
        Ok(())
    }

    pub async fn lock_rows(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.rows.lock().await
    }

    pub fn is_empty(&self) -> bool {
        self.table().entries.is_empty()
    }

    pub fn get(&self, id: &str) -> Option<Arc<ApiKey>> {
        self.table().entries.get(id).map(|entry| entry.key.clone())
    }

    pub fn put(&self, key: &ApiKey) {
        let used_minute = key.last_used_at.map_or(0, minute);
        self.table().entries.insert(key.id.clone(), Entry { key: Arc::new(key.clone()), used_minute });
    }

    /// Whether this is the first use of the key in the current minute. Records the use.
    pub fn is_first_use_in_minute(&self, id: &str, now: Micros) -> bool {
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(id) else { return false };
        let is_first = entry.used_minute != minute(now);
        entry.used_minute = minute(now);
        is_first
    }
}

fn entries_of(keys: Vec<ApiKey>, before: &HashMap<String, Entry>) -> HashMap<String, Entry> {
    let entry = |key: ApiKey| {
        let stored = key.last_used_at.map_or(0, minute);
        let used_minute = before.get(&key.id).map_or(stored, |known| known.used_minute.max(stored));
        (key.id.clone(), Entry { key: Arc::new(key), used_minute })
    };
    keys.into_iter().map(entry).collect()
}

fn minute(at: Micros) -> i64 {
    at.0.div_euclid(60_000_000)
}
