//! The task that writes refused requests down, and the one that forgets them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portero_store::{CAPTURED_BODY_BYTES_MAX, CapturedRequest, NewRejection, RejectionStore};
use portero_types::{Clock, Header};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Refused, SealCapture};
use crate::metrics;

/// Most written at once.
const BATCH_MAX: usize = 32;
/// How long entries are gathered before they are written.
const GATHER: Duration = Duration::from_millis(50);
/// How often old ones are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// Most forgotten in one statement.
const SWEEP_MAX: u32 = 1_000;

/// Empties the queue into the store.
pub struct RejectionWriter {
    waiting: mpsc::Receiver<Refused>,
    store: Arc<dyn RejectionStore>,
    seal: SealCapture,
}

impl std::fmt::Debug for RejectionWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RejectionWriter").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl RejectionWriter {
    pub(super) fn new(
        waiting: mpsc::Receiver<Refused>,
        store: Arc<dyn RejectionStore>,
        seal: SealCapture,
    ) -> Self {
        Self { waiting, store, seal }
    }

    /// Writes until `stop`, then what waits, and ends. What the store does not take is lost and counted.
    ///
    /// Not cancel-safe: dropping it loses what waits.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            tokio::select! {
                biased;
                count = self.waiting.recv_many(&mut batch, BATCH_MAX) => {
                    if count == 0 {
                        return;
                    }
                }
                () = stop.cancelled(), if !self.waiting.is_closed() => {
                    self.waiting.close();
                    continue;
                }
            }
            self.write(std::mem::take(&mut batch)).await;
            // A few that come one after another share a transaction; nobody waits for them.
            let _ = tokio::time::timeout(GATHER, stop.cancelled()).await;
        }
    }

    async fn write(&self, batch: Vec<Refused>) {
        let count = batch.len();
        let rows = batch.into_iter().map(|refused| self.row(refused)).collect();
        let outcome = match self.store.record(rows).await {
            Ok(()) => "kept",
            Err(error) => {
                tracing::warn!(rejections = count, %error, "refused requests could not be remembered");
                "store_failed"
            }
        };
        metrics::kept_rejections(outcome, count);
    }

    fn row(&self, refused: Refused) -> NewRejection {
        let wire = refused.wire.clone().unwrap_or_default();
        let capture = captured(&refused)
            .and_then(|request| (self.seal)(&refused.source, refused.request_id, &request.encode()));
        NewRejection {
            request_id: refused.request_id,
            tenant_no: refused.source.tenant_no,
            source_no: refused.source.no,
            received_at: refused.received_at,
            method: refused.head.method.as_str().to_owned(),
            reason: refused.reason.to_owned(),
            detail: refused.detail,
            body_bytes: u64::try_from(wire.len()).unwrap_or(u64::MAX),
            body_digest: Sha256::digest(&wire).into(),
            capture,
        }
    }
}

/// The request when its body was read and is small enough.
fn captured(refused: &Refused) -> Option<CapturedRequest> {
    let body = refused.body.as_ref().filter(|body| body.len() <= CAPTURED_BODY_BYTES_MAX)?;
    let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| Header {
        name: name.as_str().to_owned(),
        value: value.as_bytes().to_vec(),
    };
    Some(CapturedRequest {
        method: refused.head.method.as_str().to_owned(),
        query: refused.head.uri.query().unwrap_or_default().to_owned(),
        headers: refused.head.headers.iter().map(header).collect(),
        body: Bytes::clone(body),
    })
}

/// Forgets refused requests that are older than `retention`, every now and then, until `stop`.
pub async fn sweep(
    store: Arc<dyn RejectionStore>,
    clock: Arc<dyn Clock>,
    retention: Duration,
    stop: CancellationToken,
) {
    loop {
        let before = clock.now().minus(retention);
        loop {
            match store.sweep(before, SWEEP_MAX).await {
                Ok(count) if count >= u64::from(SWEEP_MAX) && !stop.is_cancelled() => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "old refused requests could not be forgotten");
                    break;
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SWEEP_EVERY) => {}
        }
    }
}
