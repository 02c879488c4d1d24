//! Connections on loan, for one statement or one transaction.
//!
//! The driver's own `begin` leaves an open transaction on a pooled connection when its future is dropped. Nothing here uses
//! it: a [`Lease`] that was not handed back is closed, which makes the server undo what was under way.

use std::future::Future;
use std::time::Duration;

use portero_store::Result;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Executor, Postgres};

use crate::error::{Effect, leaves_connection_usable, store_error};
use crate::pools::Pool;

/// Waits for the server's answer up to a bound. Afterwards the connection is of no use and whatever was under way may have
/// happened.
pub(crate) async fn bounded<T>(
    patience: Duration,
    call: impl Future<Output = sqlx::Result<T>>,
) -> sqlx::Result<T> {
    match tokio::time::timeout(patience, call).await {
        Ok(outcome) => outcome,
        Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
    }
}

/// A connection on loan. Dropped before [`Lease::done`], it is closed and the server undoes what was under way, so any call
/// may be abandoned at any await.
pub(crate) struct Lease {
    connection: PoolConnection<Postgres>,
    patience: Duration,
    clean: bool,
}

impl Lease {
    pub(crate) const fn new(connection: PoolConnection<Postgres>, patience: Duration) -> Self {
        Self { connection, patience, clean: false }
    }

    /// The connection.
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Runs one statement to the server's final answer, which comes after its commit.
    pub(crate) async fn rows(&mut self, query: PgQuery<'_>) -> sqlx::Result<Vec<PgRow>> {
        bounded(self.patience, query.fetch_all(&mut *self.connection)).await
    }

    /// Hands the connection back and turns a failure into the store's.
    pub(crate) fn done<T>(mut self, outcome: sqlx::Result<T>, effect: Effect) -> Result<T> {
        self.clean = outcome.as_ref().map_or_else(leaves_connection_usable, |_| true);
        outcome.map_err(|e| store_error(&e, effect))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.clean {
            self.connection.close_on_drop();
        }
    }
}

/// A query with its arguments.
pub(crate) type PgQuery<'q> = sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments>;

/// Runs one statement on a pool.
pub(crate) async fn rows(pool: &Pool, query: PgQuery<'_>, effect: Effect) -> Result<Vec<PgRow>> {
    let mut lease = pool.lease().await?;
    let outcome = lease.rows(query).await;
    lease.done(outcome, effect)
}

/// A connection with an open transaction. Dropped before [`Tx::commit`], nothing of it happened.
pub(crate) struct Tx {
    lease: Lease,
}

impl Tx {
    /// Opens a transaction, READ COMMITTED.
    pub(crate) async fn begin(pool: &Pool) -> Result<Self> {
        Self::begin_with(pool, "BEGIN").await
    }

    /// Opens a transaction that sees one snapshot and writes nothing.
    pub(crate) async fn begin_snapshot(pool: &Pool) -> Result<Self> {
        Self::begin_with(pool, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await
    }

    async fn begin_with(pool: &Pool, begin: &'static str) -> Result<Self> {
        let mut lease = pool.lease().await?;
        let patience = lease.patience;
        let begun = bounded(patience, lease.connection().execute(begin)).await;
        begun.map_err(|e| store_error(&e, Effect::None))?;
        Ok(Self { lease })
    }

    /// Runs a statement of the transaction.
    pub(crate) async fn rows(&mut self, query: PgQuery<'_>) -> Result<Vec<PgRow>> {
        self.try_rows(query).await.map_err(|e| store_error(&e, Effect::None))
    }

    /// The same with the driver's error, for those who tell constraints apart.
    pub(crate) async fn try_rows(&mut self, query: PgQuery<'_>) -> sqlx::Result<Vec<PgRow>> {
        self.lease.rows(query).await
    }

    /// Commits.
    pub(crate) async fn commit(mut self) -> Result<()> {
        let patience = self.lease.patience;
        let outcome = bounded(patience, self.lease.connection().execute("COMMIT")).await;
        self.lease.done(outcome, Effect::Commits).map(|_| ())
    }

    /// Undoes everything and hands the connection back.
    pub(crate) async fn roll_back(mut self) {
        let patience = self.lease.patience;
        let outcome = bounded(patience, self.lease.connection().execute("ROLLBACK")).await;
        // When even that fails the connection is closed, which has the same effect.
        let _ = self.lease.done(outcome, Effect::None);
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Row;

    use super::*;
    use crate::harness::TestDatabase;
    use crate::pools::Pools;

    async fn one_connection(database: &TestDatabase) -> Pools {
        let mut config = database.config();
        config.pools.admin = 1;
        Pools::open(&config).await.expect("opened")
    }

    /// F43.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_that_was_left_inside_a_transaction_is_not_handed_out() {
        let database = TestDatabase::create().await;
        let pools = one_connection(&database).await;
        for poison in ["BEGIN", "BEGIN; SELECT no_such_column", "SELECT 1"] {
            let mut lease = pools.admin.lease().await.expect("leased");
            let outcome = sqlx::raw_sql(poison).execute(lease.connection()).await;
            let _ = lease.done(outcome.or(Ok(sqlx::postgres::PgQueryResult::default())), Effect::None);
            let table = format!("CREATE TABLE t{}", poison.len());
            let query = sqlx::query(sqlx::AssertSqlSafe(format!("{table} (n integer)")));
            rows(&pools.admin, query, Effect::Commits).await.expect("runs");
            database.run(format!("SELECT n FROM t{}", poison.len())).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_dropped_transaction_is_undone() {
        let database = TestDatabase::create().await;
        let pools = one_connection(&database).await;
        let mut tx = Tx::begin(&pools.admin).await.expect("begun");
        tx.rows(sqlx::query("CREATE TABLE t (n integer)")).await.expect("created");
        drop(tx);
        let query = sqlx::query("SELECT to_regclass('t') IS NULL AS undone");
        let found = rows(&pools.admin, query, Effect::None).await.expect("read");
        assert!(found[0].get::<bool, _>("undone"));
    }
}
