//! How many new URLs a host may be asked for: a token bucket per host.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Most hosts with a bucket that is not full. Recipes pin hosts, so honest use has few.
const HOSTS_MAX: usize = 256;

/// The buckets of all hosts.
#[derive(Debug)]
pub(crate) struct Buckets {
    burst: u32,
    refill: Duration,
    /// When each host's bucket would be full again.
    full_at: HashMap<String, Instant>,
}

impl Buckets {
    /// Buckets of `burst` tokens; one comes back each `refill`.
    pub(crate) fn new(burst: u32, refill: Duration) -> Self {
        Self { burst: burst.max(1), refill, full_at: HashMap::new() }
    }

    /// Takes a token of a host's bucket; false when there is none.
    pub(crate) fn take(&mut self, host: &str, now: Instant) -> bool {
        if self.full_at.len() >= HOSTS_MAX && !self.full_at.contains_key(host) {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= HOSTS_MAX {
                return false;
            }
        }
        let known = self.full_at.get(host).copied().unwrap_or(now).max(now);
        let full_at = known + self.refill;
        if full_at > now + self.refill * self.burst {
            return false;
        }
        self.full_at.insert(host.to_owned(), full_at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_gets_its_burst_and_then_one_at_a_time() {
        let (mut buckets, now) = (Buckets::new(3, Duration::from_secs(2)), Instant::now());
        let taken = (0..5).filter(|_| buckets.take("a", now)).count();
        assert_eq!(taken, 3);
        assert!(buckets.take("b", now), "another host has its own");
        assert!(!buckets.take("a", now + Duration::from_secs(1)));
        assert!(buckets.take("a", now + Duration::from_secs(2)));
        assert!(!buckets.take("a", now + Duration::from_secs(2)));
        assert_eq!((0..9).filter(|_| buckets.take("a", now + Duration::from_secs(3600))).count(), 3);
    }

    #[test]
    fn ever_new_hosts_find_no_room_until_others_are_full_again() {
        let (mut buckets, now) = (Buckets::new(1, Duration::from_secs(1)), Instant::now());
        assert!((0..HOSTS_MAX).all(|n| buckets.take(&n.to_string(), now)));
        assert!(!buckets.take("new", now));
        assert!(buckets.take("new", now + Duration::from_secs(1)));
        assert_eq!(buckets.full_at.len(), 1);
    }
}
