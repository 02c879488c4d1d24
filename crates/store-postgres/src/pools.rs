//! Connections: apart by purpose, set up the same way, checked before use, closed when a call was abandoned half-way.
//!
//! The driver's own `begin` leaves an open transaction on a pooled connection when its future is dropped. Nothing here uses
//! it: a [`Lease`] that was not handed back is closed, which makes the server undo what was under way.

use std::future::Future;
use std::time::Duration;

use portero_store::{Error, ErrorKind, Result};
use sqlx::pool::{PoolConnection, PoolConnectionMetadata};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgRow};
use sqlx::{ConnectOptions, Connection, Executor, Postgres, Row};

use crate::error::{Effect, leaves_connection_usable, store_error};
use crate::options::PostgresConfig;

/// How long a transaction may stand idle between two of its statements before the server ends it.
const IDLE_IN_TRANSACTION_MS: u64 = 5_000;
/// A connection that was idle for longer is tried before it is used.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);
/// How much longer than the server we wait for its answer: the network's share.
const GRACE: Duration = Duration::from_secs(2);

/// What a pool is for decides how its sessions are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Accept statements.
    Ingest,
    /// Finding and counting repeats.
    Repeats,
    /// Everything else.
    Plain,
}

impl Purpose {
    /// Longest statement, milliseconds.
    const fn statement_timeout_ms(self) -> u64 {
        match self {
            Self::Ingest | Self::Plain => 10_000,
            Self::Repeats => 5_000,
        }
    }

    /// Longest wait for one lock, milliseconds.
    const fn lock_timeout_ms(self) -> u64 {
        match self {
            Self::Ingest => 2_000,
            Self::Repeats => 500,
            Self::Plain => 5_000,
        }
    }

    /// Settings beyond the common ones. Plans are fixed, so that an empty table's statistics never decide how a full one is
    /// read. Counts of repeats may be lost in a crash, so that they need not wait for the disk; nothing else may.
    const fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Ingest => {
                &[("plan_cache_mode", "force_generic_plan"), ("work_mem", "32MB"), ("enable_seqscan", "off")]
            }
            Self::Repeats => &[
                ("plan_cache_mode", "force_generic_plan"),
                ("enable_seqscan", "off"),
                ("enable_hashjoin", "off"),
                ("enable_mergejoin", "off"),
                ("synchronous_commit", "off"),
            ],
            Self::Plain => &[],
        }
    }
}

/// Connections of one purpose.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pool: PgPool,
    patience: Duration,
}

impl Pool {
    /// A connection for one statement or transaction.
    pub(crate) async fn lease(&self) -> Result<Lease> {
        let connection = self.pool.acquire().await.map_err(|e| store_error(&e, Effect::None))?;
        Ok(Lease { connection, patience: self.patience, clean: false })
    }

    /// A connection with an open transaction, READ COMMITTED.
    pub(crate) async fn begin(&self) -> Result<Tx> {
        self.begin_with("BEGIN").await
    }

    /// A connection with an open transaction that sees one snapshot and writes nothing.
    pub(crate) async fn begin_snapshot(&self) -> Result<Tx> {
        self.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await
    }

    async fn begin_with(&self, begin: &'static str) -> Result<Tx> {
        let mut lease = self.lease().await?;
        let patience = lease.patience;
        let begun = bounded(patience, lease.connection().execute(begin)).await;
        begun.map_err(|e| store_error(&e, Effect::None))?;
        Ok(Tx { lease })
    }

    /// Closes all connections, waiting for calls under way.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

/// All pools.
#[derive(Clone, Debug)]
pub(crate) struct Pools {
    pub(crate) ingest: Pool,
    pub(crate) repeats: Pool,
    pub(crate) flush: Pool,
    pub(crate) control: Pool,
    pub(crate) admin: Pool,
}

impl Pools {
    /// Checks the database with a first connection, then prepares the pools; they connect on demand.
    ///
    /// # Errors
    /// `FailedPrecondition` when the configuration cannot be used or the role's commits are asynchronous; `Unavailable`
    /// when the database cannot be reached.
    pub(crate) async fn open(config: &PostgresConfig) -> Result<Self> {
        let options = config.connect_options()?;
        let search_path = config.search_path()?;
        let check = async {
            let mut first = options.connect().await?;
            let durable = set_up(&mut first, Purpose::Plain, &search_path).await?;
            first.close().await.map(|()| durable)
        };
        let durable =
            bounded(config.acquire_timeout, check).await.map_err(|e| store_error(&e, Effect::None))?;
        if !durable {
            return Err(Error::new(
                ErrorKind::FailedPrecondition,
                "synchronous_commit is off for this role or database: an accepted event could vanish in a crash; set it to on",
            ));
        }
        let pool = |purpose, size| pool(config, &options, &search_path, purpose, size);
        Ok(Self {
            ingest: pool(Purpose::Ingest, config.pools.ingest),
            repeats: pool(Purpose::Repeats, config.pools.admin.div_ceil(2)),
            flush: pool(Purpose::Plain, config.pools.flush),
            control: pool(Purpose::Plain, config.pools.control),
            admin: pool(Purpose::Plain, config.pools.admin),
        })
    }

