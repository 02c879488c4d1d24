//! Frames of the protocol and frames of the dispatcher.

use std::time::Duration;

use bytes::Bytes;
use portero_dispatcher::{Delivery, Flow, Outcome, Reason, Settlement, Status as Settled};
use portero_proto::v1;
use portero_types::{Event, Generation, SubscriptionNo};
use tonic::Status;

use super::token;
use crate::error::invalid;
use crate::idempotency::idempotency_key;
use crate::time;

const ITEMS_MAX: usize = 1_000;
const DELAY_MAX: Duration = Duration::from_secs(24 * 3_600);
const REASON_CODE_BYTES_MAX: usize = 64;

/// The limits that a client asks for, with defaults where it asks for none.
pub(crate) fn flow(wanted: Option<v1::Flow>) -> Result<Flow, Status> {
    let (wanted, default) = (wanted.unwrap_or_default(), Flow::default());
    if wanted.max_inflight_events > 10_000 {
        return Err(invalid("max_inflight_events", "must be at most 10000"));
    }
    let events_max =
        if wanted.max_inflight_events == 0 { default.events_max } else { wanted.max_inflight_events };
    let bytes_max =
        if wanted.max_inflight_bytes == 0 { default.bytes_max } else { wanted.max_inflight_bytes };
    Ok(Flow { events_max, bytes_max })
}

/// The settlements of a frame or call.
pub(crate) fn settlements(
    items: &[v1::Settlement],
    subscription: SubscriptionNo,
) -> Result<Vec<Settlement>, Status> {
    if items.is_empty() || items.len() > ITEMS_MAX {
        return Err(invalid("items", "must hold 1 to 1000 settlements"));
    }
    items.iter().map(|item| settlement(item, subscription)).collect()
}

fn settlement(item: &v1::Settlement, subscription: SubscriptionNo) -> Result<Settlement, Status> {
    let outcome = match v1::Outcome::try_from(item.outcome) {
        Ok(v1::Outcome::Ack) => Outcome::Ack,
        Ok(v1::Outcome::Retry) => {
            let delay = item
                .delay
                .as_ref()
                .map(|delay| time::duration(delay, "items.delay", DELAY_MAX))
                .transpose()?;
            Outcome::Retry { delay }
        }
        Ok(v1::Outcome::Release) => Outcome::Release,
        Ok(v1::Outcome::Reject) => Outcome::Reject,
        Ok(v1::Outcome::Defer) => Outcome::Defer,
        Ok(v1::Outcome::Unspecified) | Err(_) => {
            return Err(invalid("items.outcome", "must be ACK, RETRY, RELEASE, REJECT or DEFER"));
        }
    };
    let code = item.reason_code.as_str();
    let fits = code.len() <= REASON_CODE_BYTES_MAX
        && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    if !fits {
        return Err(invalid("items.reason_code", "must be at most 64 characters of A-Z, 0-9 and '_'"));
    }
    Ok(Settlement {
        token: token::decode(subscription, &item.token),
        outcome,
        reason: Reason::new(code, &item.reason_text),
    })
}

/// One result per token, in order.
pub(crate) fn results(tokens: Vec<Bytes>, statuses: Vec<Settled>) -> Vec<v1::SettlementResult> {
    tokens.into_iter().zip(statuses).map(|(token, status)| result(token, status)).collect()
}

fn result(token: Bytes, status: Settled) -> v1::SettlementResult {
    let (status, detail) = match status {
        Settled::Durable => (v1::SettlementStatus::Durable, ""),
        Settled::DurableLate => {
            (v1::SettlementStatus::DurableLate, "recorded, but another delivery had begun")
        }
        Settled::Already => (v1::SettlementStatus::Already, "settled before"),
        Settled::Stale => {
            (v1::SettlementStatus::Stale, "this delivery is over; the event was or will be delivered again")
        }
        Settled::UnknownToken => (v1::SettlementStatus::UnknownToken, "not a delivery of this subscription"),
        Settled::TryAgain => (v1::SettlementStatus::TryAgain, "nothing is recorded here; send it again"),
    };
    v1::SettlementResult { token, status: status.into(), detail: detail.to_owned() }
}

/// A delivery on the wire.
pub(crate) fn delivery(
    delivery: Delivery,
    subscription: SubscriptionNo,
    generation: Generation,
) -> v1::Delivery {
    v1::Delivery {
        token: token::encode(subscription, &delivery.token),
        attempt: delivery.attempt,
        generation: generation.0,
        shard: u32::from(delivery.position.shard.0),
        position: delivery.position.n,
        event: Some(event(delivery.event)),
    }
}

fn event(event: Event) -> v1::Event {
    let idempotency_key = idempotency_key(event.tenant.as_str(), event.provider.as_str(), &event.event_id);
    v1::Event {
        receipt_id: event.receipt_id.to_string(),
        tenant: event.tenant.into(),
        source: event.source.into(),
        provider: event.provider.into(),
        event_id: event.event_id,
        event_id_derived: event.id_derived,
        event_type: event.event_type,
        ordering_key: event.ordering_key,
        received_at: Some(time::to_proto(event.received_at)),
        request_id: event.request_id.to_string(),
        trace_parent: event.trace_parent,
        idempotency_key,
        content_type: event.content_type,
        headers: event
            .headers
            .into_iter()
            .map(|header| v1::Header { name: header.name, value: header.value })
            .collect(),
        body: event.body,
    }
}
