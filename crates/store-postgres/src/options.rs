//! How to reach the database, and how many connections to hold.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use portero_store::{Error, ErrorKind, Result};
use portero_types::{Redacted, ShardCount};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// How to reach the database. Debug shows neither the URL nor the password.
#[derive(Clone)]
pub struct PostgresConfig {
    /// `postgres://user:password@host:port/database?sslmode=…`. TLS is by rustls; `sslmode`, `sslrootcert`, `sslcert` and
    /// `sslkey` mean what they mean to libpq.
    pub url: Redacted<String>,
    /// Takes the place of the URL's password, so that the two can be kept apart.
    pub password: Option<Redacted<String>>,
    /// Certificates (PEM) that the server's may come from, beside the system's. With it every connection must be TLS to a
    /// server whose certificate bears its name (`verify-full`), whatever the URL says. Read for each new connection.
    pub ca_file: Option<PathBuf>,
    /// The schema that holds all tables; `None` is the role's own search path. 1 to 63 characters of `a-z`, `0-9`, `_`,
    /// the first not a digit.
    pub schema: Option<String>,
    /// How many shards the log of a *new* installation gets. An existing one keeps its number.
    pub shards: ShardCount,
    /// Most connections per purpose.
    pub pools: PoolSizes,
    /// How long a call waits for a free or new connection before it fails as unavailable.
    pub acquire_timeout: Duration,
}

/// Most connections per purpose. Apart, so that a flood of events cannot starve what keeps lanes alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSizes {
    /// Accept statements. As many commits can be under way at once.
    pub ingest: u32,
    /// Lane flushes and reading the log.
    pub flush: u32,
    /// Sessions, rolls, hints, configuration revision, health; as many again for claiming and giving up lanes, so that a
    /// thousand claims at once do not keep a session from being renewed. One more listens for hints.
    pub control: u32,
    /// Configuration, look-ups; half as many again for counting repeats, and one more for recording rejections.
    pub admin: u32,
}

impl Default for PoolSizes {
    fn default() -> Self {
        Self { ingest: 8, flush: 6, control: 2, admin: 4 }
    }
}

impl PostgresConfig {
    /// The database at a URL; everything else by default.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: Redacted::new(url.into()),
            password: None,
            ca_file: None,
            schema: None,
            shards: ShardCount::DEFAULT,
            pools: PoolSizes::default(),
            acquire_timeout: Duration::from_secs(3),
        }
    }

    /// The host that connections go to when nothing about it is verified: its certificate is not looked at, or TLS is not a
    /// must. `None` for a socket of this machine, for verified TLS (`verify-full`, and `verify-ca`, which leaves the name
    /// open), and for a URL that cannot be read.
    #[must_use]
    pub fn unverified_host(&self) -> Option<String> {
        let options = self.connect_options().ok()?;
        let is_verified = matches!(options.get_ssl_mode(), PgSslMode::VerifyCa | PgSslMode::VerifyFull);
        let is_socket = options.get_socket().is_some() || options.get_host().starts_with('/');
        (!is_verified && !is_socket).then(|| options.get_host().to_owned())
    }

    /// What the driver needs.
    pub(crate) fn connect_options(&self) -> Result<PgConnectOptions> {
        // The driver's error may quote the URL, so it is dropped.
        let mut options = PgConnectOptions::from_str(self.url.expose_secret()).map_err(|_| {
            Error::new(
                ErrorKind::FailedPrecondition,
                "the database URL must look like postgres://user@host:port/database",
            )
        })?;
        if let Some(password) = &self.password {
            options = options.password(password.expose_secret());
        }
        if let Some(ca_file) = &self.ca_file {
            options = options.ssl_mode(PgSslMode::VerifyFull).ssl_root_cert(ca_file);
        }
        if options.get_application_name().is_none() {
            options = options.application_name("portero");
        }
        Ok(options.statement_cache_capacity(64).disable_statement_logging())
    }

    /// The schema's name, checked; empty for the role's own search path.
    pub(crate) fn search_path(&self) -> Result<String> {
        let Some(schema) = &self.schema else { return Ok(String::new()) };
        let well_formed = (1..=63).contains(&schema.len())
            && !schema.starts_with(|c: char| c.is_ascii_digit())
            && schema.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if well_formed {
            return Ok(schema.clone());
        }
        Err(Error::new(
            ErrorKind::FailedPrecondition,
            "the schema's name must be 1 to 63 characters of a-z, 0-9 and '_', the first not a digit",
        ))
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("schema", &self.schema)
            .field("shards", &self.shards)
            .field("pools", &self.pools)
            .field("acquire_timeout", &self.acquire_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_part_of_the_url() {
        let config = PostgresConfig::new("postgres://portero:hunter2@db.example/portero");
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(!format!("{config:?}").contains("db.example"));
    }

    #[test]
    fn an_unreadable_url_is_refused_without_being_quoted() {
        let error =
            PostgresConfig::new("postgres://portero:hunter2@[").connect_options().expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    #[test]
    fn an_authority_makes_verified_tls_a_must_whatever_the_url_says() {
        let config = PostgresConfig {
            ca_file: Some("/etc/ca.pem".into()),
            ..PostgresConfig::new("postgres://h/d?sslmode=disable")
        };
        let options = config.connect_options().expect("understood");
        assert!(matches!(options.get_ssl_mode(), PgSslMode::VerifyFull));
    }

    #[test]
    fn only_verified_tls_and_sockets_are_taken_for_verified() {
        let host = |url: &str| PostgresConfig::new(url).unverified_host();
        for mode in ["", "?sslmode=disable", "?sslmode=prefer", "?sslmode=require"] {
            assert_eq!(
                host(&format!("postgres://p:hunter2@db.example/d{mode}")).as_deref(),
                Some("db.example")
            );
        }
        for mode in ["verify-ca", "verify-full"] {
            assert_eq!(host(&format!("postgres://p@db.example/d?sslmode={mode}")), None, "{mode}");
        }
        assert_eq!(host("postgres://p@%2Fvar%2Frun%2Fpostgresql/d"), None);
        assert_eq!(host("postgres://p@ignored/d?host=/var/run/postgresql"), None);
        let named = PostgresConfig {
            ca_file: Some("/etc/ca.pem".into()),
            ..PostgresConfig::new("postgres://p@db.example/d?sslmode=disable")
        };
        assert_eq!(named.unverified_host(), None);
    }

    #[test]
    fn a_schema_that_would_need_quoting_is_refused() {
        for bad in ["", "9a", "a-b", "A", "a\"b", "a;b"] {
            let config =
                PostgresConfig { schema: Some(bad.to_owned()), ..PostgresConfig::new("postgres://h/d") };
            assert!(config.search_path().is_err(), "{bad}");
        }
    }
}
