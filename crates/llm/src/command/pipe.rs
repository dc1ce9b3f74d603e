//! How the shim tells that a program never began: over a pipe, which only the shim opens. An exit code cannot tell it, since
//! the program may give any code after it has had its effect.

use std::{
    io::{PipeReader, PipeWriter},
    os::fd::{AsFd, AsRawFd},
};

use rustix::fs::OFlags;

/// The pipe of one run. The shim opens the writing end through `/proc`, because a process that is started inherits no
/// descriptor but its three streams.
pub(super) struct ExecFailurePipe {
    reader: PipeReader,
    /// Stays open so that the shim can open it by its number.
    writer: PipeWriter,
}

impl ExecFailurePipe {
    pub(super) fn new() -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        Ok(Self { reader, writer })
    }

    /// The number of the writing end in this process.
    pub(super) fn descriptor(&self) -> i32 {
        self.writer.as_raw_fd()
    }

    /// Whether the shim, which has ended, said that the program never began. A pipe that cannot be read says nothing.
    pub(super) fn reports_failure(&self) -> bool {
        let mut word = [0_u8; 1];
        rustix::fs::fcntl_setfl(self.reader.as_fd(), OFlags::NONBLOCK).is_ok()
            && matches!(rustix::io::read(&self.reader, &mut word), Ok(1))
    }
}
