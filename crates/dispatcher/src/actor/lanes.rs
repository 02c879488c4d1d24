//! Lanes as they come and as they are lost.

use std::time::Duration;

use portero_engine::{Backoff, DeadLetterPolicy, Lane, LaneConfig};
use portero_store::{ClaimedLane, ErrorKind};

use super::Actor;
use crate::{convert, metrics};

impl Actor {
    pub(super) fn claimed(&mut self, result: portero_store::Result<Vec<ClaimedLane>>) {
        let claimed = match result {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(subscription.id = %self.subscription.id, %error, "lanes could not be claimed");
                let is_uncertain = error.kind() == ErrorKind::OutcomeUnknown;
                if is_uncertain {
                    // Some may have become this session's all the same: begin anew with all of them.
                    self.lose_lanes();
                }
                self.claim_again(is_uncertain);
                return;
            }
        };
        metrics::claimed(claimed.len());
        let now = self.now();
        // A release that took effect late may have freed a lane that is still held here: what was open of it is over.
        for lane in &claimed {
            if let Some(held) = self.lanes.get_mut(&lane.lane.lane) {
                held.handle_lost();
            }
        }
        self.poll_revokes();
        self.poll_statuses();
        for lane in claimed {
            let (no, epoch) = (lane.lane.lane, lane.epoch);
            match Lane::new(self.lane_config(), epoch, convert::restored(lane), now) {
                Ok(mut lane) => {
                    lane.set_frozen(self.gating.is_tripped());
                    self.lanes.insert(no, lane);
                }
                Err(error) => {
                    self.set_lane_apart(no);
                    tracing::error!(
                        subscription.id = %self.subscription.id, lane = %no, %error,
                        "a lane's stored progress breaks an invariant; it is not delivered until someone repairs it"
                    );
                }
            }
        }
        self.reassign();
    }

    /// Lets the lanes go by the subscription as it is now.
    pub(super) fn set_limits(&mut self) {
        let config = self.lane_config();
        for lane in self.lanes.values_mut() {
            lane.set_limits(config.attempts_max, config.defer_deadline, config.dead_letter_policy);
        }
    }

    /// Forgets all lanes: what is open is answered with `TryAgain`, what is delivered is revoked.
    pub(super) fn lose_lanes(&mut self) {
        for lane in self.lanes.values_mut() {
            lane.handle_lost();
        }
        self.poll_revokes();
        self.poll_statuses();
        self.drop_lost_lanes();
    }

    pub(super) fn drop_lost_lanes(&mut self) {
        let before = self.lanes.len();
        self.lanes.retain(|_, lane| !lane.is_lost());
        let lost = before - self.lanes.len();
        if lost > 0 {
            tracing::warn!(subscription.id = %self.subscription.id, lanes = lost, "lanes were lost to another gateway");
            metrics::lost(lost);
            self.close_circuit_when_left();
            self.forget_leaving();
            self.reassign();
            // Whether they are another's or nobody's: the store knows.
            self.claim_again(self.lanes.is_empty());
        }
    }

    fn lane_config(&self) -> LaneConfig {
        // Where there is one tenant, nobody waits behind another.
        let detours_max =
            if self.subscription.tenant.is_some() { 0 } else { LaneConfig::default().detours_max };
        LaneConfig {
            attempts_max: self.subscription.attempts_max,
            dead_letter_policy: match self.subscription.dead_letter_policy {
                portero_store::DeadLetterPolicy::Continue => DeadLetterPolicy::Continue,
                portero_store::DeadLetterPolicy::ParkEntity => DeadLetterPolicy::ParkEntity,
            },
            backoff: Backoff { base: Duration::from_secs(1), max: Duration::from_secs(600) },
            defer_deadline: Duration::from_millis(self.subscription.defer_deadline_ms),
            max_hold: crate::MAX_HOLD,
            detours_max,
            ..LaneConfig::default()
        }
    }
}
