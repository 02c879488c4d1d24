//! How one lane behaves: every limit that the engine knows.

use std::time::Duration;

use rand::{Rng, RngExt};

use crate::Error;

/// Growing, jittered delays between counted attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Upper bound of the delay after the first failure; it doubles with each further one.
    pub base: Duration,
    /// Upper bound of all delays.
    pub max: Duration,
}

impl Backoff {
    /// The upper bound of the delay after `failures` failures (at least 1): `base * 2^(failures - 1)`, at most `max`.
    #[must_use]
    pub fn ceiling(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.max)
    }

    /// A delay drawn evenly from zero to [`Backoff::ceiling`] (full jitter), in whole microseconds.
    pub fn draw(&self, failures: u32, rng: &mut dyn Rng) -> Duration {
        let ceiling = u64::try_from(self.ceiling(failures).as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(rng.random_range(0..=ceiling))
    }
}

/// What a dead letter does to its entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeadLetterPolicy {
    /// The entity goes on with its next event.
    #[default]
    Continue,
    /// An event that failed for good blocks its entity ([`ParkedState::Blocked`](crate::ParkedState::Blocked)) until an
    /// operator lets it go on: to some consumers a skipped event is worse than a late one. An event that expired, or whose
    /// time to be deferred ran out, blocks nothing.
    ParkEntity,
}

/// The limits of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneConfig {
    /// Counted attempts after which an event becomes a dead letter. At least 1. Default 12.
    pub attempts_max: u32,
    /// Uncounted abnormal endings after which an event becomes a dead letter with the code
    /// [`INTERRUPTED`](crate::reason::INTERRUPTED). At least 1. Default 5.
    pub interruptions_max: u32,
    /// Abnormal endings after which an event is suspected of causing them: from then on it is delivered alone on its stream,
    /// so that the next ending tells. At least 1. Default 2.
    pub isolate_after: u32,
    /// What a dead letter does to its entity. Default: it goes on.
    pub dead_letter_policy: DeadLetterPolicy,
    /// Delays between attempts. Default 1 s, at most 10 min.
    pub backoff: Backoff,
    /// How long an event waits that cannot be read ([`Undeliverable::Unreadable`](crate::Undeliverable::Unreadable)) before it
    /// is tried again. Default 10 s.
    pub unreadable_pause: Duration,
    /// Longest delay that a consumer may ask for; a longer one is cut. Default 24 h.
    pub retry_delay_max: Duration,
    /// How long after its first `Defer` an event may stay deferred before it becomes a dead letter with the code
    /// [`DEFER_DEADLINE`](crate::reason::DEFER_DEADLINE). Default 24 h.
    pub defer_deadline: Duration,
    /// How long an event may be in a consumer's hands before it and its entity leave the window as `Held`, so that the
    /// watermark passes them. Counts from the start of the delivery: waiting for a consumer's room is not age. Default 30 s.
    pub window_age_max: Duration,
    /// How long a delivery may stay unsettled before it is revoked and counted as a failed attempt. Default 5 min.
    pub max_hold: Duration,
    /// Longest extension that one hold request gets, from the moment of the request. Default 1 h.
    pub hold_extension_max: Duration,
    /// Unsettled events in the window, and settled ones whose flush is not written yet. At least 1. Default 1,024.
    pub window_events_max: usize,
    /// Settled positions above the watermark in one flush. At the cap the oldest unsettled event leaves the window. At
    /// least 1. Default 512. After a restart the positions that an earlier owner had settled may come on top.
    pub acked_max: usize,
    /// Waiting positions that one parked entity lists; what waits beyond stays in the log as a range. At least 1; two
    /// are always listed. Default 256.
    pub parked_max: usize,
    /// The same for a blocked entity, which may wait for long, as may many. At least 2. Default 2.
    pub blocked_max: usize,
    /// Tenants that may have a detour at the same time; 0 for a lane of one tenant. Default 8. When the window is full, whoever
    /// has most of it gets one, unless that is no more than the window divided by this number (by two at least). A detour
    /// has half of the window's size for itself.
    pub detours_max: usize,
    /// All positions that the lane holds, in the window or out of it. When it is reached, the lane reads no more until
    /// some are settled: then a failing entity does delay others. At least `window_events_max`. Default 20,000.
    pub positions_max: usize,
    /// How long a watermark that moved only because the log went on without matching events may stay unwritten.
    /// Default 10 s.
    pub idle_flush_after: Duration,
}

impl Default for LaneConfig {
    fn default() -> Self {
        Self {
            attempts_max: 12,
            interruptions_max: 5,
            isolate_after: 2,
            dead_letter_policy: DeadLetterPolicy::Continue,
            backoff: Backoff { base: Duration::from_secs(1), max: Duration::from_secs(600) },
            unreadable_pause: Duration::from_secs(10),
            retry_delay_max: Duration::from_secs(24 * 3600),
            defer_deadline: Duration::from_secs(24 * 3600),
            window_age_max: Duration::from_secs(30),
            max_hold: Duration::from_secs(300),
            hold_extension_max: Duration::from_secs(3600),
            window_events_max: 1_024,
            acked_max: 512,
            parked_max: 256,
            blocked_max: 2,
            detours_max: 8,
            positions_max: 20_000,
            idle_flush_after: Duration::from_secs(10),
        }
    }
}

impl LaneConfig {
    /// Checks the lower bounds that the fields name.
    ///
    /// # Errors
    /// [`Error::Config`] with the first field that breaks its bound.
    pub fn validate(&self) -> Result<(), Error> {
        let rules = [
            ("attempts_max", self.attempts_max >= 1),
            ("interruptions_max", self.interruptions_max >= 1),
            ("isolate_after", self.isolate_after >= 1),
            ("window_events_max", self.window_events_max >= 1),
            ("acked_max", self.acked_max >= 1),
            ("parked_max", self.parked_max >= 1),
            ("blocked_max", self.blocked_max >= 2),
            ("positions_max", self.positions_max >= self.window_events_max),
        ];
        match rules.iter().find(|(_, holds)| !holds) {
            Some((field, _)) => Err(Error::Config { field }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn the_ceiling_doubles_up_to_its_maximum_and_never_overflows() {
        let backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(600) };
        assert_eq!(backoff.ceiling(1), Duration::from_secs(1));
        assert_eq!(backoff.ceiling(4), Duration::from_secs(8));
        assert_eq!(backoff.ceiling(11), Duration::from_secs(600));
        assert_eq!(backoff.ceiling(u32::MAX), Duration::from_secs(600));
    }

    #[test]
    fn a_drawn_delay_lies_between_zero_and_the_ceiling_and_differs() {
        let backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(600) };
        let mut rng = StdRng::seed_from_u64(7);
        let drawn: Vec<_> = (0..100).map(|_| backoff.draw(3, &mut rng)).collect();
        assert!(drawn.iter().all(|delay| *delay <= Duration::from_secs(4)));
        assert!(drawn.iter().any(|delay| *delay != drawn[0]));
    }

    #[test]
    fn limits_below_their_bounds_are_named() {
        assert_eq!(LaneConfig::default().validate(), Ok(()));
        let config = LaneConfig { positions_max: 10, ..LaneConfig::default() };
        assert_eq!(config.validate(), Err(Error::Config { field: "positions_max" }));
    }
}
