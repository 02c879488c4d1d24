//! Requests that were refused of late, for the people who look for the cause.

use async_trait::async_trait;
use portero_types::limits::REASON_BYTES_MAX;
use portero_types::{RequestId, SourceId, SourceNo, TenantId, TenantNo, Timestamp};

use crate::{Page, Sealed};

/// Most rejections kept of one source. Older ones go with each that comes.
pub const REJECTIONS_PER_SOURCE_MAX: usize = 50;

const METHOD_BYTES_MAX: usize = 32;
const CODE_BYTES_MAX: usize = 64;
const SEALED_BYTES_MAX: usize = 1024 * 1024;

/// A refused request to be remembered.
#[derive(Clone, Debug)]
pub struct NewRejection {
    /// The HTTP request.
    pub request_id: RequestId,
    /// Row number of the tenant.
    pub tenant_no: TenantNo,
    /// Row number of the source.
    pub source_no: SourceNo,
    /// When its body had been read.
    pub received_at: Timestamp,
    /// The HTTP method; what is beyond 32 bytes is cut.
    pub method: String,
    /// The stable code of the reason; what is beyond 64 bytes is cut.
    pub reason: String,
    /// A sentence for people, safe to show; what is beyond [`REASON_BYTES_MAX`] is cut.
    pub detail: String,
    /// Size of the body as received, bytes.
    pub body_bytes: u64,
    /// SHA-256 of the body as received.
    pub body_digest: [u8; 32],
    /// The sealed [`crate::CapturedRequest`], when the request was small enough to be kept.
    pub capture: Option<Sealed>,
}

impl NewRejection {
    /// As every store keeps it: texts within their bounds, without NUL. One odd rejection must not fail its batch.
    #[must_use]
    pub fn cleaned(mut self) -> Self {
        for (text, bytes_max) in [
            (&mut self.method, METHOD_BYTES_MAX),
            (&mut self.reason, CODE_BYTES_MAX),
            (&mut self.detail, REASON_BYTES_MAX),
        ] {
            if text.contains('\0') {
                *text = text.replace('\0', "\u{fffd}");
            }
            text.truncate(text.floor_char_boundary(bytes_max));
        }
        for text in [&mut self.method, &mut self.reason] {
            if text.is_empty() {
                text.push('?');
            }
        }
        self.capture = self.capture.filter(|sealed| (1..=SEALED_BYTES_MAX).contains(&sealed.0.len()));
        self
    }
}

/// A refused request without what it held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The HTTP request.
    pub request_id: RequestId,
    /// Row number of the tenant.
    pub tenant_no: TenantNo,
    /// Row number of the source.
    pub source_no: SourceNo,
    /// When its body had been read.
    pub received_at: Timestamp,
    /// The HTTP method.
    pub method: String,
    /// The stable code of the reason.
    pub reason: String,
    /// A sentence for people.
    pub detail: String,
    /// Size of the body as received, bytes.
    pub body_bytes: u64,
    /// SHA-256 of the body as received.
    pub body_digest: [u8; 32],
    /// Whether the request itself is kept.
    pub is_captured: bool,
}

/// A refused request with what it held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRejection {
    /// What is known of it.
    pub rejection: Rejection,
    /// The sealed [`crate::CapturedRequest`], when it is kept.
    pub capture: Option<Sealed>,
}

/// Remembers refused requests: the newest [`REJECTIONS_PER_SOURCE_MAX`] of each source, newest first in lists. They may be
/// lost in a crash, and a flood of them never delays what matters: recording has little room of its own.
#[async_trait]
pub trait RejectionStore: Send + Sync + 'static {
    /// Remembers refused requests and forgets the oldest of their sources beyond the bound, in one transaction. Those of
    /// sources that are gone, and those recorded before, are passed over.
    async fn record(&self, rejections: Vec<NewRejection>) -> crate::Result<()>;
    /// Rejections of a tenant's source that are older than `after`, newest first. Empty under a source that does not exist.
    async fn list(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        after: Option<RequestId>,
        limit: u32,
    ) -> crate::Result<Page<Rejection>>;
    /// A tenant's rejection by its request. None of a deleted source.
    async fn get(&self, tenant: &TenantId, request_id: RequestId) -> crate::Result<Option<StoredRejection>>;
    /// Forgets at most `limit` of the rejections received before `before`, oldest first; how many. Spans tenants.
    async fn sweep(&self, before: Timestamp, limit: u32) -> crate::Result<u64>;
}
