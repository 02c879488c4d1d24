//! Reading the log for the lanes that have room.

use std::collections::HashSet;

use portero_directory::Directory;
use portero_engine::Entry;
use portero_store::{Error, ErrorKind, LogEntry, LogPage, PageRequest, Scope};
use portero_types::{LaneCount, LaneNo, Shard};
use tokio::time::Instant;

use super::jobs::broken_read;
use super::{Actor, Done, PACE, Reading};
use crate::convert;
use crate::filter::Filter;
use crate::shared::DynDeliveryStore;

pub(super) const PAGE_ENTRIES: u32 = 1_000;
/// Most positions that one page looks at: with a narrow filter far behind the head, most are others'.
pub(super) const SPAN: u32 = 50_000;
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
                .filter(|(no, lane)| {
                    self.is_in(**no, shard) && lane.is_hungry() && !self.sharing.is_leaving(**no)
                })
                .map(|(_, lane)| lane.cursor())
                .min();
            if let Some(after) = after.filter(|after| *after < head) {
                self.reading.insert(shard, Reading::Busy);
                let reader = self.reader();
                let request = PageRequest {
                    span: SPAN,
                    scope: self.filter.scope(),
                    ..PageRequest::new(shard, after, PAGE_ENTRIES)
                };
                let broken = PageDone { request: request.clone(), result: Err(broken_read()) };
                let read = async move {
                    let result = reader.page(request.clone()).await;
                    Done::Page(PageDone { request, result })
                };
                self.spawn(read, || Done::Page(broken));
            }
        }
        self.read_aside();
    }

    fn is_in(&self, lane: LaneNo, shard: Shard) -> bool {
        self.subscription.lanes.shard_of(lane, self.shards) == shard
    }

    /// Who reads the log for this subscription.
    pub(super) fn reader(&self) -> Reader {
        let directory = self.filter.names_sources().then(|| self.shared.directory.clone());
        Reader { store: self.shared.store.clone(), directory }
    }

    /// Whether what was read within `scope` can be judged. If not, a source has come that it lacks: it is read again.
    pub(super) fn can_judge(&mut self, scope: &Scope) -> bool {
        self.filter.follow(&self.subscription, &self.shared.directory.snapshot());
        self.filter.is_met_by(scope)
    }

    pub(super) fn page_done(&mut self, done: PageDone) {
        let PageRequest { shard, after, scope, .. } = done.request;
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
        if !self.can_judge(&scope) {
            return;
        }
        let through = page.through;
        let now = self.now();
        for (no, lane) in &mut self.lanes {
            let here = self.subscription.lanes.shard_of(*no, self.shards) == shard;
            if !here
                || lane.capacity() == 0
                || self.sharing.is_leaving(*no)
                || lane.cursor() < after
                || lane.cursor() >= through
            {
                continue;
            }
            let entries = matching(&self.filter, self.subscription.lanes, *no, &page.entries);
            if let Err(error) = lane.handle_page(now, after, &entries, through) {
                tracing::error!(subscription.id = %self.subscription.id, lane = %no, %error, "a page was refused");
            }
        }
    }

    /// Reads the entries of positions that came with a claim, or are parked, by position.
    fn fetch_entries(&mut self) {
        let lanes = self.lanes.iter().filter(|(no, _)| !self.fetching.contains(no));
        let asked: Vec<(LaneNo, Vec<u64>)> = lanes
            .map(|(no, lane)| (*no, lane.needs_entries(FETCH_POSITIONS)))
            .filter(|(_, asked)| !asked.is_empty())
            .collect();
        for (lane, asked) in asked {
            self.fetching.insert(lane);
            let store = self.shared.store.clone();
            let shard = self.subscription.lanes.shard_of(lane, self.shards);
            let broken = EntriesDone { lane, asked: asked.clone(), result: Err(broken_read()) };
            let fetch = async move {
                let result = store.entries_at(shard, &asked).await;
                if result.is_err() {
                    tokio::time::sleep(PACE).await;
                }
                Done::Entries(EntriesDone { lane, asked, result })
            };
            self.spawn(fetch, || Done::Entries(broken));
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

/// Reads pages.
pub(super) struct Reader {
    store: DynDeliveryStore,
    /// For filters that name sources.
    directory: Option<Directory>,
}

impl Reader {
    /// Reads a page, and then what changed in the configuration until it was read.
    pub(super) async fn page(&self, request: PageRequest) -> portero_store::Result<LogPage> {
        let page = self.store.page(request).await?;
        if let Some(directory) = &self.directory {
            let refreshed = directory.refresh_now().await;
            refreshed.map_err(|_| Error::new(ErrorKind::Unavailable, "the configuration cannot be read"))?;
        }
        Ok(page)
    }
}

/// What of a page goes to a lane.
pub(super) fn matching(filter: &Filter, lanes: LaneCount, no: LaneNo, entries: &[LogEntry]) -> Vec<Entry> {
    let here = entries.iter().filter(|entry| entry.slot.lane(lanes) == no && filter.matches(entry));
    here.map(convert::entry).collect()
}
