//! Annie: the doors and the wiring.

pub mod auth;
pub mod boot;
pub mod chaos;
pub mod cli;
pub mod config;
pub mod door;
pub mod error;
pub mod grpc;
pub mod http;
mod probe;
pub mod system;
pub mod telemetry;
