//! The one process that runs. Kept as the sibling keeps many, so that everything that asks for them finds it.

use std::time::Duration;

use portero_store::{
    EDGE, REPLICA_LIVE, REPLICA_SHOWN, REPLICA_WRITTEN_EVERY, Replica, ReplicaEcho, ReplicaReport, Result,
    Revision,
};
use portero_types::ReplicaId;
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use super::database_now;
use crate::error::statement;
use crate::log::json;
use crate::row::{from_json, get, timestamp, unsigned, uuid};

/// Most processes that a list shows.
const LISTED_MAX: i64 = 10_000;

/// Whether a report says something that should be written down.
pub(super) async fn is_news(connection: &mut SqliteConnection, report: ReplicaReport) -> Result<bool> {
    let sql = concat!(
        "SELECT 1 FROM replicas WHERE replica_id = ? AND revision = ? AND seen_at >= ",
        database_now!(),
        " - ?"
    );
    let known = sqlx::query(sql)
        .bind(report.replica.0.as_bytes().as_slice())
        .bind(report.revision.0)
        .bind(micros(REPLICA_WRITTEN_EVERY))
        .fetch_optional(connection)
        .await
        .map_err(statement)?;
    Ok(known.is_none())
}

/// Writes a report down. A process that is not known yet sweeps, and takes the place of others of its name when it begins.
pub(super) async fn write(connection: &mut SqliteConnection, report: ReplicaReport) -> Result<()> {
    let sql = concat!(
        "UPDATE replicas SET revision = ?, seen_at = ",
        database_now!(),
        ", skew_us = ? - ",
        database_now!(),
        " WHERE replica_id = ?"
    );
    let id = report.replica.0;
    let renewed = sqlx::query(sql)
        .bind(report.revision.0)
        .bind(report.clock.as_micros())
        .bind(id.as_bytes().as_slice())
        .execute(&mut *connection)
        .await
        .map_err(statement)?;
    if renewed.rows_affected() > 0 {
        return Ok(());
    }
    let sql =
        concat!("DELETE FROM replicas WHERE (? AND instance = ?) OR seen_at < ", database_now!(), " - ?");
    sqlx::query(sql)
        .bind(report.first)
        .bind(report.instance.as_str())
        .bind(micros(REPLICA_SHOWN))
        .execute(&mut *connection)
        .await
        .map_err(statement)?;
    let sql = concat!(
        "INSERT INTO replicas (replica_id, instance, roles, version, key_id, revision, started_at, seen_at, skew_us) ",
        "VALUES (?, ?, ?, ?, ?, ?, ",
        database_now!(),
        ", ",
        database_now!(),
        ", ? - ",
        database_now!(),
        ")"
    );
    sqlx::query(sql)
        .bind(id.as_bytes().as_slice())
        .bind(report.instance)
        .bind(json(&report.roles))
        .bind(report.version)
        .bind(report.key_id)
        .bind(report.revision.0)
        .bind(report.clock.as_micros())
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}

/// What a report is answered.
pub(super) async fn echo(connection: &mut SqliteConnection, replica: ReplicaId) -> Result<ReplicaEcho> {
    let sql = concat!(
        "SELECT config_revision.revision, ",
        database_now!(),
        " AS at, count(*) FILTER (WHERE replica_id <> ?) AS others, ",
        "count(*) FILTER (WHERE EXISTS (SELECT 1 FROM json_each(roles) WHERE value = ?)) AS edges, ",
        "generation || '-' || coalesce(incarnation, '') AS history FROM config_revision, installation ",
        "LEFT JOIN replicas ON seen_at > ",
        database_now!(),
        " - ?"
    );
    let row = sqlx::query(sql)
        .bind(replica.0.as_bytes().as_slice())
        .bind(EDGE)
        .bind(micros(REPLICA_LIVE))
        .fetch_one(connection)
        .await
        .map_err(statement)?;
    Ok(ReplicaEcho {
        revision: Revision(get(&row, "revision")?),
        database_time: timestamp(&row, "at")?,
        edges: unsigned(&row, "edges")?,
        others: unsigned(&row, "others")?,
        history: get(&row, "history")?,
    })
}

pub(super) async fn sign_off(connection: &mut SqliteConnection, replica: ReplicaId) -> Result<()> {
    let query = sqlx::query("DELETE FROM replicas WHERE replica_id = ?");
    query.bind(replica.0.as_bytes().as_slice()).execute(connection).await.map(drop).map_err(statement)
}

pub(super) async fn all(connection: &mut SqliteConnection) -> Result<Vec<Replica>> {
    let sql = concat!(
        "SELECT *, seen_at > ",
        database_now!(),
        " - ? AS live FROM replicas WHERE seen_at > ",
        database_now!(),
        " - ? ORDER BY live DESC, instance, replica_id LIMIT ?"
    );
    let rows = sqlx::query(sql)
        .bind(micros(REPLICA_LIVE))
        .bind(micros(REPLICA_SHOWN))
        .bind(LISTED_MAX)
        .fetch_all(connection)
        .await
        .map_err(statement)?;
    rows.iter().map(read).collect()
}

fn read(row: &SqliteRow) -> Result<Replica> {
    Ok(Replica {
        id: ReplicaId(uuid(row, "replica_id")?),
        instance: get(row, "instance")?,
        roles: from_json(row, "roles")?,
        version: get(row, "version")?,
        key_id: get(row, "key_id")?,
        revision: Revision(get(row, "revision")?),
        started_at: timestamp(row, "started_at")?,
        seen_at: timestamp(row, "seen_at")?,
        skew_micros: get(row, "skew_us")?,
        live: get(row, "live")?,
    })
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
