//! `annie migrate`.

use clap::{Args, ValueEnum};

/// Which of the two databases.
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
SQLite is the data folder's (--data), PostgreSQL the one of [store] in the configuration. No server may use one of them
meanwhile. Either everything is copied or nothing is; the source is left as it is. Skill files stay where they are. So do
notes: from then on the PostgreSQL database knows this data folder's as its own, and nothing is copied while the notes of the
source are in another data folder, unless --without-notes says that this one's count from then on.

Example:
  ANNIE__STORE__URL_FILE=/etc/annie/store.url annie migrate --from sqlite --to postgres")]
pub struct Migrate {
    /// The database to read
    #[arg(long, value_enum)]
    pub from: Database,
    /// The database to write
    #[arg(long, value_enum)]
    pub to: Database,
    /// Remove what the target holds
    #[arg(long)]
    pub replace: bool,
    /// Although the notes of the source are in another folder: this data folder's count from then on
    #[arg(long)]
    pub without_notes: bool,
}
