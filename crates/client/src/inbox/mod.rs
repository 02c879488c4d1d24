//! An event's effects once, in the consumer's own database.
//!
//! Delivery is at least once: after a crash, a broken stream or a take-over an event may come again. A consumer that notes
//! the event in the same transaction as its effects applies it once, whatever happens in between:
//!
//! ```no_run
//! # #[cfg(feature = "inbox-sqlite")] mod example {
//! use portero_client::inbox::{Once, once};
//! use portero_client::{Delivery, Outcome};
//!
//! async fn handle(pool: sqlx::SqlitePool, delivery: Delivery) -> Outcome {
//!     match apply(&pool, &delivery).await {
//!         Ok(()) => Outcome::Ack,
//!         Err(_) => Outcome::retry("DATABASE", "the database refused"),
//!     }
//! }
//!
//! async fn apply(pool: &sqlx::SqlitePool, delivery: &Delivery) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!     let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
//!     if once(&mut tx, "billing", delivery).await? == Once::Fresh {
//!         sqlx::query("UPDATE counters SET n = n + 1").execute(&mut *tx).await?;
//!     }
//!     tx.commit().await?;
//!     Ok(())
//! }
//! # }
//! ```
//!
//! # Tables
//!
//! [`SCHEMA`] is for the consumer's own migrations; [`create_tables`] runs it. `portero_inbox` has one row per applied event
//! and consumer, unique by receipt and, unless the event's id was derived from its bytes, also by the provider's event id:
//! the receipt may change when the gateway's database was restored and the provider sent the event again, the event id
//! does not. `portero_inbox_entity` fences what [`prune`] forgot: per entity the highest (generation, shard, position) of
//! the forgotten rows, at or below which a delivery counts as seen. Rows that are kept need no such fence, and it would be
//! wrong there: a deferred event rightly comes after later ones of its entity.
//!
//! Two consumers that get one event at the same moment serialise on the unique key: the second waits for the first's
//! commit and then sees the event (Postgres at READ COMMITTED, SQLite always).

mod sql;

pub use sql::{Dialect, SCHEMA};

use portero_types::Timestamp;
use sqlx::Transaction;

use crate::delivery::Delivery;

/// Whether an event's effects are to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Once {
    /// First time: apply them in this transaction, then commit.
    Fresh,
    /// They are applied already: change nothing, and ack.
    Seen,
}

/// Why the inbox could not answer. The transaction is to be rolled back and the event retried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database refused.
    #[error("the inbox's database refused")]
    Database(#[from] sqlx::Error),
    /// A position beyond 2⁶³−1, which no gateway hands out.
    #[error("the delivery's position is out of range")]
    Position,
}

/// Notes the event of a delivery for a consumer (1 to 128 bytes: the subscription's or the service's name) within the
/// caller's transaction, and says whether it is new. The note and the effects are committed or rolled back together.
///
/// On SQLite begin with `BEGIN IMMEDIATE`, so that a concurrent writer makes this one wait instead of fail. Not cancel safe:
/// roll the transaction back.
///
/// # Errors
/// [`Error::Database`].
pub async fn once<DB: Dialect>(
    tx: &mut Transaction<'_, DB>,
    consumer: &str,
    delivery: &Delivery,
) -> Result<Once, Error> {
    let entry = Entry::of(consumer, delivery)?;
    if DB::is_forgotten(tx, &entry).await? {
        return Ok(Once::Seen);
    }
    Ok(if DB::insert(tx, &entry).await? { Once::Fresh } else { Once::Seen })
}

/// Forgets a consumer's events that the gateway received before a moment, and fences them; gives back how many. Keep at
/// least the subscription's defer deadline (24 hours by default), or a deferred event could be taken for one that was
/// applied; the gateway's dedup window (35 days by default) is a good choice. Within the caller's transaction.
///
/// # Errors
/// [`Error::Database`].
pub async fn prune<DB: Dialect>(
    tx: &mut Transaction<'_, DB>,
    consumer: &str,
    received_before: Timestamp,
) -> Result<u64, Error> {
    DB::fence(tx, consumer, received_before.as_micros()).await?;
    Ok(DB::delete(tx, consumer, received_before.as_micros()).await?)
}

/// Creates the tables of [`SCHEMA`] where they are missing, within the caller's transaction.
///
/// # Errors
/// [`Error::Database`].
pub async fn create_tables<DB: Dialect>(tx: &mut Transaction<'_, DB>) -> Result<(), Error> {
    for statement in SCHEMA.split_inclusive(';').filter(|statement| !statement.trim().is_empty()) {
        DB::execute(tx, statement).await?;
    }
    Ok(())
}

/// A row of the inbox.
pub(crate) struct Entry<'a> {
    consumer: &'a str,
    receipt_id: &'a str,
    event_key: Option<String>,
    entity: String,
    generation: i64,
    shard: i64,
    position: i64,
    received_at: i64,
}

impl<'a> Entry<'a> {
    fn of(consumer: &'a str, delivery: &'a Delivery) -> Result<Self, Error> {
        // Tenant and provider hold no `/`.
        let event_key = (!delivery.event().event_id_derived)
            .then(|| format!("{}/{}/{}", delivery.tenant(), delivery.provider(), delivery.event_id()));
        let (tenant, key) = delivery.entity();
        Ok(Self {
            consumer,
            receipt_id: delivery.receipt_id(),
            event_key,
            entity: format!("{tenant}/{key}"),
            generation: delivery.generation(),
            shard: i64::from(delivery.shard()),
            position: i64::try_from(delivery.position()).map_err(|_| Error::Position)?,
            received_at: delivery.received_at().as_micros(),
        })
    }
}
