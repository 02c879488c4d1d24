//! Writing what changed in lanes, all of it or nothing.

use std::collections::HashSet;

use portero_store::{DeadLetter, Deferred, LaneFlush, LaneKey, ParkedEntity, ParkedState, Result, codec};
use portero_types::{EntityHash, Epoch, LaneNo, SessionId, SubscriptionNo};
use sqlx::SqliteConnection;

use super::session;
use crate::error::{refused, statement};
use crate::log::json;
use crate::row::{get, signed, unsigned};

/// Every so many flushes of a lane its superseded states are deleted, and with the first of an epoch.
const COMPACT_EVERY: u64 = 64;

/// Writes the flushes of lanes that the session owns under the given epoch; those lanes are the answer.
pub(super) async fn flush(
    connection: &mut SqliteConnection,
    session: SessionId,
    flushes: Vec<LaneFlush>,
) -> Result<Vec<LaneKey>> {
    session::check_alive(connection, session).await?;
    let owned = owned(connection, session).await?;
    let mut written = Vec::with_capacity(flushes.len());
    for flush in flushes {
        if !owned.contains(&(flush.lane, flush.epoch)) {
            continue;
        }
        if append(connection, &flush).await? {
            apply(connection, &flush).await?;
        }
        written.push(flush.lane);
    }
    Ok(written)
}

async fn owned(connection: &mut SqliteConnection, session: SessionId) -> Result<HashSet<(LaneKey, Epoch)>> {
    let sql = "SELECT subscription_no, lane, epoch FROM lane_owners WHERE session_id = ?";
    let rows = sqlx::query(sql)
        .bind(session.0.as_bytes().as_slice())
        .fetch_all(connection)
        .await
        .map_err(statement)?;
    rows.iter()
        .map(|row| {
            let subscription = SubscriptionNo(get(row, "subscription_no")?);
            let lane = LaneNo(unsigned(row, "lane")?);
            Ok((LaneKey { subscription, lane }, Epoch(get(row, "epoch")?)))
        })
        .collect()
}

/// Appends a state to the journal. False when this flush, or a later one of its epoch, was written before.
async fn append(connection: &mut SqliteConnection, flush: &LaneFlush) -> Result<bool> {
    let state = &flush.state;
    let (subscription, lane) = (flush.lane.subscription.0, flush.lane.lane.0);
    let last = "SELECT epoch, seq, watermark FROM lane_journal WHERE subscription_no = ? AND lane = ? \
                ORDER BY epoch DESC, seq DESC LIMIT 1";
    let last = sqlx::query(last).bind(subscription).bind(lane).fetch_optional(&mut *connection).await;
    if let Some(last) = last.map_err(statement)? {
        if get::<i64>(&last, "epoch")? == flush.epoch.0 && state.seq <= unsigned(&last, "seq")? {
            return Ok(false);
        }
        if state.watermark < unsigned(&last, "watermark")? {
            return Err(refused("a watermark that falls"));
        }
    }
    let acked = codec::encode_acked(state.watermark, &state.acked)
        .map_err(|_| refused("a list of acked positions that does not rise above the watermark"))?;
    let detours = codec::encode_detours(&state.detours)
        .map_err(|_| refused("a list of acked positions that does not rise above the watermark"))?;
    let seq = signed(state.seq, "a sequence number")?;
    let sql = "INSERT INTO lane_journal (subscription_no, lane, epoch, seq, watermark, acked, detours) \
               VALUES (?, ?, ?, ?, ?, ?, ?)";
    sqlx::query(sql)
        .bind(subscription)
        .bind(lane)
        .bind(flush.epoch.0)
        .bind(seq)
        .bind(signed(state.watermark, "a watermark")?)
        .bind(acked)
        .bind(detours)
        .execute(&mut *connection)
        .await
        .map_err(statement)?;
    if state.seq % COMPACT_EVERY == 1 {
        sqlx::query(
            "DELETE FROM lane_journal WHERE subscription_no = ? AND lane = ? AND (epoch, seq) < (?, ?)",
        )
        .bind(subscription)
        .bind(lane)
        .bind(flush.epoch.0)
        .bind(seq)
        .execute(connection)
        .await
        .map_err(statement)?;
    }
    Ok(true)
}

async fn apply(connection: &mut SqliteConnection, flush: &LaneFlush) -> Result<()> {
    for entity in &flush.unpark {
        unpark(connection, flush.lane, *entity).await?;
    }
    if !flush.undefer.is_empty() {
        undefer(connection, flush.lane, &flush.undefer).await?;
    }
    for parked in &flush.park {
        park(connection, flush.lane, parked).await?;
    }
    for deferred in &flush.defer {
        defer(connection, flush.lane, deferred).await?;
    }
    for letter in &flush.dead {
        bury(connection, flush.lane, letter).await?;
    }
    if flush.expired > 0 {
        sqlx::query("UPDATE subscriptions SET expired = expired + ? WHERE subscription_no = ?")
            .bind(signed(flush.expired, "a count")?)
            .bind(flush.lane.subscription.0)
            .execute(connection)
            .await
            .map_err(statement)?;
    }
    Ok(())
}

