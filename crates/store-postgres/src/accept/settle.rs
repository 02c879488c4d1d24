//! Waiting for the accept statements that are under way.
//!
//! A statement sees the database as it was when it began, so one that began before a revocation may still commit after it, the
//! later the longer it waits for locks. And a message may have arrived but for its last bytes: then the statement is done and
//! its transaction open for as long as its client is frozen. Who must know that nothing old is left waits here.

use std::collections::HashSet;
use std::time::Duration;

use portero_store::{Error, ErrorKind, Result};
use sqlx::postgres::PgRow;
use tokio::time::Instant;

use crate::error::Effect;
use crate::lease::rows;
use crate::pools::Pool;
use crate::row::get;

/// How often to look.
const PAUSE: Duration = Duration::from_millis(20);
/// How long one may wait for its client until it is ended.
const STALLED_AFTER: Duration = Duration::from_millis(300);

/// A transaction: the server's process and when it began.
type Transaction = (i32, i64);

/// Waits until none of those that are under way now is left.
pub(super) async fn settle(pool: &Pool, patience: Duration) -> Result<()> {
    let began = Instant::now();
    let mut older: HashSet<Transaction> = under_way(pool, false).await?;
    while !older.is_empty() {
        if began.elapsed() >= patience {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "events that began to be accepted before are still not decided",
            ));
        }
        tokio::time::sleep(PAUSE).await;
        let still = under_way(pool, began.elapsed() >= STALLED_AFTER).await?;
        older.retain(|transaction| still.contains(transaction));
    }
    Ok(())
}

/// The accept statements of our role in this database; those that wait for their client are ended, if asked for.
async fn under_way(pool: &Pool, end_stalled: bool) -> Result<HashSet<Transaction>> {
    let query = sqlx::query(
        "SELECT a.pid, (extract(epoch FROM a.xact_start) * 1000000)::bigint AS began,
                $1 AND a.wait_event = 'ClientRead' AND a.xact_start < clock_timestamp() - interval '300 milliseconds'
                AND pg_terminate_backend(a.pid) AS ended
         FROM pg_stat_activity a
         WHERE a.datname = current_database() AND a.usename = current_user AND a.xact_start IS NOT NULL
           AND a.pid <> pg_backend_pid() AND starts_with(a.query, 'WITH fresh AS (')",
    );
    let found = rows(pool, query.bind(end_stalled), Effect::None).await?;
    let mut ended = 0_u32;
    let mut transactions = HashSet::new();
    for row in &found {
        transactions.insert(transaction(row)?);
        ended += u32::from(get::<Option<bool>>(row, "ended")? == Some(true));
    }
    if ended > 0 {
        tracing::warn!(ended, "connections that stalled with events that were not decided were ended");
    }
    Ok(transactions)
}

fn transaction(row: &PgRow) -> Result<Transaction> {
    Ok((get(row, "pid")?, get(row, "began")?))
}
