//! What operators see of parked entities, and what they ask of whoever owns the lane.

use portero_store::{LaneAction, LaneRequest, PARKED_LISTING_MAX, ParkedListing, Result};
use portero_types::{EntityHash, LaneNo, ReceiptId, SessionId, SubscriptionNo, Timestamp};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::parked::state_of;
use super::share::no_subscription;
use crate::error::{Effect, corrupt};
use crate::lease::rows;
use crate::pools::Pool;
use crate::row::{byte, get, parse, signed, unsigned, unsigned32};

pub(super) async fn ask(pool: &Pool, subscription: SubscriptionNo, request: &LaneRequest) -> Result<()> {
    let query = sqlx::query(
        "INSERT INTO lane_requests (subscription_no, lane, entity_hash, action, requested_by, requested_at,
                                    position)
         SELECT subscription_no, $2, $3, $4, $5, $6, $7::bigint FROM subscriptions WHERE subscription_no = $1
         ON CONFLICT (subscription_no, lane, entity_hash) DO UPDATE
         SET action = excluded.action, requested_by = excluded.requested_by, requested_at = excluded.requested_at,
             position = excluded.position
         RETURNING lane",
    )
    .bind(subscription.0)
    .bind(i16::from(request.lane.0))
    .bind(request.entity.to_bits())
    .bind(action_name(request.action))
    .bind(request.by.clone())
    .bind(request.at.as_micros())
    .bind(request.position.map(|n| signed(n, "a position")).transpose()?);
    rows(pool, query, Effect::Commits).await?.first().map(|_| ()).ok_or_else(no_subscription)
}

pub(super) async fn take(
    pool: &Pool,
    session: SessionId,
    subscription: SubscriptionNo,
) -> Result<Vec<LaneRequest>> {
    let query = sqlx::query(
        "DELETE FROM lane_requests r USING lane_owners o, replica_sessions s
         WHERE r.subscription_no = $2 AND o.subscription_no = $2 AND o.lane = r.lane AND o.session_id = $1
           AND s.session_id = $1 AND NOT s.fenced
         RETURNING r.*",
    );
    let taken = rows(pool, query.bind(session.0).bind(subscription.0), Effect::Commits).await?;
    let mut requests = taken.iter().map(read).collect::<Result<Vec<_>>>()?;
    requests.sort_by_key(|request| (request.at, request.lane, request.entity));
    Ok(requests)
}

pub(super) async fn parked(
    pool: &Pool,
    subscription: SubscriptionNo,
    after: Option<(LaneNo, EntityHash)>,
    limit: u32,
) -> Result<Vec<ParkedListing>> {
    // The lane's number scaled to the number of shards is its shard.
    let query = sqlx::query(
        "SELECT p.*, l.receipt_id, r.ordering_key, t.tenant_id
         FROM (
             SELECT p.*, (p.lane * i.shards / u.lanes)::smallint AS shard, p.positions[1] AS position,
                    cardinality(p.positions)::bigint AS listed
             FROM parked_entities p JOIN subscriptions u USING (subscription_no) CROSS JOIN installation i
             WHERE p.subscription_no = $1 AND (p.lane, p.entity_hash) > ($2, $3)
             ORDER BY p.lane, p.entity_hash LIMIT $4
         ) p
         LEFT JOIN log l ON l.shard = p.shard AND l.position = p.position
         LEFT JOIN receipts r ON r.receipt_id = l.receipt_id
         LEFT JOIN tenants t ON t.tenant_no = l.tenant_no
         ORDER BY p.lane, p.entity_hash",
    )
    .bind(subscription.0)
    .bind(after.map_or(-1, |(lane, _)| i16::from(lane.0)))
    .bind(after.map_or(0, |(_, entity)| entity.to_bits()))
    .bind(i64::from(limit.min(PARKED_LISTING_MAX)));
    rows(pool, query, Effect::None).await?.iter().map(listing).collect()
}

fn listing(row: &PgRow) -> Result<ParkedListing> {
    let position = get::<Option<i64>>(row, "position")?.map(|_| unsigned(row, "position")).transpose()?;
    let tenant = get::<Option<&str>>(row, "tenant_id")?.map(|_| parse(row, "tenant_id")).transpose()?;
    Ok(ParkedListing {
        lane: LaneNo(byte(row, "lane")?),
        entity: EntityHash::from_bits(get(row, "entity_hash")?),
        state: state_of(row)?,
        position,
        receipt_id: get::<Option<Uuid>>(row, "receipt_id")?.map(ReceiptId),
        tenant,
        ordering_key: get(row, "ordering_key")?,
        waiting: unsigned(row, "listed")?.saturating_sub(1),
        has_overflow: get::<Option<i64>>(row, "overflow_after")?.is_some(),
        attempts: unsigned32(row, "attempts")?,
        interruptions: unsigned32(row, "interruptions")?,
        due_at: Timestamp::from_micros(get(row, "due_at")?),
        first_failed_at: Timestamp::from_micros(get(row, "first_failed_at")?),
        reason_code: get(row, "reason_code")?,
        reason_text: get(row, "reason_text")?,
    })
}

fn read(row: &PgRow) -> Result<LaneRequest> {
    let action = match get::<&str>(row, "action")? {
        "retry" => LaneAction::Retry,
        "dead_letter" => LaneAction::DeadLetter,
        _ => return Err(corrupt("lane_requests.action")),
    };
    Ok(LaneRequest {
        entity: EntityHash::from_bits(get(row, "entity_hash")?),
        lane: LaneNo(byte(row, "lane")?),
        position: get::<Option<i64>>(row, "position")?.map(|_| unsigned(row, "position")).transpose()?,
        action,
        by: get(row, "requested_by")?,
        at: Timestamp::from_micros(get(row, "requested_at")?),
    })
}

const fn action_name(action: LaneAction) -> &'static str {
    match action {
        LaneAction::Retry => "retry",
        LaneAction::DeadLetter => "dead_letter",
    }
}
