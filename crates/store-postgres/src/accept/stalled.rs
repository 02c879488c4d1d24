//! Who stalls while it holds a shard's lock.
//!
//! An accept statement is one message, so nobody waits for its client while a lock is held. But a message can arrive in part: a
//! client that is frozen between the last two of its bytes leaves the statement done and its transaction open. Keepalive does
//! not see that, and servers before version 17 have no time-out for it. So whoever waited for a lock in vain ends such a holder.

use portero_store::Result;

use super::statement::SHARD_LOCKS;
use crate::error::Effect;
use crate::lease::rows;
use crate::pools::Pool;
use crate::row::get;

/// Ends connections of our own role that have held a shard's lock for five seconds and wait for their client. It is one
/// try: whatever fails here is tried again by the next one who waits in vain.
pub(super) async fn end_holders(pool: &Pool) {
    match try_end_holders(pool).await {
        Ok(0) => {}
        Ok(ended) => {
            tracing::warn!(ended, "connections that stalled while they held a shard's lock were ended");
        }
        Err(error) => tracing::warn!(%error, "whoever holds a shard's lock could not be looked up"),
    }
}

async fn try_end_holders(pool: &Pool) -> Result<i64> {
    let query = sqlx::query(
        "SELECT count(*) FILTER (WHERE pg_terminate_backend(h.pid)) AS ended FROM (
             SELECT DISTINCT l.pid FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
             WHERE l.locktype = 'advisory' AND l.classid = $1::bigint::oid AND l.objsubid = 2 AND l.granted
               AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND a.usename = current_user AND a.wait_event = 'ClientRead'
               AND a.xact_start < clock_timestamp() - interval '5 seconds'
         ) h",
    );
    let found = rows(pool, query.bind(i64::from(SHARD_LOCKS)), Effect::None).await?;
    found.first().map_or(Ok(0), |row| get(row, "ended"))
}
