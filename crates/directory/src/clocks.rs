//! Moments by two clocks. A suspended machine stops one of them and a set clock moves the other, so nothing counts as recent
//! unless both say so.

use std::sync::Arc;
use std::time::Duration;

use portero_types::{Clock, Timestamp};
use tokio::time::Instant;

/// Where moments come from.
pub(crate) struct Clocks {
    wall: Option<Arc<dyn Clock>>,
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// By the clock that never steps and may stop.
    pub(crate) steady: Instant,
    /// By the clock that may step and never stops; `None` when there is none.
    pub(crate) wall: Option<Timestamp>,
}

impl Clocks {
    pub(crate) const fn new(wall: Option<Arc<dyn Clock>>) -> Self {
        Self { wall }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment { steady: Instant::now(), wall: self.wall.as_ref().map(|clock| clock.now()) }
    }
}

impl Moment {
    /// Whether this was less than `span` before `now`, by each clock. A wall clock that was set back counts its step as time
    /// that passed.
    pub(crate) fn is_within(&self, span: Duration, now: &Self) -> bool {
        let wall = match (self.wall, now.wall) {
            (Some(then), Some(now)) => now.since(then).max(then.since(now)) < span,
            _ => true,
        };
        wall && now.steady.duration_since(self.steady) < span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(5);

    #[test]
    fn a_moment_is_recent_only_while_both_clocks_say_so() {
        let began = Instant::now();
        let at = |steady: u64, wall: i64| Moment {
            steady: began + Duration::from_millis(steady),
            wall: Some(Timestamp::from_micros(1_750_000_000_000_000 + wall * 1_000)),
        };
        let then = at(0, 0);
        assert!(then.is_within(SPAN, &at(4_999, 4_999)));
        assert!(!then.is_within(SPAN, &at(5_000, 4_999)), "the wall clock was stopped");
        assert!(!then.is_within(SPAN, &at(0, 5_000)), "the machine was suspended");
        assert!(!then.is_within(SPAN, &at(1, 86_400_000)));
        assert!(then.is_within(SPAN, &at(1_000, -3_999)), "a small step back");
        assert!(
            !then.is_within(SPAN, &at(1_000, -5_000)),
            "set back while the machine was suspended, or not"
        );
    }

    #[test]
    fn without_a_wall_clock_the_steady_one_decides() {
        let began = Instant::now();
        let at = |millis| Moment { steady: began + Duration::from_millis(millis), wall: None };
        assert!(at(0).is_within(SPAN, &at(4_999)));
        assert!(!at(0).is_within(SPAN, &at(5_000)));
    }
}
