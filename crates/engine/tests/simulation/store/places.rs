//! Where an event stands, by what is written and nothing else.

use portero_engine::{Entry, ParkedState};
use portero_types::{EntityHash, LaneNo};

use super::{LaneRow, SimStore};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Still to be read, or in the window.
    Open,
    /// In its entity's parked row, or in its overflow.
    Parked,
    Deferred,
    Dead,
    /// Nothing is left of it.
    Gone,
}

impl Place {
    /// Whether it is over with the event.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Dead | Self::Gone)
    }
}

impl SimStore {
    pub(crate) fn place(&self, lane: LaneNo, entry: &Entry) -> Place {
        let row = self.row(lane);
        let n = entry.n;
        if row.dead.contains_key(&n) {
            return Place::Dead;
        }
        let parked = row.parked.get(&entry.entity);
        if parked.is_some_and(|row| row.positions.contains(&n)) {
            return Place::Parked;
        }
        if row.deferred.contains_key(&n) {
            return Place::Deferred;
        }
        let overflow = parked.and_then(|row| row.overflow);
        if overflow.is_some_and(|overflow| overflow.after < n && n <= overflow.last) {
            return Place::Parked;
        }
        if row.has_passed(entry) { Place::Gone } else { Place::Open }
    }

    /// Entities that wait for an operator.
    pub(crate) fn blocked(&self) -> Vec<EntityHash> {
        self.parked_in(ParkedState::Blocked)
    }

    pub(crate) fn parked_in(&self, state: ParkedState) -> Vec<EntityHash> {
        let rows = self.rows.values().flat_map(|row| row.parked.values());
        rows.filter(|row| row.state == state).map(|row| row.entity).collect()
    }
}

impl LaneRow {
    fn has_passed(&self, entry: &Entry) -> bool {
        let n = entry.n;
        let detour = self.detours.iter().find(|detour| {
            detour.tenant == entry.tenant
                && detour.starts_after < n
                && detour.ends_at.is_none_or(|end| n <= end)
        });
        match detour {
            Some(detour) => n <= detour.watermark || detour.acked.contains(&n),
            None => n <= self.watermark || self.acked.contains(&n),
        }
    }
}
