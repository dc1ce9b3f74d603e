//! Log lines on stderr, set up once per process; a second call changes nothing. The level can be changed while the process runs.

use std::{
    io::IsTerminal,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use tracing_subscriber::EnvFilter;

use crate::{
    api::{LogControl, LogLevel},
    config::{Environment, Log, LogFormat, is_log_level},
};

/// The longest level that is accepted, in bytes.
const LEVEL_BYTES_MAX: usize = 500;

type Reload = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// The log of this process, once it is set up.
static LOG: OnceLock<Arc<ProcessLog>> = OnceLock::new();

/// The log of this process.
struct ProcessLog {
    reload: Reload,
    configured: String,
    level: Mutex<String>,
}

impl ProcessLog {
    fn current(&self) -> MutexGuard<'_, String> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogControl for ProcessLog {
    fn level(&self) -> LogLevel {
        LogLevel { level: self.current().clone(), configured: self.configured.clone() }
    }

    fn set(&self, level: &str) -> Result<LogLevel, String> {
        let level = if level.is_empty() { self.configured.as_str() } else { level };
        let unknown = || {
            "it is no log level: use error, warn, info, debug, trace, or levels per module such as \
             info,annie_actors=debug"
                .to_owned()
        };
        if level.len() > LEVEL_BYTES_MAX || !is_log_level(level) {
            return Err(unknown());
        }
        let filter = EnvFilter::try_new(level).map_err(|_| unknown())?;
        let mut current = self.current();
        (self.reload)(filter)?;
        level.clone_into(&mut current);
        drop(current);
        Ok(self.level())
    }
}

/// Starts logging. The configuration check has verified that the level is valid.
pub fn log(settings: &Log, environment: &Environment) {
    let filter = EnvFilter::try_new(&settings.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Without this, a failed write to stderr (for example because of a full disk) is itself reported on stderr, and that panics
    // in the code that logs.
    let lines = lines.log_internal_errors(false);
    let (is_set_up, reload): (bool, Reload) = match settings.format {
        LogFormat::Text => {
            let is_coloured = std::io::stderr().is_terminal() && !environment.no_color();
            let lines = lines.with_ansi(is_coloured).with_filter_reloading();
            let handle = lines.reload_handle();
            (lines.try_init().is_ok(), Box::new(move |filter| handle.reload(filter).map_err(|e| e.to_string())))
        }
        LogFormat::Json => {
            let lines = lines.json().with_filter_reloading();
            let handle = lines.reload_handle();
            (lines.try_init().is_ok(), Box::new(move |filter| handle.reload(filter).map_err(|e| e.to_string())))
        }
    };
    // It fails only if logging was set up before; then the existing setup stays.
    if is_set_up {
        let (configured, level) = (settings.level.clone(), Mutex::new(settings.level.clone()));
        let _ = LOG.set(Arc::new(ProcessLog { reload, configured, level }));
    }
}

/// The log of this process, if this module has set it up.
pub fn control() -> Option<Arc<dyn LogControl>> {
    LOG.get().map(|log| log.clone() as Arc<dyn LogControl>)
}
