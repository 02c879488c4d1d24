//! Whether this is still the history that progress was recorded in: the generation, and progress beyond the log's head.

use std::sync::Arc;

use portero_store::{ClaimedLane, Result, Subscription, codec};
use portero_types::{Generation, LaneNo, ShardCount};
use sqlx::{SqliteConnection, SqlitePool};

use crate::error::{refused, statement};
use crate::file::FileLock;
use crate::log::json;
use crate::row::{get, signed};
use crate::{SqliteStore, lost_task};

pub(super) async fn generation(pool: &SqlitePool) -> Result<Generation> {
    let sql = "SELECT generation FROM installation";
    let row = sqlx::query(sql).fetch_one(pool).await.map_err(statement)?;
    get(&row, "generation").map(Generation)
}

pub(super) async fn raise(connection: &mut SqliteConnection, seen: Generation) -> Result<Generation> {
    sqlx::query("UPDATE installation SET generation = generation + 1 WHERE generation = ?")
        .bind(seen.0)
        .execute(&mut *connection)
        .await
        .map_err(statement)?;
    let row = sqlx::query("SELECT generation FROM installation").fetch_one(connection).await;
    get(&row.map_err(statement)?, "generation").map(Generation)
}

/// Recognises the file by the mark that it carries, and gives it a new one. A file without the mark that was last given to the
/// one at this place was restored, or comes from elsewhere: the generation rises.
///
/// The mark beside the file is written before the one in it, together with the former, so that a start that is cut short between
/// the two is recognised too.
pub(super) async fn recognise(store: &SqliteStore) -> Result<Generation> {
    let known = at_file(store, |lock| lock.marks()).await?;
    let row = sqlx::query("SELECT incarnation, hex(randomblob(16)) AS next FROM installation")
        .fetch_one(store.readers.pool())
        .await
        .map_err(statement)?;
    let (carried, next): (Option<String>, String) = (get(&row, "incarnation")?, get(&row, "next")?);
    // A new file carries none, which is an empty line.
    let carried = carried.unwrap_or_default();
    let is_same = if known.is_empty() { carried.is_empty() } else { known.contains(&carried) };
    let both = (carried, next.clone());
    at_file(store, move |lock| lock.set_marks(&[&both.0, &both.1])).await?;
    let mark = next.clone();
    let present = store.writer.write(move |connection| Box::pin(give(connection, mark, is_same))).await?;
    at_file(store, move |lock| lock.set_marks(&[&next])).await?;
    if !is_same {
        tracing::error!(
            generation = present.0,
            "the database file is not the one that was here last: it was restored or moved; the generation was raised"
        );
    }
    Ok(present)
}

async fn give(connection: &mut SqliteConnection, mark: String, is_same: bool) -> Result<Generation> {
    let sql = "UPDATE installation SET incarnation = ?, generation = generation + ? RETURNING generation";
    let row = sqlx::query(sql).bind(mark).bind(!is_same).fetch_one(connection).await.map_err(statement)?;
    get(&row, "generation").map(Generation)
}

async fn at_file<T: Send + 'static>(
    store: &SqliteStore,
    work: impl FnOnce(&FileLock) -> Result<T> + Send + 'static,
) -> Result<T> {
    let lock = Arc::clone(&store.lock);
    tokio::task::spawn_blocking(move || work(&lock)).await.unwrap_or_else(|error| Err(lost_task(error)))
}

/// Cuts what lies beyond its shard's head, in the lanes given and in the database, and raises the generation. Where nothing
/// does, this asks nothing of the database.
pub(super) async fn cut(
    connection: &mut SqliteConnection,
    heads: &[u64],
    shards: ShardCount,
    subscription: &Subscription,
    claimed: &mut [ClaimedLane],
) -> Result<()> {
    let head_of = |lane: LaneNo| {
        let shard = subscription.lanes.shard_of(lane, shards);
        heads.get(usize::from(shard.0)).copied().unwrap_or(0)
    };
    let (mut lanes, mut dropped) = (0, [0; 3]);
    for claimed in claimed {
        let head = head_of(claimed.lane.lane);
        if claimed.is_beyond(head) {
            claimed.cut_to(head);
            lanes += 1;
            let here = write(connection, claimed, head).await?;
            dropped.iter_mut().zip(here).for_each(|(sum, count)| *sum += count);
        }
    }
    if lanes == 0 {
        return Ok(());
    }
    let starts: Vec<u64> =
        subscription.starts_after.iter().zip(heads).map(|(start, head)| *start.min(head)).collect();
    sqlx::query("UPDATE subscriptions SET starts_after = ? WHERE subscription_no = ?")
        .bind(json(&starts))
        .bind(subscription.no.0)
        .execute(&mut *connection)
        .await
        .map_err(statement)?;
    sqlx::query("UPDATE installation SET generation = generation + 1")
        .execute(connection)
        .await
        .map_err(statement)?;
    let [parked, deferred, dead] = dropped;
    tracing::error!(
        subscription.id = %subscription.id, lanes, parked, deferred, dead,
        "progress lay beyond the log's head: committed events were lost; it was cut to the head and the generation raised"
    );
    Ok(())
}

/// Writes a cut lane. How many parked entities that listed such, deferred events and dead letters were dropped.
async fn write(connection: &mut SqliteConnection, lane: &ClaimedLane, head: u64) -> Result<[u64; 3]> {
    let state = &lane.state;
    let acked = codec::encode_acked(state.watermark, &state.acked).map_err(|_| refused("acked positions"))?;
    let detours = codec::encode_detours(&state.detours).map_err(|_| refused("detours"))?;
    let (subscription, number, head) = (lane.lane.subscription.0, lane.lane.lane.0, signed(head, "a head")?);
    // Only the last state counts; older ones that are not compacted yet become as it is.
    sqlx::query(
        "UPDATE lane_journal SET watermark = min(watermark, ?3), acked = ?4, detours = ?5 \
         WHERE subscription_no = ?1 AND lane = ?2",
    )
    .bind(subscription)
    .bind(number)
    .bind(head)
    .bind(acked)
    .bind(detours)
    .execute(&mut *connection)
    .await
    .map_err(statement)?;
    let mut dropped = [0; 3];
    for (place, sql) in [
        "UPDATE parked_entities SET positions = (SELECT json_group_array(value) FROM json_each(positions) WHERE value <= ?3) \
         WHERE subscription_no = ?1 AND lane = ?2 AND EXISTS (SELECT 1 FROM json_each(positions) WHERE value > ?3)",
        "DELETE FROM deferred_events WHERE subscription_no = ?1 AND lane = ?2 AND position > ?3",
        "DELETE FROM dead_letters WHERE subscription_no = ?1 AND lane = ?2 AND position > ?3",
        "UPDATE parked_entities SET overflow_after = CASE WHEN overflow_after < ?3 THEN overflow_after END, \
         overflow_last = CASE WHEN overflow_after < ?3 THEN min(overflow_last, ?3) END \
         WHERE subscription_no = ?1 AND lane = ?2 AND overflow_last > ?3",
        "DELETE FROM parked_entities WHERE subscription_no = ?1 AND lane = ?2 AND ?3 >= 0 AND state <> 'blocked' \
         AND overflow_after IS NULL AND positions = '[]'",
    ]
    .into_iter()
    .enumerate()
    {
        let outcome =
            sqlx::query(sql).bind(subscription).bind(number).bind(head).execute(&mut *connection).await;
        let rows = outcome.map_err(statement)?.rows_affected();
        if let Some(count) = dropped.get_mut(place) {
            *count = rows;
        }
    }
    Ok(dropped)
}
