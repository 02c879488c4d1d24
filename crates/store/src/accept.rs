//! Receipts, events and their place in the log: the accept path.

use std::time::Duration;

use async_trait::async_trait;
use portero_types::{
    NewEvent, Position, ProviderName, ReceiptId, RequestId, SecretNo, SourceNo, TenantNo, Timestamp,
};

/// What became of one event that asked to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// New: receipt, event and log entry are committed.
    Accepted {
        /// Its place in the log.
        position: Position,
    },
    /// Its key was there before, with the same bytes.
    Duplicate {
        /// The receipt of the first one.
        first: ReceiptId,
    },
    /// Its key was there before, with other bytes. The first one is kept; the conflict is counted on its receipt.
    Conflict {
        /// The receipt of the first one.
        first: ReceiptId,
    },
    /// The secret that verified it is revoked or deleted. Nothing is written, whether or not its key was there before.
    Revoked,
    /// Its source is deleted, or its tenant is. Nothing is written, whether or not its key was there before.
    SourceDeleted,
}

/// The ledger row of an accepted event. It never holds the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Its id.
    pub receipt_id: ReceiptId,
    /// Row number of the tenant.
    pub tenant_no: TenantNo,
    /// Row number of the source.
    pub source_no: SourceNo,
    /// The secret that verified the request.
    pub secret_no: Option<SecretNo>,
    /// Scopes `event_id`.
    pub provider: ProviderName,
    /// The id that the unique key holds.
    pub event_id: String,
    /// Whether `event_id` was derived from the bytes.
    pub id_derived: bool,
    /// The provider's word for what happened.
    pub event_type: String,
    /// Entity within the tenant.
    pub ordering_key: String,
    /// SHA-256 of the event's bytes.
    pub body_digest: [u8; 32],
    /// When the request's body had been read.
    pub received_at: Timestamp,
    /// Until when a repeat is recognised.
    pub expires_at: Timestamp,
    /// The HTTP request that brought it.
    pub request_id: RequestId,
    /// Its place in the log.
    pub position: Option<Position>,
    /// How often the same bytes came again.
    pub duplicates: u64,
    /// How often other bytes came with the same id.
    pub conflicts: u64,
}

/// Accepts events and answers for them.
#[async_trait]
pub trait AcceptStore: Send + Sync + 'static {
    /// Accepts a batch in one transaction: for each key that is not there yet one receipt, one event and one log entry.
    ///
    /// The answer has one verdict per event, in the order given. Events of one batch may repeat a key: the first in the
    /// batch wins. Positions rise in commit order within each shard and follow the batch's order. When this returns an
    /// error of kind `Unavailable` or `Refused`, nothing of the batch was written; with `OutcomeUnknown` all of it or
    /// nothing.
    ///
    /// Duplicate and conflict counts on receipts are kept after the commit and may be lost in a crash; verdicts may not.
    ///
    /// Whether a secret is revoked and whether a source is deleted is judged here, by the database, so that a gateway which has
    /// not heard of it accepts nothing either. See [`AcceptStore::settle_accepts`].
    ///
    /// Not cancel-safe: run it in a task of its own, never in the future of an HTTP handler.
    async fn accept(&self, batch: &[NewEvent]) -> crate::Result<Vec<Verdict>>;

    /// Waits until no accept that began before this call can still commit, so that all that are committed from then on have
    /// seen what was committed before it, such as a revocation. Those that stall are ended.
    ///
    /// # Errors
    /// `Unavailable` when some are still under way after `patience`.
    async fn settle_accepts(&self, patience: Duration) -> crate::Result<()>;

    /// Counts events that came again and were recognised before they reached [`AcceptStore::accept`]. A receipt that is gone
    /// is passed over.
    ///
    /// With an error of kind `Unavailable` nothing was counted, with `OutcomeUnknown` all or nothing.
    async fn count_repeats(&self, counts: &[(ReceiptId, u32)]) -> crate::Result<()>;

    /// The receipt of a key.
    async fn receipt_by_event_id(
        &self,
        tenant_no: TenantNo,
        provider: &ProviderName,
        event_id: &str,
    ) -> crate::Result<Option<Receipt>>;

    /// A tenant's receipt by its id.
    async fn receipt(&self, tenant_no: TenantNo, receipt_id: ReceiptId) -> crate::Result<Option<Receipt>>;
}
