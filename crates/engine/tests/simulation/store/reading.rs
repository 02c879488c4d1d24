//! Reading the log: a page and the head of one moment.

use portero_engine::{Entry, SideRead, SideScope};
use portero_types::{LaneNo, Shard};

use super::SimStore;
use crate::words::Answer;

/// Entries of a page.
const PAGE: usize = 16;

impl SimStore {
    fn kept(&self, shard: Shard) -> impl Iterator<Item = &Entry> {
        self.log(shard).iter().filter(move |entry| !self.is_dropped(shard, entry.n))
    }

    pub(crate) fn head(&self, shard: Shard) -> u64 {
        self.log(shard).len() as u64
    }

    pub(super) fn page(&self, shard: Shard, after: u64) -> Answer {
        let entries: Vec<Entry> =
            self.kept(shard).filter(|entry| entry.n > after).take(PAGE).copied().collect();
        let full = entries.len() == PAGE;
        let through = entries.last().filter(|_| full).map_or(self.head(shard), |entry| entry.n);
        Answer::Page { entries, through }
    }

    fn shard_of(&self, lane: LaneNo) -> Shard {
        self.lanes.shard_of(lane, self.shards)
    }

    pub(super) fn entries_at(&self, lane: LaneNo, positions: &[u64]) -> Answer {
        let kept = self.kept(self.shard_of(lane));
        Answer::Entries(kept.filter(|entry| positions.contains(&entry.n)).copied().collect())
    }

    pub(super) fn side(&self, lane: LaneNo, read: SideRead) -> Answer {
        let is_meant = |entry: &&Entry| {
            entry.entity.slot().lane(self.lanes) == lane
                && match read.scope {
                    SideScope::Tenant(tenant) => entry.tenant == tenant,
                    SideScope::Entity(entity) => entry.entity == entity,
                }
        };
        let limit = read.limit.clamp(1, PAGE);
        let entries: Vec<Entry> = self
            .kept(self.shard_of(lane))
            .filter(|entry| entry.n > read.after && entry.n <= read.through)
            .filter(is_meant)
            .take(limit)
            .copied()
            .collect();
        let full = entries.len() == limit;
        let through = entries.last().filter(|_| full).map_or(read.through, |entry| entry.n);
        Answer::Side { entries, through }
    }
}
