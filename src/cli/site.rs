//! The context of a command: a running server, or the data folder in this process.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use annie_core::{
    ids::{ConversationId, UserId},
    ports::Storage,
};
use annie_llm::Secret;
use serde::{Deserialize, Serialize};

use super::{
    args::Named,
    client::Client,
    console::Console,
    failure::{Exit, Failure},
};
use crate::{
    boot,
    config::{Loaded, Location},
    system,
};

/// The file in a data folder with the address of its server.
const ADDRESS_FILE: &str = "server.json";
/// The longest such file, in bytes.
const ADDRESS_BYTES_MAX: u64 = 4_096;

/// The context of every command.
pub struct Site {
    /// The configuration.
    pub loaded: Loaded,
    /// The output.
    pub console: Console,
    /// The data folder.
    pub folder: PathBuf,
}

/// The address of a running server, as stored in its data folder and in `--ready-file`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The URL for this machine.
    pub url: String,
    /// Process id of the server.
    pub pid: u32,
    /// The URL of the admin plane, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_url: Option<String>,
}

impl Address {
    /// The address of this process, which listens on `at`.
    #[must_use]
    pub fn of(at: SocketAddr) -> Self {
        // A server that listens on all addresses is reached on loopback.
        let ip = match at.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        Self { url: format!("http://{}", SocketAddr::new(ip, at.port())), pid: std::process::id(), admin_url: None }
    }

    /// The same address with that of the admin plane.
    #[must_use]
    pub fn with_admin(self, at: Option<SocketAddr>) -> Self {
        Self { admin_url: at.map(|at| Self::of(at).url), ..self }
    }

    /// Writes the address atomically into a file that other users may read, for programs that wait for the server.
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

    /// Writes the address atomically into its data folder, where the command line reads it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_into(&self, folder: &Path) -> Result<(), Failure> {
        let path = Self::file(folder);
        let failed = |e: std::io::Error| Failure::io(&format!("cannot write {}", path.display()), &e);
        system::write_private(&path, &self.text()).map_err(failed)
    }

    fn text(&self) -> String {
        format!("{}\n", serde_json::json!(self))
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

/// Whether there is a process with this number.
fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
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

    /// The server to use, if one runs: the one of `--url` (whether it answers or not), the one of the data folder, the one at
    /// the configured address, or the admin plane of the server of the data folder. If a flag or a variable names the data
    /// folder, the configured address is not tried, because it may belong to another folder.
    ///
    /// # Errors
    /// If the key cannot be read.
    pub async fn server(&self) -> Result<Option<Client>, Failure> {
        let key = self.key()?;
        if let Some(url) = &self.loaded.config.client.url {
            return Client::new(url, key).map(Some);
        }
        let (mut candidates, admin) = match Address::read(&self.folder) {
            // The port of a process that is gone may belong to the server of another folder by now.
            Some(Address { url, admin_url, pid }) => (vec![url], admin_url.filter(|_| is_running(pid))),
            None => (Vec::new(), None),
        };
        let bind = self.loaded.config.server.bind;
        if !self.is_folder_named() && bind.port() != 0 {
            candidates.push(Address::of(bind).url);
        }
        candidates.dedup();
        for url in candidates {
            let client = Client::new(&url, key.clone())?;
            if client.is_there().await {
                return Ok(Some(client));
            }
        }
        let Some(url) = admin else { return Ok(None) };
        let client = Client::new(&url, self.key()?)?;
        if !client.is_there().await {
            return Ok(None);
        }
        self.console
            .say("annie: the server does not answer, its admin plane does; what waits for the server will fail");
        Ok(Some(client))
    }

    /// The running server.
    ///
    /// # Errors
    /// If none runs.
    pub async fn running(&self) -> Result<Client, Failure> {
        if let Some(client) = self.server().await? {
            return Ok(client);
        }
        let folder = self.folder.display();
        let failure = |what: String| Failure::new(Exit::Unavailable, what);
        if self.is_folder_named() && self.loaded.config.server.bind.port() != 0 {
            let url = Address::of(self.loaded.config.server.bind).url;
            if Client::new(&url, None)?.is_there().await {
                let what = if self.folder.is_dir() {
                    format!("no server runs on {folder}; the server at {url} has another data folder")
                } else {
                    format!("there is no folder {folder}; the server at {url} has another data folder")
                };
                return Err(failure(what).fix(format!(
                    "leave out --data or add --url {url} to use that one; `annie serve` starts another"
                )));
            }
        }
        if !self.folder.is_dir() {
            let what = format!("no server runs: there is no folder {folder}");
            return Err(
                failure(what).fix("name the data folder of a running server with --data, or the server with --url")
            );
        }
        let what = format!("no server runs on {folder} or at {}", self.loaded.config.server.bind);
        Err(failure(what).fix("start one with `annie serve`, or name one with --url"))
    }

    /// Whether a flag or a variable names the data folder.
    fn is_folder_named(&self) -> bool {
        matches!(self.loaded.origin(&["data", "folder"]), Location::Flag(_) | Location::Environment(_))
    }

    /// The id of a conversation as people name it. A name of the user's own belongs to the user of the key in use.
    ///
    /// # Errors
    /// If the server refuses to say for whom it acts.
    pub async fn conversation(&self, named: Named) -> Result<ConversationId, Failure> {
        let key = match named {
            Named::Id(id) => return Ok(id),
            Named::Key(key) => key,
        };
        let user = match self.server().await? {
            Some(client) => {
                let own = client.get("/api/v1/keys/self").await?;
                let user = own["user"].as_str().map(UserId::new).transpose();
                user.map_err(|e| Failure::new(Exit::Failure, e.to_string()))?.unwrap_or_else(|| self.user())
            }
            None => self.user(),
        };
        Ok(ConversationId::for_key(&user, &key))
    }

    /// Whether the data folder has a database of its own.
    #[must_use]
    pub fn has_database(&self) -> bool {
        self.folder.join("annie.db").exists()
    }

    /// The store, for commands that need no kernel.
    ///
    /// # Errors
    /// If the store cannot be opened: a server that does not answer may use the data folder, or the database does not exist.
    pub async fn store(&self) -> Result<Arc<dyn Storage>, Failure> {
        let Loaded { config, environment, .. } = &self.loaded;
        Ok(boot::open_store(config, environment, &self.folder).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_a_server_on_all_interfaces_is_loopback() {
        assert_eq!(Address::of(([0, 0, 0, 0], 80).into()).url, "http://127.0.0.1:80");
        assert_eq!(Address::of(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 80)).url, "http://[::1]:80");
        assert_eq!(Address::of(([10, 0, 0, 1], 80).into()).url, "http://10.0.0.1:80");
    }

    #[test]
    fn address_is_read_back_from_its_file() {
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
