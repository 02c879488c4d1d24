//! Whether this is still the history that progress was recorded in: the generation, and progress beyond the log's head.

use std::collections::BTreeMap;

use portero_store::{ClaimedLane, JournalState, Result, codec};
use portero_types::{Generation, LaneCount, ShardCount, SubscriptionNo};
use sqlx::postgres::PgRow;

use crate::error::{Effect, corrupt, refused};
use crate::lease::{Tx, rows};
use crate::pools::Pool;
use crate::row::{get, signed, unsigned};

pub(super) async fn generation(pool: &Pool) -> Result<Generation> {
    let found = rows(pool, sqlx::query("SELECT generation FROM installation"), Effect::None).await?;
    get(found.first().ok_or_else(|| corrupt("installation"))?, "generation").map(Generation)
}

pub(super) async fn raise(pool: &Pool, seen: Generation) -> Result<Generation> {
    let query = sqlx::query("UPDATE installation SET generation = generation + 1 WHERE generation = $1");
    rows(pool, query.bind(seen.0), Effect::Commits).await?;
    generation(pool).await
}

/// Records which server and timeline this is. When another one was recorded, the generation rises.
pub(super) async fn recognise(pool: &Pool, incarnation: &str) -> Result<Generation> {
    let query = sqlx::query(
        "UPDATE installation i SET incarnation = $1, generation = i.generation + (i.incarnation IS NOT NULL)::integer
         FROM installation old WHERE i.incarnation IS DISTINCT FROM $1
         RETURNING old.incarnation IS NOT NULL AS is_another",
    );
    let changed = rows(pool, query.bind(incarnation.to_owned()), Effect::Commits).await?;
    let present = generation(pool).await?;
    if changed.first().map(|row| get(row, "is_another")).transpose()?.unwrap_or(false) {
        tracing::error!(
            generation = present.0,
            "the database is another server, or was restored or failed over, since a gateway last looked; the generation was raised"
        );
    }
    Ok(present)
}

/// The positions of each shard that can never be handed out again. A sequence outlives the entries that retention drops and
/// is not undone by a rollback, so this is never below what somebody has seen.
pub(super) async fn heads(tx: &mut Tx, shards: ShardCount) -> Result<Vec<u64>> {
    let query = sqlx::query(
        "SELECT coalesce(pg_sequence_last_value(format('log_position_%s', n)::regclass), 0) AS head
         FROM generate_series(0, $1 - 1) AS n ORDER BY n",
    );
    let found = tx.rows(query.bind(i32::from(shards.get()))).await?;
    found.iter().map(|row| unsigned(row, "head")).collect()
}

/// A lane's state as the journal has it.
pub(super) fn state(row: &PgRow) -> Result<JournalState> {
    let watermark = unsigned(row, "watermark")?;
    let acked =
        codec::decode_acked(watermark, get(row, "acked")?).map_err(|_| corrupt("lane_journal.acked"))?;
    let detours = codec::decode_detours(get(row, "detours")?).map_err(|_| corrupt("lane_journal.detours"))?;
    Ok(JournalState { seq: 0, watermark, acked, detours })
}

