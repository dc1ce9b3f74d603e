//! A failed command: the error, its fix, and the exit code for scripts.

use std::io;

use annie_actors::KernelError;
use annie_core::ports::{StoreError, StoreErrorKind};

use crate::{
    boot::BootError,
    config::{ChannelError, ConfigError},
    error::{ApiError, AppError, Code},
};

/// Exit codes (0 is success).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command failed.
    Failure = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The named object does not exist.
    NotFound = 3,
    /// The key is missing, or lacks a scope.
    Auth = 4,
    /// No server, a locked data folder, a full queue: a later attempt may succeed.
    Unavailable = 5,
    /// The turn was answered, but the request was not carried out, or only partly: declined, nothing was run, given up,
    /// paused at a limit, or the answer is cut off.
    NotDone = 6,
    /// Ctrl-C.
    Interrupted = 130,
    /// The reader of stdout is gone. The code is that of SIGPIPE, and no message is printed.
    Unread = 141,
    /// A signal ended the command. The code is that of SIGTERM.
    Terminated = 143,
}

/// A command that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The error and its cause.
    pub what: String,
    /// What the user can do about it.
    pub fix: Option<String>,
    /// Id of the request at the server.
    pub request_id: Option<String>,
}

impl Failure {
    /// A failure with an exit code.
    #[must_use]
    pub fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), fix: None, request_id: None }
    }

    /// Adds a fix.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into()).filter(|fix: &String| !fix.is_empty());
        self
    }

    /// Stopped by Ctrl-C.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "stopped")
    }

    /// Ended by a signal.
    #[must_use]
    pub fn terminated() -> Self {
        Self::new(Exit::Terminated, "ended by a signal")
    }

    /// Input or output of this command failed.
    #[must_use]
    pub fn io(what: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Unread, what);
        }
        Self::new(Exit::Failure, format!("{what}: {error}"))
    }
}

impl From<ConfigError> for Failure {
    fn from(e: ConfigError) -> Self {
        let failure = Self::new(Exit::Usage, e.to_string());
        if e.more.is_empty() {
            failure.fix(e.fix)
        } else {
            failure.fix(format!("mend these {} mistakes", e.more.len() + 1))
        }
    }
}

impl From<BootError> for Failure {
    fn from(e: BootError) -> Self {
        match e {
            BootError::Config(e) => e.into(),
            BootError::Model(e) => {
                Self::new(Exit::Usage, e.to_string()).fix("check the [[backend]] tables with `annie config show`")
            }
            BootError::Channel(ChannelError::Config(e)) => e.into(),
            BootError::Channel(ChannelError::Webhook(e)) => {
                Self::new(Exit::Usage, e.to_string()).fix("check the [[channel]] tables with `annie config show`")
            }
            BootError::Channel(ChannelError::Hook(e)) => {
                Self::new(Exit::Usage, e.to_string()).fix("check the [[hook]] tables with `annie config show`")
            }
            BootError::Routes(e) => {
                Self::new(Exit::Usage, e.to_string()).fix("check the [[route]] tables with `annie config check`")
            }
            BootError::Shim(_) => Self::new(Exit::Failure, e.to_string()).fix("start annie by its whole path"),
            BootError::Egress(_) => {
                Self::new(Exit::Failure, e.to_string()).fix("install the system's certificates (ca-certificates)")
            }
            BootError::Telemetry(_) => {
                Self::new(Exit::Usage, e.to_string()).fix("check the table [telemetry] with `annie config show`")
            }
            BootError::Kernel(e) => e.into(),
            BootError::FilesInData { .. } => Self::new(Exit::Usage, e.to_string())
                .fix("name a folder beside the data folder, or move one of the two"),
            BootError::Emptied { .. } => Self::new(Exit::Failure, e.to_string()).fix(
                "restore a backup of the database; or, if it is meant to be empty, start once with \
                 `annie serve --accept-empty-database` (ANNIE__DATA__ACCEPT_EMPTY_DATABASE=true)",
            ),
            BootError::Database { ref source, .. } => {
                let (exit, fix) = if source.is_retryable() {
                    let fix = "check that PostgreSQL runs there and lets this user in ([store] in the configuration); \
                               then start it again";
                    (Exit::Unavailable, fix)
                } else {
                    (Exit::Failure, "use the version of annie that wrote it, or restore a backup")
                };
                Self::new(exit, e.to_string()).fix(fix)
            }
            BootError::Store { ref source, ref folder } => {
                let folder = folder.display();
                let (exit, fix) = match source.kind {
                    StoreErrorKind::Locked => (
                        Exit::Unavailable,
                        format!(
                            "another annie uses it: name its server with --url, stop it, or take another folder with --data (this one is {folder})"
                        ),
                    ),
                    StoreErrorKind::Full => {
                        (Exit::Unavailable, "make room on the disk, or raise store.database_bytes_max".to_owned())
                    }
                    StoreErrorKind::Corrupt => (
                        Exit::Failure,
                        format!(
                            "if a newer annie wrote it, use that version; otherwise the file is damaged: {MEND_DATABASE}"
                        ),
                    ),
                    StoreErrorKind::Internal => (Exit::Failure, format!("if the file is damaged: {MEND_DATABASE}")),
                    StoreErrorKind::Unavailable => (
                        Exit::Failure,
                        "check that the folder is yours and writable, or take another with --data".to_owned(),
                    ),
                };
                Self::new(exit, e.to_string()).fix(fix)
            }
        }
    }
}

