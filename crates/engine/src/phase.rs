//! Where an entity stands in its cycle of deliveries.

use portero_types::Timestamp;

use crate::turns::Turn;
use crate::{StreamId, Token};

/// A delivery in a consumer's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) token: Token,
    pub(crate) stream: StreamId,
    pub(crate) started_at: Timestamp,
    pub(crate) hold_until: Timestamp,
}

/// What an entity does now. Its next event is chosen only when it is offered, so a phase names no position except the
/// one in flight.
///
/// ```text
///             entry known            polled             outcome, ending, hold expired,
///  Fetching ─────────────▶ Ready ─────────────▶ InFlight ──────────┐ late ack
///     ▲ │                  ▲ ▲ ▲ ◀───────────────── │              │
///     │ │ not due          │ │ │   released          └──────────┐   │
///     │ ▼                  │ │ └──────────── written ────────┐ ▼   ▼
///     │ Waiting ───────────┘ │                             Settling ◀── late ack, deadline, expiry
///     │  ▲ │       due       │ arrival                      │ │ │ ▲       (from every other phase)
///     │  │ └─────────────────┼──────────────────────────────┼─┼─┼─┘
///     │  └───────────────────┼───── written, not due ───────┘ │ │
///     │                    Idle ◀── written, nothing to offer ┘ │
///     └──────────────────────────── written, entry unknown ─────┘
/// ```
///
/// A delivery that its stream's end had cut short may be adopted by another stream: then Ready, Waiting and Settling become
/// InFlight again, under the same token. Released from there, an entity may have to fetch first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing to offer: the entity is new, or has only deferred events that wait for an ack.
    Idle,
    /// The next event's log entry is not known yet.
    Fetching,
    /// In the queue for a stream.
    Ready {
        /// Its place in the queue.
        turn: Turn,
    },
    /// With a consumer.
    InFlight(Offer),
    /// Something was decided that the next delivery must not precede; a flush has to be written first.
    Settling {
        /// Names the last such decision: only the flush with that one ends the phase.
        serial: u64,
    },
    /// The next attempt is not due.
    Waiting {
        /// When it is.
        until: Timestamp,
    },
}

impl Phase {
    /// Whether the change is legal. Settling may be renewed by a further decision.
    pub(crate) const fn may_become(&self, next: &Self) -> bool {
        match (self, next) {
            (_, Self::Settling { .. }) => true,
            (Self::Idle, Self::Fetching | Self::Ready { .. } | Self::Waiting { .. })
            | (Self::Fetching, Self::Ready { .. } | Self::Waiting { .. })
            | (Self::Ready { .. } | Self::Waiting { .. } | Self::Settling { .. }, Self::InFlight(_))
            | (Self::InFlight(_), Self::Fetching)
            | (Self::InFlight(_) | Self::Waiting { .. }, Self::Ready { .. })
            | (
                Self::Settling { .. },
                Self::Idle | Self::Fetching | Self::Ready { .. } | Self::Waiting { .. },
            ) => true,
            (
                Self::Idle | Self::Fetching | Self::Ready { .. } | Self::InFlight(_) | Self::Waiting { .. },
                _,
            ) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portero_types::Epoch;

    #[test]
    fn these_changes_of_phase_are_legal_and_no_others() {
        let now = Timestamp::EPOCH;
        let turn = crate::turns::Turns::default().give(portero_types::TenantNo(1));
        let token = Token { epoch: Epoch(1), position: 1, delivery: 1 };
        let phases = [
            ("idle", Phase::Idle),
            ("fetching", Phase::Fetching),
            ("ready", Phase::Ready { turn }),
            (
                "in flight",
                Phase::InFlight(Offer { token, stream: StreamId(1), started_at: now, hold_until: now }),
            ),
            ("settling", Phase::Settling { serial: 1 }),
            ("waiting", Phase::Waiting { until: now }),
        ];
        let legal: Vec<String> = phases
            .iter()
            .flat_map(|from| phases.iter().map(move |to| (from, to)))
            .filter(|(from, to)| from.1.may_become(&to.1))
            .map(|(from, to)| format!("{} -> {}", from.0, to.0))
            .collect();
        assert_eq!(
            legal,
            [
                "idle -> fetching",
                "idle -> ready",
                "idle -> settling",
                "idle -> waiting",
                "fetching -> ready",
                "fetching -> settling",
                "fetching -> waiting",
                "ready -> in flight",
                "ready -> settling",
                "in flight -> fetching",
                "in flight -> ready",
                "in flight -> settling",
                "settling -> idle",
                "settling -> fetching",
                "settling -> ready",
                "settling -> in flight",
                "settling -> settling",
                "settling -> waiting",
                "waiting -> ready",
                "waiting -> in flight",
                "waiting -> settling",
            ]
        );
    }
}
