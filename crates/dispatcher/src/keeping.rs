//! For whom a stream's room is kept.
//!
//! Lanes share a stream's room, and small events find room where a large one does not. So when a lane's first in line finds
//! none, the stream takes nothing else until it has it. And an event that is suspected of ending its consumers is delivered
//! alone: the stream is first emptied, and then takes nothing until the suspect is over. Others of the stream wait for that,
//! so it is bounded: half of the time at most is spent on suspects, and a suspect that is not over soon gets company.

use std::time::Duration;

use portero_engine::Want;
use portero_types::LaneNo;
use tokio::time::Instant;

use crate::stream::DeliveryToken;

/// How long a suspect stays alone. A consumer that it ends has ended by then, or others will be as little to blame.
const ALONE_MAX: Duration = Duration::from_secs(30);
/// How long a stream is emptied for a suspect; doubles each time that this was not enough.
const EMPTYING: Duration = Duration::from_secs(10);
/// The longest: by then all that the stream had was settled or taken back.
const EMPTYING_MAX: Duration = crate::MAX_HOLD;

/// For whom a stream's room is kept now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    now_for: For,
    /// Before that the stream is not emptied for a suspect again.
    not_before: Instant,
    emptying: Duration,
}

#[derive(Clone, Copy, Debug)]
enum For {
    Everyone,
    /// This lane's first in line is too large for what is free.
    Large(LaneNo),
    /// The stream is being emptied for a suspect of this lane.
    Suspect {
        lane: LaneNo,
        since: Instant,
    },
    /// This delivery is alone on the stream.
    Alone {
        token: DeliveryToken,
        since: Instant,
        until: Instant,
    },
}

/// Who may have the stream's room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// All lanes, one after the other.
    Everyone,
    /// This lane alone.
    Lane(LaneNo),
    /// Nobody now.
    Nobody,
}

impl Keeping {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { now_for: For::Everyone, not_before: now, emptying: EMPTYING }
    }

    /// Whose turn it is. `is_empty`: the stream has nothing unsettled; `has`: it still has this delivery.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        is_empty: bool,
        serves: impl Fn(LaneNo) -> bool,
        has: impl Fn(&DeliveryToken) -> bool,
    ) -> Turn {
        match self.now_for {
            For::Everyone => return Turn::Everyone,
            For::Large(lane) if serves(lane) => return Turn::Lane(lane),
            For::Suspect { lane, since } if serves(lane) => {
                if is_empty {
                    return Turn::Lane(lane);
                }
                if now < since + self.emptying {
                    return Turn::Nobody;
                }
                self.emptying = (self.emptying * 2).min(EMPTYING_MAX);
                self.rest(now, since);
            }
            For::Alone { token, since, until } => {
                if has(&token) && now < until {
                    return Turn::Nobody;
                }
                self.rest(now, since);
            }
            For::Large(_) | For::Suspect { .. } => {}
        }
        self.now_for = For::Everyone;
        Turn::Everyone
    }

    /// A lane's first in line found no room; whether the stream is kept for it.
    pub(crate) fn keep(&mut self, now: Instant, lane: LaneNo, want: Want) -> bool {
        self.now_for = match want {
            Want::Bytes => For::Large(lane),
            Want::Alone if now >= self.not_before => For::Suspect { lane, since: now },
            Want::Alone => return false,
        };
        true
    }

    /// The stream was given a delivery that is, or is not, to be alone.
    pub(crate) fn delivered(&mut self, now: Instant, token: DeliveryToken, alone: bool) {
        let emptied_since = match self.now_for {
            For::Suspect { since, .. } => Some(since),
            For::Everyone | For::Large(_) | For::Alone { .. } => None,
        };
        if alone {
            self.emptying = EMPTYING;
            let since = emptied_since.unwrap_or(now);
            self.now_for = For::Alone { token, since, until: now + ALONE_MAX };
            return;
        }
        if let Some(since) = emptied_since {
            // Another one of the lane had its turn first.
            self.rest(now, since);
        }
        self.now_for = For::Everyone;
    }

    /// The lane for which the room was kept wants it no more.
    pub(crate) const fn forget(&mut self) {
        self.now_for = For::Everyone;
    }

    /// As long as suspects had the stream, the others have it now.
    fn rest(&mut self, now: Instant, since: Instant) {
        self.not_before = now + now.duration_since(since);
    }
}

#[cfg(test)]
mod tests {
    use portero_engine::Token;
    use portero_types::Epoch;

    use super::*;

    const LANE: LaneNo = LaneNo(3);

    fn token() -> DeliveryToken {
        DeliveryToken { lane: LANE, token: Token { epoch: Epoch(1), position: 1, delivery: 1 } }
    }

    fn turn(keeping: &mut Keeping, now: Instant, is_empty: bool) -> Turn {
        keeping.turn(now, is_empty, |_| true, |_| true)
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_event_has_the_stream_until_it_fits_and_no_longer_than_its_lane_is_served_there() {
        let now = Instant::now();
        let mut keeping = Keeping::new(now);
        assert!(keeping.keep(now, LANE, Want::Bytes));
        assert_eq!(turn(&mut keeping, now + ALONE_MAX * 10, false), Turn::Lane(LANE));
        keeping.delivered(now, token(), false);
        assert_eq!(turn(&mut keeping, now, false), Turn::Everyone);
        assert!(keeping.keep(now, LANE, Want::Bytes));
        assert_eq!(keeping.turn(now, false, |_| false, |_| true), Turn::Everyone);
    }

    #[tokio::test(start_paused = true)]
    async fn the_stream_is_emptied_for_a_suspect_and_then_is_its_alone_for_a_while() {
        let now = Instant::now();
        let mut keeping = Keeping::new(now);
        assert!(keeping.keep(now, LANE, Want::Alone));
        assert_eq!(turn(&mut keeping, now + EMPTYING / 2, false), Turn::Nobody);
        assert_eq!(turn(&mut keeping, now + EMPTYING / 2, true), Turn::Lane(LANE));
        let delivered = now + EMPTYING / 2;
        keeping.delivered(delivered, token(), true);
        assert_eq!(turn(&mut keeping, delivered, false), Turn::Nobody);
        assert_eq!(turn(&mut keeping, delivered + ALONE_MAX, false), Turn::Everyone, "it gets company");
        assert!(
            !keeping.keep(delivered + ALONE_MAX, LANE, Want::Alone),
            "others have the stream for as long"
        );
        assert!(keeping.keep(delivered + ALONE_MAX * 2 + EMPTYING, LANE, Want::Alone));
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspect_that_is_over_frees_the_stream_at_once() {
        let now = Instant::now();
        let mut keeping = Keeping::new(now);
        keeping.delivered(now, token(), true);
        assert_eq!(keeping.turn(now, true, |_| true, |_| false), Turn::Everyone);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_does_not_get_empty_is_given_back_and_tried_for_longer_later() {
        let mut now = Instant::now();
        let mut keeping = Keeping::new(now);
        for length in [EMPTYING, EMPTYING * 2, EMPTYING * 4] {
            assert!(keeping.keep(now, LANE, Want::Alone));
            assert_eq!(turn(&mut keeping, now + length / 2, false), Turn::Nobody);
            now += length;
            assert_eq!(turn(&mut keeping, now, false), Turn::Everyone);
            assert!(!keeping.keep(now, LANE, Want::Alone));
            now += length;
        }
    }
}
