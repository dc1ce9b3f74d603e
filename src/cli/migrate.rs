//! `annie migrate`: copies all data from SQLite to PostgreSQL, or back.

use std::sync::Arc;

use annie_core::ports::Store;
use annie_store::{MigrateError, MigrateSide, SqliteStore, TableCopied, migrate};
use serde_json::json;

use super::{
    args::{Database, Migrate},
    console::Ink,
    failure::{Exit, Failure},
    site::Site,
    tables::fitted,
};
use crate::{
    boot::{BootError, NOTES_KEPT_AS, NotesFolder, NotesProblem},
    error::AppError,
    system,
};

/// `annie migrate`
///
/// # Errors
/// If source and target are the same, one of them is in use or missing, or the target contains data. Nothing is copied then.
pub async fn run(site: &Site, options: Migrate) -> Result<(), Failure> {
    if options.from == options.to {
        return Err(Failure::new(Exit::Usage, "source and target are the same").fix("--from sqlite --to postgres"));
    }
    if options.from == Database::Sqlite && !site.has_database() {
        let what = format!("there is no database in {}", site.folder.display());
        return Err(Failure::new(Exit::NotFound, what).fix("name the data folder with --data"));
    }
    let (from, to) = (side(site, options.from)?, side(site, options.to)?);
    let left_out: &[&str] = if options.without_notes {
        &[NOTES_KEPT_AS]
    } else {
        check_notes(site, options.from).await?;
        &[]
    };
    let copied = migrate(&from, &to, options.replace, left_out).await.map_err(failure)?;
    report(site, options, &copied)?;
    if options.to == Database::Postgres {
        claim_notes(site).await;
    }
    Ok(())
}

fn report(site: &Site, options: Migrate, copied: &[TableCopied]) -> Result<(), Failure> {
    if site.console.is_json() {
        for one in copied {
            site.console.json(&json!({"table": one.table, "rows": one.rows, "sha256": one.sha256}))?;
        }
        return Ok(());
    }
    let rows = copied.iter().map(|one| vec![one.table.to_owned(), one.rows.to_string(), one.sha256[..16].to_owned()]);
    site.console.line(&fitted(site.console.columns(), &["table", "rows", "sha256"], rows.collect()))?;
    site.console.say(&site.console.ink(Ink::Good, "copied, read back and compared"));
    if options.to == Database::Sqlite {
        site.console.say("to use it, take `url`, `url_file` and `url_env` out of [store]");
    }
    Ok(())
}

/// Checks before the copy that the source uses the notes of this data folder.
///
/// # Errors
/// If its notes are in another folder.
async fn check_notes(site: &Site, from: Database) -> Result<(), Failure> {
    let config = &site.loaded.config;
    if config.data.separate_notes {
        return Ok(());
    }
    let store: Arc<dyn Store> = match from {
        Database::Postgres => site.store().await?,
        Database::Sqlite => {
            let opened = SqliteStore::open(&site.folder, config.store.sqlite()).await;
            Arc::new(opened.map_err(|source| BootError::Store { folder: site.folder.clone(), source })?)
        }
    };
    let notes = NotesFolder::compare(store.as_ref(), site.folder.join("notes")).await;
    store.close().await;
    let notes = notes.map_err(AppError::from)?;
    let Some(NotesProblem { what, fix }) = notes.problem() else { return Ok(()) };
    let fix = if notes.is_unusable() {
        fix
    } else {
        let folder = site.folder.display();
        format!("copy them with the mark of their folder, where they are: cp -a OTHER/notes/. {folder}/notes/")
    };
    Err(Failure::new(Exit::Failure, what).fix(format!("{fix}; or go on without them: --without-notes")))
}

/// Registers this data folder's notes as those of the PostgreSQL database. Otherwise the next process with another folder would
/// register its own, empty notes. The data is already copied, so a failure is only a warning.
async fn claim_notes(site: &Site) {
    let claimed = async {
        let store = site.store().await?;
        let (path, entropy) = (site.folder.join("notes"), system::env().entropy);
        let is_separate = site.loaded.config.data.separate_notes;
        let notes = NotesFolder::find(is_separate, store.as_ref(), entropy.as_ref(), path).await;
        store.close().await;
        match notes.map_err(AppError::from)?.problem() {
            None => Ok(()),
            Some(NotesProblem { what, fix }) => Err(Failure::new(Exit::Failure, what).fix(fix)),
        }
    };
    if let Err(failure) = claimed.await {
        site.console
            .say_always("all data is copied, but the notes of this data folder are not yet registered in the database");
        site.console.error(&failure);
    }
}

fn side(site: &Site, database: Database) -> Result<MigrateSide, Failure> {
    if database == Database::Sqlite {
        return Ok(MigrateSide::Sqlite(site.folder.clone()));
    }
    let address = site.loaded.config.store.address(&site.loaded.environment)?;
    address.map(MigrateSide::Postgres).ok_or_else(|| {
        let fix = "give one as `url_file` in [store], or for this once in ANNIE__STORE__URL";
        Failure::new(Exit::Usage, "the configuration names no PostgreSQL database").fix(fix)
    })
}

fn failure(error: MigrateError) -> Failure {
    let (exit, fix) = match &error {
        MigrateError::Store { source, .. } if source.is_retryable() => {
            (Exit::Unavailable, "stop the programs that use it; check that it runs and is reachable: annie doctor")
        }
        MigrateError::InUse { .. } => (Exit::Unavailable, "stop the servers that use it, and other annie commands"),
        MigrateError::NotEmpty { .. } => (Exit::Failure, "use an empty database, or remove its data: --replace"),
        MigrateError::Store { .. } | MigrateError::Tables(_) | MigrateError::Differs { .. } => {
            (Exit::Failure, "nothing was copied, the source is as it was; this is a bug")
        }
    };
    Failure::new(exit, error.to_string()).fix(fix)
}
