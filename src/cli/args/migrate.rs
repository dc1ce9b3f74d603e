//! `annie migrate`.

use clap::{Args, ValueEnum};

/// One of the two databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Database {
    /// SQLite in the data folder
    Sqlite,
    /// PostgreSQL at the address of the configuration
    Postgres,
}

/// `annie migrate`
#[derive(Debug, Clone, Copy, Args)]
#[command(after_help = "\
The SQLite database is in the data folder (--data), the PostgreSQL database is the one of [store] in the configuration. No
server may use either of them during the copy. Either everything is copied or nothing; the source is not changed. Skill files
stay where they are. Notes stay too: from then on the PostgreSQL database uses the notes of this data folder. If the notes of
the source are in another data folder, nothing is copied, unless --without-notes is given: then this folder's notes are used.

Example:
  ANNIE__STORE__URL_FILE=/etc/annie/store.url annie migrate --from sqlite --to postgres")]
pub struct Migrate {
    /// The database to read
    #[arg(long, value_enum)]
    pub from: Database,
    /// The database to write
    #[arg(long, value_enum)]
    pub to: Database,
    /// Remove existing data from the target
    #[arg(long)]
    pub replace: bool,
    /// Copy although the notes of the source are in another folder; use this data folder's notes from then on
    #[arg(long)]
    pub without_notes: bool,
}
