//! One order's money, and all orders' in memory. Pure.

use std::collections::BTreeMap;

use crate::event::{EventKind, OrderId, PaymentEvent};
use crate::money::Cents;
use crate::transition::{Refusal, State, transition};

/// What is known of one order's money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// What the order costs.
    pub amount: Cents,
    /// Where it stands.
    pub state: State,
    /// What was credited for it, less what was paid back.
    pub credited: Cents,
}

/// Accounts by order.
pub type Accounts = BTreeMap<OrderId, Account>;

impl Account {
    /// An order that waits for its payment.
    #[must_use]
    pub const fn open(amount: Cents) -> Self {
        Self { amount, state: State::Open, credited: Cents(0) }
    }

    /// The account after an event; `None` before it means that the order is unknown.
    ///
    /// # Errors
    /// As [`transition`], and [`Refusal::WrongAmount`].
    pub fn after(before: Option<Self>, event: &PaymentEvent) -> Result<Self, Refusal> {
        let state = transition(before.map_or(State::Unknown, |account| account.state), event.kind)?;
        let account = before.unwrap_or(Self::open(event.amount_cents));
        if event.amount_cents != account.amount {
            return Err(Refusal::WrongAmount { order: account.amount, event: event.amount_cents });
        }
        Ok(Self { state, credited: account.credited + effect(event), ..account })
    }
}

/// What an event adds to its order's credit.
pub(crate) fn effect(event: &PaymentEvent) -> Cents {
    match event.kind {
        EventKind::OrderCreated => Cents(0),
        EventKind::PaymentApproved => event.amount_cents,
        EventKind::PaymentRefunded => Cents(0) - event.amount_cents,
    }
}

/// Accounts in memory that follow the table: the provider's own books, when its events are applied in true order.
#[derive(Clone, Debug, Default)]
pub struct Book(Accounts);

impl Book {
    /// Orders that wait for their payments.
    #[must_use]
    pub fn of_orders(orders: impl IntoIterator<Item = (OrderId, Cents)>) -> Self {
        Self(orders.into_iter().map(|(order, amount)| (order, Account::open(amount))).collect())
    }

    /// Applies one event.
    ///
    /// # Errors
    /// As [`Account::after`]; the book is then unchanged.
    pub fn apply(&mut self, event: &PaymentEvent) -> Result<Account, Refusal> {
        let account = Account::after(self.0.get(&event.order_id).copied(), event)?;
        self.0.insert(event.order_id.clone(), account);
        Ok(account)
    }

    /// The accounts.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, dollars: i64) -> PaymentEvent {
        let order_id = OrderId("order-1".to_owned());
        PaymentEvent { id: "e".to_owned(), kind, order_id, amount_cents: Cents::dollars(dollars) }
    }

    #[test]
    fn an_order_that_is_paid_and_refunded_has_nothing_left() {
        let mut book = Book::default();
        for kind in EventKind::ALL {
            book.apply(&event(kind, 10)).expect("in order");
        }
        let account = book.accounts()[&OrderId("order-1".to_owned())];
        assert_eq!(
            account,
            Account { amount: Cents::dollars(10), state: State::Refunded, credited: Cents(0) }
        );
    }

    #[test]
    fn a_refused_event_changes_nothing() {
        let mut book = Book::of_orders([(OrderId("order-1".to_owned()), Cents::dollars(10))]);
        let before = book.accounts().clone();
        assert!(matches!(book.apply(&event(EventKind::PaymentRefunded, 10)), Err(Refusal::TooEarly { .. })));
        assert!(matches!(
            book.apply(&event(EventKind::PaymentApproved, 11)),
            Err(Refusal::WrongAmount { .. })
        ));
        assert_eq!(*book.accounts(), before);
    }
}
