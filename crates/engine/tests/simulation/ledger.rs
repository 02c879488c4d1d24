//! What events are made of, and the consumers' own database: it applies an event when its position is higher than the last one of
//! its entity, and knows what it has put off.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use portero_engine::Entry;
use portero_types::{EntityHash, Shard};

/// How an event behaves when somebody works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    Fine,
    /// Fails so often before it works.
    Flaky(u32),
    Poison,
    Rejected,
    /// Ends its consumer so often.
    Killer(u32),
    /// Too early until a later event of its entity was applied.
    Early,
    NeverReady,
    Slow,
    /// Nobody says anything about it, so often.
    Stuck(u32),
}

#[derive(Default)]
pub(crate) struct Ledger {
    natures: BTreeMap<(Shard, u64), Nature>,
    last: HashMap<EntityHash, u64>,
    applied: BTreeSet<(Shard, u64)>,
    put_off: BTreeSet<(Shard, u64)>,
}

impl Ledger {
    pub(crate) fn add(&mut self, shard: Shard, n: u64, nature: Nature) {
        self.natures.insert((shard, n), nature);
    }

    pub(crate) fn nature(&self, shard: Shard, n: u64) -> Nature {
        self.natures.get(&(shard, n)).copied().unwrap_or(Nature::Fine)
    }

    /// It has behaved so once more.
    pub(crate) fn wear(&mut self, shard: Shard, n: u64) {
        let Some(nature) = self.natures.get_mut(&(shard, n)) else { return };
        *nature = match *nature {
            Nature::Flaky(1) | Nature::Killer(1) | Nature::Stuck(1) => Nature::Fine,
            Nature::Flaky(times) => Nature::Flaky(times - 1),
            Nature::Killer(times) => Nature::Killer(times - 1),
            Nature::Stuck(times) => Nature::Stuck(times - 1),
            other => other,
        };
    }

    /// Whether a later event of the entity was applied.
    pub(crate) fn is_ready(&self, entry: &Entry) -> bool {
        self.last.get(&entry.entity).is_some_and(|last| *last > entry.n)
    }

    pub(crate) fn put_off(&mut self, shard: Shard, n: u64) {
        self.put_off.insert((shard, n));
    }

    /// Applies an event; false when it is passed over although it was never applied.
    pub(crate) fn apply(&mut self, shard: Shard, entry: &Entry) -> bool {
        let key = (shard, entry.n);
        if self.applied.contains(&key) {
            return true;
        }
        let last = self.last.entry(entry.entity).or_default();
        if entry.n > *last || self.put_off.contains(&key) {
            *last = entry.n.max(*last);
            self.applied.insert(key);
            return true;
        }
        false
    }
}
