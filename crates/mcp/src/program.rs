//! The program of a server that is reached over its pipes.

use std::ffi::OsString;

use annie_process::{Launch, Pipes, Running, spawn};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{McpError, McpProgram};

/// How many bytes from the end of stderr are kept for the error.
const STDERR_BYTES_MAX: usize = 1024;
const READ_BYTES: usize = 4 * 1024;

/// Starts a program with these variables in addition to the configured ones. It gets no other environment. Dropping it kills it
/// with all its processes.
pub(crate) fn start(config: &McpProgram, secrets: &[(String, String)]) -> Result<(Running, Pipes), McpError> {
    let launch = Launch {
        program: config.program.clone(),
        args: config.args.iter().map(OsString::from).collect(),
        environment: config.env.iter().chain(secrets).cloned().collect(),
        folder: config.folder.clone(),
        limits: config.limits,
        shim: config.shim.clone(),
        ..Launch::default()
    };
    spawn(&launch).map_err(|why| McpError::Start(format!("{}: {why}", config.program.display())))
}

/// Reads stderr to its end. `tail` is the last part of it.
pub(crate) async fn read_stderr(mut stderr: impl AsyncRead + Unpin, tail: &mut Vec<u8>) {
    let mut piece = vec![0; READ_BYTES];
    while let Ok(bytes @ 1..) = stderr.read(&mut piece).await {
        tail.extend_from_slice(piece.get(..bytes).unwrap_or_default());
        let more = tail.len().saturating_sub(STDERR_BYTES_MAX);
        tail.drain(..more);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf, time::Duration};

    use annie_process::ProcessLimits;

    use super::*;

    #[tokio::test]
    async fn program_that_is_dropped_ends_with_all_processes_of_its_group() {
        let config = McpProgram {
            program: PathBuf::from("/bin/sh"),
            args: ["-c", "sleep 600 & echo started; wait"].map(str::to_owned).into(),
            folder: PathBuf::from("/"),
            env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            secret_env: BTreeMap::new(),
            limits: ProcessLimits::default(),
            shim: None,
        };
        let (program, mut pipes) = start(&config, &[]).unwrap();
        let mut started = [0; 8];
        pipes.stdout.read_exact(&mut started).await.unwrap();
        assert_eq!(&started, b"started\n");
        drop(program);
        // The process in the background holds the pipe as long as it runs.
        let mut rest = Vec::new();
        let end = tokio::time::timeout(Duration::from_secs(20), pipes.stdout.read_to_end(&mut rest)).await;
        assert_eq!(end.expect("all processes have ended").unwrap(), 0);
    }
}
