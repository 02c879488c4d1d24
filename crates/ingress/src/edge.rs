//! One request, from its head to its answer: everything that comes before its body is read, and the answer after.

mod admission;

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use futures::FutureExt as _;
use http::header::EXPECT;
use http::{Method, Request, Response, StatusCode, request};
use http_body::Body;
use portero_directory::{Directory, Source, Verification};
use portero_outbound::Fetch;
use portero_prefilter::Prefilter;
use portero_types::{Clock, IngestKey, RequestId};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, Span, field};

use crate::accept::AcceptHandle;
use crate::answer::{Answer, AnswerBody};
use crate::config::EdgeConfig;
use crate::encoding::{self, Coding};
use crate::handshake::SecretWriter;
use crate::limits::in_flight::{Memory, Room};
use crate::limits::{Admission, Limiter};
use crate::process::{self, Work};
use crate::refusal::Refusal;
use crate::rejections::{RejectionQueue, Seen};
use crate::secret_uses::SecretUses;
use crate::{body, examine, metrics};

/// Fresh random bits, from a cryptographically secure source. Must not block.
pub type Random = Arc<dyn Fn() -> u128 + Send + Sync>;

/// The W3C `traceparent` of the present span; empty when tracing is off.
pub type TraceParent = Arc<dyn Fn() -> String + Send + Sync>;

/// What the edge needs from the rest of the gateway.
pub struct Parts {
    /// The configuration in memory.
    pub directory: Directory,
    /// Where events are committed.
    pub accept: AcceptHandle,
    /// What may know a repeat without asking the store.
    pub prefilter: Arc<dyn Prefilter>,
    /// What verification needs beside the request, such as a provider's certificate.
    pub fetch: Arc<dyn Fetch>,
    /// Takes secrets that handshakes bring.
    pub secrets: Arc<dyn SecretWriter>,
    /// Where it is counted what secrets verify.
    pub secret_uses: SecretUses,
    /// Where refused requests are remembered.
    pub rejections: RejectionQueue,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Makes receipt and request ids.
    pub random: Random,
    /// Names the span that accepts an event.
    pub trace_parent: TraceParent,
}

