//! Where a command works: a server that runs, or the data folder in this process.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use annie_core::{ids::UserId, ports::Store};
use annie_llm::Secret;
use serde::{Deserialize, Serialize};

use super::{
    client::Client,
    console::Console,
    failure::{Exit, Failure},
};
use crate::{
    boot,
    config::{Loaded, Place},
    system,
};

/// The file in a data folder that tells where its server listens.
const ADDRESS_FILE: &str = "server.json";
/// The longest such file, in bytes.
const ADDRESS_BYTES_MAX: u64 = 4_096;

/// What every command is given.
pub struct Site {
    /// The configuration.
    pub loaded: Loaded,
    /// Where to say things.
    pub console: Console,
    /// The data folder.
    pub folder: PathBuf,
}

/// Where a running server listens, as its data folder and `--ready-file` tell it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The URL for this machine.
    pub url: String,
    /// Its process.
    pub pid: u32,
}

impl Address {
    /// Of this process, listening there.
    #[must_use]
    pub fn of(at: SocketAddr) -> Self {
        // Who listens everywhere is reached on loopback.
        let ip = match at.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        Self { url: format!("http://{}", SocketAddr::new(ip, at.port())), pid: std::process::id() }
    }

    /// Writes it, whole or not at all, into a file that others may read: the operator names it for whoever waits.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::io(&format!("cannot write {}", path.display()), &e);
        let draft = path.with_extension("tmp");
        let mut file = std::fs::File::create(&draft).map_err(failed)?;
        file.write_all(self.text().as_bytes()).map_err(failed)?;
        std::fs::rename(&draft, path).map_err(failed)
    }

    /// Writes it into its data folder, where the command line looks for it, whole or not at all.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_into(&self, folder: &Path) -> Result<(), Failure> {
        let path = Self::file(folder);
        let failed = |e: std::io::Error| Failure::io(&format!("cannot write {}", path.display()), &e);
        system::write_private(&path, &self.text()).map_err(failed)
    }

    fn text(&self) -> String {
        format!("{{\"url\":\"{}\",\"pid\":{}}}\n", self.url, self.pid)
    }

    /// The file in a data folder.
    #[must_use]
    pub fn file(folder: &Path) -> PathBuf {
        folder.join(ADDRESS_FILE)
    }

    fn read(folder: &Path) -> Option<Self> {
        use std::io::Read;
        let mut text = String::new();
        std::fs::File::open(Self::file(folder)).ok()?.take(ADDRESS_BYTES_MAX).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }
}

impl Site {
    /// The user of the command line.
    #[must_use]
    pub fn user(&self) -> UserId {
        self.loaded.config.server.user.clone()
    }

    fn key(&self) -> Result<Option<Secret>, Failure> {
        let client = &self.loaded.config.client;
        match &client.key_file {
            Some(path) => Ok(Some(crate::config::read_key(path, "client.key_file")?)),
            None => Ok(client.key.clone()),
        }
    }

    /// The server to talk to, if one runs: the one that was named (whether it answers or not), the one of the data
    /// folder, or the one at the configured address. A data folder that was named by a flag or a variable is meant:
    /// a server of another one is not asked.
    ///
    /// # Errors
    /// If the key cannot be read.
    pub async fn server(&self) -> Result<Option<Client>, Failure> {
        let key = self.key()?;
        if let Some(url) = &self.loaded.config.client.url {
            return Client::new(url, key).map(Some);
        }
        let mut candidates: Vec<String> = Address::read(&self.folder).map(|a| a.url).into_iter().collect();
        let is_named = matches!(self.loaded.origin(&["data", "folder"]), Place::Flag(_) | Place::Environment(_));
        let bind = self.loaded.config.server.bind;
        if !is_named && bind.port() != 0 {
            candidates.push(Address::of(bind).url);
        }
        candidates.dedup();
        for url in candidates {
            let client = Client::new(&url, key.clone())?;
            if client.is_there().await {
                return Ok(Some(client));
            }
        }
        Ok(None)
    }

    /// The server, which must run.
    ///
    /// # Errors
    /// If none does.
    pub async fn running(&self) -> Result<Client, Failure> {
        self.server().await?.ok_or_else(|| {
            let what = format!("no server runs on {} or at {}", self.folder.display(), self.loaded.config.server.bind);
            Failure::new(Exit::Unavailable, what).fix("start one with `annie serve`, or name one with --url")
        })
    }

    /// Whether the data folder has a database of its own.
    #[must_use]
    pub fn has_database(&self) -> bool {
        self.folder.join("annie.db").exists()
    }

    /// The store, for commands that need no kernel.
    ///
    /// # Errors
    /// If it cannot be opened: a server that does not answer may use the data folder, or the database is not there.
    pub async fn store(&self) -> Result<Arc<dyn Store>, Failure> {
        let Loaded { config, environment, .. } = &self.loaded;
        Ok(boot::open_store(config, environment, &self.folder).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_everywhere_is_reached_on_loopback() {
        assert_eq!(Address::of(([0, 0, 0, 0], 80).into()).url, "http://127.0.0.1:80");
        assert_eq!(Address::of(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 80)).url, "http://[::1]:80");
        assert_eq!(Address::of(([10, 0, 0, 1], 80).into()).url, "http://10.0.0.1:80");
    }

    #[test]
    fn an_address_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Address::read(folder.path()), None);
        let address = Address::of(([127, 0, 0, 1], 7).into());
        std::fs::write(Address::file(folder.path()), "of an earlier version").unwrap();
        address.write_into(folder.path()).unwrap();
        let mode = std::fs::metadata(Address::file(folder.path())).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
        assert_eq!(Address::read(folder.path()), Some(address));
    }
}
