//! The settings of one server, as the program that embeds this package gives them.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use annie_core::{ports::Egress, skill::Effect};
use annie_process::ProcessLimits;
use serde::{Deserialize, Serialize};

/// The protocol revision that a server is addressed with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProtocolChoice {
    /// The newest revision, or the one before if the server does not know the newest.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// Only the revision without a session. The server is asked for its capabilities (`server/discover`).
    #[serde(rename = "2026-07-28")]
    Modern,
    /// Only the revision with a session, which `initialize` begins.
    #[serde(rename = "2025-11-25")]
    Legacy,
}

/// One server.
#[derive(Clone)]
pub struct McpConfig {
    /// The name, which is a part of the names of its skills: 1 to 20 lower-case letters, digits and underscores, the first of
    /// which is a letter.
    pub name: String,
    /// How the server is reached.
    pub transport: McpTransport,
    /// The protocol revision.
    pub protocol: ProtocolChoice,
    /// Time limit of one request, in milliseconds.
    pub timeout_ms: u64,
    /// Size limit of one message of the server, in bytes. A larger one ends the connection.
    pub message_bytes_max: usize,
    /// The time between two lists of the tools, in milliseconds. A server that announces changes is asked at once in addition.
    pub refresh_ms: u64,
    /// Whether a tool that the server calls read-only is a skill that only reads. Without trust it may run once, like all
    /// tools whose effect the operator has not set.
    pub trust_annotations: bool,
    /// The effects of tools, by the server's name of the tool. They precede what the server says.
    pub effects: BTreeMap<String, Effect>,
    /// Whether the tools reach other machines, so that no private turn runs them.
    pub external: bool,
    /// The hashes of the definitions that the operator approved, by the server's name of the tool. A tool with another
    /// definition is withheld.
    pub pins: BTreeMap<String, String>,
}

impl fmt::Debug for McpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How a server is reached.
#[derive(Clone)]
pub enum McpTransport {
    /// A program of this machine that reads stdin and writes stdout.
    Stdio(McpProgram),
    /// A service that is reached by HTTP (streamable HTTP).
    Http(McpEndpoint),
}

/// A program.
#[derive(Clone)]
pub struct McpProgram {
    /// The program's absolute path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// The working directory, an absolute path.
    pub folder: PathBuf,
    /// The environment, except for the secrets. The program gets no other variables.
    pub env: Vec<(String, String)>,
    /// Variables whose values are stored secrets of the installation, by the name of the variable.
    pub secret_env: BTreeMap<String, String>,
    /// Limits that the shim sets.
    pub limits: ProcessLimits,
    /// The program that sets the limits, which is `annie` itself. Without it the operating system limits nothing.
    pub shim: Option<PathBuf>,
}

/// A service.
#[derive(Clone)]
pub struct McpEndpoint {
    /// The URL.
    pub url: String,
    /// The client. Its rules allow the address of the URL, and add the server's credential.
    pub egress: Arc<dyn Egress>,
}
