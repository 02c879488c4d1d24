//! Books against books. Pure.

use std::collections::BTreeSet;

use crate::account::{Account, Accounts};
use crate::event::OrderId;
use crate::money::Cents;

/// One order in both books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The order.
    pub order: OrderId,
    /// In the provider's books; `None` when it is not there.
    pub expected: Option<Account>,
    /// In the receiver's books; `None` when it is not there.
    pub found: Option<Account>,
}

impl Row {
    /// Whether both books agree on amount, state and credit.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.expected == self.found
    }

    /// The receiver's credit less the provider's; negative when too little was credited.
    #[must_use]
    pub fn difference(&self) -> Cents {
        let credit = |account: Option<Account>| account.map_or(Cents(0), |account| account.credited);
        credit(self.found) - credit(self.expected)
    }
}

/// All orders of either book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconciliation {
    /// In the order of their ids.
    pub rows: Vec<Row>,
}

impl Reconciliation {
    /// Orders on which the books disagree.
    #[must_use]
    pub fn wrong_orders(&self) -> usize {
        self.rows.iter().filter(|row| !row.is_right()).count()
    }

    /// The sum of what single orders were credited beyond the provider's books. Orders with too little credit do not
    /// make up for it.
    #[must_use]
    pub fn credited_too_much(&self) -> Cents {
        self.rows.iter().map(|row| row.difference().max(Cents(0))).sum()
    }

    /// The sum of what single orders were credited too little, as a positive amount.
    #[must_use]
    pub fn credited_too_little(&self) -> Cents {
        self.rows.iter().map(|row| (Cents(0) - row.difference()).max(Cents(0))).sum()
    }

    /// Whether the books agree on everything.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.wrong_orders() == 0
    }
}

/// Compares a receiver's accounts with the provider's.
#[must_use]
pub fn reconcile(provider: &Accounts, receiver: &Accounts) -> Reconciliation {
    let orders: BTreeSet<&OrderId> = provider.keys().chain(receiver.keys()).collect();
    let rows = orders
        .into_iter()
        .map(|order| Row {
            order: order.clone(),
            expected: provider.get(order).copied(),
            found: receiver.get(order).copied(),
        })
        .collect();
    Reconciliation { rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition::State;

    fn accounts(list: &[(&str, i64, State)]) -> Accounts {
        let account = |credited, state| Account { amount: Cents(10), state, credited: Cents(credited) };
        list.iter()
            .map(|(order, credited, state)| (OrderId((*order).to_owned()), account(*credited, *state)))
            .collect()
    }

    #[test]
    fn missing_and_unexpected_orders_and_wrong_states_are_differences() {
        let provider = accounts(&[("a", 10, State::Paid), ("b", 10, State::Paid), ("c", 0, State::Refunded)]);
        let receiver = accounts(&[("a", 10, State::Paid), ("c", 0, State::Paid), ("d", 10, State::Paid)]);
        let result = reconcile(&provider, &receiver);
        assert_eq!(result.wrong_orders(), 3);
        assert_eq!(result.credited_too_much(), Cents(10));
        assert_eq!(result.credited_too_little(), Cents(10));
        assert!(!result.is_clean());
        assert!(reconcile(&provider, &provider).is_clean());
    }
}
