//! One batch through the store: split when a row is refused, tried again when the outcome is unknown.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use portero_prefilter::{Hit, Key};
use portero_store::{Error, ErrorKind, Verdict};
use portero_types::{NewEvent, Shard};
use tokio::time::Instant;

use super::queue::Submission;
use super::{EventResult, Failure, Outcome, Shared};
use crate::metrics;

/// Pause before a retry; doubled each time.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Commits a batch, answers its submitters, then tells the dispatcher and the pre-filter.
pub(super) async fn run(shared: &Arc<Shared>, batch: Vec<Submission>) {
    let began = Instant::now();
    let mut events = Vec::with_capacity(batch.iter().map(|submission| submission.events.len()).sum());
    // Where each submission ends within `events`.
    let mut ends = Vec::with_capacity(batch.len());
    let mut replies = Vec::with_capacity(batch.len());
    for submission in batch {
        events.extend(submission.events);
        ends.push(events.len());
        replies.push(submission.reply);
    }
    let results = settle(shared, &events, &ends).await;
    metrics::batch(events.len(), began.elapsed());

    hint(shared, &events, &results);
    let mut start = 0;
    for (end, reply) in ends.iter().zip(replies) {
        // A submitter that has gone needs no answer; its events are stored all the same.
        let _ = reply.send(results[start..*end].to_vec());
        start = *end;
    }
    remember(shared, &events, &results);
}

/// Every event's result, in order.
async fn settle(shared: &Shared, events: &[NewEvent], ends: &[usize]) -> Vec<EventResult> {
    let mut results = Vec::with_capacity(events.len());
    // Ranges still to commit, the next one last. Halving bounds its length by the logarithm of the batch.
    let mut ranges = Vec::new();
    ranges.push(0..events.len());
    let mut down = None;
    while let Some(range) = ranges.pop() {
        if let Some(failure) = down {
            results.extend(range.map(|_| Err(failure)));
            continue;
        }
        match attempt(shared, &events[range.clone()]).await {
            Ok(judged) => results.extend(judged),
            Err(Failure::Refused) if range.len() > 1 => {
                let middle = split_at(&range, ends);
                ranges.push(middle..range.end);
                ranges.push(range.start..middle);
            }
            Err(Failure::Refused) => {
                let event = &events[range.start];
                tracing::error!(
                    receipt.id = %event.receipt_id, request.id = %event.request_id, tenant.no = %event.tenant_no,
                    source.no = %event.source_no, body_bytes = event.body_bytes,
                    "the store refuses an event; its neighbours are not affected"
                );
                results.push(Err(Failure::Refused));
            }
            Err(failure) => {
                // What the store cannot do for one half it cannot do for the other, which is not tried.
                down = Some(if failure == Failure::OutcomeUnknown { Failure::Unavailable } else { failure });
                results.extend(range.map(|_| Err(failure)));
            }
        }
    }
    results
}

/// Where to halve a refused range: between two submissions if there are two, else between two events.
fn split_at(range: &Range<usize>, ends: &[usize]) -> usize {
    let middle = range.start + range.len() / 2;
    ends.iter()
        .copied()
        .filter(|end| range.start < *end && *end < range.end)
        .min_by_key(|end| end.abs_diff(middle))
        .unwrap_or(middle)
}

