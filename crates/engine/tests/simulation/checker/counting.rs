//! S7: only what a consumer said or did is counted, and only against the event that it was about.

use portero_engine::ParkedState;
use portero_types::LaneNo;

use super::{Checker, Promise};
use crate::store::SimStore;
use crate::words::LaneToken;

impl Checker {
    /// A consumer is gone without a word: this is what it had.
    pub(crate) fn interrupted(&mut self, tokens: impl Iterator<Item = LaneToken>) {
        for token in tokens {
            self.trace(|| format!("  interrupted {token:?}"));
            if let Some(fact) = self.fact_mut(token.lane, token.token.position) {
                fact.interrupted += 1;
                fact.woken = None;
            }
        }
    }

    pub(super) fn check_counts(&mut self, store: &SimStore, lane: LaneNo) {
        let row = store.row(lane);
        let heads: Vec<(u64, u32, u32)> = row
            .parked
            .values()
            .filter(|parked| parked.state != ParkedState::Blocked)
            .filter_map(|parked| Some((*parked.positions.first()?, parked.attempts, parked.interruptions)))
            .collect();
        let dead: Vec<(u64, u32, u32)> = row
            .dead
            .values()
            .map(|letter| (letter.position, letter.attempts, letter.interruptions))
            .collect();
        for (n, attempts, interruptions) in heads.into_iter().chain(dead) {
            let Some(fact) = self.fact(lane, n) else { continue };
            let (failed, cut) = (fact.retried + fact.held_too_long + fact.rejected, fact.interrupted);
            if attempts > failed || interruptions > cut {
                let text = format!(
                    "{n} of {:?} has {attempts} attempts and {interruptions} interruptions after {failed} failures and {cut} \
                     interruptions",
                    fact.entry.entity
                );
                self.broken(Promise::S7, text);
            }
            self.check_reason(store, lane, n);
        }
    }
}