/// Forgets a parked entity.
async fn unpark(connection: &mut SqliteConnection, lane: LaneKey, entity: EntityHash) -> Result<()> {
    sqlx::query("DELETE FROM parked_entities WHERE subscription_no = ? AND lane = ? AND entity_hash = ?")
        .bind(lane.subscription.0)
        .bind(lane.lane.0)
        .bind(entity.to_bits())
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}

async fn park(connection: &mut SqliteConnection, lane: LaneKey, parked: &ParkedEntity) -> Result<()> {
    if parked.positions.is_empty() && parked.overflow.is_none() && parked.state != ParkedState::Blocked {
        return Err(refused("a parked entity without positions"));
    }
    let state = match parked.state {
        ParkedState::Retry => "retry",
        ParkedState::Held => "held",
        ParkedState::Draining => "draining",
        ParkedState::Blocked => "blocked",
    };
    let sql = "INSERT INTO parked_entities (subscription_no, lane, entity_hash, state, attempts, interruptions, due_at, \
               first_failed_at, reason_code, reason_text, overflow_after, overflow_last, positions) \
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
               ON CONFLICT (subscription_no, lane, entity_hash) DO UPDATE SET state = excluded.state, \
               attempts = excluded.attempts, interruptions = excluded.interruptions, due_at = excluded.due_at, \
               first_failed_at = excluded.first_failed_at, reason_code = excluded.reason_code, \
               reason_text = excluded.reason_text, overflow_after = excluded.overflow_after, \
               overflow_last = excluded.overflow_last, positions = excluded.positions";
    sqlx::query(sql)
        .bind(lane.subscription.0)
        .bind(lane.lane.0)
        .bind(parked.entity.to_bits())
        .bind(state)
        .bind(parked.attempts)
        .bind(parked.interruptions)
        .bind(parked.due_at.as_micros())
        .bind(parked.first_failed_at.as_micros())
        .bind(&*codec::clean_reason(&parked.reason_code))
        .bind(&*codec::clean_reason(&parked.reason_text))
        .bind(parked.overflow.map(|o| signed(o.after, "a position")).transpose()?)
        .bind(parked.overflow.map(|o| signed(o.last, "a position")).transpose()?)
        .bind(json(&parked.positions))
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}

async fn undefer(connection: &mut SqliteConnection, lane: LaneKey, positions: &[u64]) -> Result<()> {
    let sql = "DELETE FROM deferred_events WHERE subscription_no = ? AND lane = ? \
               AND position IN (SELECT value FROM json_each(?))";
    sqlx::query(sql)
        .bind(lane.subscription.0)
        .bind(lane.lane.0)
        .bind(json(positions))
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}

async fn defer(connection: &mut SqliteConnection, lane: LaneKey, deferred: &Deferred) -> Result<()> {
    let sql = "INSERT INTO deferred_events (subscription_no, lane, position, entity_hash, deadline, reason_code, \
               reason_text) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (subscription_no, lane, position) DO UPDATE SET \
               entity_hash = excluded.entity_hash, deadline = excluded.deadline, reason_code = excluded.reason_code, \
               reason_text = excluded.reason_text";
    sqlx::query(sql)
        .bind(lane.subscription.0)
        .bind(lane.lane.0)
        .bind(signed(deferred.position, "a position")?)
        .bind(deferred.entity.to_bits())
        .bind(deferred.deadline.as_micros())
        .bind(&*codec::clean_reason(&deferred.reason_code))
        .bind(&*codec::clean_reason(&deferred.reason_text))
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}

async fn bury(connection: &mut SqliteConnection, lane: LaneKey, letter: &DeadLetter) -> Result<()> {
    let sql = "INSERT INTO dead_letters (subscription_no, lane, position, receipt_id, entity_hash, attempts, \
               interruptions, reason_code, reason_text, first_failed_at, died_at) \
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING";
    sqlx::query(sql)
        .bind(lane.subscription.0)
        .bind(lane.lane.0)
        .bind(signed(letter.position, "a position")?)
        .bind(letter.receipt_id.0.as_bytes().as_slice())
        .bind(letter.entity.to_bits())
        .bind(letter.attempts)
        .bind(letter.interruptions)
        .bind(&*codec::clean_reason(&letter.reason_code))
        .bind(&*codec::clean_reason(&letter.reason_text))
        .bind(letter.first_failed_at.as_micros())
        .bind(letter.died_at.as_micros())
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}
