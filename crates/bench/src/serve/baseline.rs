//! The plain receiver: what a team writes in an afternoon with axum and sqlx, written well.
//!
//! Per request: the signature over the raw bytes, the window, then one transaction with one `INSERT … ON CONFLICT DO
//! NOTHING` into receipts and, for a new one, one INSERT into payloads. Prepared statements, a warm pool without a test query
//! before each use, narrow tables with nothing but the keys they need.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::serve::ListenerExt as _;
use portero_types::{Clock as _, ReceiptId};
use serde::Deserialize;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use super::{Options, listen, tell, until_parent_ends};
use crate::clock::SystemClock;
use crate::stripe::Key;

const PATH: &str = "/webhooks/stripe";

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS receipts (
    provider    text   NOT NULL,
    event_id    text   NOT NULL,
    receipt_id  uuid   NOT NULL,
    event_type  text   NOT NULL,
    received_at bigint NOT NULL,
    PRIMARY KEY (provider, event_id)
);
CREATE TABLE IF NOT EXISTS payloads (
    receipt_id uuid  PRIMARY KEY,
    body       bytea NOT NULL
);";

struct Receiver {
    pool: PgPool,
    key: Key,
}

/// What the receiver reads of an event.
#[derive(Deserialize)]
struct Event<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    event_type: &'a str,
}

/// Serves until standard input ends.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let pool = PgPoolOptions::new()
        .min_connections(options.baseline_connections)
        .max_connections(options.baseline_connections)
        .test_before_acquire(false)
        .acquire_timeout(Duration::from_secs(10))
        .connect(&options.postgres_url)
        .await
        .context("reaching the database")?;
    sqlx::raw_sql(TABLES).execute(&pool).await.context("creating the tables")?;
    let receiver = Arc::new(Receiver { pool: pool.clone(), key: Key::new(&options.secret) });
    let router = Router::new().route(PATH, post(receive)).with_state(receiver);
    let listener = listen(options.listen).await?;
    tell(&listener, PATH.to_owned())?;
    let listener = listener.tap_io(|stream| {
        // Without it the answers are as right, only later.
        let _ = stream.set_nodelay(true);
    });
    let ended = until_parent_ends();
    axum::serve(listener, router).with_graceful_shutdown(ended.cancelled_owned()).await?;
    pool.close().await;
    Ok(())
}

async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> Response {
    let now = SystemClock.now();
    let signature = headers.get("stripe-signature").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !receiver.key.is_signed(signature, &body, now.as_secs()) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Ok(event) = serde_json::from_slice::<Event<'_>>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let receipt_id = ReceiptId::new(now, rand::random());
    match store(&receiver.pool, &event, receipt_id, now.as_micros(), &body).await {
        Ok(new) => {
            let status = if new { "accepted" } else { "duplicate" };
            let answer = format!(r#"{{"status":"{status}","receipt_id":"{}"}}"#, receipt_id.0);
            ([(CONTENT_TYPE, "application/json")], answer).into_response()
        }
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Whether the event was new. It is committed when this returns.
async fn store(
    pool: &PgPool,
    event: &Event<'_>,
    receipt_id: ReceiptId,
    received_at: i64,
    body: &[u8],
) -> sqlx::Result<bool> {
    let mut transaction = pool.begin().await?;
    let inserted = sqlx::query(
        "INSERT INTO receipts (provider, event_id, receipt_id, event_type, received_at)
         VALUES ('stripe', $1, $2, $3, $4) ON CONFLICT (provider, event_id) DO NOTHING",
    )
    .bind(event.id)
    .bind(receipt_id.0)
    .bind(event.event_type)
    .bind(received_at)
    .execute(&mut *transaction)
    .await?;
    let is_new = inserted.rows_affected() == 1;
    if is_new {
        sqlx::query("INSERT INTO payloads (receipt_id, body) VALUES ($1, $2)")
            .bind(receipt_id.0)
            .bind(body)
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    Ok(is_new)
}
