//! The front ends over the kernel: HTTP with OpenAPI, the OpenAI-compatible surface and gRPC, with keys, limits and errors.

pub mod api;
pub mod auth;
pub mod error;
pub mod folder;
pub mod grpc;
pub mod http;
pub mod mcp;
pub mod ops;
pub mod system;
pub mod telemetry;
