//! What the shim tells of a program: that it never began, or which process group it leads. It tells it over a pipe, which only
//! the shim opens. An exit code cannot tell the first, since the program may give any code after it has had its effect.

use std::{
    io::{PipeReader, PipeWriter},
    os::fd::{AsFd, AsRawFd},
};

use rustix::{fs::OFlags, process::Pid};

/// What the shim writes if the program never began.
pub const SHIM_NEVER_BEGAN: &str = "N";
/// What the shim writes before the number of the process group that the program leads.
pub const SHIM_GROUP: &str = "G";
/// The longest word of the shim, in bytes.
const WORD_BYTES_MAX: usize = 32;

/// What the shim said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing, or nothing that can be read.
    Nothing,
    /// The program never began.
    NeverBegan,
    /// The program leads this group.
    Group(Pid),
}

/// The pipe of one run. The shim opens the writing end through `/proc`, because a process that is started inherits no
/// descriptor but its three streams.
pub(super) struct ShimPipe {
    reader: PipeReader,
    /// Stays open so that the shim can open it by its number.
    writer: PipeWriter,
}

impl ShimPipe {
    pub(super) fn new() -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        Ok(Self { reader, writer })
    }

    /// The number of the writing end in this process.
    pub(super) fn descriptor(&self) -> i32 {
        self.writer.as_raw_fd()
    }

    /// What the shim said so far. A pipe that cannot be read says nothing.
    pub(super) fn told(&self) -> Told {
        let mut word = [0_u8; WORD_BYTES_MAX];
        let read = rustix::fs::fcntl_setfl(self.reader.as_fd(), OFlags::NONBLOCK)
            .and_then(|()| rustix::io::read(&self.reader, &mut word));
        let word = word.get(..read.unwrap_or(0)).and_then(|word| std::str::from_utf8(word).ok()).unwrap_or_default();
        if word == SHIM_NEVER_BEGAN {
            return Told::NeverBegan;
        }
        let group = word.strip_prefix(SHIM_GROUP).and_then(|number| number.parse().ok()).and_then(Pid::from_raw);
        group.map_or(Told::Nothing, Told::Group)
    }
}
