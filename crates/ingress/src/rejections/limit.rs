//! How often a source's refused requests are remembered: a token bucket per source.

use std::collections::HashMap;
use std::time::Duration;

use portero_types::SourceNo;
use tokio::time::Instant;

/// Most sources with a bucket that is not full.
const SOURCES_MAX: usize = 10_000;

/// The buckets of all sources.
#[derive(Debug)]
pub(super) struct Limit {
    /// How many at once.
    burst: u32,
    /// How long until one more.
    refill: Duration,
    /// When each source's bucket would be full again.
    full_at: HashMap<SourceNo, Instant>,
}

impl Limit {
    /// So many at once, and one more each time that this has passed.
    pub(super) fn new(burst: u32, refill: Duration) -> Self {
        Self { burst, refill, full_at: HashMap::new() }
    }

    /// Takes a token of a source; false when there is none.
    pub(super) fn allows(&mut self, source: SourceNo, now: Instant) -> bool {
        if self.full_at.len() >= SOURCES_MAX && !self.full_at.contains_key(&source) {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= SOURCES_MAX {
                return false;
            }
        }
        let full_at = self.full_at.get(&source).copied().unwrap_or(now).max(now) + self.refill;
        if full_at > now + self.refill * self.burst {
            return false;
        }
        self.full_at.insert(source, full_at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFILL: Duration = Duration::from_secs(1);

    #[test]
    fn a_source_gets_ten_at_once_and_then_one_a_second() {
        let (mut limit, now) = (Limit::new(10, REFILL), Instant::now());
        let allowed =
            |limit: &mut Limit, source, now| (0..100).filter(|_| limit.allows(SourceNo(source), now)).count();
        assert_eq!(allowed(&mut limit, 1, now), 10);
        assert_eq!(allowed(&mut limit, 2, now), 10, "another source has its own");
        assert_eq!(allowed(&mut limit, 1, now + Duration::from_secs(3)), 3);
        assert_eq!(allowed(&mut limit, 1, now + Duration::from_secs(3600)), 10);
    }

    #[test]
    fn the_number_of_sources_that_it_knows_is_bounded() {
        let (mut limit, now) = (Limit::new(10, REFILL), Instant::now());
        let sources = i64::try_from(SOURCES_MAX).expect("small");
        assert!((0..sources).all(|source| limit.allows(SourceNo(source), now)));
        assert!(!limit.allows(SourceNo(sources), now));
        assert!(limit.allows(SourceNo(sources), now + REFILL));
        assert_eq!(limit.full_at.len(), 1, "full buckets are forgotten");
    }
}
