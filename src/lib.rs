//! Annie: the command line, the configuration and the assembly of the kernel.

pub mod boot;
pub mod cli;
pub mod config;
mod logging;
mod probe;
pub mod secrets;

use annie_api::ops;
pub use annie_api::{api, auth, error, grpc, http, mcp, system, telemetry};
