//! Refused requests. Recording has a connection of its own; looking at them is an admin's.

use std::collections::BTreeSet;

use async_trait::async_trait;
use portero_store::{
    NewRejection, Page, REJECTIONS_PER_SOURCE_MAX, Rejection, RejectionStore, Result, Sealed, StoredRejection,
};
use portero_types::{RequestId, SourceId, SourceNo, TenantId, TenantNo, Timestamp};
use sqlx::postgres::{PgBindIterExt, PgRow};
use uuid::Uuid;

use crate::PostgresStore;
use crate::config::{one, one_more, page};
use crate::error::{Effect, corrupt};
use crate::lease::{Tx, rows};
use crate::row::{get, signed, unsigned};

/// Rejections of live sources; a condition follows.
macro_rules! live {
    ($columns:literal, $rest:literal) => {
        concat!(
            "SELECT r.request_id, r.tenant_no, r.source_no, r.received_at, r.method, r.reason, r.detail,
                    r.body_bytes, r.body_digest, r.capture IS NOT NULL AS is_captured",
            $columns,
            " FROM rejections r JOIN sources s USING (source_no) JOIN tenants t ON t.tenant_no = s.tenant_no
             WHERE s.deleted_at IS NULL AND t.deleted_at IS NULL ",
            $rest
        )
    };
}

#[async_trait]
impl RejectionStore for PostgresStore {
    async fn record(&self, rejections: Vec<NewRejection>) -> Result<()> {
        if rejections.is_empty() {
            return Ok(());
        }
        let batch: Vec<_> = rejections.into_iter().map(NewRejection::cleaned).collect();
        let mut tx = Tx::begin(&self.pools.rejections).await?;
        match record_in(&mut tx, &batch).await {
            Ok(()) => tx.commit().await,
            Err(error) => {
                tx.roll_back().await;
                Err(error)
            }
        }
    }

    async fn list(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        after: Option<RequestId>,
        limit: u32,
    ) -> Result<Page<Rejection>> {
        let query = sqlx::query(live!(
            "",
            "AND t.tenant_id = $1 AND s.source_id = $2 AND ($3 IS NULL OR r.request_id < $3)
             ORDER BY r.request_id DESC LIMIT $4"
        ))
        .bind(tenant.as_str())
        .bind(source.as_str())
        .bind(after.map(|id| id.0))
        .bind(one_more(limit));
        page(&rows(&self.pools.admin, query, Effect::None).await?, limit, rejection)
    }

    async fn get(&self, tenant: &TenantId, request_id: RequestId) -> Result<Option<StoredRejection>> {
        let query = sqlx::query(live!(", r.capture", "AND t.tenant_id = $1 AND r.request_id = $2"))
            .bind(tenant.as_str())
            .bind(request_id.0);
        one(&rows(&self.pools.admin, query, Effect::None).await?, |row| {
            let capture = get::<Option<Vec<u8>>>(row, "capture")?.map(Sealed);
            Ok(StoredRejection { rejection: rejection(row)?, capture })
        })
    }

    async fn sweep(&self, before: Timestamp, limit: u32) -> Result<u64> {
        // Several gateways sweep: rows that another one has taken are left to it.
        let query = sqlx::query(
            "WITH gone AS (
                 DELETE FROM rejections WHERE request_id IN (
                     SELECT request_id FROM rejections WHERE received_at < $1 ORDER BY received_at
                     LIMIT $2 FOR UPDATE SKIP LOCKED
                 ) RETURNING 1
             )
             SELECT count(*) AS swept FROM gone",
        )
        .bind(before.as_micros())
        .bind(i64::from(limit));
        let found = rows(&self.pools.rejections, query, Effect::Commits).await?;
        one(&found, |row| unsigned(row, "swept")).map(Option::unwrap_or_default)
    }
}

/// The rows of the sources are locked in one order: what is beyond the bound is then seen by whoever comes next, and a
/// source that is deleted meanwhile takes all of its rejections along.
async fn record_in(tx: &mut Tx, batch: &[NewRejection]) -> Result<()> {
    let sources: Vec<i64> =
        batch.iter().map(|new| new.source_no.0).collect::<BTreeSet<_>>().into_iter().collect();
    let lock = "SELECT source_no FROM sources WHERE source_no = ANY($1) ORDER BY source_no FOR NO KEY UPDATE";
    tx.rows(sqlx::query(lock).bind(&sources)).await?;
    let sizes = batch.iter().map(|new| signed(new.body_bytes, "body_bytes")).collect::<Result<Vec<_>>>()?;
    let sealed = |new: &'_ NewRejection| new.capture.as_ref().map(|sealed| sealed.0.clone());
    let insert = sqlx::query(
        "INSERT INTO rejections (request_id, tenant_no, source_no, received_at, body_bytes, method, reason, detail,
                                 body_digest, capture)
         SELECT g.request_id, s.tenant_no, s.source_no, g.received_at, g.body_bytes, g.method, g.reason, g.detail,
                g.body_digest, g.capture
         FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
                     $8::text[], $9::bytea[], $10::bytea[])
              AS g (request_id, tenant_no, source_no, received_at, body_bytes, method, reason, detail,
                    body_digest, capture)
         JOIN sources s ON s.source_no = g.source_no AND s.tenant_no = g.tenant_no AND s.deleted_at IS NULL
         ON CONFLICT (request_id) DO NOTHING",
    )
    .bind(batch.iter().map(|new| new.request_id.0).bind_iter())
    .bind(batch.iter().map(|new| new.tenant_no.0).bind_iter())
    .bind(batch.iter().map(|new| new.source_no.0).bind_iter())
    .bind(batch.iter().map(|new| new.received_at.as_micros()).bind_iter())
    .bind(sizes)
    .bind(batch.iter().map(|new| new.method.as_str()).bind_iter())
    .bind(batch.iter().map(|new| new.reason.as_str()).bind_iter())
    .bind(batch.iter().map(|new| new.detail.as_str()).bind_iter())
    .bind(batch.iter().map(|new| new.body_digest.as_slice()).bind_iter())
    .bind(batch.iter().map(sealed).bind_iter());
    tx.rows(insert).await?;
    let newest = i64::try_from(REJECTIONS_PER_SOURCE_MAX).expect("invariant: a small number");
    let trim = sqlx::query(
        "DELETE FROM rejections r USING unnest($1::bigint[]) AS g (source_no)
         WHERE r.source_no = g.source_no AND r.request_id < (
             SELECT o.request_id FROM rejections o WHERE o.source_no = g.source_no
             ORDER BY o.request_id DESC OFFSET $2 - 1 LIMIT 1
         )",
    )
    .bind(&sources)
    .bind(newest);
    tx.rows(trim).await.map(drop)
}

fn rejection(row: &PgRow) -> Result<Rejection> {
    let digest = <[u8; 32]>::try_from(get::<&[u8]>(row, "body_digest")?);
    Ok(Rejection {
        request_id: RequestId(get::<Uuid>(row, "request_id")?),
        tenant_no: TenantNo(get(row, "tenant_no")?),
        source_no: SourceNo(get(row, "source_no")?),
        received_at: Timestamp::from_micros(get(row, "received_at")?),
        method: get(row, "method")?,
        reason: get(row, "reason")?,
        detail: get(row, "detail")?,
        body_bytes: unsigned(row, "body_bytes")?,
        body_digest: digest.map_err(|_| corrupt("rejections.body_digest"))?,
        is_captured: get(row, "is_captured")?,
    })
}
