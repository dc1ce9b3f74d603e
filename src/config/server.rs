//! `[server]`: where the server listens.

use std::net::{Ipv4Addr, SocketAddr};

use annie_core::ids::UserId;
use serde::{Deserialize, Serialize};

/// `[server]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// The address on which the server listens.
    pub bind: SocketAddr,
    /// The user of the command line and of loopback callers without a key.
    pub user: UserId,
    /// Requires a key on loopback addresses too. Other addresses always require one.
    pub require_key: bool,
    /// Where the admin plane listens, which answers while all worker threads are blocked.
    pub admin_bind: AdminBind,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 7420)),
            user: UserId::local(),
            require_key: false,
            admin_bind: AdminBind::default(),
        }
    }
}

/// The address of the admin plane. Port 0 is a free port, which the command line finds in the data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AdminBind {
    /// There is no admin plane.
    Off,
    /// It listens here.
    At(SocketAddr),
}

impl Default for AdminBind {
    fn default() -> Self {
        Self::At(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }
}

impl TryFrom<String> for AdminBind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "off" => Ok(Self::Off),
            other => other.parse().map(Self::At).map_err(|_| {
                format!("`{other}` is neither an address such as 127.0.0.1:7421, with port 0 for a free one, nor `off`")
            }),
        }
    }
}

impl From<AdminBind> for String {
    fn from(bind: AdminBind) -> Self {
        match bind {
            AdminBind::Off => "off".to_owned(),
            AdminBind::At(at) => at.to_string(),
        }
    }
}
