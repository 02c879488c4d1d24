//! Sessions: opened, renewed, closed, fenced; all by the database's clock.

use std::time::Duration;

use portero_store::{NewSession, Result};
use portero_types::{SessionId, SubscriptionNo};

use super::fenced;
use crate::error::{Effect, broken_unique, store_error};
use crate::lease::{Tx, rows};
use crate::pools::Pool;

/// How often opening is tried against others that open a session of the same instance.
const TRIES: u32 = 5;

fn seconds(ttl: Duration) -> f64 {
    ttl.as_secs_f64()
}

/// Fences the older sessions of the instance, which waits for their flushes, and opens the new one. At most one session of
/// an instance can be live, by an index: of two that open at once the later one tries again and fences the earlier.
pub(super) async fn open(pool: &Pool, session: &NewSession) -> Result<()> {
    let mut tries = 1;
    loop {
        let query = sqlx::query(
            "WITH forgotten AS (
                 DELETE FROM replica_sessions s WHERE s.fenced AND s.expires_at < clock_timestamp() - interval '1 hour'
             ), older AS (
                 UPDATE replica_sessions SET fenced = true WHERE instance = $2 AND NOT fenced RETURNING session_id
             )
             INSERT INTO replica_sessions (session_id, instance, expires_at)
             SELECT $1, $2, clock_timestamp() + make_interval(secs => $3) FROM (SELECT count(*) FROM older) counted",
        )
        .bind(session.id.0)
        .bind(session.instance.as_str())
        .bind(seconds(session.ttl));
        let mut lease = pool.lease().await?;
        let outcome = lease.rows(query).await;
        let crossed = outcome.as_ref().is_err_and(|e| broken_unique(e) == Some("replica_sessions_instance"));
        match lease.done(outcome, Effect::Commits) {
            Err(_) if crossed && tries < TRIES => tries += 1,
            outcome => return outcome.map(|_| ()),
        }
    }
}

/// An expired session that nobody fenced has lost nothing, and lives on.
pub(super) async fn renew(pool: &Pool, session: SessionId, ttl: Duration) -> Result<()> {
    let query = sqlx::query(
        "UPDATE replica_sessions SET expires_at = clock_timestamp() + make_interval(secs => $2)
         WHERE session_id = $1 AND NOT fenced RETURNING session_id",
    )
    .bind(session.0)
    .bind(seconds(ttl));
    let renewed = rows(pool, query, Effect::Commits).await?;
    renewed.first().map(|_| ()).ok_or_else(fenced)
}

/// Fences the session, which waits for its flushes. Its lanes are free by that.
pub(super) async fn close(pool: &Pool, session: SessionId) -> Result<()> {
    let query = sqlx::query("UPDATE replica_sessions SET fenced = true WHERE session_id = $1 AND NOT fenced");
    rows(pool, query.bind(session.0), Effect::Commits).await.map(|_| ())
}

/// Fences the expired owners of a subscription's lanes and commits. It waits for flushes that they have under way.
pub(super) async fn fence_expired(pool: &Pool, subscription: SubscriptionNo) -> Result<()> {
    let query = sqlx::query(
        "UPDATE replica_sessions SET fenced = true
         WHERE NOT fenced AND expires_at <= clock_timestamp()
           AND session_id IN (SELECT session_id FROM lane_owners WHERE subscription_no = $1)",
    )
    .bind(subscription.0);
    rows(pool, query, Effect::Commits).await.map(|_| ())
}

/// Locks a live session in share mode, within a transaction.
pub(super) async fn hold(tx: &mut Tx, session: SessionId) -> Result<()> {
    let query = sqlx::query(
        "SELECT session_id FROM replica_sessions
         WHERE session_id = $1 AND NOT fenced AND expires_at > clock_timestamp() FOR SHARE",
    )
    .bind(session.0);
    let held = tx.try_rows(query).await.map_err(|e| store_error(&e, Effect::None))?;
    held.first().map(|_| ()).ok_or_else(fenced)
}
