//! Flushing: what changed in some lanes, in one commit. Progress alone is one statement; with parked entities, deferred
//! events or dead letters it is a transaction around that statement.

use std::collections::BTreeMap;

use portero_store::{Error, ErrorKind, LaneFlush, LaneKey, Result, codec};
use portero_types::{LaneNo, SessionId, SubscriptionNo};
use sqlx::postgres::PgRow;

use super::{fenced, parked};
use crate::error::Effect;
use crate::lease::{PgQuery, Tx, rows};
use crate::pools::Pool;
use crate::row::{byte, get, signed};

/// Appends states to the journal; at every 256th of a lane the rows that it replaced are deleted.
///
/// The session's and the lanes' rows are locked in share mode to the commit. `judged` has a row for each lane that the
/// session owns under the given epoch: `known` when this state or a later one of the epoch is there already, `falls` when its
/// watermark is below the last one, in which case nothing at all is written.
const APPEND: &str = "
WITH alive AS MATERIALIZED (
    SELECT session_id FROM replica_sessions
    WHERE session_id = $1 AND NOT fenced AND expires_at > clock_timestamp() FOR SHARE
), owned AS MATERIALIZED (
    SELECT f.* FROM unnest($2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[], $8::bytea[])
         AS f (subscription_no, lane, epoch, seq, watermark, acked, detours)
    JOIN lane_owners o ON o.subscription_no = f.subscription_no AND o.lane = f.lane AND o.epoch = f.epoch
    JOIN alive a ON a.session_id = o.session_id
    ORDER BY f.subscription_no, f.lane
    FOR SHARE OF o
), judged AS MATERIALIZED (
    SELECT w.*, coalesce(l.epoch = w.epoch AND l.seq >= w.seq, false) AS known,
           coalesce(NOT (l.epoch = w.epoch AND l.seq >= w.seq) AND l.watermark > w.watermark, false) AS falls
    FROM owned w LEFT JOIN LATERAL (
        SELECT epoch, seq, watermark FROM lane_journal j
        WHERE j.subscription_no = w.subscription_no AND j.lane = w.lane
        ORDER BY j.epoch DESC, j.seq DESC LIMIT 1
    ) l ON true
), fresh AS MATERIALIZED (
    SELECT * FROM judged WHERE NOT known AND NOT (SELECT coalesce(bool_or(falls), false) FROM judged)
), written AS (
    INSERT INTO lane_journal (subscription_no, lane, epoch, seq, watermark, acked, detours)
    SELECT subscription_no, lane, epoch, seq, watermark, acked, detours FROM fresh
    ON CONFLICT DO NOTHING
), replaced AS (
    DELETE FROM lane_journal j USING fresh w
    WHERE w.seq % 256 = 0 AND j.subscription_no = w.subscription_no AND j.lane = w.lane AND j.epoch = w.epoch
      AND j.seq < w.seq AND j.seq >= w.seq - 1024
)
SELECT a.alive, j.subscription_no, j.lane, j.known, j.falls
FROM (SELECT count(*) > 0 AS alive FROM alive) a LEFT JOIN judged j ON true";

pub(super) async fn flush(pool: &Pool, session: SessionId, flushes: &[LaneFlush]) -> Result<Vec<LaneKey>> {
    // A lane that is given twice is written once, with its later state.
    let mut lanes: BTreeMap<LaneKey, &LaneFlush> = BTreeMap::new();
    for flush in flushes {
        let later = lanes.get(&flush.lane).is_none_or(|other| flush.state.seq > other.state.seq);
        if later {
            lanes.insert(flush.lane, flush);
        }
    }
    let lanes: Vec<&LaneFlush> = lanes.into_values().collect();
    let append = append(session, &lanes)?;
    if lanes.iter().all(|flush| is_progress_alone(flush)) {
        let answer = rows(pool, append, Effect::Commits).await?;
        return outcome(&answer).map(|(written, _)| written);
    }

    let mut tx = Tx::begin(pool).await?;
    lock_counted(&mut tx, &lanes).await?;
    let answer = tx.rows(append).await?;
    let result = match outcome(&answer) {
        Ok((written, known)) => {
            let fresh: Vec<&LaneFlush> = lanes
                .into_iter()
                .filter(|flush| written.contains(&flush.lane) && !known.contains(&flush.lane))
                .collect();
            parked::write(&mut tx, &fresh).await.map(|()| written)
        }
        Err(error) => Err(error),
    };
    match result {
        Ok(written) => tx.commit().await.map(|()| written),
        Err(error) => {
            tx.roll_back().await;
            Err(error)
        }
    }
}

