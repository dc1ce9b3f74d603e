//! The system's clock and randomness as core's [`Env`]. No other file reads the time or randomness from the system. Also writes
//! files that only their owner may read.

use std::{
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use annie_core::{
    ports::{Clock, Entropy, Env},
    time::Micros,
};

/// The clocks of the operating system.
struct SystemClock {
    started: Instant,
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "all other code receives this clock")]
    fn now(&self) -> Micros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The system's random number generator, which is good enough for secrets.
struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> u64 {
        rand::random()
    }
}

/// The environment of the real system.
#[must_use]
pub fn env() -> Env {
    Env { clock: Arc::new(SystemClock { started: Instant::now() }), entropy: Arc::new(SystemEntropy), faults: None }
}

/// Writes a small file of the data folder atomically, with mode 0600 even if an earlier version created it with wider
/// permissions. Creates a missing folder with mode 0700.
///
/// # Errors
/// If the file cannot be written.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let draft = path.with_extension("tmp");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    // A draft that a crash left behind keeps the mode with which it was created.
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_env_uuids_are_unique_and_version_7() {
        let env = env();
        let (a, b) = (env.uuid(), env.uuid());
        assert_ne!(a, b);
        assert_eq!(a.get_version_num(), 7);
        assert!(env.now() > Micros(1_700_000_000_000_000));
    }
}
