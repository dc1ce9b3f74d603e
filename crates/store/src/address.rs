//! The address of a PostgreSQL database with its credentials, and the share of the server that one process uses.

use std::{fmt, str::FromStr};

use sqlx::postgres::PgConnectOptions;

/// The parameters that an address may carry after its question mark.
const PARAMETERS: [&str; 15] = [
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];

/// An address: `postgres://user:password@host:port/database?sslmode=require`. No textual form of this type shows the password.
#[derive(Clone)]
pub struct PostgresAddress(PgConnectOptions);

/// A text that is not an address. The error does not repeat the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(String);

impl PostgresAddress {
    /// The application name that the server's list of connections shows.
    pub const APPLICATION: &'static str = "annie";

    /// The options for the driver.
    pub(crate) fn connect_options(&self) -> PgConnectOptions {
        self.0.clone().application_name(Self::APPLICATION)
    }
}

impl FromStr for PostgresAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |what: &str| AddressError(what.to_owned());
        let Some(rest) = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://")) else {
            return Err(wrong("it does not begin with postgres://"));
        };
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        let names = query.split('&').filter(|part| !part.is_empty()).map(|part| part.split('=').next().unwrap_or(part));
        if names.into_iter().any(|name| !PARAMETERS.contains(&name) && !name.starts_with("options")) {
            return Err(wrong("it has a parameter that is not known; known are sslmode, sslrootcert, host, port …"));
        }
        let options = PgConnectOptions::from_str(text).map_err(|e| {
            let why = e.to_string().replace("error with configuration: ", "");
            AddressError(format!("it is no address: {why}"))
        })?;
        if options.get_database().is_none_or(str::is_empty) {
            return Err(wrong("it names no database"));
        }
        Ok(Self(options))
    }
}

/// User, host and database, without the password.
impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.0;
        let database = options.get_database().unwrap_or_default();
        write!(f, "{}@", options.get_username())?;
        match options.get_socket() {
            Some(folder) => write!(f, "{}:{}/{database}", folder.display(), options.get_port()),
            None => write!(f, "{}:{}/{database}", options.get_host(), options.get_port()),
        }
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How many resources of a PostgreSQL server one process uses, and how long it waits for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresOptions {
    /// The most connections.
    pub connections_max: u32,
    /// The longest wait for a connection, new or free, in milliseconds.
    pub connect_ms_max: u64,
    /// The longest time of one statement, waiting for locks included, in milliseconds.
    pub statement_ms_max: u64,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { connections_max: 10, connect_ms_max: 5_000, statement_ms_max: 10_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_address_is_shown_without_its_password() {
        let tcp: PostgresAddress = "postgres://ann:s3cret@db.example:5433/annie?sslmode=require".parse().unwrap();
        assert_eq!(format!("{tcp} {tcp:?}"), "ann@db.example:5433/annie ann@db.example:5433/annie");
        let socket: PostgresAddress = "postgresql://ann:s3cret@localhost/annie?host=/run/pg".parse().unwrap();
        assert_eq!(socket.to_string(), "ann@/run/pg:5432/annie");
    }

    #[test]
    fn postgres_address_refuses_an_invalid_text_without_repeating_it() {
        for (text, expected_text) in [
            ("mysql://ann:s3cret@db/annie", "it does not begin with postgres://"),
            ("postgres://ann:s3cret@db/annie?sslmode=s3cret", "it is no address: unknown value"),
            ("postgres://ann:s3cret@db:s3cret/annie", "it is no address: invalid port number"),
            ("postgres://ann:s3cret@db/annie?slmode=require", "it has a parameter that is not known"),
            ("postgres://ann:s3cret@db", "it names no database"),
        ] {
            let error = text.parse::<PostgresAddress>().unwrap_err().to_string();
            assert!(error.starts_with(expected_text), "{error}");
            assert!(!error.contains("db/annie"), "{error}");
        }
    }
}
