//! Claiming lanes while there is someone to serve, and giving them up when there is not.

use std::time::Duration;

use portero_engine::{Backoff, Lane, LaneConfig};
use portero_store::ErrorKind;
use tokio::time::Instant;

use super::{Actor, CLAIM_EVERY, Done};
use crate::convert;

impl Actor {
    pub(super) fn claim_when_due(&mut self) {
        let complete = self.lanes.len() == usize::from(self.subscription.lanes.get());
        let wanted = self.has_interest() && !self.draining && !complete;
        if !wanted || self.claiming || self.releasing || Instant::now() < self.claim_at {
            return;
        }
        self.claiming = true;
        let (store, session) = (self.shared.store.clone(), self.session);
        let (subscription, lanes) = (self.subscription.no, self.subscription.lanes);
        // Lanes that this session has without anyone here holding them (their last owner was dropped in an outage, or giving
        // them up failed) would be nobody's for ever: they are given up before the first claim.
        let holds_none = self.lanes.is_empty();
        self.jobs.spawn(async move {
            if holds_none && let Err(error) = store.release_lanes(session, subscription).await {
                return Done::Claimed(Err(error));
            }
            Done::Claimed(store.claim_lanes(session, subscription, lanes).await)
        });
    }

    pub(super) fn claimed(&mut self, result: portero_store::Result<Vec<portero_store::ClaimedLane>>) {
        self.claiming = false;
        self.claim_at = Instant::now() + CLAIM_EVERY;
        let claimed = match result {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(subscription.id = %self.subscription.id, %error, "lanes could not be claimed");
                if error.kind() == ErrorKind::OutcomeUnknown {
                    // Some may have become this session's all the same: begin anew with all of them.
                    self.lose_lanes();
                }
                return;
            }
        };
        let now = self.now();
        for lane in claimed {
            let (no, epoch) = (lane.lane.lane, lane.epoch);
            match Lane::new(self.lane_config(), epoch, convert::restored(lane), now) {
                Ok(lane) => {
                    self.lanes.insert(no, lane);
                }
                Err(error) => tracing::error!(
                    subscription.id = %self.subscription.id, lane = %no, %error,
                    "a lane's stored progress breaks an invariant; it is not delivered until someone repairs it"
                ),
            }
        }
        self.reassign();
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

    fn lane_config(&self) -> LaneConfig {
        LaneConfig {
            attempts_max: self.subscription.attempts_max,
            backoff: Backoff { base: Duration::from_secs(1), max: Duration::from_secs(600) },
            defer_deadline: Duration::from_millis(self.subscription.defer_deadline_ms),
            max_hold: crate::MAX_HOLD,
            ..LaneConfig::default()
        }
    }

    /// When nobody needs them, lanes are flushed and given up, so that another gateway with a stream can have them at once.
    pub(super) fn release_when_idle(&mut self) {
        if self.has_interest() || self.lanes.is_empty() || self.flushing || self.releasing || self.claiming {
            return;
        }
        for lane in self.lanes.values_mut() {
            lane.hurry_flush();
        }
        self.flush_when_due();
        if self.flushing || !self.lanes.values().all(Lane::is_quiet) {
            return;
        }
        self.lanes.clear();
        self.serving.clear();
        self.releasing = true;
        let (store, session, subscription) = (self.shared.store.clone(), self.session, self.subscription.no);
        let id = self.subscription.id.clone();
        self.jobs.spawn(async move {
            if let Err(error) = store.release_lanes(session, subscription).await {
                tracing::warn!(subscription.id = %id, %error, "lanes could not be given up; they expire by themselves");
            }
            Done::Released
        });
    }
}
