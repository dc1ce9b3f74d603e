//! Integration tests in one binary: `flow` uses the front ends, `fault` injects failures, `extend` adds to the kernel, `sim`
//! runs random scenarios by seed in virtual time, `soak` checks runs of many clients under failures, `tidy` checks the
//! repository's own rules.
// Tests and their helpers report a failure by a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod extend;
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
