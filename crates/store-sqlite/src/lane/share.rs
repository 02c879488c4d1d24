//! Weights, shares and streams. One session is alive at a time, so it should have every lane of what it attends.

use portero_store::{Result, Roll, Share, balance};
use portero_types::{Generation, LaneCount, LaneNo, SessionId, SubscriptionNo};
use sqlx::sqlite::SqliteRow;
use sqlx::{SqliteConnection, SqlitePool};

use super::session::{self, fenced};
use crate::config::subscription;
use crate::error::{corrupt, statement};
use crate::log::json;
use crate::row::{from_json, get, unsigned};

/// Everything about all subscriptions of a session, from one snapshot; each part is found by its key.
const ROLL: &str = "
SELECT installation.generation, mine.* FROM installation
JOIN replica_sessions AS me ON me.session_id = ?1 AND me.fenced = 0
LEFT JOIN (
    SELECT u.subscription_no, u.lanes,
           coalesce((SELECT w.weight FROM lane_shares w
                     WHERE w.subscription_no = u.subscription_no AND w.session_id = ?1), 0) AS weight,
           (SELECT count(*) FROM lane_owners o
            WHERE o.subscription_no = u.subscription_no AND o.session_id = ?1) AS owned,
           (SELECT json_group_array(c.instance ORDER BY c.instance) FROM consumer_streams c
            WHERE c.subscription_no = u.subscription_no AND c.session_id = ?1 AND (c.replaced OR EXISTS (
                SELECT 1 FROM consumer_streams n WHERE n.subscription_no = c.subscription_no
                AND n.instance = c.instance AND n.joined > c.joined
            ))) AS replaced,
           EXISTS (SELECT 1 FROM lane_requests r JOIN lane_owners o USING (subscription_no, lane)
                   WHERE r.subscription_no = u.subscription_no AND o.session_id = ?1) AS has_requests
    FROM subscriptions u WHERE u.subscription_no IN (
        SELECT subscription_no FROM lane_shares WHERE session_id = ?1
        UNION SELECT subscription_no FROM lane_owners WHERE session_id = ?1
    )
) AS mine ON true
ORDER BY mine.subscription_no";

pub(super) async fn roll(pool: &SqlitePool, session: SessionId) -> Result<Roll> {
    let rows =
        sqlx::query(ROLL).bind(session.0.as_bytes().as_slice()).fetch_all(pool).await.map_err(statement)?;
    let generation = Generation(get(rows.first().ok_or_else(fenced)?, "generation")?);
    let mut shares = Vec::with_capacity(rows.len());
    for row in &rows {
        if let Some(subscription) = get::<Option<i64>>(row, "subscription_no")? {
            shares.push(share(session, SubscriptionNo(subscription), row)?);
        }
    }
    Ok(Roll { generation, shares })
}

fn share(session: SessionId, subscription: SubscriptionNo, row: &SqliteRow) -> Result<Share> {
    let lanes = LaneCount::new(unsigned(row, "lanes")?).map_err(|_| corrupt("subscriptions.lanes"))?;
    let owned: u16 = unsigned(row, "owned")?;
    Ok(Share {
        subscription,
        owned,
        free: lanes.get().saturating_sub(owned),
        target: target(session, lanes, unsigned(row, "weight")?),
        replaced: from_json(row, "replaced")?,
        has_requests: get(row, "has_requests")?,
    })
}

/// How many lanes the session should have, as the only one alive.
pub(super) fn target(session: SessionId, lanes: LaneCount, weight: u32) -> u16 {
    balance::targets(lanes, &[(session, weight)]).first().map_or(0, |(_, lanes)| *lanes)
}

/// Records how much of a subscription's work a session takes. Whether anything changed.
pub(super) async fn attend(
    connection: &mut SqliteConnection,
    session: SessionId,
    subscription: SubscriptionNo,
    weight: u32,
) -> Result<bool> {
    session::check_unfenced(connection, session).await?;
    subscription::by_no(connection, subscription).await?;
    weigh(connection, session, subscription, weight).await
}

