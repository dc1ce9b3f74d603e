//! What operators see of a server.

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// The process does not follow the server, such as before its start.
    Idle,
    /// The connection is being made.
    Connecting,
    /// Tools can be called.
    Connected,
    /// The last attempt failed, and the next one follows after a pause.
    Waiting,
}

impl ServerState {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Waiting => "waiting",
        }
    }
}

/// Whether a tool is a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolState {
    /// The tool is a skill.
    Listed,
    /// Its definition is not the approved one.
    Withheld,
    /// It cannot be called.
    LeftOut,
}

impl ToolState {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Withheld => "withheld",
            Self::LeftOut => "left_out",
        }
    }
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerView {
    /// Its name in the configuration.
    pub name: String,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// The state of the connection.
    pub state: ServerState,
    /// The protocol revision of the present or the last connection; empty before the first.
    pub protocol: String,
    /// What the server calls itself; untrusted, limited.
    pub server: String,
    /// Why the last connection failed or ended; empty if the present one is the first.
    pub error: String,
    /// How many connections were begun.
    pub connections: u64,
    /// The tools that the server listed last.
    pub tools: Vec<McpToolView>,
}

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpToolView {
    /// The server's name of the tool; untrusted, limited.
    pub tool: String,
    /// The name of its skill.
    pub skill: String,
    /// Whether it is a skill.
    pub state: ToolState,
    /// Why it is none; empty if it is one.
    pub reason: String,
    /// `read`, `idempotent` or `once`.
    pub effect: &'static str,
    /// The hash of its definition, for `pins`.
    pub hash: String,
}
