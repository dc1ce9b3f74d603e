//! The `annie` program.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// It gives the memory of passivated conversations back to the system, which glibc's allocator does not (ADR 0046).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    annie::cli::main(std::env::args_os(), annie::config::Environment::of_process())
}
