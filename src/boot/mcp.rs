//! The MCP servers of the configuration as sources of skills.

use std::sync::Arc;

use annie_core::ports::Secrets;
use annie_mcp::{McpConfig, McpEndpoint, McpProgram, McpSource, McpTransport};
use annie_skillkit::{EgressParts, HttpEgress, SystemLookup};

use super::BootError;
use crate::config::{Config, Environment, McpServerConfig};

/// A source for each server that is switched on. No server is started before its source is followed.
pub(super) fn sources(
    config: &Config,
    environment: &Environment,
    secrets: &Arc<dyn Secrets>,
) -> Result<Vec<Arc<McpSource>>, BootError> {
    let mut sources = Vec::new();
    for server in config.mcp.iter().filter(|server| server.enabled) {
        let Some(transport) = transport(server, environment, secrets)? else { continue };
        let config = McpConfig {
            name: server.name.clone(),
            transport,
            protocol: server.protocol,
            timeout_ms: server.timeout_ms,
            message_bytes_max: server.message_bytes_max,
            refresh_ms: server.refresh_ms,
            trust_annotations: server.trust_annotations,
            effects: server.effects.clone(),
            external: server.external,
            pins: server.pins.clone(),
        };
        sources.push(Arc::new(McpSource::new(config, Some(secrets.clone()))));
    }
    Ok(sources)
}

/// How a server is reached; `None` for one with neither a program nor a URL, which the configuration refuses.
fn transport(
    server: &McpServerConfig,
    environment: &Environment,
    secrets: &Arc<dyn Secrets>,
) -> Result<Option<McpTransport>, BootError> {
    if let (Some(url), Some(rules)) = (&server.url, server.egress_rules()) {
        let (client, lookup) = (annie_llm::http_client, Arc::new(SystemLookup));
        let egress = HttpEgress::new(EgressParts { rules, client, lookup, secrets: Some(secrets.clone()) })?;
        let endpoint = McpEndpoint { url: url.expose().to_owned(), egress: Arc::new(egress) };
        return Ok(Some(McpTransport::Http(endpoint)));
    }
    let Some((program, args)) = server.program() else { return Ok(None) };
    let passed = server.env_pass.iter().filter_map(|name| Some((name.clone(), environment.get(name)?.to_owned())));
    let own = server.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
    Ok(Some(McpTransport::Stdio(McpProgram {
        folder: server.folder_of(&program),
        program,
        args,
        env: passed.chain(own).collect(),
        secret_env: server.env_secrets.clone(),
        limits: server.process,
        shim: Some(std::env::current_exe().map_err(BootError::Shim)?),
    })))
}
