//! The configuration: what stands in `annie.toml`, in the environment and in flags, laid over one another. The only place
//! that reads the environment.
//!
//! Order, later wins: defaults, `/etc/annie/annie.toml`, the user's own file, `--config FILE`, `ANNIE__SECTION__KEY`,
//! flags. Every key of every layer is known or the start is refused, with the place and the nearest known key.

mod backend;
mod convenience;
mod environment;
mod error;
mod layers;
mod routing;
mod sample;
mod settings;
mod show;
mod store;
mod typed;
mod values;

pub use backend::{BackendConfig, ClientConfig, Kind, Pool};
pub(crate) use backend::{is_in_own_network, read_key};
pub use convenience::idle_keys;
pub(crate) use convenience::service_of;
pub use environment::Environment;
pub use error::{ConfigError, Place};
pub use layers::{Flag, Loaded, Sources};
pub use routing::{OFFLINE, Routing};
pub use sample::{SAMPLE, write_sample};
pub use settings::{Client, Config, Data, Limits, Log, LogFormat, Metrics, Person, Server, SubAgent};
pub use show::{Line, lines};
pub use store::{StoreSettings, Synchronous};

#[cfg(test)]
mod tests;
