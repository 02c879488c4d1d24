//! Reading the log. Page and head come from one statement and so from one snapshot.

use async_trait::async_trait;
use bytes::Bytes;
use portero_store::{LogEntry, LogPage, LogStore, PageRequest, Result, StoredEvent};
use portero_types::{EntityHash, ReceiptId, RequestId, Shard, Slot, SourceNo, TenantNo, Timestamp};
use sqlx::postgres::{PgBindIterExt, PgRow};
use uuid::Uuid;

use crate::PostgresStore;
use crate::error::Effect;
use crate::lease::rows;
use crate::row::{byte, get, parse, unsigned, unsigned32};

/// A range scan of the primary key: entries that are not in the scope are read and passed over.
const PAGE: &str = "
SELECT h.head, l.* FROM (SELECT coalesce(max(position), 0) AS head FROM log WHERE shard = $1) h
LEFT JOIN LATERAL (
    SELECT * FROM log WHERE shard = $1 AND position > $2 AND position <= $3
       AND ($5::bigint IS NULL OR tenant_no = $5)
       AND (cardinality($6::bigint[]) = 0 OR source_no = ANY ($6))
       AND ($7::bigint IS NULL OR entity_hash = $7) AND slot BETWEEN $8 AND $9
    ORDER BY position LIMIT $4
) l ON true
ORDER BY l.position";

#[async_trait]
impl LogStore for PostgresStore {
    async fn heads(&self) -> Result<Vec<u64>> {
        let query = sqlx::query(
            "SELECT coalesce((SELECT max(position) FROM log WHERE shard = s), 0) AS head
             FROM installation, generate_series(0, shards - 1) AS s ORDER BY s",
        );
        rows(&self.pools.flush, query, Effect::None).await?.iter().map(|row| unsigned(row, "head")).collect()
    }

    async fn page(&self, request: PageRequest) -> Result<LogPage> {
        let scope = &request.scope;
        let (first, last) = scope.slots.map_or((0, 255), |(first, last)| (first.0, last.0));
        let query = sqlx::query(PAGE)
            .bind(i16::from(request.shard.0))
            .bind(clamped(request.after))
            .bind(clamped(request.last()))
            .bind(i64::from(request.limit))
            .bind(scope.tenant.map(|tenant| tenant.0))
            .bind(scope.sources.iter().map(|source| source.0).bind_iter())
            .bind(scope.entity.map(EntityHash::to_bits))
            .bind(i16::from(first))
            .bind(i16::from(last));
        let found = rows(&self.pools.flush, query, Effect::None).await?;
        let (mut head, mut entries) = (0, Vec::new());
        for row in &found {
            head = unsigned(row, "head")?;
            if get::<Option<i64>>(row, "position")?.is_some() {
                entries.push(entry(row)?);
            }
        }
        Ok(LogPage::of(&request, head, entries))
    }

    async fn entries_at(&self, shard: Shard, positions: &[u64]) -> Result<Vec<LogEntry>> {
        let query =
            sqlx::query("SELECT * FROM log WHERE shard = $1 AND position = ANY ($2) ORDER BY position")
                .bind(i16::from(shard.0))
                .bind(positions.iter().filter_map(|n| i64::try_from(*n).ok()).collect::<Vec<_>>());
        rows(&self.pools.flush, query, Effect::None).await?.iter().map(entry).collect()
    }

    async fn events(&self, receipts: &[ReceiptId]) -> Result<Vec<StoredEvent>> {
        if receipts.is_empty() {
            return Ok(Vec::new());
        }
        let query = sqlx::query(
            "SELECT r.receipt_id, t.tenant_id, s.source_id, r.provider, r.event_id, r.id_derived, r.event_type,
                    r.ordering_key, r.received_at, r.request_id, r.trace_parent, e.content, r.tenant_no,
                    t.erased_at IS NOT NULL AS is_erased
             FROM unnest($1::uuid[]) AS g (receipt_id)
             JOIN receipts r USING (receipt_id)
             JOIN events e USING (receipt_id)
             LEFT JOIN sources s ON s.source_no = r.source_no
             LEFT JOIN tenants t ON t.tenant_no = r.tenant_no",
        )
        .bind(receipts.iter().map(|id| id.0).bind_iter());
        rows(&self.pools.flush, query, Effect::None).await?.iter().map(event).collect()
    }
}

fn clamped(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

fn entry(row: &PgRow) -> Result<LogEntry> {
    Ok(LogEntry {
        n: unsigned(row, "position")?,
        receipt_id: ReceiptId(get::<Uuid>(row, "receipt_id")?),
        tenant_no: TenantNo(get(row, "tenant_no")?),
        source_no: SourceNo(get(row, "source_no")?),
        event_type: get(row, "event_type")?,
        slot: Slot(byte(row, "slot")?),
        entity: EntityHash::from_bits(get(row, "entity_hash")?),
        accepted_at: Timestamp::from_micros(get(row, "accepted_at")?),
        body_bytes: unsigned32(row, "body_bytes")?,
    })
}

fn event(row: &PgRow) -> Result<StoredEvent> {
    Ok(StoredEvent {
        receipt_id: ReceiptId(get::<Uuid>(row, "receipt_id")?),
        tenant_no: TenantNo(get(row, "tenant_no")?),
        is_erased: get(row, "is_erased")?,
        tenant: parse(row, "tenant_id")?,
        source: parse(row, "source_id")?,
        provider: parse(row, "provider")?,
        event_id: get(row, "event_id")?,
        id_derived: get(row, "id_derived")?,
        event_type: get(row, "event_type")?,
        ordering_key: get(row, "ordering_key")?,
        received_at: Timestamp::from_micros(get(row, "received_at")?),
        request_id: RequestId(get::<Uuid>(row, "request_id")?),
        trace_parent: get(row, "trace_parent")?,
        content: Bytes::copy_from_slice(get(row, "content")?),
    })
}
