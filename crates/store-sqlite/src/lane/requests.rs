//! What operators see of parked entities, and what they ask of whoever owns the lane.

use portero_store::{LaneAction, LaneRequest, PARKED_LISTING_MAX, ParkedListing, Result};
use portero_types::{EntityHash, LaneNo, ReceiptId, SessionId, SubscriptionNo};
use sqlx::sqlite::SqliteRow;
use sqlx::{SqliteConnection, SqlitePool};

use super::load::{optional, state_of};
use crate::config::subscription;
use crate::error::{corrupt, statement};
use crate::row::{entity, get, parse, signed, timestamp, unsigned, uuid};

pub(super) async fn ask(
    connection: &mut SqliteConnection,
    subscription: SubscriptionNo,
    request: LaneRequest,
) -> Result<()> {
    subscription::by_no(connection, subscription).await?;
    let sql = "INSERT INTO lane_requests (subscription_no, lane, entity_hash, action, requested_by, requested_at, position) \
               VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (subscription_no, lane, entity_hash) DO UPDATE \
               SET action = excluded.action, requested_by = excluded.requested_by, requested_at = excluded.requested_at, \
               position = excluded.position";
    sqlx::query(sql)
        .bind(subscription.0)
        .bind(request.lane.0)
        .bind(request.entity.to_bits())
        .bind(action_name(request.action))
        .bind(request.by)
        .bind(request.at.as_micros())
        .bind(request.position.map(|n| signed(n, "a position")).transpose()?)
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}

pub(super) async fn take(
    connection: &mut SqliteConnection,
    session: SessionId,
    subscription: SubscriptionNo,
) -> Result<Vec<LaneRequest>> {
    let sql = "DELETE FROM lane_requests WHERE subscription_no = ?1 AND lane IN (\
               SELECT lane FROM lane_owners JOIN replica_sessions USING (session_id) \
               WHERE subscription_no = ?1 AND session_id = ?2 AND fenced = 0) RETURNING *";
    let rows = sqlx::query(sql)
        .bind(subscription.0)
        .bind(session.0.as_bytes().as_slice())
        .fetch_all(connection)
        .await
        .map_err(statement)?;
    let mut requests = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    requests.sort_by_key(|request| (request.at, request.lane, request.entity));
    Ok(requests)
}

pub(super) async fn parked(
    pool: &SqlitePool,
    subscription: SubscriptionNo,
    after: Option<(LaneNo, EntityHash)>,
    limit: u32,
) -> Result<Vec<ParkedListing>> {
    // The lane's number scaled to the number of shards is its shard.
    let sql = "SELECT p.*, log.receipt_id, receipts.ordering_key, tenants.tenant_id FROM (\
               SELECT parked_entities.*, parked_entities.lane * installation.shards / subscriptions.lanes AS shard, \
               json_extract(positions, '$[0]') AS position, json_array_length(positions) AS listed \
               FROM parked_entities JOIN subscriptions USING (subscription_no) JOIN installation \
               WHERE subscription_no = ?1 AND (lane, entity_hash) > (?2, ?3) ORDER BY lane, entity_hash LIMIT ?4) AS p \
               LEFT JOIN log ON log.shard = p.shard AND log.position = p.position \
               LEFT JOIN receipts ON receipts.receipt_id = log.receipt_id \
               LEFT JOIN tenants ON tenants.tenant_no = log.tenant_no \
               ORDER BY p.lane, p.entity_hash";
    let rows = sqlx::query(sql)
        .bind(subscription.0)
        .bind(after.map_or(-1, |(lane, _)| i64::from(lane.0)))
        .bind(after.map_or(0, |(_, entity)| entity.to_bits()))
        .bind(limit.min(PARKED_LISTING_MAX))
        .fetch_all(pool)
        .await
        .map_err(statement)?;
    rows.iter().map(listing).collect()
}

fn listing(row: &SqliteRow) -> Result<ParkedListing> {
    let receipt_id = match get::<Option<&[u8]>>(row, "receipt_id")? {
        Some(_) => Some(ReceiptId(uuid(row, "receipt_id")?)),
        None => None,
    };
    let tenant = match get::<Option<&str>>(row, "tenant_id")? {
        Some(_) => Some(parse(row, "tenant_id")?),
        None => None,
    };
    Ok(ParkedListing {
        lane: LaneNo(unsigned(row, "lane")?),
        entity: entity(row)?,
        state: state_of(row)?,
        position: optional(row, "position")?,
        receipt_id,
        tenant,
        ordering_key: get(row, "ordering_key")?,
        waiting: unsigned::<u64>(row, "listed")?.saturating_sub(1),
        has_overflow: optional(row, "overflow_after")?.is_some(),
        attempts: unsigned(row, "attempts")?,
        interruptions: unsigned(row, "interruptions")?,
        due_at: timestamp(row, "due_at")?,
        first_failed_at: timestamp(row, "first_failed_at")?,
        reason_code: get(row, "reason_code")?,
        reason_text: get(row, "reason_text")?,
    })
}

fn read(row: &SqliteRow) -> Result<LaneRequest> {
    let action = match get(row, "action")? {
        "retry" => LaneAction::Retry,
        "dead_letter" => LaneAction::DeadLetter,
        _ => return Err(corrupt("lane_requests.action")),
    };
    Ok(LaneRequest {
        entity: entity(row)?,
        lane: LaneNo(unsigned(row, "lane")?),
        position: optional(row, "position")?,
        action,
        by: get(row, "requested_by")?,
        at: timestamp(row, "requested_at")?,
    })
}

const fn action_name(action: LaneAction) -> &'static str {
    match action {
        LaneAction::Retry => "retry",
        LaneAction::DeadLetter => "dead_letter",
    }
}
