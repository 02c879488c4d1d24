//! Events on their way to the store: past the pre-filter, and what became of each.

use std::time::Duration;

use portero_prefilter::Hit;
use portero_types::{NewEvent, ReceiptId};

use crate::accept::{EventResult, Failure, Outcome};
use crate::edge::Edge;
use crate::{event, metrics};

/// How old the configuration may be for a repeat to be answered without the store, which alone knows at once that a secret is
/// revoked. Gateways look twice a second.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// Every event's result, in order. Repeats that the pre-filter knows do not reach the store.
pub(crate) async fn accept(edge: &Edge, events: Vec<NewEvent>) -> Vec<EventResult> {
    let parts = &edge.0.parts;
    let keys: Vec<_> = events.iter().map(event::key_of).collect();
    let mut hits = if keys.is_empty() { Vec::new() } else { parts.prefilter.lookup(&keys).await };
    if !parts.directory.is_confirmed_within(TRUSTED_FOR) {
        hits.clear();
    }
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

fn report(result: EventResult, own: ReceiptId, event_id: &str, event_type: &str) {
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
