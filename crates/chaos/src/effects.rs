//! Counts effects that must happen once: one line per effect, appended to a file. The file is outside of everything that faults
//! kill, so it records what really happened.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

/// The name of the file in a data folder.
const FILE: &str = "chaos-effects.log";

/// The effect log of one data folder.
pub struct EffectLog {
    file: PathBuf,
}

/// The effects of a run according to the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// How often each marker took effect.
    pub by_marker: BTreeMap<String, u64>,
}

impl Effects {
    /// The number of all effects.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_marker.values().sum()
    }

    /// The markers that took effect more than once.
    #[must_use]
    pub fn repeated(&self) -> Vec<&str> {
        self.by_marker.iter().filter(|(_, n)| **n > 1).map(|(marker, _)| marker.as_str()).collect()
    }
}

impl EffectLog {
    /// The effect log of a data folder.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self { file: folder.join(FILE) }
    }

    /// Records one effect.
    ///
    /// # Errors
    /// If the file cannot be written; then the effect counts as not having happened.
    pub fn happen(&self, marker: &str, intent: &str) -> io::Result<()> {
        let line = format!("{marker} {intent}\n");
        // A single write of a short line to a file in append mode is never interleaved with another write.
        File::options().create(true).append(true).open(&self.file)?.write_all(line.as_bytes())
    }

    /// The effects of markers with this prefix.
    ///
    /// # Errors
    /// If the file cannot be read. A missing file counts as empty.
    pub fn read(&self, prefix: &str) -> io::Result<Effects> {
        let file = match File::open(&self.file) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Effects::default()),
            Err(e) => return Err(e),
        };
        let mut effects = Effects::default();
        for line in BufReader::new(file).lines() {
            let line = line?;
            let marker = line.split_once(' ').map_or(line.as_str(), |(marker, _)| marker);
            if marker.starts_with(prefix) {
                *effects.by_marker.entry(marker.to_owned()).or_default() += 1;
            }
        }
        Ok(effects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effect_log_counts_repeated_effects() {
        let folder = tempfile::tempdir().unwrap();
        let log = EffectLog::in_folder(folder.path());
        assert_eq!(log.read("").unwrap().total(), 0);
        for (marker, intent) in [("a-1", "i1"), ("a-2", "i2"), ("a-2", "i2"), ("b-1", "i3")] {
            log.happen(marker, intent).unwrap();
        }
        let of_a = log.read("a-").unwrap();
        assert_eq!((of_a.total(), of_a.repeated()), (3, vec!["a-2"]));
    }
}
