//! The pipe over which the shim reports that the program never began, or which process group it leads. Only the shim and the
//! sandbox, which the shim starts, write to it.
//! An exit code cannot report that the program never began, because a program that had its effect may return any
//! code.

use std::{
    io::{PipeReader, PipeWriter},
    os::fd::{AsFd, AsRawFd},
};

use rustix::{fs::OFlags, process::Pid};

/// Written by the shim if the program never began.
pub const SHIM_NEVER_BEGAN: &str = "N";
/// Written by the shim before the id of the process group that the program leads.
pub const SHIM_GROUP: &str = "G";
/// Length limit for a message of the shim, in bytes.
const WORD_BYTES_MAX: usize = 32;

/// A report of the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShimReport {
    /// No report, or an unreadable one.
    Nothing,
    /// The program never began.
    NeverBegan,
    /// The program leads this group.
    Group(Pid),
}

/// The pipe of one run. The shim opens the writing end through `/proc`, because a started process inherits only its three
/// standard streams.
pub(crate) struct ShimPipe {
    reader: PipeReader,
    /// Kept open so that the shim can open it by its number.
    writer: PipeWriter,
}

impl ShimPipe {
    pub(crate) fn new() -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        Ok(Self { reader, writer })
    }

    /// The descriptor number of the writing end in this process.
    pub(crate) fn descriptor(&self) -> i32 {
        self.writer.as_raw_fd()
    }

    /// Reads the shim's report so far. An unreadable pipe counts as no report.
    pub(crate) fn report(&self) -> ShimReport {
        let mut word = [0_u8; WORD_BYTES_MAX];
        let read = rustix::fs::fcntl_setfl(self.reader.as_fd(), OFlags::NONBLOCK)
            .and_then(|()| rustix::io::read(&self.reader, &mut word));
        let word = word.get(..read.unwrap_or(0)).and_then(|word| std::str::from_utf8(word).ok()).unwrap_or_default();
        // The sandbox reports after the shim, which takes the sandbox for the program.
        if word.ends_with(SHIM_NEVER_BEGAN) {
            return ShimReport::NeverBegan;
        }
        let group = word.strip_prefix(SHIM_GROUP).and_then(|number| number.parse().ok()).and_then(Pid::from_raw);
        group.map_or(ShimReport::Nothing, ShimReport::Group)
    }
}
