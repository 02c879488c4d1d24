//! Reading the log: narrow entries in commit order, and the bodies of those that are delivered.

use async_trait::async_trait;
use portero_types::{EntityHash, Event, ReceiptId, Shard, Slot, SourceNo, TenantNo, Timestamp};

/// One entry of the log: enough to route and order an event, nothing of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Position within the shard.
    pub n: u64,
    /// The event's receipt.
    pub receipt_id: ReceiptId,
    /// Row number of the tenant.
    pub tenant_no: TenantNo,
    /// Row number of the source.
    pub source_no: SourceNo,
    /// The provider's word for what happened.
    pub event_type: String,
    /// The slot, the top bits of `entity`.
    pub slot: Slot,
    /// Hash of tenant and ordering key.
    pub entity: EntityHash,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// Size of the body, bytes.
    pub body_bytes: u32,
}

/// Which part of the log to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The shard.
    pub shard: Shard,
    /// Read entries with positions above this one.
    pub after: u64,
    /// Read at most so many entries.
    pub limit: u32,
}

/// Entries as one statement saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// Entries in ascending position. When there are fewer than the limit, the page reaches the head.
    pub entries: Vec<LogEntry>,
    /// The shard's last position, as seen by the same statement; 0 for an empty shard.
    pub head: u64,
}

/// Reads the log. All of it goes to the primary: a standby may rewind.
#[async_trait]
pub trait LogStore: Send + Sync + 'static {
    /// The last position of each shard, in shard order; 0 for an empty one.
    async fn heads(&self) -> crate::Result<Vec<u64>>;

    /// A page in commit order. Whatever was committed before the page was read and lies in its range is in it; nothing
    /// that is committed later can appear below its last entry. Spans tenants.
    async fn page(&self, request: PageRequest) -> crate::Result<LogPage>;

    /// Entries at exactly these positions of one shard, ascending; those that retention has dropped are missing.
    async fn entries_at(&self, shard: Shard, positions: &[u64]) -> crate::Result<Vec<LogEntry>>;

    /// The events of these receipts, in any order; those that retention has dropped are missing. Spans tenants.
    async fn events(&self, receipts: &[ReceiptId]) -> crate::Result<Vec<Event>>;
}
