//! Refused requests.

use std::collections::BTreeSet;

use async_trait::async_trait;
use portero_store::{
    NewRejection, Page, REJECTIONS_PER_SOURCE_MAX, Rejection, RejectionStore, Result, Sealed, StoredRejection,
};
use portero_types::{RequestId, SourceId, SourceNo, TenantId, TenantNo, Timestamp};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use crate::SqliteStore;
use crate::config::{one_more, page};
use crate::error::statement;
use crate::row::{bytes, get, signed, timestamp, unsigned, uuid};

/// Rejections of live sources; a condition follows.
macro_rules! live {
    ($columns:literal, $rest:literal) => {
        concat!(
            "SELECT rejections.request_id, rejections.tenant_no, rejections.source_no, received_at, method, reason, ",
            "detail, body_bytes, body_digest, capture IS NOT NULL AS is_captured",
            $columns,
            " FROM rejections JOIN sources ON sources.source_no = rejections.source_no ",
            "JOIN tenants ON tenants.tenant_no = sources.tenant_no ",
            "WHERE sources.deleted_at IS NULL AND tenants.deleted_at IS NULL AND tenants.tenant_id = ? ",
            $rest
        )
    };
}

#[async_trait]
impl RejectionStore for SqliteStore {
    async fn record(&self, rejections: Vec<NewRejection>) -> Result<()> {
        if rejections.is_empty() {
            return Ok(());
        }
        self.writer.write(move |connection| Box::pin(record(connection, rejections))).await
    }

    async fn list(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        after: Option<RequestId>,
        limit: u32,
    ) -> Result<Page<Rejection>> {
        let after = after.map(|id| id.0.into_bytes().to_vec());
        let sql = live!(
            "",
            "AND sources.source_id = ? AND (?3 IS NULL OR request_id < ?3) ORDER BY request_id DESC LIMIT ?4"
        );
        let rows = sqlx::query(sql)
            .bind(tenant.as_str())
            .bind(source.as_str())
            .bind(after)
            .bind(one_more(limit))
            .fetch_all(self.readers.pool())
            .await
            .map_err(statement)?;
        page(&rows, limit, rejection)
    }

    async fn get(&self, tenant: &TenantId, request_id: RequestId) -> Result<Option<StoredRejection>> {
        let row = sqlx::query(live!(", capture", "AND request_id = ?"))
            .bind(tenant.as_str())
            .bind(request_id.0.as_bytes().as_slice())
            .fetch_optional(self.readers.pool())
            .await
            .map_err(statement)?;
        let Some(row) = row else { return Ok(None) };
        let capture = get::<Option<Vec<u8>>>(&row, "capture")?.map(Sealed);
        Ok(Some(StoredRejection { rejection: rejection(&row)?, capture }))
    }

    async fn sweep(&self, before: Timestamp, limit: u32) -> Result<u64> {
        self.writer.write(move |connection| Box::pin(sweep(connection, before, limit))).await
    }
}

async fn record(connection: &mut SqliteConnection, batch: Vec<NewRejection>) -> Result<()> {
    let sources: BTreeSet<_> = batch.iter().map(|new| new.source_no).collect();
    for new in batch {
        insert(connection, new.cleaned()).await?;
    }
    let newest = i64::try_from(REJECTIONS_PER_SOURCE_MAX).expect("invariant: a small number");
    let trim = "DELETE FROM rejections WHERE source_no = ?1 AND request_id < (\
                SELECT request_id FROM rejections WHERE source_no = ?1 ORDER BY request_id DESC LIMIT 1 OFFSET ?2 - 1)";
    for no in sources {
        sqlx::query(trim).bind(no.0).bind(newest).execute(&mut *connection).await.map_err(statement)?;
    }
    Ok(())
}

async fn insert(connection: &mut SqliteConnection, new: NewRejection) -> Result<()> {
    let sql = "INSERT INTO rejections (request_id, received_at, body_bytes, method, reason, detail, body_digest, \
               capture, tenant_no, source_no) \
               SELECT ?, ?, ?, ?, ?, ?, ?, ?, tenant_no, source_no FROM sources \
               WHERE tenant_no = ? AND source_no = ? AND deleted_at IS NULL \
               ON CONFLICT (request_id) DO NOTHING";
    sqlx::query(sql)
        .bind(new.request_id.0.as_bytes().as_slice())
        .bind(new.received_at.as_micros())
        .bind(signed(new.body_bytes, "body_bytes")?)
        .bind(new.method)
        .bind(new.reason)
        .bind(new.detail)
        .bind(new.body_digest.as_slice())
        .bind(new.capture.map(|sealed| sealed.0))
        .bind(new.tenant_no.0)
        .bind(new.source_no.0)
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}

async fn sweep(connection: &mut SqliteConnection, before: Timestamp, limit: u32) -> Result<u64> {
    let sql = "DELETE FROM rejections WHERE request_id IN (\
               SELECT request_id FROM rejections WHERE received_at < ? ORDER BY received_at LIMIT ?)";
    let query = sqlx::query(sql).bind(before.as_micros()).bind(limit);
    query.execute(connection).await.map(|done| done.rows_affected()).map_err(statement)
}

fn rejection(row: &SqliteRow) -> Result<Rejection> {
    Ok(Rejection {
        request_id: uuid(row, "request_id").map(RequestId)?,
        tenant_no: TenantNo(get(row, "tenant_no")?),
        source_no: SourceNo(get(row, "source_no")?),
        received_at: timestamp(row, "received_at")?,
        method: get(row, "method")?,
        reason: get(row, "reason")?,
        detail: get(row, "detail")?,
        body_bytes: unsigned(row, "body_bytes")?,
        body_digest: bytes(row, "body_digest")?,
        is_captured: get(row, "is_captured")?,
    })
}
