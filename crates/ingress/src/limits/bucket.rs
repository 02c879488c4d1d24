//! A token bucket in whole numbers: pure, exact, and deaf to clocks that go back.
//!
//! A bucket fills evenly and holds at most a burst. Whoever finds one whole token in it may take any number, since what a
//! request costs is known only once it was read; what is taken beyond the level is debt, and nobody takes anything until it is
//! filled up. So in any span of time no more is taken than a burst, what fills up in that span, and what one request costs
//! beyond its first token.

use std::time::Duration;

/// Parts of a token. What fills up in a nanosecond at one token per second is one part.
const PARTS: i128 = 1_000_000_000;
/// The most debt, as the time that it takes to fill up.
pub(crate) const DEBT_MAX: Duration = Duration::from_secs(60 * 60);

/// How fast a bucket fills and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Tokens per second, of all who share it together; at least 1.
    per_second: u64,
    /// Tokens at once; at least 1.
    burst: u64,
    /// How many buckets share the rate; at least 1.
    among: u32,
}

impl Rate {
    /// A rate; `None`, which means no limit, for 0 per second.
    pub(crate) fn new(per_second: u64, burst: u64) -> Option<Self> {
        (per_second > 0).then(|| Self { per_second, burst: burst.max(1), among: 1 })
    }

    /// The part of one of so many buckets that are to give this rate together. Each holds one token at least.
    pub(crate) fn shared(self, among: u32) -> Self {
        let among = among.max(1);
        Self { burst: (self.burst / u64::from(among)).max(1), among, ..self }
    }

    /// What fills up in so long, in parts.
    fn fills(self, elapsed: Duration) -> i128 {
        let nanos = i128::try_from(elapsed.as_nanos()).unwrap_or(i128::MAX);
        nanos.saturating_mul(i128::from(self.per_second)) / i128::from(self.among)
    }

    /// How long so many parts take to fill up, never too short.
    fn takes(self, parts: i128) -> Duration {
        let per_second = i128::from(self.per_second);
        let nanos = parts.saturating_mul(i128::from(self.among)).saturating_add(per_second - 1) / per_second;
        Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

/// One bucket. The rate comes with each call, for it is configuration and may change at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// In parts; negative is debt.
    level: i128,
    /// When the level was right. Never goes back, so that nothing fills up twice.
    at: Duration,
}

impl Bucket {
    /// A full one.
    pub(crate) fn full(rate: Rate, now: Duration) -> Self {
        Self { level: i128::from(rate.burst) * PARTS, at: now }
    }

    /// Whether there is a token.
    ///
    /// # Errors
    /// How long until there is one; at most [`DEBT_MAX`] and the time that one token takes.
    pub(crate) fn look(&mut self, rate: Rate, now: Duration) -> Result<(), Duration> {
        self.fill(rate, now);
        if self.level >= PARTS { Ok(()) } else { Err(rate.takes(PARTS - self.level)) }
    }

    /// Whether there is a token beside a half that is left to others.
    ///
    /// # Errors
    /// How long until there is one.
    pub(crate) fn look_sparing(&mut self, rate: Rate, now: Duration) -> Result<(), Duration> {
        self.fill(rate, now);
        let wanted = PARTS + i128::from(rate.burst / 2) * PARTS;
        if self.level >= wanted { Ok(()) } else { Err(rate.takes(wanted - self.level)) }
    }

    /// Takes `cost` tokens, into debt if need be, when there is one.
    ///
    /// # Errors
    /// As [`Self::look`]; nothing is taken then.
    pub(crate) fn take(&mut self, rate: Rate, now: Duration, cost: u64) -> Result<(), Duration> {
        self.look(rate, now)?;
        self.level -= i128::from(cost) * PARTS;
        self.bound(rate);
        Ok(())
    }

    /// Gives a token back that turned out not to be due.
    pub(crate) fn give_back(&mut self, rate: Rate, now: Duration) {
        self.level = self.level.saturating_add(PARTS);
        self.fill(rate, now);
    }