/// The edge. Cheap to clone; clones share their bounds.
#[derive(Clone)]
pub struct Edge(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) config: Arc<EdgeConfig>,
    pub(crate) parts: Parts,
    /// For bytes of bodies.
    memory: Room,
    /// For requests past their heads.
    requests: Room,
    limiter: Arc<Limiter>,
    warned_of_proxies: AtomicBool,
    /// One permit per large body that is examined.
    large: Semaphore,
    /// Everything that goes on when a client leaves.
    tasks: TaskTracker,
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edge").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Edge {
    /// An edge over the rest of the gateway.
    #[must_use]
    pub fn new(config: EdgeConfig, parts: Parts) -> Self {
        let percent = config.limits.in_flight_percent;
        Self(Arc::new(Shared {
            // Whatever its part is, everybody can send one body of any size.
            memory: Room::new(config.body_bytes_in_flight_max, percent, config.body_bytes_max),
            requests: Room::new(config.requests_max, percent, 1),
            warned_of_proxies: AtomicBool::new(false),
            limiter: Limiter::new(config.limits.clone()),
            large: examine::slots(),
            config: Arc::new(config),
            parts,
            tasks: TaskTracker::new(),
        }))
    }

    /// Its bounds.
    pub(crate) fn config(&self) -> &Arc<EdgeConfig> {
        &self.0.config
    }

    /// The memory for bodies, as a request's sender has it.
    pub(crate) fn memory(&self, admission: &Admission) -> Memory<'_> {
        Memory::new(&self.0.memory, admission.holder())
    }

    /// One permit per large body that may still be examined.
    pub(crate) fn slots_for_large(&self) -> &Semaphore {
        &self.0.large
    }

    /// Requests past their heads.
    #[cfg(test)]
    pub(crate) fn requests_in_flight(&self) -> usize {
        self.0.config.requests_max - self.0.requests.available()
    }

    pub(crate) fn new_request_id(&self) -> RequestId {
        RequestId::new(self.0.parts.clock.now(), (self.0.parts.random)())
    }

    /// Waits until every request whose body was read is decided. New ones may still come. Cancel-safe.
    pub async fn drain(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Answers one request that came from `peer`; `None` where no network was between.
    ///
    /// Cancel-safe in the sense that matters: when it is dropped after the body was read, the event is stored all the same.
    pub async fn handle<B>(&self, request: Request<B>, peer: Option<IpAddr>) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Send,
    {
        let request_id = self.new_request_id();
        let span = tracing::info_span!(
            "edge",
            request.id = %request_id,
            tenant.id = field::Empty,
            source.id = field::Empty,
            provider = field::Empty,
            body_bytes = field::Empty,
            decision = field::Empty,
        );
        let answer = self.answer(request, peer, request_id).instrument(span.clone()).await;
        span.record("decision", answer.outcome);
        metrics::request(answer.outcome);
        answer.into_response(request_id)
    }

    async fn answer<B>(&self, request: Request<B>, peer: Option<IpAddr>, request_id: RequestId) -> Answer
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Send,
    {
        let (head, mut body) = request.into_parts();
        let waits_for_us = head.headers.contains_key(EXPECT);
        match self.admit(head, &mut body, peer, request_id).await {
            Ok(answer) => answer,
            Err(refusal) => {
                if !body.is_end_stream() && !waits_for_us {
                    // Else a sender that is still writing would meet a reset and never read the answer.
                    self.0.tasks.spawn(body::discard(body));
                }
                if !matches!(refusal, Refusal::Rejected(_)) {
                    tracing::debug!(decision = refusal.code(), "a request is refused");
                }
                refusal.answer()
            }
        }
    }

    /// The order of work: source, method, limits, encoding, size; then the body; then everything else in a task of its own.
    async fn admit<B>(
        &self,
        head: request::Parts,
        body: &mut B,
        peer: Option<IpAddr>,
        request_id: RequestId,
    ) -> Result<Answer, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let source = self.resolve(head.uri.path())?;
        let span = Span::current();
        span.record("tenant.id", source.tenant.as_str());
        span.record("source.id", source.id.as_str());
        span.record("provider", source.provider.as_str());
        if head.method == Method::HEAD {
            // Some providers probe a URL before they save it.
            return Ok(Answer::plain("probe", StatusCode::OK));
        }
        let handshake_only = match head.method {
            Method::POST => false,
            Method::GET | Method::OPTIONS => true,
            _ => return Err(Refusal::MethodNotAllowed(ALLOWED)),
        };
        let verification = process::verification(&source)?;
        if handshake_only && !verification.recipe.answers_method(head.method.as_str()) {
            return Err(Refusal::MethodNotAllowed(ALLOWED));
        }
        let admission = self.within_limits(&source, &head, peer).inspect_err(|refusal| {
            self.note_unread(&source, &head, request_id, refusal);
        })?;
        let received = match self.slot(&admission) {
            Ok(slot) => {
                let memory = self.memory(&admission);
                let received = self.receive(&memory, &head, body, verification, handshake_only).await;
                received.map(|(coding, received)| (coding, (received, slot)))
            }
            Err(refusal) => Err(refusal),
        };
        let (coding, held) = received.inspect_err(|refusal| {
            refusal.settle(&admission);
            self.note_unread(&source, &head, request_id, refusal);
        })?;
        let source = self.latest(&source).inspect_err(|refusal| {
            refusal.settle(&admission);
            self.note_unread(&source, &head, request_id, refusal);
        })?;
        let received = &held.0;
        span.record("body_bytes", received.bytes.len());
        let work = Work {
            request_id,
            received_at: self.0.parts.clock.now(),
            deadline: Instant::now() + self.0.config.deadline,
            head,
            wire: received.bytes.clone(),
            coding,
            handshake_only,
            source,
            admission,
        };
        self.run(work, held).await
    }

    /// The body and what it is packed in. Nothing is read of one that cannot be taken anyway.
    async fn receive<B>(
        &self,
        memory: &Memory<'_>,
        head: &request::Parts,
        body: &mut B,
        verification: &Verification,
        handshake_only: bool,
    ) -> Result<(Option<Coding>, body::Received), Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        if handshake_only {
            // What a GET sends beside its query means nothing, and is not read.
            let nothing = memory.take(0).map_err(|full| Refusal::Body(body::BodyError::NoMemory(full)))?;
            return Ok((None, body::Received::new(Bytes::new(), nothing)));
        }
        let takes_packed = verification.recipe.compressed().is_some();
        let accepted = if takes_packed { encoding::BOTH } else { encoding::NONE };
        let unsupported = Refusal::EncodingUnsupported(accepted);
        let coding = match encoding::coding(&head.headers) {
            Ok(Some(_)) if !takes_packed => return Err(unsupported),
            Ok(coding) => coding,
            Err(encoding::Unsupported) => return Err(unsupported),
        };
        let config = &self.0.config;
        let deadline = Instant::now() + config.body_timeout;
        let received = body::read(body, config.body_bytes_max, deadline, memory).await;
        let received = received.map_err(Refusal::Body)?;
        metrics::body(received.bytes.len());
        Ok((coding, received))
    }

    /// Decides in a task of its own; `held` is given back when that is over.
    async fn run(&self, work: Work, held: impl Send + 'static) -> Result<Answer, Refusal> {
        let (began, deadline) = (Instant::now(), work.deadline);
        let edge = self.clone();
        let task = async move {
            let decided = AssertUnwindSafe(process::decide(&edge, work)).catch_unwind().await;
            drop(held);
            metrics::answered(began.elapsed());
            decided.unwrap_or_else(|_| {
                tracing::error!("deciding a request panicked");
                Err(Refusal::Internal)
            })
        };
        let task = self.0.tasks.spawn(task.instrument(Span::current()));
        match timeout_at(deadline, task).await {
            Ok(Ok(decided)) => decided,
            // Only when the runtime is ending.
            Ok(Err(_)) => Err(Refusal::Internal),
            Err(_) => Err(Refusal::DeadlineExceeded),
        }
    }

    /// Remembers a request whose body was not read.
    fn note_unread(
        &self,
        source: &Arc<Source>,
        head: &request::Parts,
        request_id: RequestId,
        refusal: &Refusal,
    ) {
        let received_at = self.0.parts.clock.now();
        let seen = Seen { source, request_id, received_at, head, wire: None, body: None };
        self.0.parts.rejections.note(&seen, refusal);
    }

    /// Neither "unknown" nor "verified" can be said with an old configuration.
    pub(crate) fn fresh(&self) -> Result<(), Refusal> {
        if self.0.parts.directory.is_fresh() { Ok(()) } else { Err(Refusal::ConfigStale) }
    }

    /// A source as it is by now: its request may have been long under way.
    fn latest(&self, source: &Source) -> Result<Arc<Source>, Refusal> {
        self.fresh()?;
        let snapshot = self.0.parts.directory.snapshot();
        let found = snapshot.source_by_no(source.no).filter(|now| now.ingest_key == source.ingest_key);
        found.map(Arc::clone).ok_or(Refusal::NotFound)
    }

    /// The source of a path: `/in/{key}`, with or without a trailing slash. Every other path is equally unknown.
    fn resolve(&self, path: &str) -> Result<Arc<Source>, Refusal> {
        self.fresh()?;
        let key = path.strip_prefix("/in/").ok_or(Refusal::NotFound)?;
        let key: IngestKey = key.strip_suffix('/').unwrap_or(key).parse().map_err(|_| Refusal::NotFound)?;
        let snapshot = self.0.parts.directory.snapshot();
        snapshot.source_by_ingest_key(&key).map(Arc::clone).ok_or(Refusal::NotFound)
    }
}

/// The methods of a source's URL.
pub(crate) const ALLOWED: &str = "POST, HEAD";
