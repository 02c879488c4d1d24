//! Reading for lanes beside their own way through the log: for tenants on a detour, and from the overflow of parked
//! entities. Each is a range of the log with a narrow scope.

use std::collections::HashSet;

use portero_engine::{SideRead, SideScope};
use portero_store::{LogPage, PageRequest, Scope};
use portero_types::{LaneNo, Slot};

use super::jobs::broken_read;
use super::read::{PAGE_ENTRIES, SPAN, matching};
use super::{Actor, Done, PACE};

/// Most side reads of one lane at the same time.
const READS_MAX: usize = 4;

/// Which side reads are on their way.
pub(super) type Aside = HashSet<(LaneNo, SideScope)>;

/// A side read that came back.
pub(super) struct AsideDone {
    lane: LaneNo,
    read: SideRead,
    scope: Scope,
    result: portero_store::Result<LogPage>,
}

impl Actor {
    pub(super) fn read_aside(&mut self) {
        let mut wanted = Vec::new();
        for (no, lane) in &self.lanes {
            if self.sharing.is_leaving(*no) {
                continue;
            }
            let reads = lane.side_reads(READS_MAX).into_iter();
            wanted.extend(
                reads.filter(|read| !self.aside.contains(&(*no, read.scope))).map(|read| (*no, read)),
            );
        }
        for (lane, read) in wanted {
            self.aside.insert((lane, read.scope));
            let reader = self.reader();
            let request = self.side_request(lane, read);
            let broken = AsideDone { lane, read, scope: request.scope.clone(), result: Err(broken_read()) };
            let job = async move {
                let scope = request.scope.clone();
                let result = reader.page(request).await;
                if result.is_err() {
                    tokio::time::sleep(PACE).await;
                }
                Done::Aside(AsideDone { lane, read, scope, result })
            };
            self.spawn(job, move || Done::Aside(broken));
        }
    }

    fn side_request(&self, lane: LaneNo, read: SideRead) -> PageRequest {
        let slots = self.subscription.lanes.slots(lane);
        let mut scope = Scope {
            slots: Some((Slot(*slots.start()), Slot(*slots.end()))),
            through: Some(read.through),
            ..self.filter.scope()
        };
        match read.scope {
            SideScope::Tenant(tenant) => scope.tenant = Some(tenant),
            SideScope::Entity(entity) => scope.entity = Some(entity),
        }
        let shard = self.subscription.lanes.shard_of(lane, self.shards);
        let limit = u32::try_from(read.limit).unwrap_or(u32::MAX).clamp(1, PAGE_ENTRIES);
        PageRequest { span: SPAN, scope, ..PageRequest::new(shard, read.after, limit) }
    }

    pub(super) fn aside_done(&mut self, done: AsideDone) {
        let AsideDone { lane: no, read, scope, result } = done;
        self.aside.remove(&(no, read.scope));
        let page = match result {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(subscription.id = %self.subscription.id, lane = %no, %error, "the log could not be read");
                return;
            }
        };
        if !self.can_judge(&scope) {
            return;
        }
        let now = self.now();
        let entries = matching(&self.filter, self.subscription.lanes, no, &page.entries);
        let Some(lane) = self.lanes.get_mut(&no) else { return };
        if let Err(error) = lane.handle_side_read(now, read, &entries, page.through) {
            // An answer to a lane that was lost and claimed again meanwhile: it asks anew.
            tracing::debug!(subscription.id = %self.subscription.id, lane = %no, %error, "a page was refused");
        }
    }
}
