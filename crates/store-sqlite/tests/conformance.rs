//! The store on SQLite keeps every promise of the suite.

use std::sync::Arc;

use async_trait::async_trait;
use portero_store::DynStore;
use portero_store::testing::Database;
use portero_store_sqlite::{FILE_NAME, SqliteStore};
use portero_types::Shard;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use tempfile::TempDir;

struct Sqlite {
    store: SqliteStore,
    folder: TempDir,
}

async fn fresh() -> Sqlite {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open_in(folder.path()).await.expect("opens");
    Sqlite { store, folder }
}

impl Sqlite {
    async fn run(&self, statement: String) {
        self.try_run(statement).await.expect("executes");
    }

    async fn try_run(&self, statement: String) -> sqlx::Result<()> {
        let url = format!("sqlite://{}", self.folder.path().join(FILE_NAME).display());
        let mut connection = SqliteConnection::connect(&url).await.expect("connects");
        let outcome = sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await;
        connection.close().await.expect("closes");
        outcome.map(drop)
    }
}

#[async_trait]
impl Database for Sqlite {
    async fn open(&self) -> DynStore {
        Arc::new(self.store.clone())
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    async fn execute(&self, statement: &'static str) {
        self.run(statement.to_owned()).await;
    }

    async fn try_execute(&self, statement: &'static str) -> bool {
        self.try_run(statement.to_owned()).await.is_ok()
    }

    fn audit_loopholes(&self) -> &'static [&'static str] {
        &[
            "REPLACE INTO audit_log SELECT * FROM audit_log WHERE seq = 1",
            "INSERT INTO audit_log SELECT * FROM audit_log WHERE true ON CONFLICT (seq) DO UPDATE SET subject = 'nobody'",
        ]
    }

    async fn rewind_log(&self, shard: Shard, head: u64) {
        self.run(format!("DELETE FROM log WHERE shard = {shard} AND position > {head}")).await;
        // A head that is there never goes back.
        self.run(format!("DELETE FROM log_heads WHERE shard = {shard}")).await;
        self.run(format!("INSERT INTO log_heads (shard, head) VALUES ({shard}, {head})")).await;
    }

    async fn forget_log(&self, shard: Shard, through: u64) {
        self.run(format!("DELETE FROM log WHERE shard = {shard} AND position <= {through}")).await;
    }
}

portero_store::conformance!(crate::fresh);