/// Subscriptions of which something lies beyond a head. Only reads, so that a look is cheap while nothing does: what the
/// database cannot judge by itself, which are lists of settled positions and detours, is judged here.
pub(super) async fn suspects(pool: &Pool, shards: ShardCount) -> Result<Vec<(SubscriptionNo, LaneCount)>> {
    let query = sqlx::query(
        "WITH heads AS MATERIALIZED (
             SELECT n AS shard, coalesce(pg_sequence_last_value(format('log_position_%s', n)::regclass), 0) AS head
             FROM generate_series(0, $1 - 1) AS n
         ), found AS (
             SELECT s.subscription_no, s.lanes, h.head, j.watermark, j.acked, j.detours,
                    coalesce(j.watermark, s.starts_after[h.shard + 1]) > h.head
                    OR EXISTS (SELECT FROM parked_entities p WHERE p.subscription_no = s.subscription_no
                               AND p.lane = lane.n AND (p.overflow_last > h.head OR h.head < ANY (p.positions)))
                    OR EXISTS (SELECT FROM deferred_events d WHERE d.subscription_no = s.subscription_no
                               AND d.lane = lane.n AND d.position > h.head) AS is_beyond
             FROM subscriptions s CROSS JOIN generate_series(0, s.lanes - 1) AS lane (n)
             JOIN heads h ON h.shard = lane.n * $1 / s.lanes
             LEFT JOIN LATERAL (
                 SELECT watermark, acked, detours FROM lane_journal j
                 WHERE j.subscription_no = s.subscription_no AND j.lane = lane.n
                 ORDER BY j.epoch DESC, j.seq DESC LIMIT 1
             ) j ON true
         )
         SELECT * FROM found WHERE is_beyond OR octet_length(acked) > 0 OR octet_length(detours) > 0",
    );
    let mut suspects = BTreeMap::new();
    for row in &rows(pool, query.bind(i32::from(shards.get())), Effect::None).await? {
        if get(row, "is_beyond")? || state(row)?.is_beyond(unsigned(row, "head")?) {
            let lanes = u16::try_from(get::<i32>(row, "lanes")?).ok();
            let lanes = lanes.and_then(|lanes| LaneCount::new(lanes).ok());
            let lanes = lanes.ok_or_else(|| corrupt("subscriptions.lanes"))?;
            suspects.insert(SubscriptionNo(get(row, "subscription_no")?), lanes);
        }
    }
    Ok(suspects.into_iter().collect())
}

/// Cuts what lies beyond its shard's head, in the lanes given and in the database, and raises the generation. Where nothing
/// does, this asks nothing of the database.
pub(super) async fn cut(
    tx: &mut Tx,
    heads: &[u64],
    shards: ShardCount,
    lanes: LaneCount,
    claimed: &mut [ClaimedLane],
) -> Result<()> {
    let head_of = |claimed: &ClaimedLane| {
        let shard = lanes.shard_of(claimed.lane.lane, shards);
        heads.get(usize::from(shard.0)).copied().unwrap_or(0)
    };
    let mut beyond: Vec<&mut ClaimedLane> =
        claimed.iter_mut().filter(|claimed| claimed.is_beyond(head_of(claimed))).collect();
    let Some(subscription) = beyond.first().map(|claimed| claimed.lane.subscription.0) else { return Ok(()) };
    let mut heads_of = Vec::with_capacity(beyond.len());
    for claimed in &mut beyond {
        let head = head_of(claimed);
        claimed.cut_to(head);
        heads_of.push(signed(head, "a head")?);
    }
    let numbers: Vec<i16> = beyond.iter().map(|claimed| i16::from(claimed.lane.lane.0)).collect();
    let column = |encode: fn(&ClaimedLane) -> std::result::Result<Vec<u8>, codec::Malformed>| {
        beyond.iter().map(|claimed| encode(claimed)).collect::<std::result::Result<Vec<_>, _>>()
    };
    let acked = column(|lane| codec::encode_acked(lane.state.watermark, &lane.state.acked));
    let detours = column(|lane| codec::encode_detours(&lane.state.detours));
    let query = sqlx::query(
        "UPDATE lane_journal j SET watermark = least(j.watermark, g.head), acked = g.acked, detours = g.detours
         FROM unnest($2::smallint[], $3::bigint[], $4::bytea[], $5::bytea[]) AS g (lane, head, acked, detours)
         WHERE j.subscription_no = $1 AND j.lane = g.lane",
    )
    .bind(subscription)
    .bind(&numbers)
    .bind(&heads_of)
    .bind(acked.map_err(|_| refused("acked positions"))?)
    .bind(detours.map_err(|_| refused("detours"))?);
    tx.rows(query).await?;
    let all: Vec<i64> = heads.iter().map(|head| signed(*head, "a head")).collect::<Result<_>>()?;
    let start = sqlx::query(
        "UPDATE subscriptions u SET starts_after = array(
             SELECT least(s.n, h.n) FROM unnest(u.starts_after) WITH ORDINALITY AS s (n, shard)
             JOIN unnest($2::bigint[]) WITH ORDINALITY AS h (n, shard) USING (shard) ORDER BY shard
         ) WHERE subscription_no = $1",
    );
    tx.rows(start.bind(subscription).bind(all)).await?;
    let dropped = drop_beyond(tx, subscription, &numbers, &heads_of).await?;
    tx.rows(sqlx::query("UPDATE installation SET generation = generation + 1")).await?;
    let [parked, deferred, dead] = dropped;
    tracing::error!(
        subscription.no = subscription,
        lanes = numbers.len(),
        parked,
        deferred,
        dead,
        "progress lay beyond the log's head: committed events were lost; it was cut to the head and the generation raised"
    );
    Ok(())
}

