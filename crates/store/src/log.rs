//! Reading the log: narrow entries in commit order, and the bodies of those that are delivered.

use async_trait::async_trait;
use portero_types::{EntityHash, ReceiptId, Shard, Slot, SourceNo, TenantNo, Timestamp};

use crate::StoredEvent;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The shard.
    pub shard: Shard,
    /// Read entries with positions above this one.
    pub after: u64,
    /// Read at most so many entries. At least 1.
    pub limit: u32,
    /// Look at no more than so many positions, so that a scope with few entries costs a bounded time. At least 1.
    pub span: u32,
    /// Which entries.
    pub scope: Scope,
}

impl PageRequest {
    /// All entries, and as many positions as it takes.
    #[must_use]
    pub fn new(shard: Shard, after: u64, limit: u32) -> Self {
        Self { shard, after, limit, span: u32::MAX, scope: Scope::default() }
    }

    /// The last position that is looked at.
    #[must_use]
    pub fn last(&self) -> u64 {
        let spanned = self.after.saturating_add(u64::from(self.span));
        self.scope.through.map_or(spanned, |through| through.min(spanned))
    }
}

/// Which entries of a range are read; all conditions hold at once. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only this tenant's.
    pub tenant: Option<TenantNo>,
    /// Only those of these sources; empty means all.
    pub sources: Vec<SourceNo>,
    /// Only this entity's.
    pub entity: Option<EntityHash>,
    /// Only those of these slots, from the first to the last.
    pub slots: Option<(Slot, Slot)>,
    /// Only those up to this position.
    pub through: Option<u64>,
}

/// Entries as one statement saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// Entries in ascending position.
    pub entries: Vec<LogEntry>,
    /// The shard's last position, as seen by the same statement; 0 for an empty shard.
    pub head: u64,
    /// The page is complete for its scope above the request's `after` up to here; not above `head`. Go on from here.
    pub through: u64,
}

impl LogPage {
    /// A page of a request: how far it reaches follows from the entries found and the head.
    #[must_use]
    pub fn of(request: &PageRequest, head: u64, entries: Vec<LogEntry>) -> Self {
        let is_full = u32::try_from(entries.len()).unwrap_or(u32::MAX) >= request.limit;
        let last = entries.last().filter(|_| is_full).map(|entry| entry.n);
        let through = last.unwrap_or_else(|| request.last().max(request.after)).min(head);
        Self { entries, head, through }
    }
}

/// Reads the log. All of it goes to the primary: a standby may rewind.
#[async_trait]
pub trait LogStore: Send + Sync + 'static {
    /// The last position of each shard, in shard order; 0 for an empty one.
    async fn heads(&self) -> crate::Result<Vec<u64>>;

    /// A page in commit order. Whatever was committed before the page was read and lies in its range and scope is in it;
    /// nothing that is committed later can appear at or below [`LogPage::through`]. A scan of the range: there is no index
    /// for scopes. Spans tenants.
    async fn page(&self, request: PageRequest) -> crate::Result<LogPage>;

    /// Entries at exactly these positions of one shard, ascending; those that retention has dropped are missing.
    async fn entries_at(&self, shard: Shard, positions: &[u64]) -> crate::Result<Vec<LogEntry>>;

    /// The events of these receipts, in any order; those that retention has dropped are missing. Spans tenants.
    async fn events(&self, receipts: &[ReceiptId]) -> crate::Result<Vec<StoredEvent>>;
}
