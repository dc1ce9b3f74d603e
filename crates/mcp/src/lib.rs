//! Servers of the Model Context Protocol (MCP) as sources of skills (ADR 0038).
//!
//! An [`McpSource`] follows one server of the configuration: it starts the program or opens the HTTP session, agrees on one of
//! two protocol revisions, lists the tools, and connects again when the connection ends. Each tool is a skill `mcp.SERVER.TOOL`.
//! Everything that a server says is untrusted: texts are limited and cleaned, hints about effects are ignored unless the operator
//! trusts them, and a tool whose definition changes is withheld.

mod answer;
mod config;
mod error;
mod handshake;
mod http;
mod link;
mod names;
mod program;
mod reads;
mod rpc;
mod schema;
mod source;
mod stdio;
mod text;
mod tools;
mod view;

pub use config::{McpConfig, McpEndpoint, McpProgram, McpTransport, ProtocolChoice};
pub use error::McpError;
pub use rpc::{REVISION_LEGACY, REVISION_MODERN, is_legacy_revision};
pub use source::McpSource;
pub use view::{McpServerView, McpToolView, ServerState, ToolState};