/// The fix for a damaged database.
pub const MEND_DATABASE: &str = "stop annie and restore a backup of the database (docs/operating.md, \"Restore\"); without one, \
                                 save what SQLite can read: sqlite3 annie.db .recover | sqlite3 recovered.db";

impl From<StoreError> for Failure {
    /// For a store that this process opened itself. There is no server log with details, so the message contains them.
    fn from(e: StoreError) -> Self {
        match e.kind {
            StoreErrorKind::Corrupt => {
                Self::new(Exit::Failure, format!("the database is damaged or was changed by another program: {e}"))
                    .fix(MEND_DATABASE)
            }
            StoreErrorKind::Internal => {
                Self::new(Exit::Failure, format!("the database did not do what was asked: {e}")).fix(
                    "`annie doctor --check` looks for damage; if it finds none, this is a mistake in annie: report it",
                )
            }
            StoreErrorKind::Locked | StoreErrorKind::Full | StoreErrorKind::Unavailable => ApiError::from(e).into(),
        }
    }
}

impl From<KernelError> for Failure {
    fn from(e: KernelError) -> Self {
        match e {
            KernelError::Store(e) => e.into(),
            e => ApiError::from(e).into(),
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let failure = Self::new(exit_of(error.code.http()), error.detail.clone());
        match error.retry_after_s() {
            Some(s) if error.code != Code::QueueFull => failure.fix(format!("try again in {s} s")),
            _ => failure,
        }
    }
}

impl From<AppError> for Failure {
    fn from(e: AppError) -> Self {
        match e {
            AppError::Listen { at, source } => listen_failure(at, &source),
            AppError::Kernel(e) => e.into(),
            AppError::ApiError(e) => e.into(),
            AppError::Store(e) => e.into(),
            other => Self::new(Exit::Failure, other.to_string()),
        }
    }
}

/// The failure of a server that cannot listen on its address.
fn listen_failure(at: std::net::SocketAddr, source: &io::Error) -> Failure {
    let port = at.port();
    match source.kind() {
        io::ErrorKind::AddrInUse => Failure::new(
            Exit::Unavailable,
            format!("port {port} is busy: another program listens on {at}"),
        )
        .fix("stop that program, or choose another port: --port N (--port 0 takes a free one), or `bind` in [server]"),
        io::ErrorKind::PermissionDenied => {
            Failure::new(Exit::Failure, format!("port {port} needs more rights: {source}"))
                .fix("choose a port from 1024 on with --port N, or `bind` in [server]")
        }
        io::ErrorKind::AddrNotAvailable => {
            Failure::new(Exit::Usage, format!("{} is no address of this machine: {source}", at.ip()))
                .fix("choose one of its addresses with --bind, or `bind` in [server]: 127.0.0.1, or 0.0.0.0 for all")
        }
        _ => Failure::new(Exit::Failure, format!("cannot listen on {at}: {source}"))
            .fix("choose another address with --bind, or another port with --port N (--port 0 takes a free one)"),
    }
}

/// The exit code for an HTTP status.
#[must_use]
pub fn exit_of(status: u16) -> Exit {
    match status {
        401 | 403 => Exit::Auth,
        404 => Exit::NotFound,
        429 | 502 | 503 | 504 => Exit::Unavailable,
        400 | 405 | 413 | 415 => Exit::Usage,
        _ => Exit::Failure,
    }
}
