//! How often a source's refused requests are remembered: a token bucket per source.

use std::time::Duration;

use portero_types::SourceNo;
use tokio::time::Instant;

use crate::limits::table::Table;

/// Most sources whose buckets are known. Of those that are forgotten the bucket is full again, so no tenant's many sources
/// keep another's from being told of.
const SOURCES_MAX: usize = 65_536;

/// The buckets of all sources.
#[derive(Debug)]
pub(super) struct Limit {
    /// How many at once.
    burst: u32,
    /// How long until one more.
    refill: Duration,
    /// When each source's bucket would be full again.
    full_at: Table<SourceNo, Instant>,
}

impl Limit {
    /// So many at once, and one more each time that this has passed.
    pub(super) fn new(burst: u32, refill: Duration) -> Self {
        Self { burst, refill, full_at: Table::new(SOURCES_MAX) }
    }

    /// Takes a token of a source; false when there is none.
    pub(super) fn allows(&mut self, source: SourceNo, now: Instant) -> bool {
        let known = self.full_at.entry(source, || now);
        let full_at = (*known).max(now) + self.refill;
        let allowed = full_at <= now + self.refill * self.burst;
        if allowed {
            *known = full_at;
        }
        allowed
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
    fn many_sources_keep_none_from_being_told_of() {
        let (mut limit, now) = (Limit::new(1, REFILL), Instant::now());
        let sources = i64::try_from(SOURCES_MAX).expect("small") * 2;
        assert!((0..sources).all(|source| limit.allows(SourceNo(source), now)));
        assert!(!limit.allows(SourceNo(sources - 1), now), "the last ones are known");
    }
}
