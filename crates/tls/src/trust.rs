//! Connections whose client was trusted once, and may not be for as long as they stand.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use portero_types::Timestamp;
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use x509_cert::der::Decode as _;

use crate::clients::{Clients, Distrust};
use crate::follow::Shared;
use crate::metrics;

/// A connection whose client is no longer trusted has so long to finish what it has begun.
pub const LEAVE_WITHIN: Duration = Duration::from_secs(60);
/// How long is slept at most at a time before a certificate's end is compared with the clock, which may be set.
const NAP_MAX: Duration = Duration::from_secs(3_600);
/// And at least, where the clock is behind the time that was slept.
const NAP_MIN: Duration = Duration::from_millis(100);

/// Whether the client of a connection is still trusted: its certificate has not ended, and the authorities and revocation
/// lists of this moment, which may have replaced those of the handshake, speak for it. The default trusts for ever, as does
/// that of a listener whose clients need no certificate.
#[derive(Default)]
pub struct Trust(Option<Peer>);

struct Peer {
    shared: Arc<Shared>,
    chain: Vec<CertificateDer<'static>>,
    not_after: Timestamp,
    judged_by: Arc<Clients>,
}

impl Trust {
    /// In a client that has just shown this chain and was judged by `judged_by`.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        judged_by: Option<&Arc<Clients>>,
        chain: Option<&[CertificateDer<'_>]>,
    ) -> Self {
        let Some((judged_by, chain)) = judged_by.zip(chain) else { return Self(None) };
        let chain: Vec<_> = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let not_after = chain.first().and_then(|own| end_of(own)).unwrap_or(Timestamp::from_micros(i64::MAX));
        Self(Some(Peer { shared: Arc::clone(shared), chain, not_after, judged_by: Arc::clone(judged_by) }))
    }

    /// Resolves, with the reason, once the client is no longer trusted. Cancel-safe.
    pub async fn lost(&mut self) -> Distrust {
        match &mut self.0 {
            Some(peer) => peer.lost().await,
            None => std::future::pending().await,
        }
    }

    /// Runs a connection to its end. When its client is no longer trusted, `leave` is cancelled, which has to end the
    /// connection gracefully; what is not over [`LEAVE_WITHIN`] later is dropped.
    pub async fn watch(mut self, leave: &CancellationToken, connection: impl Future<Output = ()>) {
        let mut connection = pin!(connection);
        tokio::select! {
            biased;
            () = &mut connection => return,
            _ = self.lost() => leave.cancel(),
        }
        if timeout(LEAVE_WITHIN, connection).await.is_err() {
            tracing::debug!("a connection whose client is no longer trusted did not end in time and is cut");
        }
    }
}

impl Peer {
    async fn lost(&mut self) -> Distrust {
        let mut present = self.shared.clients.subscribe();
        loop {
            let clients = present.borrow_and_update().clone();
            // A listener that asks for certificates always does: the setting is read at the start.
            let clients = clients.unwrap_or_else(|| Arc::clone(&self.judged_by));
            let left = self.not_after.since(self.shared.clock.now());
            if left.is_zero() || !Arc::ptr_eq(&clients, &self.judged_by) {
                if let Err(distrust) = self.judge(&clients).await {
                    let listener = self.shared.purpose.name();
                    metrics::distrusted(self.shared.purpose, distrust);
                    tracing::debug!(
                        listener,
                        reason = distrust.code(),
                        "the client of an open connection is no longer trusted: it is asked to leave"
                    );
                    return distrust;
                }
                self.judged_by = clients;
            }
            tokio::select! {
                // The sender lives in what this peer holds.
                _ = present.changed() => {}
                () = tokio::time::sleep(left.clamp(NAP_MIN, NAP_MAX)) => {}
            }
        }
    }

    /// One after the other: when all are judged anew, what else this process does must not wait for it.
    async fn judge(&self, clients: &Clients) -> Result<(), Distrust> {
        let turn = self.shared.judging.lock().await;
        let judged = clients.judge(&self.chain, self.shared.clock.now());
        drop(turn);
        tokio::task::yield_now().await;
        judged
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("is_asked_for", &self.0.is_some()).finish()
    }
}

fn end_of(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    Some(crate::material::end_of(&certificate))
}
