//! The MCP servers whose tools are skills.

use annie_mcp::{McpServerView, McpToolView};
use serde::Serialize;
use utoipa::ToSchema;

use super::row::{Call, Operation, Verb::Get, route};
use crate::{
    auth::{KeyScope::OpsRead, Need::Scope},
    error::ApiError,
    grpc::v1,
};

/// The operations on MCP servers.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/mcp", Scope(OpsRead), list_mcp_servers, McpServers::from)
            .about("list_mcp_servers", "operations", "List the MCP servers with their tools.", "mcp list")
            .rpc("/annie.v1.Skills/ListMcpServers", |_: v1::ListMcpServersRequest| Ok(()), listed),
    ]
}

/// An MCP server of the configuration.
#[derive(Debug, Serialize, ToSchema)]
pub struct McpServer {
    /// Its name in the configuration.
    name: String,
    /// `stdio` or `http`.
    transport: &'static str,
    /// `idle`, `connecting`, `connected` or `waiting`.
    state: &'static str,
    /// The protocol revision of the last connection; empty before the first.
    protocol: String,
    /// The name that the server gives itself.
    server: String,
    /// Why the last connection failed or ended.
    error: String,
    /// How many connections were begun.
    connections: u64,
    /// The tools that the server listed last.
    tools: Vec<McpTool>,
}

/// A tool of an MCP server.
#[derive(Debug, Serialize, ToSchema)]
pub struct McpTool {
    /// The server's name of the tool.
    tool: String,
    /// The name of its skill.
    skill: String,
    /// `listed`, `withheld` or `left_out`.
    state: &'static str,
    /// Why the tool is not a skill.
    reason: String,
    /// The effect of running the skill again: `read`, `idempotent` or `once`.
    effect: &'static str,
    /// The hash of the tool's definition, for `pins`.
    hash: String,
}

/// The MCP servers, in the order of the configuration.
#[derive(Debug, Serialize, ToSchema)]
pub struct McpServers {
    servers: Vec<McpServer>,
}

impl From<McpToolView> for McpTool {
    fn from(view: McpToolView) -> Self {
        let McpToolView { tool, skill, state, reason, effect, hash } = view;
        Self { tool, skill, state: state.as_str(), reason, effect, hash }
    }
}

impl From<McpServerView> for McpServer {
    fn from(view: McpServerView) -> Self {
        let McpServerView { name, transport, state, protocol, server, error, connections, tools } = view;
        let tools = tools.into_iter().map(McpTool::from).collect();
        Self { name, transport, state: state.as_str(), protocol, server, error, connections, tools }
    }
}

impl From<Vec<McpServerView>> for McpServers {
    fn from(views: Vec<McpServerView>) -> Self {
        Self { servers: views.into_iter().map(McpServer::from).collect() }
    }
}

fn tool_message(view: McpToolView) -> v1::McpTool {
    let McpToolView { tool, skill, state, reason, effect, hash } = view;
    v1::McpTool { tool, skill, state: state.as_str().to_owned(), reason, effect: effect.to_owned(), hash }
}

fn server_message(view: McpServerView) -> v1::McpServer {
    let McpServerView { name, transport, state, protocol, server, error, connections, tools } = view;
    v1::McpServer {
        name,
        transport: transport.to_owned(),
        state: state.as_str().to_owned(),
        protocol,
        server,
        error,
        connections,
        tools: tools.into_iter().map(tool_message).collect(),
    }
}

fn listed(views: Vec<McpServerView>) -> v1::ListMcpServersResponse {
    v1::ListMcpServersResponse { servers: views.into_iter().map(server_message).collect() }
}

async fn list_mcp_servers(call: Call, (): ()) -> Result<Vec<McpServerView>, ApiError> {
    Ok(call.state.mcp.iter().map(|server| server.view()).collect())
}
