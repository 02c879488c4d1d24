//! Reading the log for the lanes that have room.

use std::collections::HashSet;

use portero_engine::Entry;
use portero_store::{LogEntry, LogPage, PageRequest};
use portero_types::{LaneNo, Shard};
use tokio::time::Instant;

use super::{Actor, Done, PACE, Reading};
use crate::convert;

const PAGE_ENTRIES: u32 = 1_000;
const FETCH_POSITIONS: usize = 500;

/// A page that came back.
pub(super) struct PageDone {
    request: PageRequest,
    result: portero_store::Result<LogPage>,
}

/// Entries that a lane had asked for by position.
pub(super) struct EntriesDone {
    lane: LaneNo,
    asked: Vec<u64>,
    result: portero_store::Result<Vec<LogEntry>>,
}

impl Actor {
    pub(super) fn read_when_possible(&mut self) {
        if !self.has_interest() {
            return;
        }
        self.fetch_entries();
        for shard in self.shards.shards() {
            match self.reading.get(&shard) {
                Some(Reading::Busy) => continue,
                Some(Reading::Paused(until)) if Instant::now() < *until => continue,
                Some(Reading::Paused(_)) | None => {}
            }
            let head = self.shared.heads.borrow().get(usize::from(shard.0)).copied().unwrap_or(0);
            let after = self
                .lanes
                .iter()
                .filter(|(no, lane)| self.is_in(**no, shard) && lane.capacity() > 0)
                .map(|(_, lane)| lane.cursor())
                .min();
            if let Some(after) = after.filter(|after| *after < head) {
                self.reading.insert(shard, Reading::Busy);
                let store = self.shared.store.clone();
                let request = PageRequest::new(shard, after, PAGE_ENTRIES);
                self.jobs.spawn(async move {
                    let result = store.page(request.clone()).await;
                    Done::Page(PageDone { request, result })
                });
            }
        }
    }

    fn is_in(&self, lane: LaneNo, shard: Shard) -> bool {
        self.subscription.lanes.shard_of(lane, self.shards) == shard
    }

    pub(super) fn page_done(&mut self, done: PageDone) {
        let PageRequest { shard, after, limit, .. } = done.request;
        let page = match done.result {
            Ok(page) => {
                self.reading.remove(&shard);
                page
            }
            Err(error) => {
                tracing::warn!(subscription.id = %self.subscription.id, %shard, %error, "the log could not be read");
                self.reading.insert(shard, Reading::Paused(Instant::now() + PACE));
                return;
            }
        };
        let full = u32::try_from(page.entries.len()).unwrap_or(u32::MAX) >= limit;
        let last = page.entries.last().map(|entry| entry.n);
        let through = if full { last.unwrap_or(page.head) } else { page.head.max(last.unwrap_or(0)) };
        let now = self.now();
        for (no, lane) in &mut self.lanes {
            let here = self.subscription.lanes.shard_of(*no, self.shards) == shard;
            if !here || lane.capacity() == 0 || lane.cursor() < after || lane.cursor() >= through {
                continue;
            }
            let entries: Vec<Entry> = page
                .entries
                .iter()
                .filter(|entry| entry.slot.lane(self.subscription.lanes) == *no && self.filter.matches(entry))
                .map(convert::entry)
                .collect();
            if let Err(error) = lane.handle_page(now, after, &entries, through) {
                tracing::error!(subscription.id = %self.subscription.id, lane = %no, %error, "a page was refused");
            }
        }
    }

    /// Reads the entries of positions that came with a claim, or are parked, by position.
    fn fetch_entries(&mut self) {
        for (no, lane) in &self.lanes {
            if self.fetching.contains(no) {
                continue;
            }
            let asked = lane.needs_entries(FETCH_POSITIONS);
            if asked.is_empty() {
                continue;
            }
            self.fetching.insert(*no);
            let (store, lane) = (self.shared.store.clone(), *no);
            let shard = self.subscription.lanes.shard_of(lane, self.shards);
            self.jobs.spawn(async move {
                let result = store.entries_at(shard, &asked).await;
                if result.is_err() {
                    tokio::time::sleep(PACE).await;
                }
                Done::Entries(EntriesDone { lane, asked, result })
            });
        }
    }

    pub(super) fn entries_done(&mut self, done: EntriesDone) {
        self.fetching.remove(&done.lane);
        let now = self.now();
        match (done.result, self.lanes.get_mut(&done.lane)) {
            (Ok(found), Some(lane)) => {
                let there: HashSet<u64> = found.iter().map(|entry| entry.n).collect();
                let missing: Vec<u64> = done.asked.into_iter().filter(|n| !there.contains(n)).collect();
                let found: Vec<Entry> = found.iter().map(convert::entry).collect();
                lane.handle_entries(now, &found, &missing);
            }
            (Err(error), _) => {
                tracing::warn!(subscription.id = %self.subscription.id, %error, "parked entries could not be read");
            }
            (Ok(_), None) => {}
        }
    }
}
