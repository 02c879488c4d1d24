//! What happens to a request whose body was read: handshake, verification, extraction, pre-filter, commit, answer.
//!
//! It runs in a task of its own, so it goes on when the client leaves. Nothing before verification looks into the body,
//! except where the signature itself lives there.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, request};
use portero_directory::{Source, Verification};
use portero_prefilter::Hit;
use portero_recipe::{Reason, Rejection, Reply, Request};
use portero_types::{NewEvent, RequestId, Timestamp};
use tracing::Instrument as _;

use crate::accept::{EventResult, Failure, Outcome};
use crate::answer::{Answer, EventWords};
use crate::edge::{ALLOWED, Edge};
use crate::refusal::{Refusal, Rejected};
use crate::{event, metrics};

/// A request whose body was read.
pub(crate) struct Work {
    pub(crate) request_id: RequestId,
    pub(crate) received_at: Timestamp,
    pub(crate) head: request::Parts,
    pub(crate) body: Bytes,
    pub(crate) source: Arc<Source>,
}

/// What verification and extraction say.
enum Judged {
    Handshake(Reply),
    Events(Vec<NewEvent>),
}

/// Decides a request. Not cancel-safe: run it in a task of its own.
pub(crate) async fn decide(edge: &Edge, work: Work) -> Result<Answer, Refusal> {
    let verification = verification(&work.source)?;
    let events = match tracing::info_span!("verify").in_scope(|| judge(edge, &work, verification))? {
        Judged::Handshake(reply) => return Ok(handshake_answer(reply)),
        Judged::Events(events) => events,
    };
    let receipts: Vec<_> = events.iter().map(|event| event.receipt_id).collect();
    let results = accept(edge, events).instrument(tracing::info_span!("accept")).await;
    let mut words = Vec::with_capacity(results.len());
    let mut failed: Option<Failure> = None;
    for (result, receipt_id) in results.into_iter().zip(receipts) {
        match result {
            Ok(outcome) => words.push(EventWords::new(outcome, receipt_id)),
            // A refused event is the last thing to report: whatever else failed may be cured by sending again.
            Err(failure) if failed.is_none_or(|known| known == Failure::Refused) => failed = Some(failure),
            Err(_) => {}
        }
    }
    if let Some(failure) = failed {
        return Err(Refusal::NotCommitted(failure));
    }
    let answer = Answer::committed(words);
    Ok(match verification.recipe.accepted_reply() {
        Some(reply) => answer.replaced(reply.clone()),
        None => answer,
    })
}

/// A GET, which only a recipe's handshake may use.
pub(crate) fn handshake_without_body(
    edge: &Edge,
    source: &Source,
    head: &request::Parts,
) -> Result<Answer, Refusal> {
    let verification = verification(source)?;
    if !verification.recipe.answers_method(head.method.as_str()) {
        return Err(Refusal::MethodNotAllowed(ALLOWED));
    }
    let headers = borrowed(&head.headers);
    let request = judged_request(head, &headers, &[], source);
    let now = edge.0.parts.clock.now();
    match portero_recipe::handshake(&verification.recipe, &request, &verification.secrets, now) {
        Ok(Some(reply)) => Ok(handshake_answer(reply)),
        Ok(None) => Err(Refusal::MethodNotAllowed(ALLOWED)),
        Err(rejection) => Err(rejected(verification, &rejection)),
    }
}

fn verification(source: &Source) -> Result<&Verification, Refusal> {
    source.verification.as_ref().map_err(|fault| {
        tracing::warn!(%fault, "a request meets a disabled source");
        Refusal::SourceDisabled
    })
}

fn handshake_answer(reply: Reply) -> Answer {
    tracing::info!(decision = "handshake", "a provider's check of the URL is answered");
    Answer::plain("handshake", StatusCode::OK).replaced(reply)
}

fn borrowed(headers: &HeaderMap) -> Vec<(&str, &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

/// The request as recipes see it.
fn judged_request<'a>(
    head: &'a request::Parts,
    headers: &'a [(&'a str, &'a [u8])],
    body: &'a [u8],
    source: &'a Source,
) -> Request<'a> {
    Request {
        method: head.method.as_str(),
        query: head.uri.query().unwrap_or_default(),
        headers,
        body,
        public_url: source.public_urls.first().map(String::as_str),
    }
}

