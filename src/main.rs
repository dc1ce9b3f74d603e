//! The `annie` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    annie::cli::main(std::env::args_os(), annie::config::Environment::of_process())
}
