//! The numbered SQL files of `migrations/`, embedded in the program.
//!
//! `sqlx::migrate!` would do the same, but its procedural macros compile sqlx, rustls and the C libraries a second time for the
//! build host: two of the eight minutes of a build from scratch.

use sqlx::{
    SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

/// Name and text of each migration of one database, in numerical order. Both databases have the same list.
macro_rules! files {
    ($database:literal) => {
        [
            ("log", include_str!(concat!("../../../migrations/", $database, "/0001_log.sql"))),
            ("data", include_str!(concat!("../../../migrations/", $database, "/0002_data.sql"))),
            ("views", include_str!(concat!("../../../migrations/", $database, "/0003_views.sql"))),
            ("work", include_str!(concat!("../../../migrations/", $database, "/0004_work.sql"))),
            ("stateless", include_str!(concat!("../../../migrations/", $database, "/0005_stateless.sql"))),
            ("ended views", include_str!(concat!("../../../migrations/", $database, "/0006_ended_views.sql"))),
            ("nodes", include_str!(concat!("../../../migrations/", $database, "/0007_nodes.sql"))),
            ("dead letters", include_str!(concat!("../../../migrations/", $database, "/0008_dead_letters.sql"))),
            (
                "accepted dispatches",
                include_str!(concat!("../../../migrations/", $database, "/0009_accepted_dispatches.sql")),
            ),
            ("failed models", include_str!(concat!("../../../migrations/", $database, "/0010_failed_models.sql"))),
            ("documents", include_str!(concat!("../../../migrations/", $database, "/0011_documents.sql"))),
            ("moved documents", include_str!(concat!("../../../migrations/", $database, "/0012_moved_documents.sql"))),
            ("channels", include_str!(concat!("../../../migrations/", $database, "/0013_channels.sql"))),
            ("sealed secrets", include_str!(concat!("../../../migrations/", $database, "/0014_sealed_secrets.sql"))),
            (
                "waiting dispatches",
                include_str!(concat!("../../../migrations/", $database, "/0015_waiting_dispatches.sql")),
            ),
            ("due documents", include_str!(concat!("../../../migrations/", $database, "/0016_due_documents.sql"))),
            ("usage totals", include_str!(concat!("../../../migrations/", $database, "/0017_usage_totals.sql"))),
            ("reminded tasks", include_str!(concat!("../../../migrations/", $database, "/0018_reminded_tasks.sql"))),
            ("shared texts", include_str!(concat!("../../../migrations/", $database, "/0019_shared_texts.sql"))),
            ("deletions", include_str!(concat!("../../../migrations/", $database, "/0020_deletions.sql"))),
        ]
    };
}

/// The migrations of SQLite.
pub(crate) fn sqlite() -> Migrator {
    migrator(&files!("sqlite"))
}

/// The migrations of PostgreSQL.
pub(crate) fn postgres() -> Migrator {
    migrator(&files!("postgres"))
}

fn migrator(files: &[(&'static str, &'static str)]) -> Migrator {
    let numbered = (1..).zip(files).map(|(number, (name, text))| {
        Migration::new(number, (*name).into(), MigrationType::Simple, text.into_sql_str(), false)
    });
    Migrator::with_migrations(numbered.collect())
}

#[cfg(test)]
// Tests report failures by panicking.
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;

    #[tokio::test]
    async fn migrations_embedded_are_the_files_of_the_folder() {
        for (database, embedded) in [("sqlite", sqlite()), ("postgres", postgres())] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations").join(database);
            let on_disk = Migrator::new(folder).await.unwrap();
            let facts = |all: &Migrator| {
                all.iter().map(|m| (m.version, m.description.to_string(), m.checksum.to_vec())).collect::<Vec<_>>()
            };
            assert_eq!(
                facts(&embedded),
                facts(&on_disk),
                "{database}: list the file in crates/store/src/migrations.rs"
            );
        }
    }
}