    /// Closes all pools.
    pub(crate) async fn close(&self) {
        for pool in [&self.ingest, &self.repeats, &self.flush, &self.control, &self.admin] {
            pool.close().await;
        }
    }
}

fn pool(
    config: &PostgresConfig,
    options: &PgConnectOptions,
    search_path: &str,
    purpose: Purpose,
    size: u32,
) -> Pool {
    let search_path = search_path.to_owned();
    let pool = PgPoolOptions::new()
        .max_connections(size.max(1))
        .acquire_timeout(config.acquire_timeout)
        .idle_timeout(Duration::from_mins(5))
        .max_lifetime(Duration::from_mins(30))
        .test_before_acquire(false)
        .before_acquire(move |connection, idle| {
            Box::pin(async move { is_fit(connection, purpose, idle).await })
        })
        .after_connect(move |connection, _| {
            let search_path = search_path.clone();
            Box::pin(async move {
                if set_up(connection, purpose, &search_path).await? {
                    return Ok(());
                }
                Err(sqlx::Error::Configuration("synchronous_commit is off for this role or database".into()))
            })
        })
        .connect_lazy_with(options.clone());
    Pool { pool, patience: Duration::from_millis(purpose.statement_timeout_ms()) + GRACE }
}

/// Sets a session up, independent of the defaults of server, database and role. Whether its commits wait for the disk.
async fn set_up(connection: &mut PgConnection, purpose: Purpose, search_path: &str) -> sqlx::Result<bool> {
    let statement_timeout = purpose.statement_timeout_ms().to_string();
    let lock_timeout = purpose.lock_timeout_ms().to_string();
    let idle_timeout = IDLE_IN_TRANSACTION_MS.to_string();
    let mut settings = vec![
        ("default_transaction_isolation", "read committed"),
        ("statement_timeout", &statement_timeout),
        ("lock_timeout", &lock_timeout),
        ("idle_in_transaction_session_timeout", &idle_timeout),
        // Servers from 17 on: also bounds a client that stalls in the middle of a message.
        ("transaction_timeout", &statement_timeout),
        ("jit", "off"),
        // A peer that vanished must not hold a shard's lock for long.
        ("tcp_keepalives_idle", "5"),
        ("tcp_keepalives_interval", "2"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "10000"),
    ];
    settings.extend_from_slice(purpose.settings());
    if !search_path.is_empty() {
        settings.push(("search_path", search_path));
    }
    let (names, values): (Vec<_>, Vec<_>) = settings.into_iter().unzip();
    let row = sqlx::query(
        "WITH before AS MATERIALIZED (SELECT current_setting('synchronous_commit') AS synchronous_commit)
         SELECT before.synchronous_commit,
                (SELECT count(set_config(s.name, s.value, false))
                 FROM before, unnest($1::text[], $2::text[]) AS s (name, value)
                 WHERE current_setting(s.name, true) IS NOT NULL)
         FROM before",
    )
    .persistent(false)
    .bind(names)
    .bind(values)
    .fetch_one(connection)
    .await?;
    Ok(row.try_get::<String, _>(0)? != "off")
}

/// Whether a pooled connection may be handed out. Ingest runs single statements only and is tried only after a rest;
/// elsewhere a transaction that was left open shows in its start time, and an aborted one in the refusal to answer.
async fn is_fit(
    connection: &mut PgConnection,
    purpose: Purpose,
    meta: PoolConnectionMetadata,
) -> sqlx::Result<bool> {
    if purpose != Purpose::Plain && meta.idle_for < TRUSTED_IDLE {
        return Ok(true);
    }
    // The simple protocol: in the extended one each message has a time of its own.
    let check = sqlx::raw_sql("SELECT transaction_timestamp() = statement_timestamp()");
    bounded(GRACE, check.fetch_one(connection)).await?.try_get(0)
}

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
    use super::*;
    use crate::harness::TestDatabase;

    async fn one_connection(database: &TestDatabase) -> Pools {
        let mut config = database.config();
        config.pools.admin = 1;
        Pools::open(&config).await.expect("opened")
    }

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
        let mut tx = pools.admin.begin().await.expect("begun");
        tx.rows(sqlx::query("CREATE TABLE t (n integer)")).await.expect("created");
        drop(tx);
        let query = sqlx::query("SELECT to_regclass('t') IS NULL AS undone");
        let found = rows(&pools.admin, query, Effect::None).await.expect("read");
        assert!(found[0].get::<bool, _>("undone"));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_session_is_set_up_whatever_the_defaults_are() {
        let database = TestDatabase::create().await;
        for setting in
            ["default_transaction_isolation = 'serializable'", "statement_timeout = 0", "lock_timeout = 0"]
        {
            database.run(format!("ALTER DATABASE {} SET {setting}", database.name())).await;
        }
        let pools = one_connection(&database).await;
        for pool in [&pools.ingest, &pools.repeats, &pools.flush, &pools.control, &pools.admin] {
            let query = sqlx::query(
                "SELECT current_setting('transaction_isolation') AS isolation,
                        current_setting('statement_timeout') <> '0' AND current_setting('lock_timeout') <> '0'
                        AND current_setting('idle_in_transaction_session_timeout') = '5s' AS bounded",
            );
            let found = rows(pool, query, Effect::None).await.expect("read");
            assert_eq!(found[0].get::<&str, _>("isolation"), "read committed");
            assert!(found[0].get::<bool, _>("bounded"));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn only_counting_repeats_does_not_wait_for_the_disk() {
        let database = TestDatabase::create().await;
        let pools = one_connection(&database).await;
        for (pool, expected) in [
            (&pools.ingest, "on"),
            (&pools.repeats, "off"),
            (&pools.flush, "on"),
            (&pools.control, "on"),
            (&pools.admin, "on"),
        ] {
            let query = sqlx::query("SELECT current_setting('synchronous_commit') AS value");
            let found = rows(pool, query, Effect::None).await.expect("read");
            assert_eq!(found[0].get::<&str, _>("value"), expected);
        }
    }
}
