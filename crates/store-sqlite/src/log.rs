//! Reading the log.

use async_trait::async_trait;
use bytes::Bytes;
use portero_store::{LogEntry, LogPage, LogStore, PageRequest, Result, StoredEvent};
use portero_types::{EntityHash, ReceiptId, RequestId, Shard, Slot, SourceNo, TenantNo};
use sqlx::sqlite::SqliteRow;

use crate::SqliteStore;
use crate::error::statement;
use crate::row::{entity, get, parse, receipt_id, timestamp, unsigned, uuid};

/// A range scan of the primary key: entries that are not in the scope are read and passed over. One statement: a head that was
/// read before or after the entries would belong to another moment.
const PAGE: &str = "
SELECT log_heads.head, entries.* FROM log_heads LEFT JOIN (
    SELECT * FROM log WHERE shard = ?1 AND position > ?2 AND position <= ?3
       AND (?5 IS NULL OR tenant_no = ?5)
       AND (?6 = '[]' OR source_no IN (SELECT value FROM json_each(?6)))
       AND (?7 IS NULL OR entity_hash = ?7) AND slot BETWEEN ?8 AND ?9
    ORDER BY position LIMIT ?4
) AS entries ON true WHERE log_heads.shard = ?1 ORDER BY entries.position";

#[async_trait]
impl LogStore for SqliteStore {
    async fn heads(&self) -> Result<Vec<u64>> {
        let sql = "SELECT head FROM log_heads ORDER BY shard";
        let rows = sqlx::query(sql).fetch_all(self.readers.pool()).await.map_err(statement)?;
        rows.iter().map(|row| unsigned(row, "head")).collect()
    }

    async fn page(&self, request: PageRequest) -> Result<LogPage> {
        let scope = &request.scope;
        let (first, last) = scope.slots.map_or((0, 255), |(first, last)| (first.0, last.0));
        let rows = sqlx::query(PAGE)
            .bind(request.shard.0)
            .bind(clamped(request.after))
            .bind(clamped(request.last()))
            .bind(request.limit)
            .bind(scope.tenant.map(|tenant| tenant.0))
            .bind(json(&scope.sources.iter().map(|source| source.0).collect::<Vec<_>>()))
            .bind(scope.entity.map(EntityHash::to_bits))
            .bind(first)
            .bind(last)
            .fetch_all(self.readers.pool())
            .await
            .map_err(statement)?;
        let head = rows.first().map(|row| unsigned(row, "head")).transpose()?.unwrap_or(0);
        let entries = rows
            .iter()
            .filter(|row| !matches!(get::<Option<i64>>(row, "position"), Ok(None)))
            .map(entry)
            .collect::<Result<_>>()?;
        Ok(LogPage::of(&request, head, entries))
    }

    async fn entries_at(&self, shard: Shard, positions: &[u64]) -> Result<Vec<LogEntry>> {
        let mut wanted: Vec<i64> = positions.iter().filter_map(|n| i64::try_from(*n).ok()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let sql = "SELECT log.* FROM json_each(?) AS wanted CROSS JOIN log \
                   ON log.shard = ? AND log.position = wanted.value ORDER BY log.position";
        let rows = sqlx::query(sql)
            .bind(json(&wanted))
            .bind(shard.0)
            .fetch_all(self.readers.pool())
            .await
            .map_err(statement)?;
        rows.iter().map(entry).collect()
    }

    async fn events(&self, receipts: &[ReceiptId]) -> Result<Vec<StoredEvent>> {
        let wanted: Vec<String> = receipts.iter().map(|id| id.0.simple().to_string()).collect();
        let sql = "SELECT events.*, receipts.provider, receipts.event_id, receipts.id_derived, receipts.event_type, \
                   receipts.ordering_key, receipts.received_at, receipts.request_id, receipts.trace_parent, \
                   receipts.tenant_no, sources.source_id, tenants.tenant_id, \
                   tenants.erased_at IS NOT NULL AS is_erased \
                   FROM json_each(?) AS wanted CROSS JOIN events ON events.receipt_id = unhex(wanted.value) \
                   JOIN receipts ON receipts.receipt_id = events.receipt_id \
                   JOIN sources ON sources.source_no = receipts.source_no \
                   JOIN tenants ON tenants.tenant_no = receipts.tenant_no";
        let rows =
            sqlx::query(sql).bind(json(&wanted)).fetch_all(self.readers.pool()).await.map_err(statement)?;
        rows.iter().map(event).collect()
    }
}

/// A list or map as JSON: an argument for `json_each`, or the text of a column.
pub(crate) fn json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("numbers and texts can be written as JSON")
}

fn clamped(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

fn entry(row: &SqliteRow) -> Result<LogEntry> {
    Ok(LogEntry {
        n: unsigned(row, "position")?,
        receipt_id: receipt_id(row)?,
        tenant_no: TenantNo(get(row, "tenant_no")?),
        source_no: SourceNo(get(row, "source_no")?),
        event_type: get(row, "event_type")?,
        slot: Slot(unsigned(row, "slot")?),
        entity: entity(row)?,
        accepted_at: timestamp(row, "accepted_at")?,
        body_bytes: unsigned(row, "body_bytes")?,
    })
}

fn event(row: &SqliteRow) -> Result<StoredEvent> {
    Ok(StoredEvent {
        receipt_id: receipt_id(row)?,
        tenant_no: TenantNo(get(row, "tenant_no")?),
        is_erased: get(row, "is_erased")?,
        tenant: parse(row, "tenant_id")?,
        source: parse(row, "source_id")?,
        provider: parse(row, "provider")?,
        event_id: get(row, "event_id")?,
        id_derived: get(row, "id_derived")?,
        event_type: get(row, "event_type")?,
        ordering_key: get(row, "ordering_key")?,
        received_at: timestamp(row, "received_at")?,
        request_id: RequestId(uuid(row, "request_id")?),
        trace_parent: get(row, "trace_parent")?,
        content: Bytes::from(get::<Vec<u8>>(row, "content")?),
    })
}
