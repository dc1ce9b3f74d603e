//! Log lines on stderr, set up once per process; a second call changes nothing.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Environment, Log, LogFormat};

/// Starts logging. The configuration check has verified that the level is valid.
pub fn log(settings: &Log, environment: &Environment) {
    let filter = EnvFilter::try_new(&settings.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Without this, a failed write to stderr (for example because of a full disk) is itself reported on stderr, and that panics
    // in the code that logs.
    let lines = lines.log_internal_errors(false);
    // Fails only if logging was set up before; then the existing setup stays.
    let _ = match settings.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal() && !environment.no_color()).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
}
