//! Taking over lanes. The order is the point: fence the expired owner and commit; take over with the next epoch; only then
//! read the journal. Whatever the old owner was told to be durable is in what the new one reads.

use portero_store::{ClaimedLane, JournalState, LaneKey, Result};
use portero_types::{Epoch, LaneCount, LaneNo, SessionId, ShardCount, SubscriptionNo};
use sqlx::postgres::PgRow;

use super::{history, parked, sessions, share};
use crate::error::corrupt;
use crate::lease::Tx;
use crate::pools::Pool;
use crate::row::{byte, get};

pub(super) async fn claim(
    pool: &Pool,
    shards: ShardCount,
    session: SessionId,
    subscription: SubscriptionNo,
    lanes: LaneCount,
    weight: u32,
) -> Result<Vec<ClaimedLane>> {
    sessions::fence_expired(pool, subscription).await?;
    let mut tx = Tx::begin(pool).await?;
    match claim_in(&mut tx, shards, session, subscription, lanes, weight).await {
        Ok(claimed) => tx.commit().await.map(|()| claimed),
        Err(error) => {
            tx.roll_back().await;
            Err(error)
        }
    }
}

async fn claim_in(
    tx: &mut Tx,
    shards: ShardCount,
    session: SessionId,
    subscription: SubscriptionNo,
    lanes: LaneCount,
    weight: u32,
) -> Result<Vec<ClaimedLane>> {
    let starts_after = lock(tx, subscription).await?.ok_or_else(share::no_subscription)?;
    sessions::hold(tx, session).await?;
    let wanted = share::weigh(tx, session, subscription, lanes, weight).await?;
    if wanted == 0 {
        return Ok(Vec::new());
    }

    let take = sqlx::query(
        "INSERT INTO lane_owners AS o (subscription_no, lane, session_id, epoch)
         SELECT $2, n, $1, 1 FROM generate_series(0, $3 - 1) AS n
         WHERE NOT EXISTS (
             SELECT FROM lane_owners l JOIN replica_sessions s ON s.session_id = l.session_id AND NOT s.fenced
             WHERE l.subscription_no = $2 AND l.lane = n
         )
         ORDER BY n LIMIT $4
         ON CONFLICT (subscription_no, lane) DO UPDATE SET session_id = $1, epoch = o.epoch + 1
         WHERE NOT EXISTS (SELECT FROM replica_sessions s WHERE s.session_id = o.session_id AND NOT s.fenced)
         RETURNING lane, epoch",
    )
    .bind(session.0)
    .bind(subscription.0)
    .bind(i32::from(lanes.get()))
    .bind(i64::from(wanted));
    let taken = tx.rows(take).await?;
    let lane = |row| Ok((LaneNo(byte(row, "lane")?), Epoch(get(row, "epoch")?)));
    let taken: Vec<(LaneNo, Epoch)> = taken.iter().map(lane).collect::<Result<_>>()?;
    progress(tx, shards, subscription, lanes, &starts_after, taken).await
}

/// What is known of lanes, cut to the log's heads where it lies beyond. The subscription's row is locked.
async fn progress(
    tx: &mut Tx,
    shards: ShardCount,
    subscription: SubscriptionNo,
    lanes: LaneCount,
    starts_after: &[i64],
    taken: Vec<(LaneNo, Epoch)>,
) -> Result<Vec<ClaimedLane>> {
    let mut found = Vec::with_capacity(taken.len());
    for (lane, epoch) in taken {
        let shard = lanes.shard_of(lane, shards);
        let start = starts_after.get(usize::from(shard.0)).copied().and_then(|n| u64::try_from(n).ok());
        found.push(ClaimedLane {
            lane: LaneKey { subscription, lane },
            epoch,
            state: JournalState {
                seq: 0,
                watermark: start.ok_or_else(|| corrupt("subscriptions.starts_after"))?,
                acked: Vec::new(),
                detours: Vec::new(),
            },
            parked: Vec::new(),
            deferred: Vec::new(),
        });
    }
    found.sort_by_key(|found| found.lane.lane);
    if !found.is_empty() {
        read_journal(tx, &mut found).await?;
        parked::load(tx, &mut found).await?;
        let heads = history::heads(tx, shards).await?;
        history::cut(tx, &heads, shards, lanes, &mut found).await?;
    }
    Ok(found)
}

/// Cuts all progress that lies beyond the log's heads, whoever owns it. At a claim it may be too late to notice: as soon as as
/// many events came in as were lost, new ones stand at positions that count as settled.
pub(super) async fn cut_all(pool: &Pool, shards: ShardCount) -> Result<()> {
    for (subscription, lanes) in history::suspects(pool, shards).await? {
        let mut tx = Tx::begin(pool).await?;
        match cut_one(&mut tx, shards, subscription, lanes).await {
            Ok(()) => tx.commit().await?,
            Err(error) => {
                tx.roll_back().await;
                return Err(error);
            }
        }
    }
    Ok(())
}

async fn cut_one(
    tx: &mut Tx,
    shards: ShardCount,
    subscription: SubscriptionNo,
    lanes: LaneCount,
) -> Result<()> {
    // It may have been deleted meanwhile.
    let found = lock(tx, subscription).await?;
    let Some(starts_after) = found else { return Ok(()) };
    // Nobody claims: the epochs mean nothing here.
    let all = lanes.lanes().map(|lane| (lane, Epoch(1))).collect();
    progress(tx, shards, subscription, lanes, &starts_after, all).await.map(drop)
}

/// Locks a subscription against claims, so that the next statement sees every session that won a lane before; where it begins.
async fn lock(tx: &mut Tx, subscription: SubscriptionNo) -> Result<Option<Vec<i64>>> {
    let lock =
        sqlx::query("SELECT starts_after FROM subscriptions WHERE subscription_no = $1 FOR NO KEY UPDATE");
    let found = tx.rows(lock.bind(subscription.0)).await?;
    found.first().map(|row| get(row, "starts_after")).transpose()
}

/// The last state of each lane; what it replaced is deleted.
async fn read_journal(tx: &mut Tx, claimed: &mut [ClaimedLane]) -> Result<()> {
    let numbers: Vec<i16> = claimed.iter().map(|claimed| i16::from(claimed.lane.lane.0)).collect();
    let subscription = claimed.first().map_or(0, |claimed| claimed.lane.subscription.0);
    let last = sqlx::query(
        "WITH last AS MATERIALIZED (
             SELECT j.* FROM unnest($2::smallint[]) AS g (lane)
             CROSS JOIN LATERAL (
                 SELECT * FROM lane_journal j WHERE j.subscription_no = $1 AND j.lane = g.lane
                 ORDER BY j.epoch DESC, j.seq DESC LIMIT 1
             ) j
         ), replaced AS (
             DELETE FROM lane_journal j USING last l
             WHERE j.subscription_no = $1 AND j.lane = l.lane AND (j.epoch, j.seq) < (l.epoch, l.seq)
         )
         SELECT lane, watermark, acked, detours FROM last",
    )
    .bind(subscription)
    .bind(&numbers);
    for row in &tx.rows(last).await? {
        let (lane, state) = state(row)?;
        let place = claimed.binary_search_by_key(&lane, |claimed| claimed.lane.lane);
        let claimed = &mut claimed[place.map_err(|_| corrupt("lane_journal.lane"))?];
        claimed.state = state;
    }
    Ok(())
}

fn state(row: &PgRow) -> Result<(LaneNo, JournalState)> {
    Ok((LaneNo(byte(row, "lane")?), history::state(row)?))
}
