//! What left the window: parked entities with their positions, deferred events, dead letters.

use std::collections::HashMap;

use portero_store::codec::clean_reason;
use portero_store::{
    ClaimedLane, DeadLetter, Deferred, LaneFlush, LaneKey, Overflow, ParkedEntity, ParkedState, Result,
};
use portero_types::{EntityHash, LaneNo, ReceiptId, SubscriptionNo, Timestamp};
use sqlx::postgres::{PgBindIterExt, PgRow};
use uuid::Uuid;

use crate::error::{Effect, corrupt};
use crate::lease::{Tx, rows};
use crate::pools::Pool;
use crate::row::{byte, get, signed, signed32, unsigned, unsigned32};

/// Things of lanes, each with its lane.
struct Items<'a, T> {
    lanes: Vec<LaneKey>,
    values: Vec<&'a T>,
}

impl<'a, T> Items<'a, T> {
    fn of(flushes: &[&'a LaneFlush], pick: impl Fn(&'a LaneFlush) -> &'a Vec<T>) -> Self {
        let (mut lanes, mut values) = (Vec::new(), Vec::new());
        for flush in flushes {
            for value in pick(flush) {
                lanes.push(flush.lane);
                values.push(value);
            }
        }
        Self { lanes, values }
    }

    const fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn subscriptions(&self) -> Vec<i64> {
        self.lanes.iter().map(|lane| lane.subscription.0).collect()
    }

    fn lanes(&self) -> Vec<i16> {
        self.lanes.iter().map(|lane| i16::from(lane.lane.0)).collect()
    }

    fn column<C>(&self, column: impl Fn(&'a T) -> C) -> Vec<C> {
        self.values.iter().map(|value| column(value)).collect()
    }

    fn try_column<C>(&self, column: impl Fn(&'a T) -> Result<C>) -> Result<Vec<C>> {
        self.values.iter().map(|value| column(value)).collect()
    }
}

/// Writes what some lanes' flushes park, defer and bury: removals first. Part of the flush's transaction.
pub(super) async fn write(tx: &mut Tx, flushes: &[&LaneFlush]) -> Result<()> {
    let gone = Items::of(flushes, |flush| &flush.unpark);
    if !gone.is_empty() {
        let query = sqlx::query(
            "DELETE FROM parked_entities p
             USING unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS g (subscription_no, lane, entity_hash)
             WHERE p.subscription_no = g.subscription_no AND p.lane = g.lane AND p.entity_hash = g.entity_hash",
        );
        let entities = gone.column(|entity| entity.to_bits());
        tx.rows(query.bind(gone.subscriptions()).bind(gone.lanes()).bind(entities)).await?;
    }
    let settled = Items::of(flushes, |flush| &flush.undefer);
    if !settled.is_empty() {
        let query = sqlx::query(
            "DELETE FROM deferred_events d
             USING unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS g (subscription_no, lane, position)
             WHERE d.subscription_no = g.subscription_no AND d.lane = g.lane AND d.position = g.position",
        );
        let positions = settled.try_column(|n| signed(*n, "a position"))?;
        tx.rows(query.bind(settled.subscriptions()).bind(settled.lanes()).bind(positions)).await?;
    }
    let parked = Items::of(flushes, |flush| &flush.park);
    if !parked.is_empty() {
        write_parked(tx, &parked).await?;
    }
    let deferred = Items::of(flushes, |flush| &flush.defer);
    if !deferred.is_empty() {
        write_deferred(tx, &deferred).await?;
    }
    for flush in flushes.iter().filter(|flush| flush.expired > 0) {
        let count = sqlx::query("UPDATE subscriptions SET expired = expired + $2 WHERE subscription_no = $1");
        let expired = signed(flush.expired, "a count")?;
        tx.rows(count.bind(flush.lane.subscription.0).bind(expired)).await?;
    }
    let dead = Items::of(flushes, |flush| &flush.dead);
    if !dead.is_empty() {
        write_dead(tx, &dead).await?;
    }
    Ok(())
}

/// Replaces parked entities with what they list. One statement whose work is proportional to that.
async fn write_parked(tx: &mut Tx, parked: &Items<'_, ParkedEntity>) -> Result<()> {
    let entities = sqlx::query(
        "INSERT INTO parked_entities (subscription_no, lane, entity_hash, state, attempts, interruptions, due_at,
                                      first_failed_at, reason_code, reason_text, overflow_after,
                                      overflow_last, positions)
         SELECT subscription_no, lane, entity_hash, state, attempts, interruptions, due_at, first_failed_at, reason_code,
                reason_text, overflow_after, overflow_last, positions::bigint[]
         FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::text[], $5::integer[], $6::integer[],
                     $7::bigint[], $8::bigint[], $9::text[], $10::text[], $11::bigint[], $12::bigint[], $13::text[])
              AS p (subscription_no, lane, entity_hash, state, attempts, interruptions, due_at, first_failed_at,
                    reason_code, reason_text, overflow_after, overflow_last, positions)
         ON CONFLICT (subscription_no, lane, entity_hash) DO UPDATE
         SET state = excluded.state, attempts = excluded.attempts, interruptions = excluded.interruptions,
             due_at = excluded.due_at, first_failed_at = excluded.first_failed_at,
             reason_code = excluded.reason_code, reason_text = excluded.reason_text,
             overflow_after = excluded.overflow_after, overflow_last = excluded.overflow_last,
             positions = excluded.positions",
    )
    .bind(parked.subscriptions())
    .bind(parked.lanes())
    .bind(parked.column(|p| p.entity.to_bits()))
    .bind(parked.column(|p| state_name(p.state)))
    .bind(parked.try_column(|p| signed32(p.attempts, "attempts"))?)
    .bind(parked.try_column(|p| signed32(p.interruptions, "interruptions"))?)
    .bind(parked.column(|p| p.due_at.as_micros()))
    .bind(parked.column(|p| p.first_failed_at.as_micros()))
    .bind(parked.column(|p| clean_reason(&p.reason_code)))
    .bind(parked.column(|p| clean_reason(&p.reason_text)))
    .bind(parked.try_column(|p| p.overflow.map(|o| signed(o.after, "a position")).transpose())?)
    .bind(parked.try_column(|p| p.overflow.map(|o| signed(o.last, "a position")).transpose())?)
    .bind(parked.try_column(|p| array(&p.positions))?);
    tx.rows(entities).await.map(|_| ())
}

