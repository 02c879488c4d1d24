//! The stores of Portero on SQLite: one file, one process, nothing else to run.
//!
//! | module | what it keeps |
//! |---|---|
//! | `accept` | receipts, events and log entries in one commit |
//! | `log` | pages in commit order, bodies by receipt |
//! | `lane` | sessions, lanes, journal, parked entities, dead letters |
//! | `hints` | hints within the process |
//! | `config` | tenants, sources, secrets, subscriptions, grants and their revision |
//! | `audit` | who changed what, as a chain |
//! | `rejection` | the newest refused requests of each source |
//! | `schema` | migrations, identity, health |
//!
//! **One writer.** All writes run on one connection, each in a transaction of its own that begins `IMMEDIATE`, in tasks that
//! a caller who goes away does not cancel. So positions are handed out in commit order, and a read before a write in one
//! transaction cannot be overtaken. Readers have a small pool; the write-ahead log lets them go on meanwhile.
//!
//! **Durable.** `synchronous=FULL`: a commit that was answered is on the disk.
//!
//! **One process.** A lock on a file beside the database keeps every other process out for as long as the store is open, and
//! opening a session fences all others.
//!
//! This crate must never write outside the writer, keep a transaction open across anything but its own statements, or let
//! the driver's texts out: they may quote rows.

mod accept;
mod audit;
mod config;
mod error;
mod file;
mod hints;
mod lane;
mod log;
mod reader;
mod rejection;
mod row;
mod schema;
mod secret_use;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portero_store::{Error, ErrorKind, Hint, Result};
use portero_types::ShardCount;
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use tokio::sync::{OnceCell, broadcast};
use tokio_util::task::TaskTracker;

use crate::file::FileLock;
use crate::reader::Readers;
use crate::writer::Writer;

/// The database's name in a folder that [`SqliteStore::open_in`] is given.
pub const FILE_NAME: &str = "portero.db";

/// How long a statement waits for a lock that a foreign program (a backup, a shell) holds on the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// All stores on one SQLite file. Clones share its connections; the last one that goes lets go of the file.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    tasks: TaskTracker,
    shards: Arc<OnceCell<ShardCount>>,
    hints: broadcast::Sender<Hint>,
    // Last, so that it is let go after the connections.
    lock: Arc<FileLock>,
}

impl SqliteStore {
    /// Opens the database file at `path`, and creates it, with its folder, when it is missing. The folder is made with
    /// mode 0700 and the file with 0600. The schema is not looked at: see [`portero_store::SchemaStore::schema_state`].
    ///
    /// # Errors
    /// `FailedPrecondition` when another process has it open; `Unavailable` when it cannot be created or read; `Corrupt` when
    /// the file is not a database.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let lock = FileLock::acquire(path)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            .pragma("trusted_schema", "OFF")
            // What a burst made the write-ahead log grow to is given back at the next checkpoint. Bytes.
            .pragma("journal_size_limit", "67108864")
            .statement_cache_capacity(128)
            .disable_statement_logging();
        let tasks = TaskTracker::new();
        let writer = Writer::open(options.clone(), tasks.clone()).await?;
        let readers = Readers::open(options.pragma("query_only", "ON"), tasks.clone());
        let (hints, _) = broadcast::channel(hints::WAITING_MAX);
        Ok(Self { writer, readers, tasks, shards: Arc::default(), hints, lock: Arc::new(lock) })
    }

    /// Opens [`FILE_NAME`] in a folder.
    ///
    /// # Errors
    /// See [`SqliteStore::open`].
    pub async fn open_in(folder: impl AsRef<Path>) -> Result<Self> {
        Self::open(folder.as_ref().join(FILE_NAME)).await
    }

    /// How many shards the log has: four, fixed by the first migration.
    ///
    /// # Errors
    /// `SchemaMismatch` before the first migration; `Unavailable`.
    pub async fn shards(&self) -> Result<ShardCount> {
        self.shards.get_or_try_init(|| schema::read_shards(&self.readers)).await.copied()
    }

    /// Waits for the calls under way and closes all connections. Later calls fail as unavailable. The file is free for
    /// another process when every clone is dropped.
    pub async fn close(&self) {
        self.writer.stop();
        self.tasks.close();
        self.tasks.wait().await;
        self.writer.close().await;
        self.readers.close().await;
    }
}

/// What a call gets when its task ended without an answer: it panicked, or the runtime stopped.
fn lost_task(error: tokio::task::JoinError) -> Error {
    Error::with_source(
        ErrorKind::OutcomeUnknown,
        "the task that worked on the database ended without an answer",
        error,
    )
}
