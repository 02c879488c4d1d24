//! How long to wait before the next attempt. Pure: randomness is an argument.

use std::time::Duration;

use rand::{Rng, RngExt as _};

/// Ceiling of the first wait.
const FIRST: Duration = Duration::from_millis(100);
/// Ceiling of every wait.
const LAST: Duration = Duration::from_secs(10);

/// Exponential backoff with full jitter: wait n is uniform between zero and `min(10 s, 0.1 s · 2ⁿ)`.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The wait after one more failure.
    pub(crate) fn next(&mut self, rng: &mut impl Rng) -> Duration {
        let ceiling = FIRST.saturating_mul(1_u32 << self.failures.min(16)).min(LAST);
        self.failures = self.failures.saturating_add(1);
        between(Duration::ZERO, ceiling, rng)
    }

    /// Begins anew.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A uniform moment of a range; `low` when the range is empty.
pub(crate) fn between(low: Duration, high: Duration, rng: &mut impl Rng) -> Duration {
    let width = u64::try_from(high.saturating_sub(low).as_micros()).unwrap_or(u64::MAX);
    low.saturating_add(Duration::from_micros(rng.random_range(0..=width)))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn waits_grow_to_ten_seconds_and_no_further() {
        let mut rng = StdRng::seed_from_u64(7);
        let mut longest = [Duration::ZERO; 12];
        for _ in 0..500 {
            let mut backoff = Backoff::default();
            for longest in &mut longest {
                *longest = backoff.next(&mut rng).max(*longest);
            }
        }
        for (n, longest) in longest.iter().enumerate() {
            let ceiling = FIRST.saturating_mul(1 << n).min(LAST);
            assert!(*longest <= ceiling && *longest > ceiling.mul_f64(0.9), "wait {n}: {longest:?}");
        }
    }

    #[test]
    fn a_range_that_is_empty_or_reversed_gives_its_low_end() {
        let mut rng = StdRng::seed_from_u64(7);
        let (two, one) = (Duration::from_secs(2), Duration::from_secs(1));
        assert_eq!(between(two, two, &mut rng), two);
        assert_eq!(between(two, one, &mut rng), two);
    }
}
