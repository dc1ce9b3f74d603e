//! The soak test as a program: minutes of load while actors and the process are killed. Prints a table, then the same as JSON on
//! one line. Exits with 1 if a message or effect was lost, doubled, reordered, repeated or visible to another user.
//!
//! `cargo bench --bench soak` takes ten minutes on SQLite; `-- --postgres` uses PostgreSQL, `-- --small-disk` a disk that is
//! filled from time to time, `-- --seconds 60 --actors 100 --processes 3 --seed 7` sets another length.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    dead_code,
    reason = "a benchmark prints its results, and an error ends it"
)]

use std::{process::ExitCode, time::Duration};

#[path = "../tests/soak/mod.rs"]
mod soak;

use soak::{Plan, faults};

fn plan() -> Plan {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |name: &str| arguments.iter().any(|a| a == name);
    let number = |name: &str| -> Option<u64> {
        let at = arguments.iter().position(|a| a == name)?;
        Some(arguments.get(at + 1)?.parse().unwrap_or_else(|_| panic!("{name} needs a number")))
    };
    let postgres = has("--postgres");
    let count = |name: &str, default: u64| u32::try_from(number(name).unwrap_or(default)).expect("a smaller number");
    let (of_postgres, of_disk) = (u64::from(postgres), u64::from(has("--small-disk")));
    Plan {
        program: env!("CARGO_BIN_EXE_annie"),
        postgres,
        small_disk: has("--small-disk"),
        clients: count("--clients", 8) as usize,
        users: 4,
        // A random seed unless one is given; the report contains the seed.
        seed: number("--seed").unwrap_or_else(rand::random),
        time: Duration::from_secs(number("--seconds").unwrap_or(600)),
        faults: faults([
            ("actor kill", count("--actors", 1_000)),
            ("process kill", count("--processes", 20)),
            ("process kill --point start", count("--starts", 5)),
            ("process freeze", count("--freezes", 10)),
            ("process takeover", count("--takeovers", 5 * of_postgres)),
            ("database freeze", count("--database-freezes", 5 * of_postgres)),
            ("database kill", count("--databases", 10 * of_postgres)),
            ("database cut", count("--cuts", 30 * of_postgres)),
            ("database full", count("--full", 10 * of_disk)),
        ]),
    }
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let Some(report) = runtime.block_on(soak::run(&plan())) else { return ExitCode::from(2) };
    println!("{}\n{}", report.table(), report.json());
    for violation in report.violations.iter().take(20) {
        println!("WRONG: {violation}");
    }
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
