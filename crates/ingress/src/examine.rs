//! The pure part of a decision: handshake, signature, what to confirm, events.
//!
//! It takes time in proportion to the body, and anybody can send a large one with a signature that does not hold. So a small
//! body is examined where it is, which costs nothing, and a large one on a thread that may block, as many at once as the
//! machine has cores: what is small never waits for it.

use std::num::NonZero;
use std::sync::Arc;

use bytes::Bytes;
use portero_directory::Verification;
use portero_recipe::{Extracted, Fetch, HandshakeAnswer, Rejection, Request};
use tokio::sync::Semaphore;
use tokio::time::timeout_at;
use tracing::Span;

use crate::process::{Bodies, Work, rejected, verification};
use crate::refusal::Refusal;

/// Largest body that is examined where it is, bytes.
pub(crate) const SMALL_BYTES_MAX: usize = 256 * 1024;

/// A request with everything that decides it, but for what is fetched.
pub(crate) struct Case {
    pub(crate) work: Work,
    pub(crate) bodies: Bodies,
}

/// What a request turns out to be.
pub(crate) enum Found {
    /// A provider's check of the URL.
    Handshake(HandshakeAnswer),
    /// Neither: its method carries no event.
    Nothing,
    /// Events under a signature that holds.
    Events {
        /// What must be confirmed before they are committed.
        confirm: Option<Fetch>,
        events: Vec<Extracted>,
    },
}

/// Permits to examine large bodies, as many as the machine has cores.
pub(crate) fn slots() -> Semaphore {
    Semaphore::new(std::thread::available_parallelism().map_or(1, NonZero::get))
}

impl Case {
    /// The headers, for [`Self::request`].
    pub(crate) fn headers(&self) -> Vec<(&str, &[u8])> {
        self.work.head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
    }

    /// The request as it is signed.
    pub(crate) fn request<'a>(
        &'a self,
        headers: &'a [(&'a str, &'a [u8])],
        fetched: Option<&'a [u8]>,
    ) -> Request<'a> {
        let Work { head, source, .. } = &self.work;
        Request {
            method: head.method.as_str(),
            query: head.uri.query().unwrap_or_default(),
            headers,
            body: &self.bodies.signed,
            public_urls: &source.public_urls,
            settings: source.settings.as_map(),
            fetched,
        }
    }

    fn is_large(&self) -> bool {
        self.bodies.signed.len().max(self.bodies.plain.len()) > SMALL_BYTES_MAX
    }
}

/// Finds out what a request is. Waits for a slot no longer than until the request's deadline.
pub(crate) async fn examine(
    slots: &Semaphore,
    case: &Arc<Case>,
    headers: &[(&str, &[u8])],
    fetched: Option<Bytes>,
) -> Result<Found, Refusal> {
    let verification = verification(&case.work.source)?;
    let found = if case.is_large() {
        let slot = timeout_at(case.work.deadline, slots.acquire()).await;
        // The sender has its answer by then, and comes again.
        let _slot = slot.map_err(|_| Refusal::DeadlineExceeded)?.map_err(|_| Refusal::Internal)?;
        elsewhere(Arc::clone(case), fetched).await?
    } else {
        look(case, verification, &case.request(headers, fetched.as_deref()))
    };
    found.map_err(|rejection| rejected(verification, &rejection))
}

/// The same as [`look`], on a thread that may block.
async fn elsewhere(case: Arc<Case>, fetched: Option<Bytes>) -> Result<Result<Found, Rejection>, Refusal> {
    let span = Span::current();
    let task = tokio::task::spawn_blocking(move || {
        let _entered = span.enter();
        let verification = verification(&case.work.source)?;
        Ok(look(&case, verification, &case.request(&case.headers(), fetched.as_deref())))
    });
    task.await.unwrap_or_else(|error| match error.try_into_panic() {
        // Whoever catches those of small bodies catches this one too.
        Ok(panic) => std::panic::resume_unwind(panic),
        // Only when the runtime is ending.
        Err(_) => Err(Refusal::Internal),
    })
}

fn look(case: &Case, verification: &Verification, request: &Request<'_>) -> Result<Found, Rejection> {
    let (recipe, secrets) = (&*verification.recipe, &verification.secrets);
    let now = case.work.received_at;
    if let Some(answer) = portero_recipe::handshake(recipe, request, secrets, now)? {
        return Ok(Found::Handshake(answer));
    }
    if case.work.handshake_only {
        return Ok(Found::Nothing);
    }
    let _span = tracing::info_span!("verify").entered();
    let verified = portero_recipe::verify(recipe, request, secrets, now)?;
    case.work.admission.verified();
    let plain = Request { body: &case.bodies.plain, ..*request };
    let confirm = portero_recipe::follow_up(recipe, &plain, &verified);
    let events = portero_recipe::extract(recipe, &plain, &verified)?;
    Ok(Found::Events { confirm, events })
}
