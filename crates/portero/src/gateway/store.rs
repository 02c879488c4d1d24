//! Opening the database that the configuration names.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use portero_ingress::accept::Queues;
use portero_store::{DynStore, SchemaState};
use portero_store_postgres::{PoolSizes, PostgresConfig, PostgresStore};
use portero_store_sqlite::SqliteStore;
use portero_types::{Redacted, ShardCount};

use crate::config::{Database, DatabaseUrl, parse_database_url};

/// How long `migrate` waits for a database that is still starting.
const PATIENCE: Duration = Duration::from_secs(60);
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// An open database of either kind.
#[derive(Clone)]
pub(crate) enum Opened {
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

impl Opened {
    /// Opens the database. The schema is not looked at.
    pub(crate) async fn open(settings: &Database) -> anyhow::Result<Self> {
        let url = resolve(&settings.url)?;
        if let DatabaseUrl::Sqlite(folder) = &url {
            let store = SqliteStore::open_in(folder).await;
            return Ok(Self::Sqlite(
                store.with_context(|| format!("the database in {} cannot be opened", folder.display()))?,
            ));
        }
        let Some(mut config) = postgres(url)? else {
            bail!(
                "no database is configured: set database.url, database.url_file or database.host \
                 (or run `portero dev`, which brings its own)"
            )
        };
        if let Some(path) = &settings.ca_file {
            super::tls::read_certificates("database.ca_file", path)?;
            config.ca_file = Some(path.clone());
        }
        config.pools = PoolSizes {
            ingest: settings.ingest_connections,
            flush: settings.flush_connections,
            admin: settings.admin_connections,
            ..PoolSizes::default()
        };
        let store = PostgresStore::connect(config).await.context("the database cannot be used")?;
        Ok(Self::Postgres(store))
    }

    /// The same, waiting for a database that is still starting.
    pub(crate) async fn open_patiently(settings: &Database) -> anyhow::Result<Self> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut told = false;
        loop {
            match Self::open(settings).await {
                Err(error) if is_passing(&error) && tokio::time::Instant::now() < deadline => {
                    if !told {
                        let error = format!("{error:#}");
                        tracing::warn!(
                            error,
                            "the database cannot be reached yet; waiting for up to a minute"
                        );
                    }
                    told = true;
                    tokio::time::sleep(RETRY_EVERY).await;
                }
                result => return result,
            }
        }
    }

    /// The database as everything else sees it.
    pub(crate) fn store(&self) -> DynStore {
        match self {
            Self::Sqlite(store) => Arc::new(store.clone()),
            Self::Postgres(store) => Arc::new(store.clone()),
        }
    }

    /// How many shards its log has.
    pub(crate) async fn shards(&self) -> portero_store::Result<ShardCount> {
        match self {
            Self::Sqlite(store) => store.shards().await,
            Self::Postgres(store) => store.shards().await,
        }
    }

    /// How commits are best spread for it.
    pub(crate) const fn queues(&self) -> Queues {
        match self {
            Self::Sqlite(_) => Queues::One,
            Self::Postgres(_) => Queues::PerShard,
        }
    }

    /// Waits for what is under way and closes all connections.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(store) => store.close().await,
        }
    }
}

/// Refuses a schema that does not fit, and says what to do.
pub(crate) async fn require_current(store: &DynStore) -> anyhow::Result<()> {
    match store.schema_state().await.context("the schema cannot be read")? {
        SchemaState::Current { .. } => Ok(()),
        SchemaState::Empty => bail!("the database has no schema yet: run `portero migrate` first"),
        SchemaState::Behind { found, needed } => bail!(
            "the database's schema has version {found} and this program needs {needed}: run `portero migrate` first"
        ),
        SchemaState::Ahead { found, needed } => bail!(
            "the database's schema has version {found} and this program knows {needed}: run a newer version of Portero"
        ),
        SchemaState::Damaged { version } => bail!(
            "migration {version} was changed after it ran, or did not finish: restore the database, or ask for help; \
             nothing was started"
        ),
    }
}

/// The host of the database whose connections verify nothing about it; `None` also where that cannot be told.
pub(crate) fn unverified_database_host(settings: &Database) -> Option<String> {
    let mut config = postgres(resolve(&settings.url).ok()?).ok()??;
    config.ca_file.clone_from(&settings.ca_file);
    config.unverified_host()
}

/// How Postgres is reached; `None` when no Postgres is named.
fn postgres(url: DatabaseUrl) -> anyhow::Result<Option<PostgresConfig>> {
    let mut config = PostgresConfig::new("");
    match url {
        DatabaseUrl::Postgres(url) => config.url = url,
        DatabaseUrl::Parts { host, port, name, user, password_file } => {
            config.password = password_file.as_deref().map(read_secret_file).transpose()?;
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            let url = format!("postgres://{}@{host}:{port}/{}", encode(&user), encode(&name));
            config.url = Redacted::new(url);
        }
        DatabaseUrl::Sqlite(_) | DatabaseUrl::File(_) | DatabaseUrl::Missing => return Ok(None),
    }
    Ok(Some(config))
}

fn resolve(url: &DatabaseUrl) -> anyhow::Result<DatabaseUrl> {
    let DatabaseUrl::File(path) = url else { return Ok(url.clone()) };
    let text = read_secret_file(path)?;
    parse_database_url(text.expose_secret()).with_context(|| {
        format!("{} does not hold a URL that begins with postgres:// or sqlite:", path.display())
    })
}

/// Reads a file that holds one secret; white space around it is dropped.
pub(crate) fn read_secret_file(path: &Path) -> anyhow::Result<Redacted<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(Redacted::new(text.trim().to_owned()))
}

fn encode(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

fn is_passing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<portero_store::Error>().is_some_and(portero_store::Error::is_retryable)
}
