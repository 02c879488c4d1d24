//! The usual endpoint without a gateway.

use std::sync::{Mutex, PoisonError};

use crate::account::{Account, Accounts, effect};
use crate::event::{EventKind, Malformed, OrderId, PaymentEvent};
use crate::money::Cents;
use crate::transition::State;

/// Applies every delivery that it gets, the moment it gets it: it checks no signature, knows no event twice, and keeps no
/// order. The last event's word is the order's state; every approval adds to its credit and every refund takes from it.
/// That is what a short handler behind a web framework does, and each single line of it looks right.
#[derive(Debug, Default)]
pub struct NaiveReceiver(Mutex<Accounts>);

impl NaiveReceiver {
    /// Orders that wait for their payments.
    #[must_use]
    pub fn of_orders(orders: impl IntoIterator<Item = (OrderId, Cents)>) -> Self {
        let accounts = orders.into_iter().map(|(order, amount)| (order, Account::open(amount))).collect();
        Self(Mutex::new(accounts))
    }

    /// Takes one delivery; callable from many connections at once.
    ///
    /// # Errors
    /// [`Malformed`]: the only thing that it notices.
    pub fn receive(&self, body: &[u8]) -> Result<(), Malformed> {
        let event = PaymentEvent::from_json(body)?;
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let account =
            accounts.entry(event.order_id.clone()).or_insert_with(|| Account::open(event.amount_cents));
        account.credited = account.credited + effect(&event);
        account.state = match event.kind {
            EventKind::OrderCreated => State::Open,
            EventKind::PaymentApproved => State::Paid,
            EventKind::PaymentRefunded => State::Refunded,
        };
        Ok(())
    }

    /// What it believes.
    #[must_use]
    pub fn accounts(&self) -> Accounts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