/// Positions as the server reads an array: lists of different lengths cannot be the columns of one argument.
fn array(positions: &[u64]) -> Result<String> {
    let mut text = String::from("{");
    for (index, n) in positions.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&signed(*n, "a position")?.to_string());
    }
    text.push('}');
    Ok(text)
}

async fn write_deferred(tx: &mut Tx, deferred: &Items<'_, Deferred>) -> Result<()> {
    let query = sqlx::query(
        "INSERT INTO deferred_events (subscription_no, lane, position, entity_hash, deadline, reason_code, reason_text)
         SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[],
                              $7::text[])
         ON CONFLICT (subscription_no, lane, position) DO UPDATE
         SET entity_hash = excluded.entity_hash, deadline = excluded.deadline,
             reason_code = excluded.reason_code, reason_text = excluded.reason_text",
    )
    .bind(deferred.subscriptions())
    .bind(deferred.lanes())
    .bind(deferred.try_column(|d| signed(d.position, "a position"))?)
    .bind(deferred.column(|d| d.entity.to_bits()))
    .bind(deferred.column(|d| d.deadline.as_micros()))
    .bind(deferred.column(|d| clean_reason(&d.reason_code)))
    .bind(deferred.column(|d| clean_reason(&d.reason_text)));
    tx.rows(query).await.map(|_| ())
}

async fn write_dead(tx: &mut Tx, dead: &Items<'_, DeadLetter>) -> Result<()> {
    let query = sqlx::query(
        "INSERT INTO dead_letters (subscription_no, lane, position, receipt_id, entity_hash, attempts, interruptions,
                                   first_failed_at, died_at, reason_code, reason_text)
         SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::uuid[], $5::bigint[], $6::integer[],
                              $7::integer[], $8::bigint[], $9::bigint[], $10::text[], $11::text[])
         ON CONFLICT (subscription_no, lane, position) DO NOTHING",
    )
    .bind(dead.subscriptions())
    .bind(dead.lanes())
    .bind(dead.try_column(|d| signed(d.position, "a position"))?)
    .bind(dead.column(|d| d.receipt_id.0))
    .bind(dead.column(|d| d.entity.to_bits()))
    .bind(dead.try_column(|d| signed32(d.attempts, "attempts"))?)
    .bind(dead.try_column(|d| signed32(d.interruptions, "interruptions"))?)
    .bind(dead.column(|d| d.first_failed_at.as_micros()))
    .bind(dead.column(|d| d.died_at.as_micros()))
    .bind(dead.column(|d| clean_reason(&d.reason_code)))
    .bind(dead.column(|d| clean_reason(&d.reason_text)));
    tx.rows(query).await.map(|_| ())
}