/// Everything that is pure: from bytes to events.
fn judge(edge: &Edge, work: &Work, verification: &Verification) -> Result<Judged, Refusal> {
    let recipe = &*verification.recipe;
    let headers = borrowed(&work.head.headers);
    let request = judged_request(&work.head, &headers, &work.body, &work.source);
    let now = work.received_at;
    let reject = |rejection: Rejection| rejected(verification, &rejection);
    let secrets = &verification.secrets;
    if let Some(reply) = portero_recipe::handshake(recipe, &request, secrets, now).map_err(reject)? {
        return Ok(Judged::Handshake(reply));
    }
    let verified = portero_recipe::verify(recipe, &request, secrets, now).map_err(reject)?;
    let extracted = portero_recipe::extract(recipe, &request, &verified).map_err(reject)?;
    for anomaly in extracted.iter().filter_map(|found| found.id_anomaly) {
        tracing::warn!(
            anomaly = anomaly.code(),
            "an event's id is not trusted; one is derived from its bytes"
        );
    }
    let shared = event::Shared {
        source: &work.source,
        recipe,
        request_id: work.request_id,
        received_at: now,
        trace_parent: (edge.0.parts.trace_parent)(),
        headers: &work.head.headers,
        body: &work.body,
    };
    Ok(Judged::Events(event::build(&shared, extracted, edge.config(), &edge.0.parts.random)))
}

fn rejected(verification: &Verification, rejection: &Rejection) -> Refusal {
    let reason = rejection.reason();
    metrics::rejection(reason.code());
    tracing::info!(
        decision = "rejected",
        reason = reason.code(),
        detail = rejection.detail(),
        "a request is rejected"
    );
    let too_many = reason == Reason::TooManyEvents;
    let status = if too_many { 413 } else { verification.recipe.rejected_status() };
    Refusal::Rejected(Box::new(Rejected {
        status: StatusCode::from_u16(status).unwrap_or(StatusCode::UNAUTHORIZED),
        reason: reason.code(),
        detail: Cow::Owned(rejection.detail().to_owned()),
        reply: verification.recipe.rejected_reply().filter(|_| !too_many).cloned(),
    }))
}

/// Every event's result, in order. Repeats that the pre-filter knows do not reach the store.
async fn accept(edge: &Edge, events: Vec<NewEvent>) -> Vec<EventResult> {
    let parts = &edge.0.parts;
    let keys: Vec<_> = events.iter().map(event::key_of).collect();
    let hits = if keys.is_empty() { Vec::new() } else { parts.prefilter.lookup(&keys).await };
    let mut results: Vec<Option<EventResult>> = Vec::with_capacity(events.len());
    let mut unknown = Vec::new();
    let mut about = Vec::with_capacity(events.len());
    for (at, new) in events.into_iter().enumerate() {
        about.push((new.receipt_id, new.event_id.clone(), new.event_type.clone()));
        match hits.get(at).copied().flatten() {
            Some(Hit { receipt_id, body_digest }) if body_digest == new.body_digest => {
                parts.accept.count_repeat(receipt_id);
                results.push(Some(Ok(Outcome::Duplicate { first: receipt_id })));
            }
            // Other bytes under a known key: the store judges and records the conflict.
            Some(_) | None => {
                results.push(None);
                unknown.push(new);
            }
        }
    }
    let mut decided = parts.accept.submit(unknown).await.into_iter();
    results
        .into_iter()
        .zip(about)
        .map(|(result, (own, event_id, event_type))| {
            let result = result.or_else(|| decided.next()).unwrap_or(Err(Failure::OutcomeUnknown));
            report(result, own, &event_id, &event_type);
            result
        })
        .collect()
}

fn report(result: EventResult, own: portero_types::ReceiptId, event_id: &str, event_type: &str) {
    match result {
        Ok(Outcome::Accepted) => {
            metrics::event("accepted");
            tracing::debug!(
                decision = "accepted", receipt.id = %own, event.id = event_id, event.type = event_type,
                "an event is accepted"
            );
        }
        Ok(Outcome::Duplicate { first }) => {
            metrics::event("duplicate");
            tracing::debug!(
                decision = "duplicate", receipt.id = %first, event.id = event_id, event.type = event_type,
                "an event came again"
            );
        }
        Ok(Outcome::Conflict { first }) => {
            metrics::event("conflict");
            tracing::warn!(
                decision = "conflict", receipt.id = %first, event.id = event_id, event.type = event_type,
                "an event came again with other bytes; the first one is kept"
            );
        }
        Err(failure) => {
            metrics::event("failed");
            tracing::debug!(
                decision = "failed", %failure, event.id = event_id, event.type = event_type,
                "an event is not stored"
            );
        }
    }
}
