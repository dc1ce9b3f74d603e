//! The commented configuration that `annie config init` writes. A test compares it with the keys and their defaults.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
};

/// The text.
pub const SAMPLE: &str = include_str!("sample.toml");

/// Writes the sample to a new file that only its owner may read, since keys may be added to it. An existing file is not
/// changed.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn write_sample(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(SAMPLE.as_bytes())
}
