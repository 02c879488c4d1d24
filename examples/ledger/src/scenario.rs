//! The payment laboratory: nine deliveries for five orders, each order with one way to go wrong.
//!
//! | order   | amount  | what the provider sends                                | the naive receiver          | too much |
//! |---------|---------|--------------------------------------------------------|-----------------------------|----------|
//! | order-a | $25,000 | the approval, and again because the answer was lost    | credits it twice            | $25,000  |
//! | order-b | $18,500 | two copies of the approval at the same moment          | credits it twice            | $18,500  |
//! | order-c | $42,000 | the approval; someone replays it three days later      | credits it twice            | $42,000  |
//! | order-d | $30,000 | nothing; someone forges an approval with another key   | credits what nobody paid    | $30,000  |
//! | order-e | $12,000 | the refund, and only then the approval it belongs to   | shows as paid what was refunded | $0   |
//!
//! Five wrong orders and $115,500 credited too much: the sum, order by order, of the receiver's credit beyond the provider's.
//! Order-e adds nothing to it, because the naive receiver takes $12,000 out and then in; what is wrong there is the state:
//! the shop ships goods for money that it no longer has.

use std::time::Duration;

use crate::account::{Accounts, Book};
use crate::event::{EventKind, OrderId, PaymentEvent};
use crate::money::Cents;

/// How a delivery comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twist {
    /// Signed and sent once.
    Plain,
    /// The same event sent again, as providers do when they got no answer: the same body, signed anew.
    Retry,
    /// One of two copies that are sent at the same moment over two connections.
    SameMoment,
    /// The very same signed request again, byte for byte, so much later.
    ReplayAfter(Duration),
    /// Signed with a key that is not the source's.
    Forged,
    /// A genuine event that is sent before the one it follows.
    TooEarly,
}

/// One delivery to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// What it says.
    pub event: PaymentEvent,
    /// How it comes about.
    pub twist: Twist,
}

/// The shop's orders, all waiting for their payments.
#[must_use]
pub fn orders() -> Vec<(OrderId, Cents)> {
    [("a", 25_000), ("b", 18_500), ("c", 42_000), ("d", 30_000), ("e", 12_000)]
        .map(|(order, dollars)| (order_id(order), Cents::dollars(dollars)))
        .into()
}

/// The nine deliveries, in the order in which they are sent; the two of [`Twist::SameMoment`] stand side by side.
#[must_use]
pub fn deliveries() -> Vec<Planned> {
    let three_days = Duration::from_secs(3 * 24 * 3600);
    let (approved, refunded) = (EventKind::PaymentApproved, EventKind::PaymentRefunded);
    [
        ("a", approved, Twist::Plain),
        ("a", approved, Twist::Retry),
        ("b", approved, Twist::SameMoment),
        ("b", approved, Twist::SameMoment),
        ("c", approved, Twist::Plain),
        ("d", approved, Twist::Forged),
        ("e", refunded, Twist::TooEarly),
        ("e", approved, Twist::Plain),
        ("c", approved, Twist::ReplayAfter(three_days)),
    ]
    .map(|(order, kind, twist)| Planned { event: event(order, kind), twist })
    .into()
}

/// The provider's own books after all this.
#[must_use]
pub fn provider_truth() -> Accounts {
    let mut book = Book::of_orders(orders());
    let (approved, refunded) = (EventKind::PaymentApproved, EventKind::PaymentRefunded);
    for (order, kind) in [("a", approved), ("b", approved), ("c", approved), ("e", approved), ("e", refunded)]
    {
        book.apply(&event(order, kind)).expect("the provider's own events follow the table");
    }
    book.accounts().clone()
}

fn order_id(order: &str) -> OrderId {
    OrderId(format!("order-{order}"))
}

fn event(order: &str, kind: EventKind) -> PaymentEvent {
    let order_id = order_id(order);
    let amount_cents =
        orders().into_iter().find(|(id, _)| *id == order_id).map_or(Cents(0), |(_, amount)| amount);
    let word = match kind {
        EventKind::OrderCreated => "created",
        EventKind::PaymentApproved => "approved",
        EventKind::PaymentRefunded => "refunded",
    };
    PaymentEvent { id: format!("pgr_evt_{order}_{word}"), kind, order_id, amount_cents }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::naive::NaiveReceiver;
    use crate::reconcile::reconcile;

    #[test]
    fn the_naive_receiver_has_five_wrong_orders_and_credits_115_500_dollars_too_much() {
        let naive = NaiveReceiver::of_orders(orders());
        for planned in deliveries() {
            naive.receive(&planned.event.to_json()).expect("well-formed");
        }
        let result = reconcile(&provider_truth(), &naive.accounts());
        assert_eq!(result.wrong_orders(), 5);
        assert_eq!(result.credited_too_much().to_string(), "$115,500");
        assert_eq!(result.credited_too_little(), Cents(0));
    }

    #[test]
    fn there_are_nine_deliveries_of_six_events_for_five_orders() {
        let deliveries = deliveries();
        assert_eq!(deliveries.len(), 9);
        let events: BTreeSet<_> = deliveries.iter().map(|planned| planned.event.id.clone()).collect();
        let orders: BTreeSet<_> = deliveries.iter().map(|planned| planned.event.order_id.clone()).collect();
        assert_eq!((events.len(), orders.len()), (6, 5));
    }
}
