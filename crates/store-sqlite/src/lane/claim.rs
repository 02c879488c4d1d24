//! Who owns which lane.

use std::collections::HashMap;

use portero_store::{ClaimedLane, Error, ErrorKind, LaneKey, Result, Subscription};
use portero_types::{Epoch, LaneCount, LaneNo, SessionId, ShardCount, SubscriptionNo};
use sqlx::SqliteConnection;

use super::{history, load, session, share};
use crate::config::subscription;
use crate::error::statement;
use crate::row::{get, unsigned};

/// Claims the lanes that `session` does not own yet, up to its share. It is the only one alive, so nobody alive owns them.
pub(super) async fn claim(
    connection: &mut SqliteConnection,
    session: SessionId,
    subscription: SubscriptionNo,
    lanes: LaneCount,
    weight: u32,
    shards: ShardCount,
) -> Result<Vec<ClaimedLane>> {
    session::check_alive(connection, session).await?;
    let subscription = subscription::by_no(connection, subscription).await?;
    if subscription.lanes != lanes {
        return Err(Error::new(
            ErrorKind::FailedPrecondition,
            "the subscription has another number of lanes",
        ));
    }
    share::weigh(connection, session, subscription.no, weight).await?;
    if share::target(session, lanes, weight) == 0 {
        return Ok(Vec::new());
    }
    let heads = load::heads(connection).await?;
    let owners = owners(connection, subscription.no).await?;
    let mut claimed = Vec::new();
    for lane in lanes.lanes() {
        let key = LaneKey { subscription: subscription.no, lane };
        let epoch = match owners.get(&lane) {
            Some((Some(owner), _)) if *owner == session.0.as_bytes() => continue,
            Some((_, epoch)) => Epoch(epoch + 1),
            None => Epoch(1),
        };
        take(connection, session, key, epoch).await?;
        claimed.push(progress(connection, &subscription, shards, lane, epoch).await?);
    }
    history::cut(connection, &heads, shards, &subscription, &mut claimed).await?;
    Ok(claimed)
}

/// Cuts all progress that lies beyond the log's heads. At a claim it may be too late to notice: as soon as as many events came
/// in as were lost, new ones stand at positions that count as settled.
pub(super) async fn cut_all(connection: &mut SqliteConnection, shards: ShardCount) -> Result<()> {
    let heads = load::heads(connection).await?;
    for subscription in subscription::all(connection).await? {
        let mut found = Vec::new();
        for lane in subscription.lanes.lanes() {
            // Nobody claims: the epoch means nothing here.
            found.push(progress(connection, &subscription, shards, lane, Epoch(1)).await?);
        }
        history::cut(connection, &heads, shards, &subscription, &mut found).await?;
    }
    Ok(())
}

/// What is known of a lane.
async fn progress(
    connection: &mut SqliteConnection,
    subscription: &Subscription,
    shards: ShardCount,
    lane: LaneNo,
    epoch: Epoch,
) -> Result<ClaimedLane> {
    let lane = LaneKey { subscription: subscription.no, lane };
    let shard = usize::from(subscription.lanes.shard_of(lane.lane, shards).0);
    let start = subscription.starts_after.get(shard).copied().unwrap_or(0);
    let state = load::journal(connection, lane, start).await?;
    let parked = load::parked(connection, lane).await?;
    let deferred = load::deferred(connection, lane).await?;
    Ok(ClaimedLane { lane, epoch, state, parked, deferred })
}

type Owner = (Option<Vec<u8>>, i64);

async fn owners(
    connection: &mut SqliteConnection,
    subscription: SubscriptionNo,
) -> Result<HashMap<LaneNo, Owner>> {
    let sql = "SELECT lane, session_id, epoch FROM lane_owners WHERE subscription_no = ?";
    let rows = sqlx::query(sql).bind(subscription.0).fetch_all(connection).await.map_err(statement)?;
    let owner = |row| Ok((LaneNo(unsigned(row, "lane")?), (get(row, "session_id")?, get(row, "epoch")?)));
    rows.iter().map(owner).collect()
}

async fn take(
    connection: &mut SqliteConnection,
    session: SessionId,
    lane: LaneKey,
    epoch: Epoch,
) -> Result<()> {
    let sql = "INSERT INTO lane_owners (subscription_no, lane, session_id, epoch) VALUES (?, ?, ?, ?) \
               ON CONFLICT (subscription_no, lane) DO UPDATE SET session_id = excluded.session_id, epoch = excluded.epoch";
    sqlx::query(sql)
        .bind(lane.subscription.0)
        .bind(lane.lane.0)
        .bind(session.0.as_bytes().as_slice())
        .bind(epoch.0)
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}
