//! The store on SQLite keeps every promise of the suite.

use std::sync::Arc;

use async_trait::async_trait;
use portero_store::DynStore;
use portero_store::testing::Database;
use portero_store_sqlite::{FILE_NAME, SqliteStore};
use sqlx::{Connection, SqliteConnection};
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

#[async_trait]
impl Database for Sqlite {
    async fn open(&self) -> DynStore {
        Arc::new(self.store.clone())
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    async fn execute(&self, statement: &'static str) {
        let url = format!("sqlite://{}", self.folder.path().join(FILE_NAME).display());
        let mut connection = SqliteConnection::connect(&url).await.expect("connects");
        sqlx::query(statement).execute(&mut connection).await.expect("executes");
        connection.close().await.expect("closes");
    }
}

portero_store::conformance!(crate::fresh);
