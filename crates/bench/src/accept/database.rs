//! Databases of one's own on a given server: made, looked at, dropped.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use url::Url;

use super::Side;
use super::process::Process;

/// A Postgres server on which databases may be created.
pub(super) struct Server {
    url: Url,
}

/// A database of one receiver.
pub(super) struct Database {
    pub(super) side: Side,
    pub(super) name: String,
    pub(super) url: String,
}

/// What decides how long a commit takes.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Settings {
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
    pub(super) fn new(url: &str) -> anyhow::Result<Self> {
        // The parser's error may not quote the URL, which can hold a password; ours does not either.
        let url = Url::parse(url).map_err(|_| anyhow::anyhow!("--postgres-url is not a URL"))?;
        Ok(Self { url })
    }

    /// Creates an empty database.
    pub(super) async fn create(&self, side: Side) -> anyhow::Result<Database> {
        let mut random = [0; 6];
        getrandom::fill(&mut random)?;
        let name = format!("portero_bench_{}_{}", side.name(), hex::encode(random));
        self.execute(format!("CREATE DATABASE {name}")).await.context("creating a database")?;
        let mut url = self.url.clone();
        url.set_path(&name);
        Ok(Database { side, name, url: url.into() })
    }

    /// Drops it, whoever is still connected.
    pub(super) async fn drop(&self, database: Database) -> anyhow::Result<()> {
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
    pub(super) async fn settings(&self) -> anyhow::Result<Settings> {
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
    pub(super) async fn settle(&self) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        // Needs a privilege; without it rounds are a little less alike.
        let _ = sqlx::raw_sql("CHECKPOINT").execute(&mut connection).await;
        Ok(connection.close().await?)
    }

    /// Whether each table holds one row per answer.
    pub(super) async fn expect_rows(&self, answered: u64) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        for table in self.side.tables() {
            let query = sqlx::query(AssertSqlSafe(format!("SELECT count(*) FROM {table}")));
            let found: i64 = query.fetch_one(&mut connection).await?.try_get(0)?;
            ensure!(
                u64::try_from(found) == Ok(answered),
                "{}: {answered} requests were answered as accepted, but {table} has {found} rows",
                self.side.name()
            );
        }
        Ok(connection.close().await?)
    }

    /// Processor time that the server's processes have used, the ones that ended included; `None` unless the server runs
    /// on this machine and /proc tells.
    pub(super) async fn server_cpu(&self) -> Option<Duration> {
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

    async fn connect(&self) -> anyhow::Result<PgConnection> {
        PgConnection::connect(&self.url).await.context("reaching the Postgres server")
    }
}

impl Settings {
    /// A comparison on a server that may forget what it committed says nothing.
    pub(super) fn ensure_durable(&self) -> anyhow::Result<()> {
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
