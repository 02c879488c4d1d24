//! Databases of one's own on a given server: made, looked at, dropped.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use url::Url;

use crate::process::Process;

/// A Postgres server on which databases may be created.
pub(crate) struct Server {
    url: Url,
}

/// A database of this run.
pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) url: String,
}

/// What decides how long a commit takes.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Settings {
    server_version: String,
    synchronous_commit: String,
    fsync: String,
    full_page_writes: String,
    wal_sync_method: String,
    commit_delay: String,
    shared_buffers: String,
    max_wal_size: String,
}

impl Server {
    pub(crate) fn new(url: &str) -> anyhow::Result<Self> {
        // The parser's error may not quote the URL, which can hold a password; ours does not either.
        let url = Url::parse(url).map_err(|_| anyhow::anyhow!("--postgres-url is not a URL"))?;
        Ok(Self { url })
    }

    /// Creates an empty database, named after what it is for.
    pub(crate) async fn create(&self, purpose: &str) -> anyhow::Result<Database> {
        let mut random = [0; 6];
        getrandom::fill(&mut random)?;
        let name = format!("portero_bench_{purpose}_{}", hex::encode(random));
        self.execute(format!("CREATE DATABASE {name}")).await.context("creating a database")?;
        let mut url = self.url.clone();
        url.set_path(&name);
        Ok(Database { name, url: url.into() })
    }

    /// Drops it, whoever is still connected.
    pub(crate) async fn drop(&self, database: &Database) -> anyhow::Result<()> {
        self.execute(format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", database.name)).await
    }

    async fn execute(&self, statement: String) -> anyhow::Result<()> {
        let mut connection =
            PgConnection::connect(self.url.as_str()).await.context("reaching the Postgres server")?;
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }
}

impl Database {
    /// The settings as a session of this database sees them.
    pub(crate) async fn settings(&self) -> anyhow::Result<Settings> {
        let mut connection = self.connect().await?;
        let row = sqlx::query(
            "SELECT current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync'),
                    current_setting('full_page_writes'), current_setting('wal_sync_method'),
                    current_setting('commit_delay'), current_setting('shared_buffers'), current_setting('max_wal_size')",
        )
        .fetch_one(&mut connection)
        .await?;
        connection.close().await?;
        Ok(Settings {
            server_version: row.try_get(0)?,
            synchronous_commit: row.try_get(1)?,
            fsync: row.try_get(2)?,
            full_page_writes: row.try_get(3)?,
            wal_sync_method: row.try_get(4)?,
            commit_delay: row.try_get(5)?,
            shared_buffers: row.try_get(6)?,
            max_wal_size: row.try_get(7)?,
        })
    }

    /// Writes out what earlier rounds left dirty, so that no round pays for another's.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        // Needs a privilege; without it rounds are a little less alike.
        let _ = sqlx::raw_sql("CHECKPOINT").execute(&mut connection).await;
        Ok(connection.close().await?)
    }

    /// How many rows a table has.
    pub(crate) async fn count(&self, table: &str) -> anyhow::Result<u64> {
        self.number(&format!("SELECT count(*) FROM {table}")).await
    }

    /// The answer of a query of this program's own that gives one number; a null is 0.
    pub(crate) async fn number(&self, query: &str) -> anyhow::Result<u64> {
        let mut connection = self.connect().await?;
        let row = sqlx::query(AssertSqlSafe(query.to_owned())).fetch_one(&mut connection).await?;
        let found: Option<i64> = row.try_get(0)?;
        connection.close().await?;
        Ok(u64::try_from(found.unwrap_or(0))?)
    }

    /// Runs statements of this program's own.
    pub(crate) async fn execute(&self, statements: &str) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }

    /// Processor time that the server's processes have used, the ones that ended included; `None` unless the server runs
    /// on this machine and /proc tells.
    pub(crate) async fn server_cpu(&self) -> Option<Duration> {
        let mut connection = self.connect().await.ok()?;
        let backend: i32 =
            sqlx::query("SELECT pg_backend_pid()").fetch_one(&mut connection).await.ok()?.try_get(0).ok()?;
        let backend = Process::read(u32::try_from(backend).ok()?)?;
        let server = Process::read(backend.parent).filter(|_| backend.name == "postgres")?;
        let running = Process::all()?.into_iter().filter(|process| process.parent == server.id);
        let used = server.own + server.ended_children + running.map(|process| process.own).sum::<Duration>();
        connection.close().await.ok()?;
        Some(used)
    }

    /// A connection of one's own.
    pub(crate) async fn connect(&self) -> anyhow::Result<PgConnection> {
        PgConnection::connect(&self.url).await.context("reaching the Postgres server")
    }
}

impl Settings {
    /// A comparison on a server that may forget what it committed says nothing.
    pub(crate) fn ensure_durable(&self) -> anyhow::Result<()> {
        ensure!(self.fsync == "on", "fsync is {}: set it to on", self.fsync);
        ensure!(self.synchronous_commit != "off", "synchronous_commit is off: set it to on");
        Ok(())
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Postgres {}, synchronous_commit={} fsync={} full_page_writes={} wal_sync_method={} commit_delay={} \
             shared_buffers={} max_wal_size={}",
            self.server_version,
            self.synchronous_commit,
            self.fsync,
            self.full_page_writes,
            self.wal_sync_method,
            self.commit_delay,
            self.shared_buffers,
            self.max_wal_size
        )
    }
}
