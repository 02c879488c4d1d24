//! The queue to compare with: one row per event and `SELECT … FOR UPDATE SKIP LOCKED`, as a good engineer writes it.
//!
//! Bodies lie in a table of their own and stay there, so that what changes is narrow: a job is an id, an entity, a lease
//! and a count of attempts. The first job of each entity is the only one that may be taken, which a probe of the index on
//! (entity, id) decides. Jobs are taken in batches and deleted in batches. Autovacuum looks at the table early, and pages
//! keep room for updates in place.
//!
//! Three ways of taking jobs ([`Take`]): in batches by a lease, which survives a crash of the worker, counts attempts and
//! lets each job end by itself, as Portero does; in batches by row locks of a transaction that stays open while the batch
//! is handled, which writes less and promises less: nothing counts attempts, and the slowest job holds up its whole batch;
//! or one at a time by such a transaction, as such queues are mostly written, by many connections.
//!
//! The worker asks the database directly. That spares it the hop that Portero's consumer has by way of the gateway.

pub(crate) mod worker;

use anyhow::Context as _;
use sqlx::PgConnection;

use super::Size;
use crate::database::Database;
use crate::progress::say;
use crate::stripe::Events;

/// Rows of one INSERT.
const BATCH: u64 = 1_000;
/// Events between two lines of progress.
const TELL_EVERY: u64 = 50_000;

/// How a batch is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Take {
    /// Marked as taken until a time, in a transaction of its own.
    Lease,
    /// Locked by a transaction that lasts until the batch is done.
    Held,
    /// One job at a time, locked by a transaction that lasts until it is done.
    One,
}

impl Take {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Held => "held",
            Self::One => "one",
        }
    }
}

const TABLES: &str = "
CREATE TABLE payloads (
    id     bigint PRIMARY KEY,
    entity bigint NOT NULL,
    body   bytea  NOT NULL
) WITH (toast_tuple_target = 8160);
ALTER TABLE payloads ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE jobs (
    id           bigint      PRIMARY KEY,
    entity       bigint      NOT NULL,
    attempts     integer     NOT NULL DEFAULT 0,
    leased_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX jobs_entity ON jobs (entity, id);";

/// Makes the tables and writes the bodies, ids 0 to `size.events`.
pub(super) async fn fill(database: &Database, size: Size) -> anyhow::Result<()> {
    database.execute(TABLES).await.context("creating the queue's tables")?;
    let events = Events::new(size.body_bytes, 0, size.entities)?;
    let mut connection = database.connect().await?;
    let mut from = 0;
    while from < size.events {
        let to = (from + BATCH).min(size.events);
        write(&mut connection, &events, from..to, size.entities).await?;
        if to.is_multiple_of(TELL_EVERY) {
            say(&format!("queue: {to} of {} events", size.events));
        }
        from = to;
    }
    Ok(sqlx::Connection::close(connection).await?)
}

async fn write(
    connection: &mut PgConnection,
    events: &Events,
    numbers: std::ops::Range<u64>,
    entities: u64,
) -> anyhow::Result<()> {
    let (mut ids, mut about, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    for n in numbers {
        let mut body = Vec::with_capacity(events.bytes());
        events.write(n, &mut body);
        ids.push(i64::try_from(n)?);
        about.push(i64::try_from(n % entities)?);
        bodies.push(body);
    }
    let insert = "INSERT INTO payloads (id, entity, body) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])";
    sqlx::query(insert).bind(ids).bind(about).bind(bodies).execute(connection).await?;
    Ok(())
}

/// Fills the queue with a job for each body, as fresh as a table can be.
pub(super) async fn enqueue(database: &Database) -> anyhow::Result<()> {
    let fill = "TRUNCATE jobs; INSERT INTO jobs (id, entity) SELECT id, entity FROM payloads ORDER BY id";
    database.execute(fill).await.context("filling the queue")?;
    database.settle().await
}
