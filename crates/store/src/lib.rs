//! Stores behind core's Store port: [`SqliteStore`] for one process, [`PostgresStore`] for many, [`MemoryStore`] for
//! simulation.
//!
//! What a store must decide (whether an append may be stored, what two memories have in common, which of a user's tasks
//! fit) is decided once, in the plain functions beside the two folders; a store only keeps and finds.

mod address;
mod admission;
mod examine;
mod memory;
mod migrate;
mod migrations;
mod postgres;
mod similar;
mod sql;
mod sqlite;
mod stem;
mod todo_rules;
mod words;

pub use address::{AddressError, PostgresAddress, PostgresOptions};
pub use examine::{Examination, Gap, TableCheck, Unreadable, WrongSnapshot, examine, repair};
pub use memory::{MemoryStore, StoreFault, StoreHook, StorePoint, StoreSide, StoreWait, StoreWakes};
pub use migrate::{MigrateError, MigratePlace, TableCopied, migrate};
pub use postgres::PostgresStore;
pub use sqlite::{Durability, FolderLock, SqliteOptions, SqliteStore};
