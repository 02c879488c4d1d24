//! The processes that run. A report is one statement; one that says nothing new writes nothing, so that many quiet
//! processes cost the database a read twice a second each and no more.

use std::time::Duration;

use portero_store::{
    EDGE, REPLICA_LIVE, REPLICA_SHOWN, REPLICA_WRITTEN_EVERY, Replica, ReplicaEcho, ReplicaReport, Result,
    Revision,
};
use portero_types::{ReplicaId, Timestamp};
use sqlx::postgres::PgRow;

use crate::error::{Effect, corrupt};
use crate::lease::rows;
use crate::pools::Pool;
use crate::row::{get, unsigned};

/// Most processes that a list shows.
const LISTED_MAX: i64 = 10_000;

/// `now`: the database's clock, microseconds, read once. The timeline is the first part of a WAL file's name. Two processes of one
/// name, should both live, are two rows: only the first report of one deletes the other's, which comes back by itself.
const REPORT: &str = "
WITH now AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at
), renewed AS (
    UPDATE replicas r SET revision = $4, seen_at = at, skew_us = $5 - at FROM now
    WHERE r.replica_id = $1 AND (r.revision <> $4 OR r.seen_at < at - $7)
), born AS (
    INSERT INTO replicas (replica_id, instance, roles, version, key_id, revision, started_at, seen_at, skew_us)
    SELECT $1, $2, $3, $6, $11, $4, at, at, $5 - at FROM now
    WHERE NOT EXISTS (SELECT FROM replicas WHERE replica_id = $1)
    ON CONFLICT DO NOTHING
    RETURNING 1
), gone AS (
    DELETE FROM replicas r USING now
    WHERE EXISTS (SELECT FROM born) AND r.replica_id <> $1 AND (($12 AND r.instance = $2) OR r.seen_at < at - $9)
    RETURNING r.replica_id
)
SELECT c.revision, now.at, live.others, live.edges + ($10 = ANY ($3))::integer AS edges,
       i.generation || '-' || to_hex((pg_control_system()).system_identifier)
       || '-' || (SELECT oid FROM pg_database WHERE datname = current_database())
       || '-' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) AS history
FROM config_revision c, installation i, now, LATERAL (
    SELECT count(*) AS others, count(*) FILTER (WHERE $10 = ANY (r.roles)) AS edges FROM replicas r
    WHERE r.seen_at > now.at - $8 AND r.replica_id <> $1 AND NOT EXISTS (SELECT FROM gone g WHERE g.replica_id = r.replica_id)
) live";

pub(super) async fn report(pool: &Pool, report: &ReplicaReport) -> Result<ReplicaEcho> {
    let query = sqlx::query(REPORT)
        .bind(report.replica.0)
        .bind(report.instance.as_str())
        .bind(&report.roles)
        .bind(report.revision.0)
        .bind(report.clock.as_micros())
        .bind(report.version.as_str())
        .bind(micros(REPLICA_WRITTEN_EVERY))
        .bind(micros(REPLICA_LIVE))
        .bind(micros(REPLICA_SHOWN))
        .bind(EDGE)
        .bind(report.key_id.as_str())
        .bind(report.first);
    let found = rows(pool, query, Effect::Commits).await?;
    let row = found.first().ok_or_else(|| corrupt("config_revision"))?;
    Ok(ReplicaEcho {
        revision: Revision(get(row, "revision")?),
        database_time: Timestamp::from_micros(get(row, "at")?),
        edges: u32::try_from(unsigned(row, "edges")?).unwrap_or(u32::MAX),
        others: u32::try_from(unsigned(row, "others")?).unwrap_or(u32::MAX),
        history: get(row, "history")?,
    })
}

pub(super) async fn sign_off(pool: &Pool, replica: ReplicaId) -> Result<()> {
    let query = sqlx::query("DELETE FROM replicas WHERE replica_id = $1").bind(replica.0);
    rows(pool, query, Effect::Commits).await.map(|_| ())
}

pub(super) async fn all(pool: &Pool) -> Result<Vec<Replica>> {
    let query = sqlx::query(
        "SELECT r.*, r.seen_at > now.at - $1 AS live
         FROM replicas r, (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at) now
         WHERE r.seen_at > now.at - $2 ORDER BY live DESC, r.instance, r.replica_id LIMIT $3",
    )
    .bind(micros(REPLICA_LIVE))
    .bind(micros(REPLICA_SHOWN))
    .bind(LISTED_MAX);
    rows(pool, query, Effect::None).await?.iter().map(read).collect()
}

fn read(row: &PgRow) -> Result<Replica> {
    Ok(Replica {
        id: ReplicaId(get(row, "replica_id")?),
        instance: get(row, "instance")?,
        roles: get(row, "roles")?,
        version: get(row, "version")?,
        key_id: get(row, "key_id")?,
        revision: Revision(get(row, "revision")?),
        started_at: Timestamp::from_micros(get(row, "started_at")?),
        seen_at: Timestamp::from_micros(get(row, "seen_at")?),
        skew_micros: get(row, "skew_us")?,
        live: get(row, "live")?,
    })
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
