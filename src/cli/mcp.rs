//! `annie mcp`: the MCP servers whose tools are skills, and Annie as an MCP server.

mod import;
mod serve;

use serde_json::Value;

use super::{
    args::Mcp,
    failure::Failure,
    listing::{Listing, plain},
    site::Site,
    tables::fitted,
};

pub(super) const LIST: Listing = Listing {
    command: "mcp list",
    rows: "servers",
    columns: &[
        ("server", "name"),
        ("by", "transport"),
        ("state", "state"),
        ("protocol", "protocol"),
        ("tools", "tools"),
        ("last error", "error"),
    ],
};

/// `annie mcp`
///
/// # Errors
/// If no server runs, a file cannot be imported, or stdout is closed.
pub async fn run(site: &Site, command: Mcp) -> Result<(), Failure> {
    match command {
        Mcp::List { tools } => list(site, tools).await,
        Mcp::Serve => serve::run(site).await,
        Mcp::Import { file } => import::run(site, &file),
    }
}

async fn list(site: &Site, with_tools: bool) -> Result<(), Failure> {
    let answer = site.running().await?.get(LIST.path()).await?;
    if !with_tools || site.console.is_json() {
        return LIST.print_with(site, &answer, "no MCP server is configured: see [[mcp]] in the sample", |row, key| {
            (key == "tools").then(|| count_of(row))
        });
    }
    let servers = answer["servers"].as_array().into_iter().flatten();
    let tools = servers.flat_map(|server| server["tools"].as_array().into_iter().flatten());
    let keys = ["skill", "tool", "state", "effect", "hash", "reason"];
    let rows = tools.map(|tool| keys.map(|key| plain(&tool[key])).to_vec()).collect();
    site.console.line(&fitted(site.console.columns(), &keys, rows))
}

/// How many tools of a server are skills, and how many are not.
fn count_of(server: &Value) -> String {
    let tools: Vec<&Value> = server["tools"].as_array().into_iter().flatten().collect();
    let listed = tools.iter().filter(|tool| tool["state"] == "listed").count();
    match tools.len() - listed {
        0 => listed.to_string(),
        others => format!("{listed} ({others} not used)"),
    }
}