/// Locks the subscriptions whose counter of expired events will rise, before anything else is locked: as claims do.
async fn lock_counted(tx: &mut Tx, lanes: &[&LaneFlush]) -> Result<()> {
    let counted = lanes.iter().filter(|flush| flush.expired > 0).map(|flush| flush.lane.subscription.0);
    let counted: Vec<i64> = counted.collect();
    if counted.is_empty() {
        return Ok(());
    }
    let lock = sqlx::query(
        "SELECT FROM subscriptions WHERE subscription_no = ANY ($1) ORDER BY subscription_no FOR NO KEY UPDATE",
    );
    tx.rows(lock.bind(counted)).await.map(|_| ())
}

fn is_progress_alone(flush: &LaneFlush) -> bool {
    flush.park.is_empty()
        && flush.unpark.is_empty()
        && flush.defer.is_empty()
        && flush.undefer.is_empty()
        && flush.dead.is_empty()
        && flush.expired == 0
}

fn append(session: SessionId, lanes: &[&LaneFlush]) -> Result<PgQuery<'static>> {
    let mut seq = Vec::with_capacity(lanes.len());
    let mut watermark = Vec::with_capacity(lanes.len());
    let mut acked = Vec::with_capacity(lanes.len());
    let mut detours = Vec::with_capacity(lanes.len());
    for flush in lanes {
        seq.push(signed(flush.state.seq, "seq")?);
        watermark.push(signed(flush.state.watermark, "watermark")?);
        let refused = |error| {
            let words = "acked positions must rise and lie above the watermark";
            Error::with_source(ErrorKind::Refused, words, error)
        };
        acked.push(codec::encode_acked(flush.state.watermark, &flush.state.acked).map_err(refused)?);
        detours.push(codec::encode_detours(&flush.state.detours).map_err(refused)?);
    }
    Ok(sqlx::query(APPEND)
        .bind(session.0)
        .bind(lanes.iter().map(|flush| flush.lane.subscription.0).collect::<Vec<_>>())
        .bind(lanes.iter().map(|flush| i16::from(flush.lane.lane.0)).collect::<Vec<_>>())
        .bind(lanes.iter().map(|flush| flush.epoch.0).collect::<Vec<_>>())
        .bind(seq)
        .bind(watermark)
        .bind(acked)
        .bind(detours))
}

/// The lanes that count as written, and those of them whose state was there before.
fn outcome(answer: &[PgRow]) -> Result<(Vec<LaneKey>, Vec<LaneKey>)> {
    let (mut written, mut known) = (Vec::new(), Vec::new());
    for row in answer {
        if !get::<bool>(row, "alive")? {
            return Err(fenced());
        }
        let Some(subscription) = get::<Option<i64>>(row, "subscription_no")? else { continue };
        if get(row, "falls")? {
            return Err(Error::new(ErrorKind::Refused, "a lane's watermark never falls"));
        }
        let lane = LaneKey { subscription: SubscriptionNo(subscription), lane: LaneNo(byte(row, "lane")?) };
        if get(row, "known")? {
            known.push(lane);
        }
        written.push(lane);
    }
    written.sort_unstable();
    Ok((written, known))
}
