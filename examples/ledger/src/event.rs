//! What the provider sends.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::money::Cents;

/// Longest order id, bytes.
const ORDER_ID_BYTES_MAX: usize = 64;
/// Largest amount: a hundred million dollars.
const AMOUNT_MAX: Cents = Cents::dollars(100_000_000);

/// One event of the provider, as JSON:
///
/// ```json
/// {"id":"pgr_evt_1001","type":"payment.approved","order_id":"order-a","amount_cents":2500000}
/// ```
///
/// `id` is unique and stays the same when the provider sends again; `order_id` is the entity whose events are ordered.
/// Fields that are not listed here are ignored: a provider may add some at any time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentEvent {
    /// The provider's id of the event.
    pub id: String,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// To which order.
    pub order_id: OrderId,
    /// How much, 1 cent to a hundred million dollars.
    pub amount_cents: Cents,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventKind {
    /// The customer began to pay an order.
    #[serde(rename = "order.created")]
    OrderCreated,
    /// The whole amount was paid.
    #[serde(rename = "payment.approved")]
    PaymentApproved,
    /// The whole amount was paid back.
    #[serde(rename = "payment.refunded")]
    PaymentRefunded,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::OrderCreated, Self::PaymentApproved, Self::PaymentRefunded];

    /// The provider's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OrderCreated => "order.created",
            Self::PaymentApproved => "payment.approved",
            Self::PaymentRefunded => "payment.refunded",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An order of the shop, 1 to 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OrderId(pub String);

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl PaymentEvent {
    /// Reads an event from a body.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong, without quoting the body.
    pub fn from_json(body: &[u8]) -> Result<Self, Malformed> {
        let event: Self =
            serde_json::from_slice(body).map_err(|_| Malformed("not an event of this provider"))?;
        if event.order_id.0.is_empty() || event.order_id.0.len() > ORDER_ID_BYTES_MAX {
            return Err(Malformed("order_id must have 1 to 64 bytes"));
        }
        if event.amount_cents <= Cents(0) || event.amount_cents > AMOUNT_MAX {
            return Err(Malformed("amount_cents is out of range"));
        }
        Ok(event)
    }

    /// The body that the provider sends.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialise")
    }
}

/// A body that is no event of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_its_journey_and_may_carry_more_than_is_known() {
        let body = br#"{"id":"e1","type":"payment.refunded","order_id":"o","amount_cents":7,"note":"new"}"#;
        let event = PaymentEvent::from_json(body).expect("good");
        assert_eq!(event.kind, EventKind::PaymentRefunded);
        assert_eq!(PaymentEvent::from_json(&event.to_json()), Ok(event));
    }

    #[test]
    fn what_is_no_event_is_refused() {
        for body in [
            "",
            "{}",
            "[]",
            r#"{"id":"e","type":"payment.lost","order_id":"o","amount_cents":1}"#,
            r#"{"id":"e","type":"payment.approved","order_id":"","amount_cents":1}"#,
            r#"{"id":"e","type":"payment.approved","order_id":"o","amount_cents":0}"#,
            r#"{"id":"e","type":"payment.approved","order_id":"o","amount_cents":-5}"#,
            r#"{"id":"e","type":"payment.approved","order_id":"o","amount_cents":1.5}"#,
            r#"{"id":"e","type":"payment.approved","order_id":"o","amount_cents":10000000001}"#,
        ] {
            assert!(PaymentEvent::from_json(body.as_bytes()).is_err(), "{body}");
        }
    }
}
