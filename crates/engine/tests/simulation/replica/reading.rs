//! Reading the log for the lanes that have room, and what they ask for apart from that.

use portero_engine::{Entry, SideRead};
use portero_types::{LaneNo, Shard};

use super::{Asked, PACE, SimReplica};
use crate::checker::Promise;
use crate::shared::Shared;
use crate::words::{Answer, Ask};

impl SimReplica {
    pub(super) fn read(&mut self, shared: &mut Shared) {
        if shared.now < self.read_at {
            return;
        }
        for shard in shared.profile.shards.shards() {
            let head = self.heads.get(usize::from(shard.0)).copied().unwrap_or(0);
            let lanes =
                self.lanes.iter().filter(|(no, lane)| shared.shard_of(**no) == shard && lane.capacity() > 0);
            let after = lanes.map(|(_, lane)| lane.cursor()).min();
            if let Some(after) = after.filter(|after| *after < head)
                && self.reading.insert(shard)
            {
                let number = shared.ask(self.me, Ask::Page { shard, after });
                self.asks.insert(number, Asked::Page { shard, after });
            }
        }
        let mut wanted = Vec::new();
        for (no, lane) in &self.lanes {
            let positions = lane.needs_entries(6);
            if !positions.is_empty() && self.fetching.insert(*no) {
                wanted.push((*no, positions));
            }
        }
        for (lane, positions) in wanted {
            let number = shared.ask(self.me, Ask::Entries { lane, positions: positions.clone() });
            self.asks.insert(number, Asked::Entries { lane, positions });
        }
        let sides: Vec<(LaneNo, SideRead)> = self
            .lanes
            .iter()
            .flat_map(|(no, lane)| lane.side_reads(4).into_iter().map(|read| (*no, read)))
            .collect();
        for (lane, read) in sides {
            if self.side_reading.insert((lane, read.scope)) {
                let number = shared.ask(self.me, Ask::Side { lane, read });
                self.asks.insert(number, Asked::Side { lane, read });
            }
        }
    }

    pub(super) fn page_read(&mut self, shared: &mut Shared, shard: Shard, after: u64, answer: Answer) {
        self.reading.remove(&shard);
        let Answer::Page { entries, through } = answer else {
            self.read_at = shared.now + PACE;
            return;
        };
        let now = self.wall(shared);
        for (no, lane) in &mut self.lanes {
            let here = shared.shard_of(*no) == shard;
            if !here || lane.capacity() == 0 || lane.cursor() < after || lane.cursor() >= through {
                continue;
            }
            let mine: Vec<Entry> =
                entries.iter().filter(|entry| shared.lane_of(entry.entity) == *no).copied().collect();
            if let Err(error) = lane.handle_page(now, after, &mine, through) {
                shared.checker.broken(Promise::S4, format!("a page was refused: {error}"));
            }
        }
    }

    pub(super) fn entries_read(&mut self, shared: &mut Shared, lane: LaneNo, asked: &[u64], answer: Answer) {
        self.fetching.remove(&lane);
        let Answer::Entries(found) = answer else {
            self.read_at = shared.now + PACE;
            return;
        };
        let now = self.wall(shared);
        let is_there = |n: &u64| found.iter().any(|entry| entry.n == *n);
        let missing: Vec<u64> = asked.iter().filter(|n| !is_there(n)).copied().collect();
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.handle_entries(now, &found, &missing);
        }
    }

    pub(super) fn side_read(&mut self, shared: &mut Shared, no: LaneNo, read: SideRead, answer: Answer) {
        self.side_reading.remove(&(no, read.scope));
        let Answer::Side { entries, through } = answer else {
            self.read_at = shared.now + PACE;
            return;
        };
        let now = self.wall(shared);
        if let Some(lane) = self.lanes.get_mut(&no) {
            // One that was asked for by an earlier owner of the lane is out of date.
            let _ = lane.handle_side_read(now, read, &entries, through);
        }
    }
}
