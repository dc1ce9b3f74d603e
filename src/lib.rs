//! Annie: the doors and the wiring.

pub mod config;
pub mod telemetry;
