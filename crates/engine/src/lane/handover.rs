//! A lane leaves for another owner, or its owner breaks down over a delivery.

use portero_types::Timestamp;
use rand::Rng;

use super::Lane;
use super::fate::Failure;
use crate::{RevokeReason, Token};

impl Lane {
    /// Takes back everything that is in consumers' hands, uncounted, so that the lane can be handed over. Late acks still
    /// count.
    pub fn handle_recalled(&mut self, now: Timestamp) {
        let held: Vec<u64> = self.in_flight.keys().map(|(_, position)| *position).collect();
        for position in held {
            if let Some(offer) = self.offer_of(position) {
                self.revoke(offer, RevokeReason::LaneLost);
                self.release(now, position);
            }
        }
    }

    /// The caller broke down over a delivery before it was sent: it is interrupted, as if a consumer had gone away with it
    /// without a word. Ignored when that delivery is over.
    pub fn handle_interrupted(&mut self, now: Timestamp, rng: &mut dyn Rng, token: Token) {
        if self.offer(token).is_some() {
            self.fail(now, rng, token.position, Failure::Interrupted);
        }
    }

    /// Whether nothing is in a consumer's hands and everything is written, an idle watermark included (see
    /// [`Lane::hurry_flush`]): the next owner finds all of it.
    #[must_use]
    pub fn can_be_handed_over(&self) -> bool {
        self.is_quiet() && self.journal.watermark() <= self.flushed_watermark
    }
}
