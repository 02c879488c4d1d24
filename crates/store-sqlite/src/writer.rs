//! The single writer: one connection, one transaction at a time, in tasks that nobody cancels.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use portero_store::{Error, ErrorKind, Result};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::{Mutex, Semaphore, TryAcquireError};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::error::{Step, store_error};
use crate::lost_task;

/// Most writes that wait for the writer. One more is answered as unavailable. Batches of events are one write each.
const QUEUE_MAX: usize = 1_024;

/// What a transaction does, as a future that borrows its connection.
pub(crate) type Work<'c, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'c>>;

#[derive(Clone, Debug)]
pub(crate) struct Writer {
    queue: Arc<Semaphore>,
    tasks: TaskTracker,
    slot: Arc<Mutex<Slot>>,
}

#[derive(Debug)]
struct Slot {
    options: SqliteConnectOptions,
    /// Missing after a failure that left it in an unknown state: closing it undoes what was under way, and the next write
    /// opens a new one.
    connection: Option<SqliteConnection>,
}

impl Writer {
    pub(crate) async fn open(options: SqliteConnectOptions, tasks: TaskTracker) -> Result<Self> {
        let mut slot = Slot { options, connection: None };
        slot.connection = Some(slot.connect().await?);
        let queue = Arc::new(Semaphore::new(QUEUE_MAX));
        Ok(Self { queue, tasks, slot: Arc::new(Mutex::new(slot)) })
    }

    /// Runs `work` in a transaction: commits when it succeeds, undoes it when it fails. A caller that goes away changes
    /// nothing about it.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> Work<'c, T> + Send + 'static,
    {
        self.run(move |connection| Box::pin(transact(connection, work))).await
    }

    /// Runs `work` on the connection without a transaction around it. When it fails, the connection is not used again.
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> Work<'c, Outcome<T>> + Send + 'static,
    {
        let permit = Arc::clone(&self.queue).try_acquire_owned().map_err(|error| {
            let message = match error {
                TryAcquireError::NoPermits => "too many writes wait for the database",
                TryAcquireError::Closed => "the database is closed",
            };
            Error::new(ErrorKind::Unavailable, message)
        })?;
        let slot = Arc::clone(&self.slot);
        let task = async move {
            let _permit = permit;
            let mut slot = slot.lock().await;
            // Out of the slot meanwhile, so that a panic drops it.
            let mut connection = match slot.connection.take() {
                Some(connection) => connection,
                None => slot.connect().await?,
            };
            match work(&mut connection).await {
                Ok(outcome) => {
                    slot.connection = Some(connection);
                    outcome
                }
                Err(error) => {
                    // An error here would hide the first one, and there is nothing more to do about it.
                    let _ = connection.close().await;
                    Err(error)
                }
            }
        };
        self.tasks.spawn(task.in_current_span()).await.unwrap_or_else(|error| Err(lost_task(error)))
    }

    /// Refuses further writes.
    pub(crate) fn stop(&self) {
        self.queue.close();
    }

    /// Closes the connection, which folds the write-ahead log into the file.
    pub(crate) async fn close(&self) {
        let connection = self.slot.lock().await.connection.take();
        if let Some(connection) = connection {
            // Everything that was answered is on the disk already.
            let _ = connection.close().await;
        }
    }
}

impl Slot {
    async fn connect(&self) -> Result<SqliteConnection> {
        SqliteConnection::connect_with(&self.options).await.map_err(|e| store_error(&e, Step::Statement))
    }
}

/// What a call gets, when the connection may be used again.
pub(crate) type Outcome<T> = Result<T>;

async fn transact<T, F>(connection: &mut SqliteConnection, work: F) -> Result<Outcome<T>>
where
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> Work<'c, T> + Send,
{
    execute(connection, "BEGIN IMMEDIATE", Step::Statement).await?;
    match work(connection).await {
        Ok(value) => {
            // A failed commit may leave the transaction open: the connection is closed then, which undoes it.
            execute(connection, "COMMIT", Step::Commit).await?;
            Ok(Ok(value))
        }
        Err(error) => match execute(connection, "ROLLBACK", Step::Statement).await {
            Ok(()) => Ok(Err(error)),
            // SQLite undid it by itself (disk full, I/O error), or worse.
            Err(_) => Err(error),
        },
    }
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str, step: Step) -> Result<()> {
    sqlx::query(sql).execute(connection).await.map(drop).map_err(|error| store_error(&error, step))
}