/// How many parked positions, deferred events and dead letters were dropped.
async fn drop_beyond(tx: &mut Tx, subscription: i64, lanes: &[i16], heads: &[i64]) -> Result<[u64; 3]> {
    let mut dropped = [0; 3];
    for (place, statement) in [
        "SELECT count(*) AS dropped FROM unnest($2::smallint[], $3::bigint[]) AS g (lane, head)
         JOIN parked_entities p ON p.lane = g.lane CROSS JOIN LATERAL unnest(p.positions) AS n (position)
         WHERE p.subscription_no = $1 AND n.position > g.head",
        "WITH gone AS (
             DELETE FROM deferred_events d USING unnest($2::smallint[], $3::bigint[]) AS g (lane, head)
             WHERE d.subscription_no = $1 AND d.lane = g.lane AND d.position > g.head RETURNING 1
         ) SELECT count(*) AS dropped FROM gone",
        "WITH gone AS (
             DELETE FROM dead_letters d USING unnest($2::smallint[], $3::bigint[]) AS g (lane, head)
             WHERE d.subscription_no = $1 AND d.lane = g.lane AND d.position > g.head RETURNING 1
         ) SELECT count(*) AS dropped FROM gone",
    ]
    .into_iter()
    .enumerate()
    {
        let found = tx.rows(sqlx::query(statement).bind(subscription).bind(lanes).bind(heads)).await?;
        dropped[place] = found.first().map(|row| unsigned(row, "dropped")).transpose()?.unwrap_or(0);
    }
    for statement in [
        "UPDATE parked_entities p SET positions = array(
             SELECT n FROM unnest(p.positions) AS n WHERE n <= g.head ORDER BY n
         ) FROM unnest($2::smallint[], $3::bigint[]) AS g (lane, head)
         WHERE p.subscription_no = $1 AND p.lane = g.lane AND g.head < ANY (p.positions)",
        "UPDATE parked_entities p
         SET overflow_after = CASE WHEN p.overflow_after < g.head THEN p.overflow_after END,
             overflow_last = CASE WHEN p.overflow_after < g.head THEN least(p.overflow_last, g.head) END
         FROM unnest($2::smallint[], $3::bigint[]) AS g (lane, head)
         WHERE p.subscription_no = $1 AND p.lane = g.lane AND p.overflow_last > g.head",
        "DELETE FROM parked_entities p USING unnest($2::smallint[], $3::bigint[]) AS g (lane, head)
         WHERE p.subscription_no = $1 AND p.lane = g.lane AND p.state <> 'blocked' AND p.overflow_after IS NULL
           AND p.positions = '{}'",
    ] {
        tx.rows(sqlx::query(statement).bind(subscription).bind(lanes).bind(heads)).await?;
    }
    Ok(dropped)
}
