//! Counts what is done once: one line for each effect, appended to a file. It stands outside of everything that is killed, so
//! it shows what happened and not what somebody remembers.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

/// The file in a data folder.
const FILE: &str = "chaos-effects.log";

/// The file of effects of one data folder.
pub struct EffectLog {
    file: PathBuf,
}

/// What a file of effects says of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// How often each marker took effect.
    pub by_marker: BTreeMap<String, u64>,
}

impl Effects {
    /// All effects.
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
    /// The one of a data folder.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self { file: folder.join(FILE) }
    }

    /// An effect takes place.
    ///
    /// # Errors
    /// If the file cannot be written: then it did not.
    pub fn happen(&self, marker: &str, intent: &str) -> io::Result<()> {
        let line = format!("{marker} {intent}\n");
        // One write of a short line to a file that is open for appending is never mixed with another.
        File::options().create(true).append(true).open(&self.file)?.write_all(line.as_bytes())
    }

    /// What happened to markers that begin so.
    ///
    /// # Errors
    /// If the file cannot be read; one that is not there is empty.
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
    fn an_effect_that_happens_twice_is_seen_twice() {
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
