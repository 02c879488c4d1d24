//! What an event does to an order. Pure.

use std::fmt;

use crate::event::EventKind;
use crate::money::Cents;

/// Where an order stands.
///
/// ```text
///            order.created        payment.approved       payment.refunded
/// Unknown ───────────────▶ Open ─────────────────▶ Paid ────────────────▶ Refunded
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Nothing is known of it.
    Unknown,
    /// Waits for its payment.
    Open,
    /// Paid in full.
    Paid,
    /// Paid, and paid back in full. Final.
    Refunded,
}

impl State {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Unknown, Self::Open, Self::Paid, Self::Refunded];

    /// `unknown`, `open`, `paid` or `refunded`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Open => "open",
            Self::Paid => "paid",
            Self::Refunded => "refunded",
        }
    }

    /// From its word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why an event does not apply now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Valid, but an earlier event is still missing: offer it again.
    #[error("{kind} came while the order was {state}: an earlier event is missing")]
    TooEarly {
        /// Where the order stands.
        state: State,
        /// What came.
        kind: EventKind,
    },
    /// Never right: someone must look at it.
    #[error("{kind} cannot happen to an order that is {state}")]
    Invalid {
        /// Where the order stands.
        state: State,
        /// What came.
        kind: EventKind,
    },
    /// Not the order's amount.
    #[error("the order is over {order}, the event over {event}")]
    WrongAmount {
        /// The order's.
        order: Cents,
        /// The event's.
        event: Cents,
    },
}

impl Refusal {
    /// Stable code for settlements.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::TooEarly { .. } => "TOO_EARLY",
            Self::Invalid { .. } => "INVALID_TRANSITION",
            Self::WrongAmount { .. } => "WRONG_AMOUNT",
        }
    }
}

/// The table: every state with every kind of event.
///
/// | state    | order.created | payment.approved | payment.refunded |
/// |----------|---------------|------------------|------------------|
/// | Unknown  | Open          | too early        | too early        |
/// | Open     | invalid       | Paid             | too early        |
/// | Paid     | invalid       | invalid          | Refunded         |
/// | Refunded | invalid       | invalid          | invalid          |
///
/// # Errors
/// [`Refusal::TooEarly`] or [`Refusal::Invalid`], as the table says.
pub const fn transition(state: State, kind: EventKind) -> Result<State, Refusal> {
    use EventKind::{OrderCreated, PaymentApproved, PaymentRefunded};
    use State::{Open, Paid, Refunded, Unknown};
    match (state, kind) {
        (Unknown, OrderCreated) => Ok(Open),
        (Open, PaymentApproved) => Ok(Paid),
        (Paid, PaymentRefunded) => Ok(Refunded),
        (Unknown, PaymentApproved | PaymentRefunded) | (Open, PaymentRefunded) => {
            Err(Refusal::TooEarly { state, kind })
        }
        (Open | Paid | Refunded, OrderCreated)
        | (Paid | Refunded, PaymentApproved)
        | (Refunded, PaymentRefunded) => Err(Refusal::Invalid { state, kind }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_as_written() {
        let cell = |state, kind| match transition(state, kind) {
            Ok(next) => next.as_str(),
            Err(Refusal::TooEarly { .. }) => "too early",
            Err(Refusal::Invalid { .. } | Refusal::WrongAmount { .. }) => "invalid",
        };
        let table = State::ALL.map(|state| EventKind::ALL.map(|kind| cell(state, kind)));
        assert_eq!(
            table,
            [
                ["open", "too early", "too early"],
                ["invalid", "paid", "too early"],
                ["invalid", "invalid", "refunded"],
                ["invalid", "invalid", "invalid"],
            ]
        );
    }

    #[test]
    fn every_state_is_found_by_its_word() {
        for state in State::ALL {
            assert_eq!(State::from_word(state.as_str()), Some(state));
        }
        assert_eq!(State::from_word("lost"), None);
    }
}
