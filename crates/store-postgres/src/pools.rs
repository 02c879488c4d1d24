//! Pools of connections, apart by purpose.

use std::time::Duration;

use portero_store::{Error, ErrorKind, Result};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection};

use crate::error::{Effect, store_error};
use crate::lease::{Lease, bounded};
use crate::options::PostgresConfig;
use crate::session::{Purpose, is_fit, set_up};

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
        Ok(Lease::new(connection, self.patience))
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
    pub(crate) directory: Pool,
    pub(crate) lanes: Pool,
    pub(crate) admin: Pool,
    pub(crate) rejections: Pool,
}

/// Anybody can have requests refused: recording them gets one connection of its own, and nothing else waits for it.
const REJECTIONS_CONNECTIONS: u32 = 1;
/// Following the configuration waits for nothing else: who cannot follow accepts nothing.
const DIRECTORY_CONNECTIONS: u32 = 1;

impl Pools {
    /// Checks the database with a first connection, then prepares the pools; they connect on demand.
    ///
    /// # Errors
    /// `FailedPrecondition` when the configuration cannot be used, the role's commits are asynchronous, or the server is a
    /// standby; `Unavailable` when the database cannot be reached.
    pub(crate) async fn open(config: &PostgresConfig) -> Result<Self> {
        let options = config.connect_options()?;
        let search_path = config.search_path()?;
        let check = async {
            let mut first = options.connect().await?;
            let fitness = set_up(&mut first, Purpose::Plain, &search_path).await?;
            first.close().await.map(|()| fitness)
        };
        let fitness =
            bounded(config.acquire_timeout, check).await.map_err(|e| store_error(&e, Effect::None))?;
        fitness.map_err(|unfit| Error::new(ErrorKind::FailedPrecondition, unfit.message()))?;
        let pool = |purpose, size| pool(config, &options, &search_path, purpose, size);
        Ok(Self {
            ingest: pool(Purpose::Ingest, config.pools.ingest),
            repeats: pool(Purpose::Repeats, config.pools.admin.div_ceil(2)),
            flush: pool(Purpose::Delivery, config.pools.flush),
            control: pool(Purpose::Plain, config.pools.control),
            directory: pool(Purpose::Plain, DIRECTORY_CONNECTIONS),
            lanes: pool(Purpose::Plain, config.pools.control),
            admin: pool(Purpose::Plain, config.pools.admin),
            rejections: pool(Purpose::Rejections, REJECTIONS_CONNECTIONS),
        })
    }

    /// Closes all pools.
    pub(crate) async fn close(&self) {
        for pool in self.all() {
            pool.close().await;
        }
    }

    const fn all(&self) -> [&Pool; 8] {
        let Self { ingest, repeats, flush, control, directory, lanes, admin, rejections } = self;
        [ingest, repeats, flush, control, directory, lanes, admin, rejections]
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
                // After a failover the same address may lead to a standby.
                let fitness = set_up(connection, purpose, &search_path).await?;
                fitness.map_err(|unfit| sqlx::Error::Configuration(unfit.message().into()))
            })
        })
        .connect_lazy_with(options.clone());
    Pool { pool, patience: purpose.patience() }
}

#[cfg(test)]
mod tests {
    use sqlx::Row;

    use super::*;
    use crate::harness::TestDatabase;
    use crate::lease::rows;

    /// F2, F5, F43, F45.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_session_is_set_up_whatever_the_defaults_are() {
        let database = TestDatabase::create().await;
        for isolation in ["serializable", "repeatable read"] {
            let isolation = format!("default_transaction_isolation = '{isolation}'");
            for setting in [&isolation, "statement_timeout = 0", "lock_timeout = 0"] {
                database.run(format!("ALTER DATABASE {} SET {setting}", database.name())).await;
            }
            check_settings(&Pools::open(&database.config()).await.expect("opened")).await;
        }
    }

    async fn check_settings(pools: &Pools) {
        for pool in pools.all() {
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
    async fn only_counting_repeats_and_recording_rejections_do_not_wait_for_the_disk() {
        let database = TestDatabase::create().await;
        let pools = Pools::open(&database.config()).await.expect("opened");
        for (pool, expected) in [
            (&pools.ingest, "on"),
            (&pools.repeats, "off"),
            (&pools.flush, "on"),
            (&pools.control, "on"),
            (&pools.directory, "on"),
            (&pools.lanes, "on"),
            (&pools.admin, "on"),
            (&pools.rejections, "off"),
        ] {
            let query = sqlx::query("SELECT current_setting('synchronous_commit') AS value");
            let found = rows(pool, query, Effect::None).await.expect("read");
            assert_eq!(found[0].get::<&str, _>("value"), expected);
        }
    }
}
