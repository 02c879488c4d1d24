//! The cache inside the process: bounded by count and bytes, with two generations.
//!
//! New and found entries go into the young generation. When it is full it becomes the old one and the former old one is
//! dropped at once: eviction costs nothing per entry, and what was not asked for during a whole generation goes first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portero_types::{Clock, Timestamp};

use crate::entry::Digest;
use crate::{Hit, metrics};

/// Memory that one entry takes at most, bytes: 89 in its table, whose size is a power of two filled to 7/8 at most.
pub const ENTRY_BYTES: usize = 208;

/// Locks are held for a lookup in a table; sixteen of them are enough for any number of cores that one gateway has.
const SHARDS: usize = 16;

/// How much the local cache may hold, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct LocalConfig {
    /// Most entries.
    pub entries_max: usize,
    /// Most memory, bytes, at [`ENTRY_BYTES`] an entry. The smaller of the two bounds applies.
    pub bytes_max: usize,
    /// How long an entry is trusted. Shorter than receipts are kept.
    pub ttl: Duration,
}

impl Default for LocalConfig {
    /// 100,000 entries, 32 MiB, one day.
    fn default() -> Self {
        Self { entries_max: 100_000, bytes_max: 32 << 20, ttl: Duration::from_secs(24 * 3600) }
    }
}

/// The cache inside the process. See [`LocalConfig`] for its bounds.
pub struct Local {
    shards: [Mutex<Generations>; SHARDS],
    per_generation: usize,
    ttl: Duration,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Digest, Entry>,
    old: HashMap<Digest, Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    hit: Hit,
    until: Timestamp,
}

impl Local {
    /// An empty cache. Bounds below 32 entries are taken as 32.
    #[must_use]
    pub fn new(config: LocalConfig, clock: Arc<dyn Clock>) -> Self {
        let entries = config.entries_max.min(config.bytes_max / ENTRY_BYTES);
        Self {
            shards: Default::default(),
            per_generation: (entries / (2 * SHARDS)).max(1),
            ttl: config.ttl,
            clock,
        }
    }

    /// How many entries it holds now, expired ones that nobody asked for included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard)).map(|g| g.young.len() + g.old.len()).sum()
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<Hit> {
        let now = self.clock.now();
        let mut generations = self.shard(digest);
        let (entry, is_old) = match generations.young.get(digest) {
            Some(entry) => (*entry, false),
            None => (*generations.old.get(digest)?, true),
        };
        // An end further away than the whole time to live means that the clock was set back: not trusted either.
        if now >= entry.until || entry.until > now.plus(self.ttl) {
            generations.young.remove(digest);
            generations.old.remove(digest);
            return None;
        }
        if is_old {
            generations.insert(*digest, entry, self.per_generation);
        }
        Some(entry.hit)
    }

    pub(crate) fn put(&self, digest: Digest, hit: Hit) {
        let entry = Entry { hit, until: self.clock.now().plus(self.ttl) };
        self.shard(&digest).insert(digest, entry, self.per_generation);
    }

    fn shard(&self, digest: &Digest) -> MutexGuard<'_, Generations> {
        lock(&self.shards[usize::from(digest.0[0]) % SHARDS])
    }
}

/// A panic elsewhere while the lock was held leaves at worst a missing entry.
fn lock(shard: &Mutex<Generations>) -> MutexGuard<'_, Generations> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Generations {
    fn insert(&mut self, digest: Digest, entry: Entry, per_generation: usize) {
        if self.young.len() >= per_generation && !self.young.contains_key(&digest) {
            metrics::evicted(self.old.len());
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&digest);
        self.young.insert(digest, entry);
    }
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").field("entries", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use portero_types::{ManualClock, ReceiptId};

    use super::*;

    fn digest(n: u32) -> Digest {
        let mut bytes = [0; 32];
        // The first byte chooses the shard.
        bytes[0] = n.to_le_bytes()[0];
        bytes[1..5].copy_from_slice(&n.to_le_bytes());
        Digest(bytes)
    }

    fn hit(n: u32) -> Hit {
        Hit { receipt_id: ReceiptId::new(Timestamp::EPOCH, n.into()), body_digest: [1; 32] }
    }

    fn local(entries_max: usize) -> (Local, ManualClock) {
        let clock = ManualClock::at(Timestamp::from_secs(1_000));
        let config = LocalConfig { entries_max, ttl: Duration::from_secs(60), ..LocalConfig::default() };
        (Local::new(config, Arc::new(clock.clone())), clock)
    }

    #[test]
    fn an_entry_is_found_until_its_time_has_passed() {
        let (local, clock) = local(1_000);
        local.put(digest(1), hit(1));
        clock.advance(Duration::from_micros(59_999_999));
        assert_eq!(local.get(&digest(1)), Some(hit(1)));
        clock.advance(Duration::from_micros(1));
        assert_eq!(local.get(&digest(1)), None);
        assert!(local.is_empty(), "and its place is free");
    }

    #[test]
    fn being_asked_for_does_not_prolong_an_entry() {
        let (local, clock) = local(32);
        local.put(digest(1), hit(1));
        for n in 0..6 {
            // Others of the same shard push it into the old generation; being found brings it back.
            local.put(digest(1 + 16 * (n + 1)), hit(n));
            assert_eq!(local.get(&digest(1)), Some(hit(1)));
            clock.advance(Duration::from_secs(10));
        }
        assert_eq!(local.get(&digest(1)), None);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_prolong_an_entry() {
        let (local, clock) = local(1_000);
        local.put(digest(1), hit(1));
        clock.set(Timestamp::from_secs(500));
        assert_eq!(local.get(&digest(1)), None);
    }

    #[test]
    fn it_never_holds_more_than_its_bounds() {
        for (entries_max, bytes_max, bound) in [(320, usize::MAX, 320), (usize::MAX, ENTRY_BYTES * 64, 64)] {
            let (clock, ttl) = (ManualClock::at(Timestamp::EPOCH), Duration::from_secs(60));
            let local = Local::new(LocalConfig { entries_max, bytes_max, ttl }, Arc::new(clock));
            for n in 0..10_000 {
                local.put(digest(n), hit(n));
                assert!(local.len() <= bound, "{} after {n}", local.len());
            }
            assert_eq!(local.get(&digest(9_999)), Some(hit(9_999)), "the newest is there");
            assert_eq!(local.get(&digest(0)), None, "the oldest is gone");
        }
    }

    #[test]
    fn an_entry_that_is_asked_for_outlives_those_that_are_not() {
        let (local, _clock) = local(320);
        local.put(digest(16), hit(0));
        for n in 2..1_000 {
            local.put(digest(n * 16), hit(n));
            assert_eq!(local.get(&digest(16)), Some(hit(0)), "after {n}");
        }
    }
}