/// Adds to freshly claimed lanes of one subscription, in ascending order, what is parked and deferred there.
pub(super) async fn load(tx: &mut Tx, claimed: &mut [ClaimedLane]) -> Result<()> {
    let Some(first) = claimed.first() else { return Ok(()) };
    let subscription = first.lane.subscription.0;
    let places: HashMap<LaneNo, usize> =
        claimed.iter().enumerate().map(|(place, claimed)| (claimed.lane.lane, place)).collect();
    let entities =
        sqlx::query("SELECT * FROM parked_entities WHERE subscription_no = $1 AND lane = ANY ($2)")
            .bind(subscription)
            .bind(places.keys().map(|lane| i16::from(lane.0)).bind_iter());
    for row in &tx.rows(entities).await? {
        let place = places.get(&LaneNo(byte(row, "lane")?)).ok_or_else(|| corrupt("parked_entities.lane"))?;
        claimed[*place].parked.push(parked_entity(row)?);
    }
    let deferred =
        sqlx::query("SELECT * FROM deferred_events WHERE subscription_no = $1 AND lane = ANY ($2)")
            .bind(subscription)
            .bind(places.keys().map(|lane| i16::from(lane.0)).bind_iter());
    for row in &tx.rows(deferred).await? {
        let place = places.get(&LaneNo(byte(row, "lane")?)).ok_or_else(|| corrupt("deferred_events.lane"))?;
        claimed[*place].deferred.push(deferred_event(row)?);
    }
    for claimed in claimed {
        claimed.parked.sort_by_key(|parked| parked.entity);
        claimed.deferred.sort_by_key(|deferred| deferred.position);
    }
    Ok(())
}

pub(super) async fn dead_letters(
    pool: &Pool,
    subscription: SubscriptionNo,
    after: Option<(LaneNo, u64)>,
    limit: u32,
) -> Result<Vec<(LaneNo, DeadLetter)>> {
    let (lane, position) =
        after.map_or((0, 0), |(lane, n)| (i16::from(lane.0), i64::try_from(n).unwrap_or(i64::MAX)));
    let query = sqlx::query(
        "SELECT * FROM dead_letters WHERE subscription_no = $1 AND (lane, position) > ($2, $3)
         ORDER BY lane, position LIMIT $4",
    )
    .bind(subscription.0)
    .bind(lane)
    .bind(position)
    .bind(i64::from(limit));
    let found = rows(pool, query, Effect::None).await?;
    found.iter().map(|row| Ok((LaneNo(byte(row, "lane")?), dead_letter(row)?))).collect()
}

const fn state_name(state: ParkedState) -> &'static str {
    match state {
        ParkedState::Retry => "retry",
        ParkedState::Held => "held",
        ParkedState::Draining => "draining",
        ParkedState::Blocked => "blocked",
    }
}

/// Why an entity is parked.
pub(super) fn state_of(row: &PgRow) -> Result<ParkedState> {
    match get::<&str>(row, "state")? {
        "retry" => Ok(ParkedState::Retry),
        "held" => Ok(ParkedState::Held),
        "draining" => Ok(ParkedState::Draining),
        "blocked" => Ok(ParkedState::Blocked),
        _ => Err(corrupt("parked_entities.state")),
    }
}

fn parked_entity(row: &PgRow) -> Result<ParkedEntity> {
    let state = state_of(row)?;
    let positions: Vec<i64> = get(row, "positions")?;
    let positions = positions.into_iter().map(u64::try_from).collect::<std::result::Result<Vec<_>, _>>();
    let overflow = match get::<Option<i64>>(row, "overflow_after")? {
        Some(_) => {
            Some(Overflow { after: unsigned(row, "overflow_after")?, last: unsigned(row, "overflow_last")? })
        }
        None => None,
    };
    let positions = positions
        .ok()
        .filter(|positions| !positions.is_empty() || overflow.is_some() || state == ParkedState::Blocked);
    Ok(ParkedEntity {
        entity: EntityHash::from_bits(get(row, "entity_hash")?),
        state,
        positions: positions.ok_or_else(|| corrupt("parked_entities.positions"))?,
        overflow,
        attempts: unsigned32(row, "attempts")?,
        interruptions: unsigned32(row, "interruptions")?,
        due_at: Timestamp::from_micros(get(row, "due_at")?),
        first_failed_at: Timestamp::from_micros(get(row, "first_failed_at")?),
        reason_code: get(row, "reason_code")?,
        reason_text: get(row, "reason_text")?,
    })
}

fn deferred_event(row: &PgRow) -> Result<Deferred> {
    Ok(Deferred {
        entity: EntityHash::from_bits(get(row, "entity_hash")?),
        position: unsigned(row, "position")?,
        deadline: Timestamp::from_micros(get(row, "deadline")?),
        reason_code: get(row, "reason_code")?,
        reason_text: get(row, "reason_text")?,
    })
}

fn dead_letter(row: &PgRow) -> Result<DeadLetter> {
    Ok(DeadLetter {
        position: unsigned(row, "position")?,
        receipt_id: ReceiptId(get::<Uuid>(row, "receipt_id")?),
        entity: EntityHash::from_bits(get(row, "entity_hash")?),
        attempts: unsigned32(row, "attempts")?,
        interruptions: unsigned32(row, "interruptions")?,
        reason_code: get(row, "reason_code")?,
        reason_text: get(row, "reason_text")?,
        first_failed_at: Timestamp::from_micros(get(row, "first_failed_at")?),
        died_at: Timestamp::from_micros(get(row, "died_at")?),
    })
}
