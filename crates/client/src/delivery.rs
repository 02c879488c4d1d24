//! One event, offered once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portero_proto::v1;
use portero_types::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::driver::Command;

/// Longest extension of a hold.
const HOLD_MAX: Duration = Duration::from_secs(3600);

/// One event, offered once. Cheap to clone; `Debug` shows identity and place, never headers or body.
#[derive(Clone)]
pub struct Delivery(Arc<Inner>);

struct Inner {
    delivery: v1::Delivery,
    event: v1::Event,
    revoked: CancellationToken,
    commands: Option<mpsc::Sender<Command>>,
}

/// What stays the same for all events of one entity: tenant and ordering key.
pub(crate) type Entity = (String, String);

impl Delivery {
    /// A delivery without a stream, for tests of handlers. Its hold does nothing.
    #[must_use]
    pub fn detached(mut delivery: v1::Delivery) -> Self {
        let event = delivery.event.take().unwrap_or_default();
        let revoked = CancellationToken::new();
        Self(Arc::new(Inner { delivery, event, revoked, commands: None }))
    }

    /// `None` when the gateway sent a delivery without an event or a token.
    pub(crate) fn attached(mut delivery: v1::Delivery, commands: mpsc::Sender<Command>) -> Option<Self> {
        let event = delivery.event.take()?;
        if delivery.token.is_empty() {
            return None;
        }
        let revoked = CancellationToken::new();
        Some(Self(Arc::new(Inner { delivery, event, revoked, commands: Some(commands) })))
    }

    /// The event as the protocol has it.
    #[must_use]
    pub fn event(&self) -> &v1::Event {
        &self.0.event
    }

    /// The bytes as the provider sent them. Cheap to clone.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.0.event.body
    }

    /// `rcpt_…`: the identity to log and to ask for.
    #[must_use]
    pub fn receipt_id(&self) -> &str {
        &self.0.event.receipt_id
    }

    /// Tenant id.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.0.event.tenant
    }

    /// Source id within the tenant.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.0.event.source
    }

    /// Provider, which scopes [`event_id`](Self::event_id).
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.0.event.provider
    }

    /// The id under which the event was accepted once.
    #[must_use]
    pub fn event_id(&self) -> &str {
        &self.0.event.event_id
    }

    /// The provider's word for what happened; may be empty.
    #[must_use]
    pub fn event_type(&self) -> &str {
        &self.0.event.event_type
    }

    /// Entity within the tenant; events with the same key arrive in order.
    #[must_use]
    pub fn ordering_key(&self) -> &str {
        &self.0.event.ordering_key
    }

    /// The same for every delivery of this event, on any gateway: the idempotency key for outgoing calls.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        &self.0.event.idempotency_key
    }

    /// W3C trace context of the span that accepted the event; empty when tracing was off.
    #[must_use]
    pub fn trace_parent(&self) -> &str {
        &self.0.event.trace_parent
    }

    /// When the gateway received the request.
    #[must_use]
    pub fn received_at(&self) -> Timestamp {
        let at = self.0.event.received_at.unwrap_or_default();
        Timestamp::from_micros(
            at.seconds.saturating_mul(1_000_000).saturating_add(i64::from(at.nanos) / 1_000),
        )
    }

    /// The first kept header of this name (lower case), as received.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.0.event.headers.iter().find(|header| header.name == name).map(|header| header.value.as_slice())
    }

    /// Which offer of this event this is, first 1; includes uncounted ones.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.delivery.attempt
    }

    /// The log's generation; (generation, shard, position) rises for an entity, whatever happens.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.0.delivery.generation
    }

    /// The log's shard.
    #[must_use]
    pub fn shard(&self) -> u32 {
        self.0.delivery.shard
    }

    /// Position within the shard.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.0.delivery.position
    }

    /// Names this offer; opaque.
    #[must_use]
    pub fn token(&self) -> &Bytes {
        &self.0.delivery.token
    }

    /// Cancelled when the gateway takes the delivery back (it was held for too long, or its lane moved), when the stream
    /// that followed a broken one could not go on with it, and when a shutdown ran out of time. The work should stop; of its
    /// outcome only an ack still counts. A broken connection alone does not cancel: the next stream usually resumes the
    /// work, and what was finished meanwhile is settled first.
    #[must_use]
    pub fn revoked(&self) -> &CancellationToken {
        &self.0.revoked
    }

    /// Asks for more time: up to `duration` from now, at most an hour. Needed only by work that takes longer than the
    /// gateway's `max_hold` (5 minutes by default). Best effort: the gateway does not answer. Cancel safe.
    pub async fn hold(&self, duration: Duration) {
        if let Some(commands) = &self.0.commands {
            let hold = Command::Hold { token: self.token().clone(), duration: duration.min(HOLD_MAX) };
            // The driver is gone when the subscription is closed: then there is nothing to hold.
            let _ = commands.send(hold).await;
        }
    }

    pub(crate) fn entity(&self) -> Entity {
        // An event without an ordering key is an entity of its own.
        let key = if self.ordering_key().is_empty() { self.receipt_id() } else { self.ordering_key() };
        (self.tenant().to_owned(), key.to_owned())
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("receipt_id", &self.receipt_id())
            .field("tenant", &self.tenant())
            .field("source", &self.source())
            .field("event_type", &self.event_type())
            .field("attempt", &self.attempt())
            .field("generation", &self.generation())
            .field("shard", &self.shard())
            .field("position", &self.position())
            .field("body_bytes", &self.body().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_neither_body_nor_headers() {
        let event = v1::Event {
            receipt_id: "rcpt_1".to_owned(),
            headers: vec![v1::Header { name: "x-signature".to_owned(), value: b"hush".to_vec() }],
            body: Bytes::from_static(b"card number"),
            ..v1::Event::default()
        };
        let delivery = Delivery::detached(v1::Delivery { event: Some(event), ..v1::Delivery::default() });
        let shown = format!("{delivery:?}");
        assert!(shown.contains("rcpt_1") && shown.contains("body_bytes: 11"), "{shown}");
        assert!(!shown.contains("hush") && !shown.contains("card"), "{shown}");
        assert_eq!(delivery.header("x-signature"), Some(b"hush".as_slice()));
    }
}