/// One range through the store, with retries while the outcome is unknown.
async fn attempt(shared: &Shared, events: &[NewEvent]) -> Result<Vec<EventResult>, Failure> {
    let until = Instant::now() + shared.config.unknown_outcome_window;
    let mut pause = RETRY_PAUSE;
    let mut unknown = false;
    for tries_left in (0..=shared.config.unknown_outcome_retries).rev() {
        let failure = match once(shared, events).await {
            Ok(judged) => return Ok(judged),
            Err(failure) => failure,
        };
        match failure {
            // Only an attempt that surely wrote nothing ends the doubt about an earlier one: a refusal of the same rows.
            Failure::Refused | Failure::Revoked | Failure::SourceDeleted => return Err(failure),
            Failure::OutcomeUnknown => unknown = true,
            Failure::Unavailable if unknown => {}
            Failure::Unavailable | Failure::Broken | Failure::Overloaded | Failure::ShuttingDown => {
                return Err(if unknown { Failure::OutcomeUnknown } else { failure });
            }
        }
        if tries_left == 0 || Instant::now() + pause >= until {
            break;
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    Err(Failure::OutcomeUnknown)
}

/// One store call. A panic inside the store ends neither the worker nor the queue.
async fn once(shared: &Shared, events: &[NewEvent]) -> Result<Vec<EventResult>, Failure> {
    let Ok(answer) = AssertUnwindSafe(shared.store.accept(events)).catch_unwind().await else {
        tracing::error!("the store panicked while accepting");
        return Err(Failure::OutcomeUnknown);
    };
    match answer {
        Ok(verdicts) if verdicts.len() == events.len() => {
            Ok(events.iter().zip(verdicts).map(|(event, verdict)| outcome(event, verdict)).collect())
        }
        Ok(verdicts) => {
            tracing::error!(
                events = events.len(),
                verdicts = verdicts.len(),
                "the store miscounted verdicts"
            );
            Err(Failure::OutcomeUnknown)
        }
        Err(error) => Err(failure(&error, events.len())),
    }
}

fn outcome(event: &NewEvent, verdict: Verdict) -> EventResult {
    Ok(match verdict {
        Verdict::Accepted { .. } => Outcome::Accepted,
        // Its own receipt was there before: an earlier attempt of this very submission had been committed.
        Verdict::Duplicate { first } if first == event.receipt_id => Outcome::Accepted,
        Verdict::Duplicate { first } => Outcome::Duplicate { first },
        Verdict::Conflict { first } => Outcome::Conflict { first },
        Verdict::Revoked => return Err(Failure::Revoked),
        Verdict::SourceDeleted => return Err(Failure::SourceDeleted),
    })
}

fn failure(error: &Error, events: usize) -> Failure {
    let failure = match error.kind() {
        ErrorKind::Unavailable => Failure::Unavailable,
        ErrorKind::OutcomeUnknown => Failure::OutcomeUnknown,
        // Reported where it is known which row it is.
        ErrorKind::Refused => return Failure::Refused,
        ErrorKind::AlreadyExists
        | ErrorKind::NotFound
        | ErrorKind::FailedPrecondition
        | ErrorKind::Exhausted
        | ErrorKind::Fenced
        | ErrorKind::Corrupt
        | ErrorKind::SchemaMismatch => {
            tracing::error!(error = %error, kind = ?error.kind(), events, "the store cannot accept events");
            return Failure::Broken;
        }
    };
    tracing::warn!(error = %error, kind = ?error.kind(), events, "a batch of events was not committed");
    failure
}

/// Tells which shards have new entries.
fn hint(shared: &Shared, events: &[NewEvent], results: &[EventResult]) {
    let mut told = [false; 256];
    for (event, result) in events.iter().zip(results) {
        let Shard(shard) = event.shard(shared.config.shards);
        if *result == Ok(Outcome::Accepted) && !std::mem::replace(&mut told[usize::from(shard)], true) {
            (shared.hint)(Shard(shard));
        }
    }
}

/// Tells the pre-filter what is committed. Nobody waits for it.
fn remember(shared: &Arc<Shared>, events: &[NewEvent], results: &[EventResult]) {
    let known: Vec<(Key, Hit)> = events
        .iter()
        .zip(results)
        .filter_map(|(event, result)| {
            let receipt_id = match result {
                Ok(Outcome::Accepted) => event.receipt_id,
                Ok(Outcome::Duplicate { first }) => *first,
                // The digest of the first is not known here.
                Ok(Outcome::Conflict { .. }) | Err(_) => return None,
            };
            Some((crate::event::key_of(event), Hit { receipt_id, body_digest: event.body_digest }))
        })
        .collect();
    if known.is_empty() {
        return;
    }
    let Ok(permit) = Arc::clone(&shared.remembering).try_acquire_owned() else {
        return;
    };
    let prefilter = Arc::clone(&shared.prefilter);
    shared.tasks.spawn(async move {
        prefilter.remember(&known).await;
        drop(permit);
    });
}
