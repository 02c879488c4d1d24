//! What a lane's owner or a person reads.

use portero_store::{
    DeadLetter, Deferred, JournalState, LaneKey, Overflow, ParkedEntity, ParkedState, Result, codec,
};
use portero_types::{LaneNo, SubscriptionNo};
use sqlx::sqlite::SqliteRow;
use sqlx::{SqliteConnection, SqlitePool};

use crate::error::{corrupt, statement};
use crate::row::{entity, get, receipt_id, signed, timestamp, unsigned};

/// The last position of each shard.
pub(super) async fn heads(connection: &mut SqliteConnection) -> Result<Vec<u64>> {
    let sql = "SELECT head FROM log_heads ORDER BY shard";
    let rows = sqlx::query(sql).fetch_all(connection).await.map_err(statement)?;
    rows.iter().map(|row| unsigned(row, "head")).collect()
}

/// The last flushed progress as a new owner gets it, or the start.
pub(super) async fn journal(
    connection: &mut SqliteConnection,
    lane: LaneKey,
    start: u64,
) -> Result<JournalState> {
    let sql = "SELECT watermark, acked, detours FROM lane_journal WHERE subscription_no = ? AND lane = ? \
               ORDER BY epoch DESC, seq DESC LIMIT 1";
    let row = sqlx::query(sql)
        .bind(lane.subscription.0)
        .bind(lane.lane.0)
        .fetch_optional(connection)
        .await
        .map_err(statement)?;
    let Some(row) = row else {
        return Ok(JournalState { watermark: start, ..JournalState::default() });
    };
    let watermark = unsigned(&row, "watermark")?;
    let acked =
        codec::decode_acked(watermark, get(&row, "acked")?).map_err(|_| corrupt("lane_journal.acked"))?;
    let detours =
        codec::decode_detours(get(&row, "detours")?).map_err(|_| corrupt("lane_journal.detours"))?;
    Ok(JournalState { seq: 0, watermark, acked, detours })
}

/// The lane's parked entities with their positions, by entity.
pub(super) async fn parked(connection: &mut SqliteConnection, lane: LaneKey) -> Result<Vec<ParkedEntity>> {
    let sql = "SELECT * FROM parked_entities WHERE subscription_no = ? AND lane = ?";
    let rows = sqlx::query(sql)
        .bind(lane.subscription.0)
        .bind(lane.lane.0)
        .fetch_all(connection)
        .await
        .map_err(statement)?;
    let mut parked = rows.iter().map(parked_entity).collect::<Result<Vec<_>>>()?;
    // The database orders hashes as signed numbers.
    parked.sort_by_key(|parked| parked.entity);
    Ok(parked)
}

/// A number, or nothing where the column is NULL.
pub(super) fn optional(row: &SqliteRow, column: &'static str) -> Result<Option<u64>> {
    match get::<Option<i64>>(row, column)? {
        Some(_) => unsigned(row, column).map(Some),
        None => Ok(None),
    }
}

/// Why an entity is parked.
pub(super) fn state_of(row: &SqliteRow) -> Result<ParkedState> {
    match get(row, "state")? {
        "retry" => Ok(ParkedState::Retry),
        "held" => Ok(ParkedState::Held),
        "draining" => Ok(ParkedState::Draining),
        "blocked" => Ok(ParkedState::Blocked),
        _ => Err(corrupt("parked_entities.state")),
    }
}

fn parked_entity(row: &SqliteRow) -> Result<ParkedEntity> {
    let state = state_of(row)?;
    let overflow = match (optional(row, "overflow_after")?, optional(row, "overflow_last")?) {
        (Some(after), Some(last)) => Some(Overflow { after, last }),
        _ => None,
    };
    Ok(ParkedEntity {
        entity: entity(row)?,
        state,
        positions: serde_json::from_str(get(row, "positions")?)
            .map_err(|_| corrupt("parked_entities.positions"))?,
        overflow,
        attempts: unsigned(row, "attempts")?,
        interruptions: unsigned(row, "interruptions")?,
        due_at: timestamp(row, "due_at")?,
        first_failed_at: timestamp(row, "first_failed_at")?,
        reason_code: get(row, "reason_code")?,
        reason_text: get(row, "reason_text")?,
    })
}

/// The lane's deferred events, by position.
pub(super) async fn deferred(connection: &mut SqliteConnection, lane: LaneKey) -> Result<Vec<Deferred>> {
    let sql = "SELECT * FROM deferred_events WHERE subscription_no = ? AND lane = ? ORDER BY position";
    let rows = sqlx::query(sql)
        .bind(lane.subscription.0)
        .bind(lane.lane.0)
        .fetch_all(connection)
        .await
        .map_err(statement)?;
    rows.iter()
        .map(|row| {
            Ok(Deferred {
                entity: entity(row)?,
                position: unsigned(row, "position")?,
                deadline: timestamp(row, "deadline")?,
                reason_code: get(row, "reason_code")?,
                reason_text: get(row, "reason_text")?,
            })
        })
        .collect()
}

/// Dead letters of a subscription in the order of lane and position.
pub(super) async fn dead_letters(
    pool: &SqlitePool,
    subscription: SubscriptionNo,
    after: Option<(LaneNo, u64)>,
    limit: u32,
) -> Result<Vec<(LaneNo, DeadLetter)>> {
    let (lane, position) = after.map_or((LaneNo(0), 0), |after| after);
    let sql = "SELECT * FROM dead_letters WHERE subscription_no = ? AND (lane, position) > (?, ?) \
               ORDER BY lane, position LIMIT ?";
    let rows = sqlx::query(sql)
        .bind(subscription.0)
        .bind(lane.0)
        .bind(signed(position, "a position")?)
        .bind(limit)
        .fetch_all(pool)
        .await
        .map_err(statement)?;
    rows.iter().map(|row| Ok((LaneNo(unsigned(row, "lane")?), dead_letter(row)?))).collect()
}

fn dead_letter(row: &SqliteRow) -> Result<DeadLetter> {
    Ok(DeadLetter {
        position: unsigned(row, "position")?,
        receipt_id: receipt_id(row)?,
        entity: entity(row)?,
        attempts: unsigned(row, "attempts")?,
        interruptions: unsigned(row, "interruptions")?,
        reason_code: get(row, "reason_code")?,
        reason_text: get(row, "reason_text")?,
        first_failed_at: timestamp(row, "first_failed_at")?,
        died_at: timestamp(row, "died_at")?,
    })
}
