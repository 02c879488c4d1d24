//! A database for each test on the server that `scripts/test` started.

#![allow(dead_code, reason = "shared by unit and integration tests, which use different parts")]
#![allow(unreachable_pub, reason = "shared by unit and integration tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use portero_store::DynStore;
use portero_store::testing::{Database, eventually};
use portero_store_postgres::{PostgresConfig, PostgresStore};
use portero_types::Shard;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The server's URL, with the rights of a superuser.
#[expect(clippy::disallowed_methods, reason = "only the environment can say where the test server is")]
fn server_url() -> String {
    std::env::var("PORTERO_TEST_POSTGRES_URL").unwrap_or_else(|_| {
        panic!("PORTERO_TEST_POSTGRES_URL is not set: run the tests by scripts/test, which starts a PostgreSQL for them")
    })
}

fn server() -> PgConnectOptions {
    server_url().parse().expect("PORTERO_TEST_POSTGRES_URL is a postgres:// URL")
}

/// A database that one test has for itself; dropped with this value, whoever is still connected.
pub struct TestDatabase {
    name: String,
}

impl TestDatabase {
    /// Creates an empty database.
    pub async fn create() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("portero_{}_{number}", std::process::id());
        let mut admin = server().connect().await.expect("the test server answers");
        for statement in [
            format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
            format!("CREATE DATABASE {name} TEMPLATE template0"),
        ] {
            admin.execute(AssertSqlSafe(statement)).await.expect("a database");
        }
        admin.close().await.expect("closed");
        Self { name }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the store reaches it.
    pub fn config(&self) -> PostgresConfig {
        let options = server();
        self.config_at(options.get_host(), options.get_port())
    }

    /// How the store reaches it by another address, such as a proxy's.
    pub fn config_at(&self, host: &str, port: u16) -> PostgresConfig {
        let options = server();
        let url = format!("postgres://{}@{host}:{port}/{}", options.get_username(), self.name);
        PostgresConfig { acquire_timeout: Duration::from_secs(10), ..PostgresConfig::new(url) }
    }

    /// Where the server is.
    pub fn address() -> (String, u16) {
        (server().get_host().to_owned(), server().get_port())
    }

    /// Opens the store.
    pub async fn store(&self) -> PostgresStore {
        PostgresStore::connect(self.config()).await.expect("connected")
    }

    /// A connection past the store.
    pub async fn raw(&self) -> PgConnection {
        server().database(&self.name).connect().await.expect("connected")
    }

    /// The same with the rights of a login of this name.
    pub async fn raw_as(&self, login: &str) -> PgConnection {
        server().database(&self.name).username(login).connect().await.expect("connected")
    }

    /// Runs a statement past the store.
    pub async fn run(&self, statement: impl Into<String>) -> Vec<PgRow> {
        let mut connection = self.raw().await;
        let rows =
            sqlx::raw_sql(AssertSqlSafe(statement.into())).fetch_all(&mut connection).await.expect("runs");
        connection.close().await.expect("closed");
        rows
    }

    /// Waits until a session of this database waits for a lock of the given type (`pg_stat_activity.wait_event`).
    pub async fn until_somebody_waits(&self, wait_event: &str) {
        let mut connection = self.raw().await;
        loop_until(&mut connection, &format!(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = '{wait_event}'"
        ))
        .await;
    }
}

/// Polls until a query has a row.
pub async fn loop_until(connection: &mut PgConnection, query: &str) {
    let connection = tokio::sync::Mutex::new(connection);
    eventually(query, async || {
        let mut connection = connection.lock().await;
        let found = sqlx::raw_sql(AssertSqlSafe(query.to_owned())).fetch_optional(&mut **connection).await;
        found.expect("runs").map(|_| ())
    })
    .await;
}

#[async_trait]
impl Database for TestDatabase {
    async fn open(&self) -> DynStore {
        Arc::new(self.store().await)
    }

    fn is_exclusive(&self) -> bool {
        false
    }

    async fn execute(&self, statement: &'static str) {
        self.run(statement).await;
    }

    async fn try_execute(&self, statement: &'static str) -> bool {
        let mut connection = self.raw().await;
        let outcome = sqlx::raw_sql(statement).execute(&mut connection).await;
        connection.close().await.expect("closed");
        outcome.is_ok()
    }

    fn audit_loopholes(&self) -> &'static [&'static str] {
        &[
            "TRUNCATE audit_log",
            "SET session_replication_role = replica; DELETE FROM audit_log",
            "INSERT INTO audit_log SELECT * FROM audit_log ON CONFLICT (seq) DO UPDATE SET subject = 'nobody'",
        ]
    }

    async fn rewind_log(&self, shard: Shard, head: u64) {
        self.run(format!(
            "DELETE FROM log WHERE shard = {shard} AND position > {head}; SELECT setval('log_position_{shard}', {head})"
        ))
        .await;
    }

    async fn forget_log(&self, shard: Shard, through: u64) {
        self.run(format!("DELETE FROM log WHERE shard = {shard} AND position <= {through}")).await;
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let dropped = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                if let Ok(mut admin) = server().connect().await {
                    // A database that stays behind goes with its server.
                    let _ = admin.execute(AssertSqlSafe(statement)).await;
                }
            });
        });
        let _ = dropped.join();
    }
}
