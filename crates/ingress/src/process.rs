//! What happens to a request whose body was read: inflating, fetching, handshake, verification, extraction, confirmation,
//! pre-filter, commit, answer.
//!
//! It runs in a task of its own, so it goes on when the client leaves. Nothing before verification looks into the body,
//! except where the signature itself lives there.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use http::{StatusCode, request};
use portero_directory::{Source, Verification};
use portero_recipe::{Compressed, Reason, Rejection};
use portero_types::{NewEvent, RequestId, SecretNo, Timestamp};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::accept::Failure;
use crate::answer::{Answer, EventWords};
use crate::body::Received;
use crate::edge::{ALLOWED, Edge};
use crate::encoding::{self, Coding, InflateError};
use crate::examine::{Case, Found, examine};
use crate::limits::Admission;
use crate::refusal::{Refusal, Rejected};
use crate::rejections::Seen;
use crate::{event, handshake, metrics, outgoing, submit};

/// A request whose body was read.
pub(crate) struct Work {
    pub(crate) request_id: RequestId,
    pub(crate) received_at: Timestamp,
    /// When the sender is told to come again. What has not begun by then need not begin.
    pub(crate) deadline: Instant,
    pub(crate) head: request::Parts,
    /// The body as received.
    pub(crate) wire: Bytes,
    /// What it is packed in.
    pub(crate) coding: Option<Coding>,
    /// Only a handshake may be answered: the method carries no event.
    pub(crate) handshake_only: bool,
    pub(crate) source: Arc<Source>,
    /// By what leave its body was read.
    pub(crate) admission: Admission,
}

/// A body as it is signed and as it is read. They differ when the provider signs what it packed.
pub(crate) struct Bodies {
    pub(crate) signed: Bytes,
    pub(crate) plain: Bytes,
    /// The inflated body's share of the memory.
    _share: Option<Received>,
}

/// Decides a request. Not cancel-safe: run it in a task of its own.
pub(crate) async fn decide(edge: &Edge, work: Work) -> Result<Answer, Refusal> {
    let source = Arc::clone(&work.source);
    let verification = verification(&source)?;
    let bodies = match unpack(edge, &work, verification).await {
        Ok(bodies) => bodies,
        Err(refusal) => {
            refusal.settle(&work.admission);
            note(edge, &work, &work.wire, &refusal);
            return Err(refusal);
        }
    };
    let case = Arc::new(Case { work, bodies });
    let decided = judge(edge, &case, verification).await;
    if let Err(refusal) = &decided {
        refusal.settle(&case.work.admission);
        note(edge, &case.work, &case.bodies.signed, refusal);
    }
    decided
}

/// Remembers a refused request.
fn note(edge: &Edge, work: &Work, body: &Bytes, refusal: &Refusal) {
    let seen = Seen {
        source: &work.source,
        request_id: work.request_id,
        received_at: work.received_at,
        head: &work.head,
        wire: Some(&work.wire),
        body: Some(body),
    };
    edge.0.parts.rejections.note(&seen, refusal);
}

/// What verifies a source's requests.
pub(crate) fn verification(source: &Source) -> Result<&Verification, Refusal> {
    source.verification.as_ref().map_err(|fault| {
        // Anybody may ask as often as he likes; the directory told of it once.
        tracing::debug!(%fault, "a request meets a disabled source");
        Refusal::SourceDisabled
    })
}

/// Undoes the content coding, if there is one.
async fn unpack(edge: &Edge, work: &Work, verification: &Verification) -> Result<Bodies, Refusal> {
    let Some(coding) = work.coding else {
        return Ok(Bodies { signed: work.wire.clone(), plain: work.wire.clone(), _share: None });
    };
    let compressed = verification.recipe.compressed().ok_or(Refusal::EncodingUnsupported(encoding::NONE))?;
    let bytes_max = edge.config().body_bytes_max;
    let inflated = encoding::inflate(coding, &work.wire, bytes_max, &edge.memory(&work.admission)).await;
    let inflated = inflated.map_err(|error| match error {
        InflateError::Body(error) => Refusal::Body(error),
        InflateError::Malformed => rejected(
            verification,
            &Rejection::new(
                Reason::EncodingMalformed,
                "the body is not complete and sound in its content encoding",
            ),
        ),
    })?;
    metrics::inflated(inflated.bytes.len());
    let plain = inflated.bytes.clone();
    let signed = match compressed {
        Compressed::AsSent => work.wire.clone(),
        Compressed::Inflated => plain.clone(),
    };
    Ok(Bodies { signed, plain, _share: Some(inflated) })
}

