//! Remembering refused requests, for the people who look for the cause.
//!
//! It must never delay or fail an answer, nor cost more than it is worth: the queue is bounded and drops what does not fit, a
//! tenant has a part of it, a
//! source gets a few entries and then one a second (of what limits refuse one a minute), and writing happens many at a time in a task of its own. Whoever
//! sends rubbish sees no difference.

mod limit;
mod write;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::request;
use portero_directory::Source;
use portero_store::Sealed;
use portero_types::{RequestId, SourceNo, TenantNo, Timestamp};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use crate::limits::in_flight::{Held, Holder, Part, Room, Share};
use crate::metrics;
use crate::refusal::Refusal;
use limit::Limit;

pub use write::{RejectionWriter, sweep};

/// Most refused requests that wait to be written.
const WAITING_MAX: usize = 256;
/// Most bytes of them.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What one tenant may have of either, percent.
const TENANT_PERCENT: u32 = 25;

/// Seals what a request held, for the source that it was refused by; `None` when that has no key. It works in the writing task
/// and may take its time.
pub type SealCapture = Arc<dyn Fn(&Source, RequestId, &[u8]) -> Option<Sealed> + Send + Sync>;

/// Where refused requests go. Cheap to clone; clones share the queue and its limits.
#[derive(Clone, Debug)]
pub struct RejectionQueue(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    sender: mpsc::Sender<Refused>,
    places: Arc<Held<TenantNo>>,
    bytes: Room,
    limit: Mutex<Limit>,
    /// For what comes in crowds.
    crowds: Mutex<Limit>,
    /// For lines of the log.
    told: Mutex<Limit>,
}

/// A refused request on its way to the store.
struct Refused {
    source: Arc<Source>,
    request_id: RequestId,
    received_at: Timestamp,
    head: request::Parts,
    /// As received; `None` when it was not read.
    wire: Option<Bytes>,
    /// What was verified; the same bytes unless a content coding was undone.
    body: Option<Bytes>,
    reason: &'static str,
    detail: String,
    _held: (Part<TenantNo>, Share),
}

/// A request as far as it came.
pub(crate) struct Seen<'a> {
    pub(crate) source: &'a Arc<Source>,
    pub(crate) request_id: RequestId,
    pub(crate) received_at: Timestamp,
    pub(crate) head: &'a request::Parts,
    pub(crate) wire: Option<&'a Bytes>,
    pub(crate) body: Option<&'a Bytes>,
}

impl RejectionQueue {
    /// A queue and the task that empties it into a store.
    #[must_use]
    pub fn new(store: Arc<dyn portero_store::RejectionStore>, seal: SealCapture) -> (Self, RejectionWriter) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let places = Held::new(WAITING_MAX * TENANT_PERCENT as usize / 100);
        let bytes = Room::new(WAITING_BYTES_MAX, TENANT_PERCENT, 1);
        let often = || Mutex::new(Limit::new(10, Duration::from_secs(1)));
        let crowds = Mutex::new(Limit::new(1, Duration::from_secs(60)));
        let shared = Shared { sender, places, bytes, limit: often(), crowds, told: often() };
        let queue = Self(Some(Arc::new(shared)));
        (queue, RejectionWriter::new(receiver, store, seal))
    }

    /// One that remembers nothing.
    #[must_use]
    pub const fn disabled() -> Self {
        Self(None)
    }

    /// Remembers a refused request and tells the log of it, when its refusal says something about the request and there is
    /// room. Never waits.
    pub(crate) fn note(&self, seen: &Seen<'_>, refusal: &Refusal) {
        let (Some(shared), Some((reason, detail))) = (&self.0, refusal.about_the_request()) else { return };
        if matches!(refusal, Refusal::Rejected(_)) {
            shared.tell(seen.source.no, reason, &detail);
        }
        metrics::kept_rejection(match shared.offer(seen, refusal.comes_in_crowds(), reason, &detail) {
            Ok(()) => "queued",
            Err(lost) => lost,
        });
    }
}

impl Shared {
    /// Whoever sends rubbish must not fill a disk: beyond the source's share only those see it who ask for every detail.
    fn tell(&self, source: SourceNo, reason: &'static str, detail: &str) {
        if allows(&self.told, source) {
            tracing::info!(decision = "rejected", reason, detail, "a request is rejected");
        } else {
            tracing::debug!(decision = "rejected", reason, detail, "a request is rejected");
        }
    }

    fn offer(
        &self,
        seen: &Seen<'_>,
        is_crowd: bool,
        reason: &'static str,
        detail: &str,
    ) -> Result<(), &'static str> {
        // A slot first: what is lost for want of room must not use up the source's share.
        let slot = self.sender.try_reserve().map_err(|error| match error {
            TrySendError::Full(()) => "queue_full",
            TrySendError::Closed(()) => "shutting_down",
        })?;
        let tenant = seen.source.tenant_no;
        let place = self.places.take(tenant, 1).ok_or("queue_full")?;
        let share =
            self.bytes.take(Holder { tenant, stranger: None }, size(seen)).map_err(|_| "queue_full")?;
        if !allows(if is_crowd { &self.crowds } else { &self.limit }, seen.source.no) {
            return Err("limited");
        }
        slot.send(Refused {
            source: Arc::clone(seen.source),
            request_id: seen.request_id,
            received_at: seen.received_at,
            head: seen.head.clone(),
            wire: seen.wire.cloned(),
            body: seen.body.cloned(),
            reason,
            detail: detail.to_owned(),
            _held: (place, share),
        });
        Ok(())
    }
}

/// No operation leaves a limit half done.
fn allows(limit: &Mutex<Limit>, source: SourceNo) -> bool {
    limit.lock().unwrap_or_else(PoisonError::into_inner).allows(source, Instant::now())
}

/// What an entry holds in memory, about.
fn size(seen: &Seen<'_>) -> usize {
    let headers: usize =
        seen.head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let uri = seen.head.uri.path_and_query().map_or(0, |text| text.as_str().len());
    headers + uri + seen.wire.map_or(0, Bytes::len) + seen.body.map_or(0, Bytes::len)
}
