//! Maps the database's errors to the port's kinds. No text here contains a password: the driver's errors do not repeat the
//! address, and the server's do not know the password.

use annie_core::ports::{StoreError, StoreErrorKind};
use sqlx::migrate::MigrateError;

use crate::sql::corrupt;

/// What failed: the database, the connection, or the conversion of an answer.
#[derive(Debug)]
pub(super) enum Failure {
    Database(sqlx::Error),
    /// The server does not answer, or not in time.
    Silent(&'static str),
    Answer(StoreError),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Answer(error)
    }
}

impl Failure {
    /// The store's error for a failure of `what`.
    pub fn during(self, what: &'static str) -> StoreError {
        match self {
            Self::Database(error) => StoreError { kind: kind_of(&error), what, detail: detail_of(&error) },
            Self::Silent(detail) => StoreError { kind: StoreErrorKind::Unavailable, what, detail: detail.to_owned() },
            Self::Answer(error) => error,
        }
    }

    /// Whether the connection is gone. The statement under way may have been executed.
    pub fn is_broken(&self) -> bool {
        match self {
            Self::Database(error) => match error {
                sqlx::Error::Database(_) => is_ended(code_of(error).unwrap_or_default()),
                sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::Tls(_) => true,
                _ => false,
            },
            Self::Silent(_) => true,
            Self::Answer(_) => false,
        }
    }

    /// Whether a retry may work at once: two transactions collided, and this one was rolled back.
    pub fn is_collision(&self) -> bool {
        matches!(self, Self::Database(error) if matches!(code_of(error), Some("40001" | "40P01")))
    }

    /// Whether a row with the same unique key exists already.
    pub fn is_repeat(&self) -> bool {
        matches!(self, Self::Database(error) if code_of(error) == Some("23505"))
    }
}

/// The detail of an error. The system does not report which file is missing.
fn detail_of(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::NotFound => {
            format!("{error}: a certificate or a socket that the address names is not there")
        }
        error => error.to_string(),
    }
}

/// The error for tables that could not be brought up to date.
pub(super) fn failed_migration(error: MigrateError) -> StoreError {
    const WHAT: &str = "bringing the tables up to date";
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Failure::from(error).during(WHAT),
        MigrateError::VersionMissing(version) => {
            corrupt(WHAT, format!("the database was written by a newer Annie: it has migration {version}"))
        }
        error => corrupt(WHAT, error),
    }
}

fn code_of(error: &sqlx::Error) -> Option<&str> {
    error.as_database_error()?.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().map(|error| error.code())
}

/// Whether the server ends the connection, or has not started yet.
fn is_ended(code: &str) -> bool {
    code.starts_with("08") || matches!(code, "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04")
}

fn kind_of(error: &sqlx::Error) -> StoreErrorKind {
    match error {
        sqlx::Error::Database(_) => code_of(error).map_or(StoreErrorKind::Internal, kind_of_code),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreErrorKind::Corrupt,
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::Configuration(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Internal,
    }
}

/// Maps the error codes of PostgreSQL's appendix A.
fn kind_of_code(code: &str) -> StoreErrorKind {
    match code {
        "53100" => StoreErrorKind::Full,
        // Serialization, deadlock, lock_timeout, statement_timeout.
        "40001" | "40P01" | "55P03" | "57014" => StoreErrorKind::Locked,
        // A read-only server, an unknown role, an unknown database, a missing right.
        "25006" | "3D000" | "42501" => StoreErrorKind::Unavailable,
        code if is_ended(code) => StoreErrorKind::Unavailable,
        // Data corrupted, index corrupted.
        "XX001" | "XX002" => StoreErrorKind::Corrupt,
        code => match code.get(..2) {
            // Authentication; resources; the operating system.
            Some("28" | "53" | "58") => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Internal,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_error_codes_map_to_store_error_kinds() {
        for (code, kind) in [
            ("53100", StoreErrorKind::Full),
            ("53300", StoreErrorKind::Unavailable),
            ("57P01", StoreErrorKind::Unavailable),
            ("57P03", StoreErrorKind::Unavailable),
            ("08006", StoreErrorKind::Unavailable),
            ("28P01", StoreErrorKind::Unavailable),
            ("55P03", StoreErrorKind::Locked),
            ("57014", StoreErrorKind::Locked),
            ("XX001", StoreErrorKind::Corrupt),
            ("42P01", StoreErrorKind::Internal),
            ("22P05", StoreErrorKind::Internal),
        ] {
            assert_eq!(kind_of_code(code), kind, "{code}");
        }
    }
}
