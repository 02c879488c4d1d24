//! Readers: a small pool of connections that cannot write.

use std::time::Duration;

use portero_store::Result;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{SqliteConnection, SqlitePool};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::error::statement;
use crate::lost_task;
use crate::writer::Work;

/// Most connections for reading. Each has a thread of its own.
const CONNECTIONS_MAX: u32 = 4;
/// How long a read waits for a free connection before it fails as unavailable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(crate) struct Readers {
    pool: SqlitePool,
    tasks: TaskTracker,
}

impl Readers {
    pub(crate) fn open(options: SqliteConnectOptions, tasks: TaskTracker) -> Self {
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(options);
        Self { pool, tasks }
    }

    /// For single statements: each sees one moment, and a dropped one leaves nothing open.
    pub(crate) const fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// Runs several statements that see one moment, in a task that nobody cancels.
    pub(crate) async fn snapshot<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> Work<'c, T> + Send + 'static,
    {
        let pool = self.pool.clone();
        let task = async move {
            let mut transaction = pool.begin().await.map_err(statement)?;
            let outcome = work(&mut transaction).await;
            // Nothing was written, so this only ends the read.
            transaction.rollback().await.map_err(statement)?;
            outcome
        };
        self.tasks.spawn(task.in_current_span()).await.unwrap_or_else(|error| Err(lost_task(error)))
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}
