//! Migrations, identity, health.

use async_trait::async_trait;
use portero_store::{Error, ErrorKind, Result, SchemaState, SchemaStore};
use portero_types::ShardCount;
use sqlx::SqliteConnection;
use sqlx::migrate::{MigrateError, Migrator};

use crate::SqliteStore;
use crate::error::{Step, corrupt, statement, store_error};
use crate::reader::Readers;
use crate::row::{get, unsigned, uuid};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite");

#[async_trait]
impl SchemaStore for SqliteStore {
    async fn schema_state(&self) -> Result<SchemaState> {
        self.readers.snapshot(|connection| Box::pin(read_state(connection))).await
    }

    async fn migrate(&self) -> Result<()> {
        // One writer: concurrent callers wait for each other, and other processes are locked out.
        self.writer.run(|connection| Box::pin(async { run_migrations(connection).await.map(Ok) })).await
    }

    async fn check_writable(&self) -> Result<()> {
        self.writer
            .write(|connection| {
                Box::pin(async {
                    let sql = "UPDATE write_check SET writes = writes + 1";
                    sqlx::query(sql).execute(connection).await.map(drop).map_err(statement)
                })
            })
            .await
    }

    async fn identity(&self) -> Result<String> {
        let sql = "SELECT database_id, generation FROM installation";
        let row = sqlx::query(sql).fetch_one(self.readers.pool()).await.map_err(statement)?;
        Ok(format!("{}.{}", uuid(&row, "database_id")?, unsigned::<i64>(&row, "generation")?))
    }
}

/// How many shards the log has.
pub(crate) async fn read_shards(readers: &Readers) -> Result<ShardCount> {
    let sql = "SELECT shards FROM installation";
    let row = sqlx::query(sql).fetch_one(readers.pool()).await.map_err(statement)?;
    ShardCount::new(unsigned(&row, "shards")?).map_err(|_| corrupt("installation.shards"))
}

async fn run_migrations(connection: &mut SqliteConnection) -> Result<()> {
    match read_state(connection).await? {
        SchemaState::Current { .. } => Ok(()),
        SchemaState::Empty | SchemaState::Behind { .. } => {
            // `run` is generic over how a connection is acquired, which no boxed future can name.
            MIGRATIONS.run_direct(None, connection, false).await.map_err(|error| migrate_error(&error))
        }
        SchemaState::Ahead { .. } => {
            Err(mismatch("a newer program has migrated this database; run that one"))
        }
        SchemaState::Damaged { .. } => {
            Err(mismatch("a migration of this database was changed after it ran, or was interrupted"))
        }
    }
}

async fn read_state(connection: &mut SqliteConnection) -> Result<SchemaState> {
    let exists = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_sqlx_migrations'";
    if sqlx::query(exists).fetch_optional(&mut *connection).await.map_err(statement)?.is_none() {
        return Ok(SchemaState::Empty);
    }
    let applied = "SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version";
    let applied = sqlx::query(applied).fetch_all(connection).await.map_err(statement)?;
    let needed = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    let (mut found, mut known) = (0, 0);
    for row in &applied {
        let version = get::<i64>(row, "version")?;
        found = found.max(version);
        if let Some(migration) = MIGRATIONS.iter().find(|migration| migration.version == version) {
            if !get::<bool>(row, "success")? || get::<&[u8]>(row, "checksum")? != &*migration.checksum {
                return Ok(SchemaState::Damaged { version });
            }
            known += 1;
        }
    }
    Ok(if applied.is_empty() {
        SchemaState::Empty
    } else if found > needed {
        SchemaState::Ahead { found, needed }
    } else if known < MIGRATIONS.iter().count() {
        SchemaState::Behind { found, needed }
    } else {
        SchemaState::Current { version: found }
    })
}

fn migrate_error(error: &MigrateError) -> Error {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the driver's enum may grow; all else is about versions"
    )]
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            store_error(error, Step::Statement)
        }
        _ => mismatch("the migrations of this database are not those of this program"),
    }
}

fn mismatch(message: &'static str) -> Error {
    Error::new(ErrorKind::SchemaMismatch, message)
}
