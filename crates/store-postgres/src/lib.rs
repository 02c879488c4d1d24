//! The stores of Portero on PostgreSQL 15 and later.
//!
//! | module | what it keeps |
//! |---|---|
//! | `accept` | the accept statement: receipts, events and log entries in one commit |
//! | `log` | pages in commit order, bodies by receipt |
//! | `lane` | sessions, lanes, journal, parked entities, dead letters |
//! | `hints` | hints between gateways, on a connection of their own |
//! | `config` | tenants, sources, secrets, subscriptions, grants and their revision |
//! | `audit` | who changed what, as a chain |
//! | `rejection` | the newest refused requests of each source |
//! | `schema` | migrations, identity, health |
//!
//! **Commit order.** An accept statement takes the advisory lock of each shard it writes to after all its other writes, draws
//! positions from the shard's sequence under it, and keeps it until its commit is visible. So positions become visible in
//! ascending order and a reader that goes on from the last one it saw misses none. Duplicates are removed before.
//!
//! **Cancel safety.** A call that is dropped closes its connection, so that the server undoes what was under way; it may
//! still have been committed, as with any lost connection. Single statements commit by themselves; the few transactions
//! never use the driver's `begin`.
//!
//! This crate must never run a statement without its time-outs, hold a transaction across anything but its own
//! statements, use NOTIFY in an accept statement, read from a standby, or let the driver's texts out: they quote rows.

mod accept;
mod audit;
mod config;
mod error;
mod hints;
mod lane;
mod lease;
mod log;
mod options;
mod pools;
mod rejection;
mod row;
mod schema;
mod secret_use;
mod session;

// The tests' harness names this crate as users do.
#[cfg(test)]
extern crate self as portero_store_postgres;
#[cfg(test)]
#[path = "../tests/it/harness.rs"]
mod harness;

use std::sync::Arc;

use portero_store::Result;
use portero_types::ShardCount;
use tokio::sync::OnceCell;

pub use options::{PoolSizes, PostgresConfig};

use crate::accept::Statement;
use crate::pools::Pools;

/// All stores on one PostgreSQL database. Clones share its connections.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    pools: Pools,
    config: Arc<PostgresConfig>,
    accept: Arc<OnceCell<Statement>>,
}

impl PostgresStore {
    /// Reaches the database and checks that it can be used. The schema is not looked at: see
    /// [`portero_store::SchemaStore::schema_state`].
    ///
    /// # Errors
    /// `Unavailable` when the database cannot be reached within the acquire time-out; `FailedPrecondition` when the
    /// configuration cannot be used, the role commits asynchronously, or the server is a standby.
    pub async fn connect(config: PostgresConfig) -> Result<Self> {
        let pools = Pools::open(&config).await?;
        Ok(Self { pools, config: Arc::new(config), accept: Arc::new(OnceCell::new()) })
    }

    /// How many shards the log has.
    ///
    /// # Errors
    /// `Unavailable`; `SchemaMismatch` before the first migration.
    pub async fn shards(&self) -> Result<ShardCount> {
        Ok(self.accept_statement().await?.shards())
    }

    /// Closes all connections once the calls under way are done. Later calls fail as unavailable.
    pub async fn close(&self) {
        self.pools.close().await;
    }

    async fn accept_statement(&self) -> Result<&Statement> {
        self.accept.get_or_try_init(|| Statement::load(&self.pools.control)).await
    }
}
