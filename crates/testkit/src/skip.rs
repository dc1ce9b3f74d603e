//! Tests that cannot run on this machine.

use std::{fs::OpenOptions, io::Write};

/// Prints that this test is skipped, and appends the line to the file that the variable `ANNIE_TEST_SKIPS` names: the script
/// that runs all tests counts its lines. The test returns after this, and its runner counts it as passed.
///
/// # Panics
/// If that file cannot be written.
#[allow(clippy::print_stdout, clippy::panic, reason = "a test that is skipped must not be taken for one that passed")]
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let line = format!("SKIPPED: {}: {why}\n", thread.name().unwrap_or("a test"));
    print!("{line}");
    if let Some(file) = std::env::var_os("ANNIE_TEST_SKIPS") {
        let written =
            OpenOptions::new().create(true).append(true).open(file).and_then(|mut f| f.write_all(line.as_bytes()));
        written.unwrap_or_else(|e| panic!("ANNIE_TEST_SKIPS: {e}"));
    }
}
