//! Detours: when one tenant fills the lane's window, its further events are left aside and read by a cursor of their own,
//! so that nobody else's wait behind them.

use portero_types::{TenantNo, Timestamp};

use super::Lane;
use crate::detour::OpenDetour;
use crate::journal::Journal;
use crate::{Entry, Error};

impl Lane {
    /// Load of a tenant that fills the window: so many tenants as may have a detour could have as much, so that a few that
    /// fill it together are found as well as one alone. No less than half of the window where one or two may have one.
    const fn heavy(&self) -> usize {
        let parts = if self.config.detours_max < 2 { 2 } else { self.config.detours_max };
        self.config.window_events_max / parts
    }

    /// Begins a detour for the heaviest tenant, if it is heavy and one more is allowed.
    pub(super) fn begin_detour(&mut self) -> bool {
        if self.detours.len() >= self.config.detours_max {
            return false;
        }
        let heaviest = self
            .load
            .iter()
            .filter(|(tenant, _)| !self.detours.contains_key(tenant))
            .max_by_key(|(tenant, load)| (**load, **tenant));
        match heaviest {
            Some((tenant, load)) if *load > self.heavy() => {
                self.detours.insert(*tenant, OpenDetour::new(self.journal.cursor()));
                true
            }
            Some(_) | None => false,
        }
    }

    /// Events of tenants with a detour that the lane read before the detour began: they no longer count against its window.
    pub(super) fn detoured_load(&self) -> usize {
        self.detours.keys().filter_map(|tenant| self.load.get(tenant)).sum()
    }

    /// How many events of a tenant a detour holds unsettled.
    pub(super) fn detour_share(&self) -> usize {
        self.config.window_events_max.div_ceil(2)
    }

    /// How many more events the detour of `tenant` takes.
    pub(super) fn detour_room(&self, tenant: TenantNo) -> usize {
        let Some(detour) = self.detours.get(&tenant) else { return 0 };
        let load = self.load.get(&tenant).copied().unwrap_or(0) + detour.journal.window_len();
        self.detour_share()
            .saturating_sub(load)
            .min(self.config.positions_max.saturating_sub(self.events.len()))
    }

    /// What a detour has to read now: from its cursor to the lane's, or to its end.
    pub(super) fn detour_range(&self, detour: &OpenDetour) -> Option<(u64, u64)> {
        let lane = self.journal.cursor();
        let (after, through) = (detour.journal.cursor(), lane.min(detour.ends_at.unwrap_or(u64::MAX)));
        // After a restart the lane has first to come back to where the detour began: what lies before it is older.
        (lane >= detour.starts_after && after < through).then_some((after, through))
    }

    /// Takes what was read for a detour. Stops where there is no room.
    pub(super) fn read_detour(
        &mut self,
        now: Timestamp,
        tenant: TenantNo,
        after: u64,
        entries: &[Entry],
        read_through: u64,
    ) -> Result<(), Error> {
        let Some(detour) = self.detours.get(&tenant) else { return Ok(()) };
        let cursor = detour.journal.cursor();
        if after > cursor {
            return Err(Error::Gap { after, cursor });
        }
        let Some((_, end)) = self.detour_range(detour) else { return Ok(()) };
        let mut room = self.detour_room(tenant);
        let mut through = read_through.min(end);
        for entry in entries.iter().take_while(|entry| entry.n <= read_through.min(end)) {
            if entry.n <= self.detour_journal(tenant).cursor() {
                continue;
            }
            if !self.take_known(entry) {
                if room == 0 {
                    through = entry.n - 1;
                    break;
                }
                room -= 1;
                self.admit(now, *entry);
            }
        }
        self.detour_journal(tenant).read_to(through);
        Ok(())
    }

    fn detour_journal(&mut self, tenant: TenantNo) -> &mut Journal {
        &mut self.detours.get_mut(&tenant).expect("it was looked up before").journal
    }

    /// Lets detours end that have caught up while their tenant has become quiet, and forgets those that are worked off.
    pub(super) fn tend_detours(&mut self) {
        if self.detours.is_empty() {
            return;
        }
        let cursor = self.journal.cursor();
        let quiet = self.heavy() / 2;
        for (tenant, detour) in &mut self.detours {
            let load = self.load.get(tenant).copied().unwrap_or(0) + detour.journal.window_len();
            // After a restart the lane may have to come back to where the detour is.
            let has_caught_up = detour.journal.cursor() >= detour.skipped && cursor >= detour.journal.top();
            if detour.ends_at.is_none() && has_caught_up && load <= quiet {
                // Between its cursor and the lane's there is nothing of this tenant.
                detour.ends_at = Some(cursor);
            }
            if let Some(end) = detour.ends_at.filter(|_| has_caught_up) {
                detour.journal.read_to(end.min(cursor));
            }
        }
        let watermark = self.journal.watermark();
        self.detours.retain(|_, detour| !detour.is_over(watermark));
    }

    /// The journal that judges an event.
    pub(super) fn journal_of(&mut self, position: u64, tenant: TenantNo) -> &mut Journal {
        match self.detours.get_mut(&tenant) {
            Some(detour) if detour.covers(position) => &mut detour.journal,
            Some(_) | None => &mut self.journal,
        }
    }

    /// An event enters the window.
    pub(super) fn open(&mut self, entry: &Entry) {
        if !self.is_detoured(entry.n, entry.tenant) {
            *self.load.entry(entry.tenant).or_default() += 1;
        }
        self.journal_of(entry.n, entry.tenant).open(entry.n);
    }

    /// An event of the window leaves it.
    pub(super) fn pass(&mut self, position: u64) {
        let tenant = self.event(position).entry.expect("an event of the window is known").tenant;
        if !self.is_detoured(position, tenant)
            && let Some(load) = self.load.get_mut(&tenant)
        {
            *load -= 1;
            if *load == 0 {
                self.load.remove(&tenant);
            }
        }
        self.journal_of(position, tenant).pass(position);
    }

    /// An event is read and never enters the window.
    pub(super) fn skip(&mut self, position: u64, tenant: TenantNo) {
        let journal = self.journal_of(position, tenant);
        journal.read_to(position);
        journal.pass(position);
    }

    pub(super) fn is_detoured(&self, position: u64, tenant: TenantNo) -> bool {
        self.detours.get(&tenant).is_some_and(|detour| detour.covers(position))
    }
}
