//! Annie: the front ends (HTTP, gRPC, command line) and the assembly of the kernel.

pub mod api;
pub mod auth;
pub mod boot;
pub mod cli;
pub mod config;
pub mod error;
pub mod grpc;
pub mod http;
mod ops;
mod probe;
pub mod secrets;
pub mod system;
pub mod telemetry;
