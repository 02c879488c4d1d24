//! Sessions.

use std::time::Duration;

use portero_store::{Error, ErrorKind, NewSession, Result};
use portero_types::SessionId;
use sqlx::SqliteConnection;

use crate::config::database_now;
use crate::error::statement;

/// Opens a session and fences all others. Fenced ones of earlier days are forgotten: an unknown session is fenced too.
pub(super) async fn open(connection: &mut SqliteConnection, new: NewSession) -> Result<()> {
    let forget = concat!(
        "DELETE FROM replica_sessions WHERE fenced = 1 AND expires_at < ",
        database_now!(),
        " - 86400000000"
    );
    sqlx::query(forget).execute(&mut *connection).await.map_err(statement)?;
    sqlx::query("UPDATE replica_sessions SET fenced = 1 WHERE fenced = 0")
        .execute(&mut *connection)
        .await
        .map_err(statement)?;
    let sql = concat!(
        "INSERT INTO replica_sessions (session_id, instance, expires_at) VALUES (?, ?, ",
        database_now!(),
        " + ?)"
    );
    sqlx::query(sql)
        .bind(new.id.0.as_bytes().as_slice())
        .bind(new.instance)
        .bind(micros(new.ttl))
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}

/// Lets a session live on. One that has expired and was not fenced has lost nothing.
pub(super) async fn renew(
    connection: &mut SqliteConnection,
    session: SessionId,
    ttl: Duration,
) -> Result<()> {
    let sql = concat!(
        "UPDATE replica_sessions SET expires_at = ",
        database_now!(),
        " + ? WHERE session_id = ? AND fenced = 0"
    );
    let renewed = sqlx::query(sql)
        .bind(micros(ttl))
        .bind(session.0.as_bytes().as_slice())
        .execute(connection)
        .await
        .map_err(statement)?;
    if renewed.rows_affected() == 0 { Err(fenced()) } else { Ok(()) }
}

/// Ends a session: its lanes are nobody's, by foreign key.
pub(super) async fn close(connection: &mut SqliteConnection, session: SessionId) -> Result<()> {
    sqlx::query("DELETE FROM replica_sessions WHERE session_id = ?")
        .bind(session.0.as_bytes().as_slice())
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}

/// Fails unless the session is alive.
pub(super) async fn check_alive(connection: &mut SqliteConnection, session: SessionId) -> Result<()> {
    let sql = concat!(
        "SELECT 1 FROM replica_sessions WHERE session_id = ? AND fenced = 0 AND expires_at > ",
        database_now!()
    );
    let alive = sqlx::query(sql)
        .bind(session.0.as_bytes().as_slice())
        .fetch_optional(connection)
        .await
        .map_err(statement)?;
    if alive.is_none() { Err(fenced()) } else { Ok(()) }
}

/// Fails when the session is fenced; one that has merely expired has lost nothing.
pub(super) async fn check_unfenced(connection: &mut SqliteConnection, session: SessionId) -> Result<()> {
    let sql = "SELECT 1 FROM replica_sessions WHERE session_id = ? AND fenced = 0";
    let found = sqlx::query(sql)
        .bind(session.0.as_bytes().as_slice())
        .fetch_optional(connection)
        .await
        .map_err(statement)?;
    if found.is_none() { Err(fenced()) } else { Ok(()) }
}

pub(super) fn fenced() -> Error {
    Error::new(ErrorKind::Fenced, "this session was fenced or has expired")
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 2).min(i64::MAX / 2)
}
