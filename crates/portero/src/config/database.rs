//! `[database]`: where receipts, events and the log live.

use std::path::PathBuf;

use portero_types::Redacted;

use super::Reader;

/// Where the database is.
#[derive(Clone, Debug)]
pub(crate) enum DatabaseUrl {
    /// Embedded SQLite in this folder.
    Sqlite(PathBuf),
    /// Postgres, by URL.
    Postgres(Redacted<String>),
    /// A file that holds the URL; read at start, white space around it is dropped.
    File(PathBuf),
    /// Postgres, in parts; the password comes from a file.
    Parts {
        /// Host name or address.
        host: String,
        /// TCP port.
        port: u16,
        /// Database name.
        name: String,
        /// Role.
        user: String,
        /// File that holds the password.
        password_file: Option<PathBuf>,
    },
    /// Not said.
    Missing,
}

/// `[database]`.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) url: DatabaseUrl,
    /// Certificates that Postgres' own may come from, beside the system's; with it TLS and the right name are a must.
    pub(crate) ca_file: Option<PathBuf>,
    /// Connections for accepting events.
    pub(crate) ingest_connections: u32,
    /// Connections for reading the log and flushing progress.
    pub(crate) flush_connections: u32,
    /// Connections for the admin API.
    pub(crate) admin_connections: u32,
}

impl Database {
    pub(super) fn read(section: &mut Reader) -> Self {
        let url = section.optional::<String>("url");
        let url_file = section.optional_path("url_file");
        let host = section.optional::<String>("host");
        let port = section.within("port", 5432_u32, 1, 65_535);
        let name = section.text("name", "portero");
        let user = section.text("user", "portero");
        let password_file = section.optional_path("password_file");
        if [url.is_some(), url_file.is_some(), host.is_some()].iter().filter(|given| **given).count() > 1 {
            section.problem("url", "and url_file and host exclude each other: give one of them");
        }
        let url = match (url, url_file, host) {
            (Some(url), _, _) => parse_url(section, url),
            (None, Some(file), _) => DatabaseUrl::File(file),
            (None, None, Some(host)) => DatabaseUrl::Parts {
                host,
                port: u16::try_from(port).unwrap_or(5432),
                name,
                user,
                password_file,
            },
            (None, None, None) => DatabaseUrl::Missing,
        };
        Self {
            url,
            ca_file: section.optional_path("ca_file"),
            ingest_connections: section.within("ingest_connections", 8, 1, 200),
            flush_connections: section.within("flush_connections", 6, 1, 200),
            admin_connections: section.within("admin_connections", 2, 1, 200),
        }
    }
}

fn parse_url(section: &Reader, url: String) -> DatabaseUrl {
    parse(&url).unwrap_or_else(|| {
        section.problem("url", "must begin with postgres:// or sqlite:");
        DatabaseUrl::Missing
    })
}

/// Reads a database URL by its scheme: `postgres://…`, `postgresql://…` or `sqlite:FOLDER`.
pub(crate) fn parse(url: &str) -> Option<DatabaseUrl> {
    if let Some(folder) = url.strip_prefix("sqlite:") {
        return Some(DatabaseUrl::Sqlite(PathBuf::from(folder.strip_prefix("//").unwrap_or(folder))));
    }
    (url.starts_with("postgres://") || url.starts_with("postgresql://"))
        .then(|| DatabaseUrl::Postgres(Redacted::new(url.to_owned())))
}
