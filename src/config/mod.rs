//! The configuration, merged from `annie.toml`, the environment and command-line flags. No other module reads the environment.
//!
//! Order of the layers, later ones win: defaults, `/etc/annie/annie.toml`, the user's own file, `--config FILE`,
//! `ANNIE__SECTION__KEY`, flags. An unknown key in any layer prevents the start; the error has the location and the most
//! similar known key.

mod approval;
mod backend;
mod cache;
mod channels;
mod convenience;
mod egress;
mod environment;
mod error;
mod error_router;
mod files;
mod guard;
mod hooks;
mod layers;
mod loop_guard;
mod mcp;
mod memory;
mod routing;
mod sample;
mod sandbox;
mod secrets;
mod server;
mod settings;
mod show;
mod store;
mod sub_agent;
mod telemetry;
mod typed;
mod values;
mod web_search;

pub use approval::{ApprovalRuleConfig, ApprovalSettings};
pub use backend::{BackendConfig, ClientConfig, Kind, Pool};
pub(crate) use backend::{is_in_own_network, read_key};
pub use channels::{ChannelConfig, ChannelError, ChannelKind};
pub use convenience::idle_keys;
pub(crate) use convenience::service_of;
pub use egress::EgressSettings;
pub use environment::Environment;
pub use error::{ConfigError, Location};
pub use files::{FileAccess, FileFolderConfig, FileSettings};
pub use hooks::{HookConfig, HookKind};
pub use layers::{Flag, Loaded, Sources};
pub use loop_guard::{LoopGuardPreset, LoopGuardSettings};
pub use mcp::McpServerConfig;
pub use memory::MemorySettings;
pub use routing::{OFFLINE, Routing};
pub use sample::{SAMPLE, write_sample};
pub use sandbox::{SandboxSettings, ShellSettings, SkillSettings};
pub use secrets::SecretSettings;
pub use server::{AdminBind, Server};
pub use settings::{Client, Config, Data, Limits, Log, LogFormat, Metrics, Person};
pub use show::{Line, lines};
pub use store::{StoreSettings, Synchronous};
pub use sub_agent::SubAgent;
pub(crate) use values::is_log_level;
pub use web_search::WebSearchSettings;

#[cfg(test)]
mod tests;
