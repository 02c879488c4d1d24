//! Waiting for the accept statements that are under way.
//!
//! A statement sees the database as it was when it began, so one that began before a revocation may still commit after it, the
//! later the longer it waits for locks. And a message may have arrived but for its last bytes: then the statement is done and
//! its transaction open for as long as its client is frozen. Who must know that nothing old is left waits here.

use std::collections::HashSet;
use std::time::Duration;

use portero_store::{Error, ErrorKind, Result};
use tokio::time::Instant;

use crate::error::Effect;
use crate::lease::rows;
use crate::pools::Pool;
use crate::row::get;

/// How often to look.
const PAUSE: Duration = Duration::from_millis(20);
/// How long one may wait for its client until it is ended.
const STALLED_AFTER: Duration = Duration::from_millis(300);

/// A transaction: the server's process and its virtual id.
type Transaction = (i32, String);

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

/// The transactions that write to the log: accept statements, whichever role runs them. They have their lock before they look at
/// anything, and anybody may see who has it, while others' statements show to their own role alone. Those of our role that
/// wait for their client are ended, if asked for.
async fn under_way(pool: &Pool, end_stalled: bool) -> Result<HashSet<Transaction>> {
    let query = sqlx::query(
        "SELECT l.pid, l.virtualtransaction,
                $1 AND a.usename = current_user AND a.wait_event = 'ClientRead'
                AND a.xact_start < clock_timestamp() - interval '300 milliseconds'
                AND pg_terminate_backend(l.pid) AS ended
         FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
         WHERE l.locktype = 'relation' AND l.relation = 'log'::regclass AND l.mode = 'RowExclusiveLock' AND l.granted
           AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND l.pid <> pg_backend_pid()",
    );
    let found = rows(pool, query.bind(end_stalled), Effect::None).await?;
    let mut ended = 0_u32;
    let mut transactions = HashSet::new();
    for row in &found {
        transactions.insert((get(row, "pid")?, get(row, "virtualtransaction")?));
        ended += u32::from(get::<Option<bool>>(row, "ended")? == Some(true));
    }
    if ended > 0 {
        tracing::warn!(ended, "connections that stalled with events that were not decided were ended");
    }
    Ok(transactions)
}
