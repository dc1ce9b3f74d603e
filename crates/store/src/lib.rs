//! Stores behind core's Store port: [`SqliteStore`] for one process, [`PostgresStore`] for many, [`MemoryStore`] for
//! simulation.
//!
//! The decisions of a store (whether an append may be stored, which keys a document has) are made by shared plain functions in
//! this folder. Each store implements only storage and search.

mod address;
mod admission;
mod documents;
mod examine;
mod memory;
mod migrate;
mod migrations;
mod postgres;
mod sql;
mod sqlite;

pub use address::{AddressError, PostgresAddress, PostgresOptions};
pub use examine::{Examination, Gap, TableCheck, Unreadable, WrongSnapshot, examine, repair};
pub use memory::{MemoryStore, StoreFault, StoreHook, StorePoint, StoreSide, StoreWait, StoreWakes};
pub use migrate::{MigrateError, MigrateSide, TableCopied, migrate};
pub use postgres::PostgresStore;
pub use sqlite::{Durability, FolderLock, SqliteOptions, SqliteStore};
