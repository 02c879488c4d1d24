//! The circuit of a subscription: while nearly everything fails, deliveries are few and failures count nothing.

use portero_engine::{Circuit, CircuitConfig, Outcome};
use portero_types::{EntityHash, Timestamp};

use super::Actor;
use crate::metrics;
use crate::metrics::Level;
use crate::stream::DeliveryToken;

/// The circuit, and this actor's part in its gauge.
pub(super) struct Gating {
    circuit: Circuit,
    level: Level,
}

impl Gating {
    pub(super) fn new() -> Self {
        Self { circuit: Circuit::new(CircuitConfig::default()), level: Level::tripped() }
    }

    /// Whether failures are to count no attempts.
    pub(super) const fn is_tripped(&self) -> bool {
        self.circuit.is_tripped()
    }

    /// How many more events may be delivered while so many are in consumers' hands.
    pub(super) fn room(&self, now: Timestamp, in_hand: usize) -> u32 {
        self.circuit.gate(now).room(u32::try_from(in_hand).unwrap_or(u32::MAX))
    }
}

impl Actor {
    /// Looks at what a consumer says of a delivery that it has, before its lane does.
    pub(super) fn watch_outcome(&mut self, now: Timestamp, token: &DeliveryToken, outcome: Outcome) {
        let ok = match outcome {
            Outcome::Ack => true,
            Outcome::Retry { .. } => false,
            // Neither says whether the consumer can work.
            Outcome::Release | Outcome::Reject | Outcome::Defer => return,
        };
        if !self.in_hand.contains_key(token) {
            return;
        }
        let entry = self.lanes.get(&token.lane).and_then(|lane| lane.entry(token.token.position));
        if let Some(entry) = entry {
            self.watch(now, entry.entity, ok);
        }
    }

    /// Without lanes nothing can be tried here any more: whoever comes next begins with a closed circuit.
    pub(super) fn close_circuit_when_left(&mut self) {
        if self.lanes.is_empty() && self.gating.is_tripped() {
            self.gating = Gating::new();
        }
    }

    /// A delivery succeeded or failed.
    pub(super) fn watch(&mut self, now: Timestamp, entity: EntityHash, ok: bool) {
        let before = self.gating.is_tripped();
        self.gating.circuit.handle_outcome(now, entity, ok);
        let is_tripped = self.gating.is_tripped();
        if before == is_tripped {
            return;
        }
        for lane in self.lanes.values_mut() {
            lane.set_frozen(is_tripped);
        }
        self.gating.level.set(usize::from(is_tripped));
        let id = &self.subscription.id;
        if is_tripped {
            metrics::tripped();
            tracing::warn!(subscription.id = %id, "nearly everything fails: deliveries pause, and failures count no attempts");
        } else {
            tracing::info!(subscription.id = %id, "deliveries succeed again and go on");
        }
    }
}
