//! How much may be asked for because of requests that are not proven: token buckets, by source and by host.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use portero_types::SourceNo;
use tokio::time::Instant;

/// Most buckets of one kind that are not full. Recipes pin hosts, and a host's own bucket bounds how many sources use it.
const BUCKETS_MAX: usize = 4_096;

/// How much a bucket holds and how fast it fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many may come at once; at least 1.
    pub burst: u32,
    /// How long until one more may come.
    pub refill: Duration,
}

/// Buckets of one rate, each under a key.
#[derive(Debug)]
pub(crate) struct Buckets<K> {
    rate: Rate,
    /// When each bucket would be full again.
    full_at: HashMap<K, Instant>,
}

impl<K: Eq + Hash> Buckets<K> {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate: Rate { burst: rate.burst.max(1), ..rate }, full_at: HashMap::new() }
    }

    /// Takes a token of a bucket; false when there is none.
    pub(crate) fn take(&mut self, key: K, now: Instant) -> bool {
        let full_at = self.after_one_more(&key, now);
        full_at.is_some_and(|full_at| {
            self.full_at.insert(key, full_at);
            true
        })
    }

    /// When the bucket would be full again if a token were taken; `None` when there is none.
    fn after_one_more(&mut self, key: &K, now: Instant) -> Option<Instant> {
        if self.full_at.len() >= BUCKETS_MAX && !self.full_at.contains_key(key) {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= BUCKETS_MAX {
                return None;
            }
        }
        let known = self.full_at.get(key).copied().unwrap_or(now).max(now);
        let full_at = known + self.rate.refill;
        (full_at <= now + self.rate.refill * self.rate.burst).then_some(full_at)
    }
}

/// Buckets for keys never seen before: one for each source at each host, and a larger one for each host.
///
/// So made-up keys at one source use up that source's tokens, and leave the host's to the others.
#[derive(Debug)]
pub(crate) struct NewKeys {
    by_source: Buckets<(String, SourceNo)>,
    by_host: Buckets<String>,
}

impl NewKeys {
    pub(crate) fn new(per_source: Rate, per_host: Rate) -> Self {
        Self { by_source: Buckets::new(per_source), by_host: Buckets::new(per_host) }
    }

    /// Takes a token of both; false, and none is taken, when one has none.
    pub(crate) fn take(&mut self, host: &str, source: SourceNo, now: Instant) -> bool {
        let of_source = (host.to_owned(), source);
        let Some(full_at) = self.by_source.after_one_more(&of_source, now) else { return false };
        if !self.by_host.take(host.to_owned(), now) {
            return false;
        }
        self.by_source.full_at.insert(of_source, full_at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn rate(burst: u32, seconds: u64) -> Rate {
        Rate { burst, refill: Duration::from_secs(seconds) }
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_one_at_a_time() {
        let (mut buckets, now) = (Buckets::new(rate(3, 2)), Instant::now());
        let taken = (0..5).filter(|_| buckets.take("a", now)).count();
        assert_eq!(taken, 3);
        assert!(buckets.take("b", now), "another key has its own");
        assert!(!buckets.take("a", now + Duration::from_secs(1)));
        assert!(buckets.take("a", now + Duration::from_secs(2)));
        assert!(!buckets.take("a", now + Duration::from_secs(2)));
        assert_eq!((0..9).filter(|_| buckets.take("a", now + Duration::from_secs(3600))).count(), 3);
    }

    #[test]
    fn ever_new_keys_find_no_room_until_others_are_full_again() {
        let (mut buckets, now) = (Buckets::new(rate(1, 1)), Instant::now());
        assert!((0..BUCKETS_MAX).all(|n| buckets.take(n, now)));
        assert!(!buckets.take(BUCKETS_MAX, now));
        assert!(buckets.take(BUCKETS_MAX, now + Duration::from_secs(1)));
        assert_eq!(buckets.full_at.len(), 1);
    }

    #[test]
    fn a_source_uses_up_its_own_tokens_before_those_of_a_host() {
        let (mut new, now) = (NewKeys::new(rate(2, 10), rate(5, 10)), Instant::now());
        let mut taken =
            |host: &str, source: i64| (0..9).filter(|_| new.take(host, SourceNo(source), now)).count();
        assert_eq!((taken("a", 1), taken("a", 2)), (2, 2));
        assert_eq!(taken("b", 1), 2, "another host knows nothing of it");
        assert_eq!((taken("a", 3), taken("a", 4)), (1, 0), "the host has had enough");
        assert_eq!(taken("b", 4), 2, "what a host refuses takes nothing of a source");
    }
}
