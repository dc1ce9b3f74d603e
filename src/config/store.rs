//! `[store]`: the database and its options.

use std::path::PathBuf;

use annie_actors::LeaseLimits;
use annie_llm::Secret;
use annie_store::{Durability, PostgresAddress, PostgresOptions, SqliteOptions};
use serde::{Deserialize, Serialize};

use super::{
    backend::read_key,
    environment::Environment,
    error::{ConfigError, Location},
    typed::KeyError,
};

/// The fix for an invalid address.
const ADDRESS_FIX: &str = "write it as postgres://user:password@host:5432/database?sslmode=require; what is special in a \
                           password is written as %40 and the like";

/// The durability of an acknowledged message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// It survives a power failure.
    #[default]
    Full,
    /// It survives a crash of the process; a power failure may lose the last messages.
    Normal,
}

/// `[store]`. With the address of a PostgreSQL database all data is stored there; without one, in SQLite in the data folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// The address of a PostgreSQL database. Treated as a secret, since it may contain a password.
    pub url: Option<Secret>,
    /// A file that contains the address.
    pub url_file: Option<PathBuf>,
    /// The environment variable that contains the address.
    pub url_env: Option<String>,
    /// PostgreSQL: the maximum number of connections of this process.
    pub connections_max: u32,
    /// PostgreSQL: the maximum wait for a connection, in milliseconds.
    pub connect_ms_max: u64,
    /// PostgreSQL: the maximum duration of a statement, in milliseconds.
    pub statement_ms_max: u64,
    /// PostgreSQL: the lease of this node, in milliseconds. If it is not renewed in this time, the other nodes take over the
    /// node's conversations.
    pub node_lease_ms: u64,
    /// PostgreSQL: the interval of lease renewals, in milliseconds; at most a third of `node_lease_ms`.
    pub node_renew_ms: u64,
    /// SQLite: the durability of an acknowledged message.
    pub synchronous: Synchronous,
    /// SQLite: the maximum wait for another connection's lock on the database, in milliseconds.
    pub busy_timeout_ms: u64,
    /// SQLite: the number of read-only connections.
    pub readers_max: u32,
    /// SQLite: the maximum size of the database, in bytes; absent means that only the disk limits it.
    pub database_bytes_max: Option<u64>,
}

impl Default for StoreSettings {
    fn default() -> Self {
        let SqliteOptions { durability, busy_timeout_ms, readers_max, database_bytes_max } = SqliteOptions::default();
        let synchronous = match durability {
            Durability::Full => Synchronous::Full,
            Durability::Normal => Synchronous::Normal,
        };
        let LeaseLimits { lease_ms: node_lease_ms, renew_ms: node_renew_ms } = LeaseLimits::default();
        let PostgresOptions { connections_max, connect_ms_max, statement_ms_max } = PostgresOptions::default();
        Self {
            url: None,
            url_file: None,
            url_env: None,
            connections_max,
            connect_ms_max,
            statement_ms_max,
            node_lease_ms,
            node_renew_ms,
            synchronous,
            busy_timeout_ms,
            readers_max,
            database_bytes_max,
        }
    }
}

/// A smaller database could not hold its own tables, in bytes.
const DATABASE_BYTES_MIN: u64 = 256 * 1024;

/// A shorter lease would expire in any pause, in milliseconds.
const LEASE_MS_MIN: u64 = 1_000;
/// Each renewal is a statement, so it must not be more frequent, in milliseconds.
const RENEW_MS_MIN: u64 = 100;

impl StoreSettings {
    /// The options of the SQLite store.
    #[must_use]
    pub const fn sqlite(&self) -> SqliteOptions {
        let durability = match self.synchronous {
            Synchronous::Full => Durability::Full,
            Synchronous::Normal => Durability::Normal,
        };
        SqliteOptions {
            durability,
            busy_timeout_ms: self.busy_timeout_ms,
            readers_max: self.readers_max,
            database_bytes_max: self.database_bytes_max,
        }
    }

    /// The options of the PostgreSQL store.
    #[must_use]
    pub const fn postgres(&self) -> PostgresOptions {
        PostgresOptions {
            connections_max: self.connections_max,
            connect_ms_max: self.connect_ms_max,
            statement_ms_max: self.statement_ms_max,
        }
    }

    /// The lease of this node, for the kernel.
    #[must_use]
    pub const fn lease(&self) -> LeaseLimits {
        LeaseLimits { lease_ms: self.node_lease_ms, renew_ms: self.node_renew_ms }
    }

    /// The address of the PostgreSQL database; absent means SQLite.
    ///
    /// # Errors
    /// If the address cannot be read or is not valid.
    pub fn address(&self, environment: &Environment) -> Result<Option<PostgresAddress>, ConfigError> {
        let (location, url) = if let Some(path) = &self.url_file {
            (Location::file(path), read_key(path, "store.url_file")?)
        } else if let Some(name) = &self.url_env {
            let location = Location::Environment(name.clone());
            let Some(url) = environment.get(name).map(str::trim).filter(|url| !url.is_empty()) else {
                let what = "store.url_env reads the database's address from here, and it is not set or empty";
                return Err(ConfigError::new(location, what, format!("set {name}, or use url_file")));
            };
            (location, Secret::new(url))
        } else if let Some(url) = &self.url {
            (Location::Default, url.clone())
        } else {
            return Ok(None);
        };
        let parsed = url.expose().parse::<PostgresAddress>();
        parsed.map(Some).map_err(|e| ConfigError::new(location, format!("the database's address: {e}"), ADDRESS_FIX))
    }

    /// Checks that types cannot express.
    pub(super) fn check(&self) -> Result<(), KeyError> {
        let given = [self.url.is_some(), self.url_file.is_some(), self.url_env.is_some()];
        if given.into_iter().filter(|given| *given).count() > 1 {
            let fix = "keep one of url, url_file and url_env";
            return Err(KeyError::value(&["store", "url"], "the address is given more than once", fix));
        }
        // `values` reports an empty address, with its fix.
        let written = self.url.as_ref().filter(|url| !url.expose().trim().is_empty());
        if let Some(Err(e)) = written.map(|url| url.expose().parse::<PostgresAddress>()) {
            return Err(KeyError::value(&["store", "url"], &e.to_string(), ADDRESS_FIX));
        }
        let at_least = [
            ("readers_max", u64::from(self.readers_max), 1),
            ("database_bytes_max", self.database_bytes_max.unwrap_or(u64::MAX), DATABASE_BYTES_MIN),
            // One connection writes, one reads, and one listens.
            ("connections_max", u64::from(self.connections_max), 3),
            ("connect_ms_max", self.connect_ms_max, 1),
            ("statement_ms_max", self.statement_ms_max, 1),
            ("node_lease_ms", self.node_lease_ms, LEASE_MS_MIN),
            ("node_renew_ms", self.node_renew_ms, RENEW_MS_MIN),
        ];
        if self.node_renew_ms >= RENEW_MS_MIN && self.node_renew_ms.saturating_mul(3) > self.node_lease_ms {
            let what = format!("it is {}, and the lease lasts {} ms", self.node_renew_ms, self.node_lease_ms);
            let fix = "give a third of `store.node_lease_ms` or less, so that one lost renewal does no harm";
            return Err(KeyError::value(&["store", "node_renew_ms"], &what, fix));
        }
        match at_least.into_iter().find(|(_, value, least)| value < least) {
            Some((key, value, least)) => {
                let (what, fix) = (format!("it is {value}"), format!("give at least {least}"));
                Err(KeyError::value(&["store", key], &what, &fix))
            }
            None => Ok(()),
        }
    }
}
