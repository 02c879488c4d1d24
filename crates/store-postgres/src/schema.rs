//! Migrations, identity, health.

use std::time::Duration;

use async_trait::async_trait;
use portero_store::{Error, ErrorKind, Result, SchemaState, SchemaStore};
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions, Connection, Executor};
use uuid::Uuid;

use crate::PostgresStore;
use crate::error::{Effect, corrupt, store_error};
use crate::lease::{bounded, rows};
use crate::row::get;

static MIGRATOR: Migrator = sqlx::migrate!("../../migrations/postgres");

/// The advisory lock under which migrations run ("portmigr"); in a key space of its own beside the shards'.
const MIGRATION_LOCK: i64 = 0x706f_7274_6d69_6772;
/// Longest run of all migrations, waiting for another one included.
const MIGRATION_PATIENCE: Duration = Duration::from_mins(30);

#[async_trait]
impl SchemaStore for PostgresStore {
    async fn schema_state(&self) -> Result<SchemaState> {
        let exists = sqlx::query("SELECT to_regclass('_sqlx_migrations') IS NOT NULL AS found");
        let exists = rows(&self.pools.control, exists, Effect::None).await?;
        if !exists.first().map(|row| get(row, "found")).transpose()?.unwrap_or(false) {
            return Ok(SchemaState::Empty);
        }
        let query = sqlx::query("SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version");
        let applied = rows(&self.pools.control, query, Effect::None).await?;
        let applied = applied
            .iter()
            .map(|row| Ok((get(row, "version")?, get(row, "success")?, get::<Vec<u8>>(row, "checksum")?)))
            .collect::<Result<Vec<_>>>()?;
        Ok(judge(&applied))
    }

    async fn migrate(&self) -> Result<()> {
        match self.schema_state().await? {
            SchemaState::Ahead { .. } | SchemaState::Damaged { .. } => {
                return Err(Error::new(
                    ErrorKind::SchemaMismatch,
                    "the schema is newer than this program or damaged; nothing was changed",
                ));
            }
            SchemaState::Current { .. } | SchemaState::Empty | SchemaState::Behind { .. } => {}
        }
        let options = self.config.connect_options()?;
        let connect = options.connect();
        let mut connection =
            bounded(self.config.acquire_timeout, connect).await.map_err(|e| store_error(&e, Effect::None))?;
        let outcome = tokio::time::timeout(MIGRATION_PATIENCE, self.run_migrations(&mut connection)).await;
        // The lock is the session's, and so is a transaction that was given up: both end here.
        let _ = bounded(self.config.acquire_timeout, connection.close()).await;
        outcome.unwrap_or_else(|_| Err(MigrateError::Execute(timed_out()))).map_err(|e| migrate_error(&e))
    }

    async fn check_writable(&self) -> Result<()> {
        let query = sqlx::query("UPDATE write_check SET writes = writes + 1");
        rows(&self.pools.control, query, Effect::Commits).await.map(|_| ())
    }

    async fn identity(&self) -> Result<String> {
        // The timeline is the first part of a WAL file's name; control data would show it only after a checkpoint.
        let query = sqlx::query(
            "SELECT i.database_id, to_hex((pg_control_system()).system_identifier) AS system,
                    (SELECT to_hex(oid::bigint) FROM pg_database WHERE datname = current_database()) AS database,
                    lower(substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)) AS timeline
             FROM installation i",
        );
        let found = rows(&self.pools.control, query, Effect::None).await?;
        let row = found.first().ok_or_else(|| corrupt("installation"))?;
        let id: Uuid = get(row, "database_id")?;
        let [system, database, timeline]: [String; 3] =
            [get(row, "system")?, get(row, "database")?, get(row, "timeline")?];
        Ok(format!("{}-{system}-{database}-{timeline}", id.simple()))
    }
}

impl PostgresStore {
    async fn run_migrations(&self, connection: &mut PgConnection) -> std::result::Result<(), MigrateError> {
        let schema = self.config.search_path().unwrap_or_default();
        if !schema.is_empty() {
            let create = format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\"");
            connection.execute(sqlx::AssertSqlSafe(create)).await?;
            sqlx::query("SELECT set_config('search_path', $1, false)")
                .bind(&schema)
                .execute(&mut *connection)
                .await?;
        }
        // Waiting for another migration is not limited; waiting for a table's lock under load is.
        sqlx::query("SELECT set_config('portero.shards', $1, false), set_config('lock_timeout', '0', false),
                            set_config('statement_timeout', '0', false), set_config('synchronous_commit', 'on', false)")
            .bind(self.config.shards.get().to_string())
            .execute(&mut *connection)
            .await?;
        sqlx::query("SELECT pg_advisory_lock($1)").bind(MIGRATION_LOCK).execute(&mut *connection).await?;
        connection.execute("SET lock_timeout = '5s'").await?;
        MIGRATOR.run_direct(None, connection, false).await
    }
}

fn timed_out() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())
}

/// Compares what ran (version, success, checksum; ascending) with what this program holds.
fn judge(applied: &[(i64, bool, Vec<u8>)]) -> SchemaState {
    let needed = MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0);
    let Some(found) = applied.iter().map(|(version, ..)| *version).max() else { return SchemaState::Empty };
    if let Some((version, ..)) = applied.iter().find(|(_, success, _)| !success) {
        return SchemaState::Damaged { version: *version };
    }
    if found > needed {
        return SchemaState::Ahead { found, needed };
    }
    let changed = |(version, _, checksum): &&(i64, bool, Vec<u8>)| {
        MIGRATOR.iter().any(|m| m.version == *version && m.checksum.as_ref() != checksum.as_slice())
    };
    if let Some((version, ..)) = applied.iter().find(changed) {
        return SchemaState::Damaged { version: *version };
    }
    match MIGRATOR.iter().find(|m| applied.iter().all(|(version, ..)| *version != m.version)) {
        Some(_) => SchemaState::Behind { found, needed },
        None => SchemaState::Current { version: found },
    }
}

fn migrate_error(error: &MigrateError) -> Error {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "whatever is not the database's failure is a mismatch"
    )]
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            store_error(error, Effect::Commits)
        }
        _ => Error::new(
            ErrorKind::SchemaMismatch,
            "the schema is newer than this program or damaged; nothing was changed",
        ),
    }
}
