//! The house's integration tests, in one binary: `flow` through the doors, `fault` kills things, `sim` seeds and virtual
//! time, `tidy` the house rules.
// A test says what went wrong by panicking, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod fault;
mod flow;
mod server;
mod sim;
mod soak;
#[path = "soak/checks.rs"]
mod soak_checks;
#[path = "soak/minute.rs"]
mod soak_minute;
mod tidy;
mod world;