async fn judge(edge: &Edge, case: &Arc<Case>, verification: &Verification) -> Result<Answer, Refusal> {
    let work = &case.work;
    let headers = case.headers();
    let request = case.request(&headers, None);
    let fetched = outgoing::needed(edge, work.source.no, verification, &request, work.received_at).await?;
    let extracted = match examine(edge.slots_for_large(), case, &headers, fetched).await? {
        Found::Handshake(found) => return handshake::answer(edge, work, verification, found).await,
        Found::Nothing => return Err(Refusal::MethodNotAllowed(ALLOWED)),
        Found::Events { confirm, events } => {
            work.admission.count(events.len(), case.bodies.plain.len()).map_err(Refusal::Limited)?;
            if let Some(wanted) = confirm {
                outgoing::confirm(edge, work.source.no, &wanted).await?;
            }
            events
        }
    };
    for anomaly in extracted.iter().filter_map(|found| found.id_anomaly) {
        tracing::warn!(
            anomaly = anomaly.code(),
            "an event's id is not trusted; one is derived from its bytes"
        );
    }
    let shared = event::Shared {
        source: &work.source,
        recipe: &verification.recipe,
        request_id: work.request_id,
        received_at: work.received_at,
        trace_parent: (edge.0.parts.trace_parent)(),
        headers: &work.head.headers,
        body: &case.bodies.plain,
        keys: &verification.keys,
    };
    let secrets: BTreeSet<SecretNo> = extracted.iter().filter_map(|found| found.secret).collect();
    let events = event::build(&shared, extracted, edge.config(), &edge.0.parts.random);
    let answer = commit(edge, verification, events).await?;
    for secret in secrets {
        edge.0.parts.secret_uses.count(secret, work.received_at);
    }
    Ok(answer)
}

/// Commits events and says so.
async fn commit(edge: &Edge, verification: &Verification, events: Vec<NewEvent>) -> Result<Answer, Refusal> {
    // Fetching and waiting take time too, and a machine may be suspended at any point.
    edge.fresh()?;
    let receipts: Vec<_> = events.iter().map(|event| event.receipt_id).collect();
    let results = submit::accept(edge, events).instrument(tracing::info_span!("accept")).await;
    let mut words = Vec::with_capacity(results.len());
    let mut failed: Option<Failure> = None;
    for (result, receipt_id) in results.into_iter().zip(receipts) {
        match result {
            Ok(outcome) => words.push(EventWords::new(outcome, receipt_id)),
            // A refused event is the last thing to report: whatever else failed may be cured by sending again.
            Err(failure) if failed.is_none_or(is_final) => failed = Some(failure),
            Err(_) => {}
        }
    }
    match failed {
        // The database knows of the revocation, and this gateway not yet.
        Some(Failure::Revoked) => {
            let detail = "the request is signed with a secret that was revoked";
            return Err(rejected(verification, &Rejection::new(Reason::SecretRevoked, detail)));
        }
        Some(Failure::SourceDeleted) => return Err(Refusal::NotFound),
        Some(failure) => return Err(Refusal::NotCommitted(failure)),
        None => {}
    }
    let answer = Answer::committed(words);
    Ok(match verification.recipe.accepted_reply() {
        Some(reply) => answer.replaced(reply.clone()),
        None => answer,
    })
}

/// Whether sending the same again cannot help.
const fn is_final(failure: Failure) -> bool {
    matches!(failure, Failure::Refused | Failure::Revoked | Failure::SourceDeleted)
}

/// What the source's recipe answers to a request that it rejects.
pub(crate) fn rejected(verification: &Verification, rejection: &Rejection) -> Refusal {
    let reason = rejection.reason();
    metrics::rejection(reason.code());
    if reason == Reason::SecretUnreadable {
        return Refusal::SecretUnreadable;
    }
    // Both say something about HTTP rather than about proof, so HTTP's own words fit better than the provider's.
    let own = if reason == Reason::TooManyEvents {
        Some(StatusCode::PAYLOAD_TOO_LARGE)
    } else if reason == Reason::EncodingMalformed {
        Some(StatusCode::BAD_REQUEST)
    } else {
        None
    };
    let wanted = StatusCode::from_u16(verification.recipe.rejected_status());
    Refusal::Rejected(Box::new(Rejected {
        status: own.unwrap_or(wanted.unwrap_or(StatusCode::UNAUTHORIZED)),
        reason: reason.code(),
        detail: Cow::Owned(rejection.detail().to_owned()),
        reply: verification.recipe.rejected_reply().filter(|_| own.is_none()).cloned(),
    }))
}