    fn fill(&mut self, rate: Rate, now: Duration) {
        let elapsed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.level = self.level.saturating_add(rate.fills(elapsed));
        self.bound(rate);
    }

    /// A rate that became lower must leave neither more than it allows nor more debt than it bears.
    fn bound(&mut self, rate: Rate) {
        self.level = self.level.clamp(-rate.fills(DEBT_MAX), i128::from(rate.burst) * PARTS);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rate(per_second: u64, burst: u64) -> Rate {
        Rate::new(per_second, burst).expect("a limit")
    }

    fn taken(bucket: &mut Bucket, rate: Rate, now: Duration, tries: usize) -> usize {
        (0..tries).filter(|_| bucket.take(rate, now, 1).is_ok()).count()
    }

    #[test]
    fn half_of_it_can_be_left_to_others() {
        let (rate, start) = (rate(2, 5), SECOND);
        let mut bucket = Bucket::full(rate, start);
        let spared = |bucket: &mut Bucket| {
            (0..9)
                .take_while(|_| {
                    bucket.look_sparing(rate, start).is_ok() && bucket.take(rate, start, 1).is_ok()
                })
                .count()
        };
        assert_eq!(spared(&mut bucket), 3);
        assert_eq!(bucket.look_sparing(rate, start), Err(SECOND / 2));
        assert_eq!(taken(&mut bucket, rate, start, 9), 2, "the others' half");
    }

    #[test]
    fn zero_per_second_is_no_limit() {
        assert_eq!(Rate::new(0, 10), None);
    }

    #[test]
    fn a_burst_at_once_and_then_the_rate() {
        let (rate, start) = (rate(3, 5), SECOND);
        let mut bucket = Bucket::full(rate, start);
        assert_eq!(taken(&mut bucket, rate, start, 100), 5);
        assert_eq!(taken(&mut bucket, rate, start + SECOND, 100), 3);
        assert_eq!(
            taken(&mut bucket, rate, start + SECOND * 3600, 100),
            5,
            "no more than a burst is saved up"
        );
    }

    #[test]
    fn it_says_to_the_nanosecond_when_there_is_room_again() {
        let rate = rate(3, 1);
        let mut bucket = Bucket::full(rate, SECOND);
        bucket.take(rate, SECOND, 1).expect("full");
        let wait = bucket.take(rate, SECOND, 1).expect_err("empty");
        assert_eq!(wait, Duration::from_nanos(333_333_334));
        assert!(bucket.look(rate, SECOND + wait - Duration::from_nanos(1)).is_err());
        assert!(bucket.look(rate, SECOND + wait).is_ok());
    }

    #[test]
    fn what_one_request_takes_beyond_the_level_is_paid_before_the_next() {
        let rate = rate(10, 10);
        let mut bucket = Bucket::full(rate, SECOND);
        bucket.take(rate, SECOND, 40).expect("there was a token");
        assert_eq!(bucket.look(rate, SECOND), Err(Duration::from_millis(3_100)));
        assert!(bucket.look(rate, SECOND + Duration::from_millis(3_100)).is_ok());
    }

    #[test]
    fn debt_is_at_most_an_hour_of_filling_also_when_the_rate_falls() {
        let (fast, slow) = (rate(1_000_000, 1_000_000), rate(1, 1));
        let mut bucket = Bucket::full(fast, SECOND);
        bucket.take(fast, SECOND, u64::MAX).expect("full");
        assert_eq!(bucket.look(fast, SECOND).expect_err("debt"), DEBT_MAX + Duration::from_micros(1));
        assert_eq!(bucket.look(slow, SECOND).expect_err("debt"), DEBT_MAX + SECOND);
    }

    #[test]
    fn those_who_share_a_rate_have_it_together() {
        let whole = rate(10, 12);
        for among in [1, 3, 7] {
            let part = whole.shared(among);
            let mut all = 0;
            for _ in 0..among {
                let mut bucket = Bucket::full(part, SECOND);
                all += taken(&mut bucket, part, SECOND, 100);
                for tick in 1..=10_000 {
                    all += taken(&mut bucket, part, SECOND + Duration::from_millis(10) * tick, 100);
                }
            }
            assert!((980..=1_012).contains(&all), "{among}: {all}");
        }
    }

    #[test]
    fn a_clock_that_goes_back_and_forth_fills_nothing_twice() {
        let rate = rate(10, 1);
        let mut bucket = Bucket::full(rate, SECOND * 10);
        assert_eq!(taken(&mut bucket, rate, SECOND * 10, 9), 1);
        let sum: usize = (0..100).map(|n| taken(&mut bucket, rate, SECOND * (9 + n % 3), 9)).sum();
        assert_eq!(sum, 1, "the second from 10 to 11 was there once, and a bucket holds one");
    }

    proptest! {
        /// Against the definition: what was taken until any moment, but for the last request's excess, is at most the
        /// burst and what filled up since any earlier moment.
        #[test]
        fn no_span_of_time_gives_more_than_it_may(
            per_second in 1..5_000_u64,
            burst in 1..500_u64,
            among in 1..5_u32,
            steps in prop::collection::vec((any::<u16>(), any::<bool>(), 1..40_u64), 1..200),
        ) {
            let rate = rate(per_second, burst).shared(among);
            let mut now = SECOND * 1_000;
            let mut latest = now;
            let mut bucket = Bucket::full(rate, now);
            let mut history: Vec<(Duration, u64)> = Vec::new();
            for (millis, back, cost) in steps {
                let step = Duration::from_micros(u64::from(millis) * 10);
                now = if back { now.saturating_sub(step) } else { now + step };
                latest = latest.max(now);
                match bucket.take(rate, now, cost) {
                    Ok(()) => history.push((latest, cost)),
                    Err(wait) => {
                        prop_assert!(wait > Duration::ZERO && wait <= DEBT_MAX + rate.takes(PARTS));
                        let mut later = bucket;
                        prop_assert!(later.look(rate, latest + wait).is_ok(), "it keeps its word");
                    }
                }
            }
            for first in 0..history.len() {
                let mut sum: i128 = 0;
                for (at, cost) in &history[first..] {
                    let bound = i128::from(rate.burst) * PARTS + rate.fills(*at - history[first].0);
                    prop_assert!(sum + PARTS <= bound, "{sum} parts before the request, {bound} at most");
                    sum += i128::from(*cost) * PARTS;
                }
            }
        }

        /// Whatever comes, nothing overflows, the level stays in its bounds, and a long rest fills the bucket.
        #[test]
        fn no_number_is_too_large(
            per_second in 1..=u64::MAX,
            burst in 0..=u64::MAX,
            among in 0..=u32::MAX,
            steps in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u64>()), 0..30),
        ) {
            let rate = rate(per_second, burst).shared(among);
            let mut bucket = Bucket::full(rate, Duration::ZERO);
            for (seconds, nanos, cost) in steps {
                let now = Duration::new(seconds, nanos % 1_000_000_000);
                let _ = bucket.take(rate, now, cost);
                bucket.give_back(rate, now);
                prop_assert!(bucket.level <= i128::from(rate.burst) * PARTS);
                prop_assert!(bucket.level >= -rate.fills(DEBT_MAX));
            }
            let later = bucket.at.saturating_add(DEBT_MAX * 2).saturating_add(rate.takes(PARTS));
            if later < Duration::MAX {
                prop_assert!(bucket.look(rate, later).is_ok());
            }
        }

        /// Nobody who keeps to the rate is ever refused.
        #[test]
        fn who_keeps_to_the_rate_is_never_refused(
            per_second in 1..10_000_u64,
            burst in 1..50_u64,
            requests in 1..300_u32,
        ) {
            let rate = rate(per_second, burst);
            let mut bucket = Bucket::full(rate, SECOND);
            let pause = rate.takes(PARTS);
            for n in 0..requests {
                prop_assert!(bucket.take(rate, SECOND + pause * n, 1).is_ok());
            }
        }
    }
}
