//! Parts of the log that a lane reads apart from its own way through it.

use portero_types::Timestamp;

use super::Lane;
use crate::{Entry, Error, SideRead, SideScope};

impl Lane {
    /// Up to `limit` parts of the log to read now. The same ones come again until [`Lane::handle_side_read`] answers; have
    /// one on its way for each scope.
    #[must_use]
    pub fn side_reads(&self, limit: usize) -> Vec<SideRead> {
        if self.lost || (self.detours.is_empty() && self.overflowing.is_empty()) {
            return Vec::new();
        }
        let detours = self.detours.iter().filter_map(|(tenant, detour)| {
            let (after, through) = self.detour_range(detour)?;
            let limit = self.detour_room(*tenant);
            self.is_worth_reading(limit, self.detour_share()).then_some(SideRead {
                scope: SideScope::Tenant(*tenant),
                after,
                through,
                limit,
            })
        });
        let overflows = self.overflowing.iter().filter_map(|entity| {
            let (overflow, limit) = self.overflow_range(*entity)?;
            let (after, through) = (overflow.after, overflow.last);
            Some(SideRead { scope: SideScope::Entity(*entity), after, through, limit })
        });
        detours.chain(overflows).take(limit).collect()
    }

    /// Answers a side read: the matching entries of its scope above `read.after` up to and including `read_through`, ascending.
    /// An answer that is out of date is ignored.
    ///
    /// # Errors
    /// [`Error::Gap`] when it begins beyond the detour's cursor. Nothing changed.
    pub fn handle_side_read(
        &mut self,
        now: Timestamp,
        read: SideRead,
        entries: &[Entry],
        read_through: u64,
    ) -> Result<(), Error> {
        if self.lost {
            return Ok(());
        }
        match read.scope {
            SideScope::Tenant(tenant) => {
                self.read_detour(now, tenant, read.after, entries, read_through)?;
            }
            SideScope::Entity(entity) => self.read_overflow(now, entity, read.after, entries, read_through),
        }
        self.enforce_cap(now);
        self.tend_detours();
        self.plan_idle_flush(now);
        Ok(())
    }
}
