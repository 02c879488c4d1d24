//! Receipts, events and log entries, in one commit.

mod batch;
mod rows;

use std::time::Duration;

use async_trait::async_trait;
use portero_store::{AcceptStore, Receipt, Result, Verdict};
use portero_types::{
    NewEvent, Position, ProviderName, ReceiptId, RequestId, SecretNo, Shard, SourceNo, TenantNo,
};
use sqlx::sqlite::SqliteRow;

use crate::SqliteStore;
use crate::error::statement;
use crate::row::{bytes, get, parse, receipt_id, timestamp, unsigned, uuid};

#[async_trait]
impl AcceptStore for SqliteStore {
    async fn accept(&self, batch: &[NewEvent]) -> Result<Vec<Verdict>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let shards = self.shards().await?;
        let batch = batch.to_vec();
        self.writer.write(move |connection| Box::pin(batch::accept(connection, batch, shards))).await
    }

    /// There is one writer, and what it does next sees all that was committed before.
    async fn settle_accepts(&self, _patience: Duration) -> Result<()> {
        self.writer.write(|_| Box::pin(async { Ok(()) })).await
    }

    async fn count_repeats(&self, counts: &[(ReceiptId, u32)]) -> Result<()> {
        if counts.is_empty() {
            return Ok(());
        }
        let counts = counts.to_vec();
        self.writer.write(move |connection| Box::pin(rows::count_recognised(connection, counts))).await
    }

    async fn receipt_by_event_id(
        &self,
        tenant_no: TenantNo,
        provider: &ProviderName,
        event_id: &str,
    ) -> Result<Option<Receipt>> {
        let sql = "SELECT * FROM receipts WHERE tenant_no = ? AND provider = ? AND event_id = ?";
        sqlx::query(sql)
            .bind(tenant_no.0)
            .bind(provider.as_str())
            .bind(event_id)
            .fetch_optional(self.readers.pool())
            .await
            .map_err(statement)?
            .map(|row| receipt(&row))
            .transpose()
    }

    async fn receipt(&self, tenant_no: TenantNo, receipt_id: ReceiptId) -> Result<Option<Receipt>> {
        let sql = "SELECT * FROM receipts WHERE receipt_id = ? AND tenant_no = ?";
        sqlx::query(sql)
            .bind(receipt_id.0.as_bytes().as_slice())
            .bind(tenant_no.0)
            .fetch_optional(self.readers.pool())
            .await
            .map_err(statement)?
            .map(|row| receipt(&row))
            .transpose()
    }
}

fn receipt(row: &SqliteRow) -> Result<Receipt> {
    Ok(Receipt {
        receipt_id: receipt_id(row)?,
        tenant_no: TenantNo(get(row, "tenant_no")?),
        source_no: SourceNo(get(row, "source_no")?),
        secret_no: get::<Option<i64>>(row, "secret_no")?.map(SecretNo),
        provider: parse(row, "provider")?,
        event_id: get(row, "event_id")?,
        id_derived: get(row, "id_derived")?,
        event_type: get(row, "event_type")?,
        ordering_key: get(row, "ordering_key")?,
        body_digest: bytes(row, "body_digest")?,
        received_at: timestamp(row, "received_at")?,
        expires_at: timestamp(row, "expires_at")?,
        request_id: RequestId(uuid(row, "request_id")?),
        position: Some(Position { shard: Shard(unsigned(row, "shard")?), n: unsigned(row, "position")? }),
        duplicates: unsigned(row, "duplicates")?,
        conflicts: unsigned(row, "conflicts")?,
    })
}