/// The same, for a session and a subscription that are there.
pub(super) async fn weigh(
    connection: &mut SqliteConnection,
    session: SessionId,
    subscription: SubscriptionNo,
    weight: u32,
) -> Result<bool> {
    let sql = if weight == 0 {
        "DELETE FROM lane_shares WHERE subscription_no = ?1 AND session_id = ?2 AND ?3 = 0"
    } else {
        "INSERT INTO lane_shares (subscription_no, session_id, weight) VALUES (?1, ?2, ?3) \
         ON CONFLICT (subscription_no, session_id) DO UPDATE SET weight = excluded.weight \
         WHERE lane_shares.weight <> excluded.weight"
    };
    let written = sqlx::query(sql)
        .bind(subscription.0)
        .bind(session.0.as_bytes().as_slice())
        .bind(weight)
        .execute(connection)
        .await
        .map_err(statement)?;
    Ok(written.rows_affected() > 0)
}

pub(super) async fn join(
    connection: &mut SqliteConnection,
    session: SessionId,
    subscription: SubscriptionNo,
    instance: String,
    boot: String,
) -> Result<()> {
    session::check_unfenced(connection, session).await?;
    subscription::by_no(connection, subscription).await?;
    let sql = "INSERT INTO consumer_streams (subscription_no, instance, session_id, boot, joined) \
               SELECT ?1, ?2, ?3, ?4, coalesce(max(joined), 0) + 1 FROM consumer_streams \
               WHERE subscription_no = ?1 AND instance = ?2 \
               ON CONFLICT (subscription_no, instance, session_id) DO UPDATE \
               SET boot = excluded.boot, joined = excluded.joined, replaced = 0";
    sqlx::query(sql)
        .bind(subscription.0)
        .bind(instance)
        .bind(session.0.as_bytes().as_slice())
        .bind(boot)
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}

/// Older streams of the instance stay replaced, although the newest is gone.
pub(super) async fn leave(
    connection: &mut SqliteConnection,
    session: SessionId,
    subscription: SubscriptionNo,
    instance: String,
    boot: String,
) -> Result<()> {
    let sql = "DELETE FROM consumer_streams \
               WHERE subscription_no = ? AND instance = ? AND session_id = ? AND boot = ? RETURNING joined";
    let gone = sqlx::query(sql)
        .bind(subscription.0)
        .bind(instance.as_str())
        .bind(session.0.as_bytes().as_slice())
        .bind(boot)
        .fetch_optional(&mut *connection)
        .await
        .map_err(statement)?;
    let Some(gone) = gone else { return Ok(()) };
    let sql =
        "UPDATE consumer_streams SET replaced = 1 WHERE subscription_no = ? AND instance = ? AND joined < ?";
    sqlx::query(sql)
        .bind(subscription.0)
        .bind(instance)
        .bind(get::<i64>(&gone, "joined")?)
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}

/// Makes lanes of a session nobody's; all of them when none are named, and the weight goes with them. Epochs stay.
pub(super) async fn release(
    connection: &mut SqliteConnection,
    session: SessionId,
    subscription: SubscriptionNo,
    lanes: Option<Vec<LaneNo>>,
) -> Result<()> {
    let named = lanes.map(|lanes| json(&lanes.into_iter().map(|lane| lane.0).collect::<Vec<_>>()));
    let is_all = named.is_none();
    sqlx::query(
        "UPDATE lane_owners SET session_id = NULL WHERE session_id = ?1 AND subscription_no = ?2 \
         AND (?3 IS NULL OR lane IN (SELECT value FROM json_each(?3)))",
    )
    .bind(session.0.as_bytes().as_slice())
    .bind(subscription.0)
    .bind(named)
    .execute(&mut *connection)
    .await
    .map_err(statement)?;
    if is_all {
        weigh(connection, session, subscription, 0).await?;
    }
    Ok(())
}
