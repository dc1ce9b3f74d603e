//! The real world as core's [`Env`]: this file alone asks the system for the time and for randomness. And files that are
//! their owner's alone.

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

/// The system's clocks.
struct SystemClock {
    started: Instant,
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else is handed")]
    fn now(&self) -> Micros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The system's randomness, good enough for secrets.
struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> u64 {
        rand::random()
    }
}

/// The real world.
#[must_use]
pub fn env() -> Env {
    Env { clock: Arc::new(SystemClock { started: Instant::now() }), entropy: Arc::new(SystemEntropy), faults: None }
}

/// Puts a small file of the data folder in its place, for its owner alone, also where an earlier version made it for all. A
/// folder that is missing is made in the same way.
///
/// # Errors
/// If it cannot be written.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let draft = path.with_extension("tmp");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    // What was left behind by a crash has the mode it was made with.
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_the_real_world_differ_and_know_their_time() {
        let env = env();
        let (a, b) = (env.uuid(), env.uuid());
        assert_ne!(a, b);
        assert_eq!(a.get_version_num(), 7);
        assert!(env.now() > Micros(1_700_000_000_000_000));
    }
}
