//! A tenant's own way through the log.

use portero_types::TenantNo;

use crate::Detour;
use crate::journal::Journal;

/// A detour in memory: see [`Detour`].
#[derive(Clone, Debug)]
pub(crate) struct OpenDetour {
    pub(crate) starts_after: u64,
    pub(crate) ends_at: Option<u64>,
    pub(crate) journal: Journal,
    /// The tenant's last event that the lane's own cursor went past.
    pub(crate) skipped: u64,
}

impl OpenDetour {
    /// A detour for what lies above the lane's cursor.
    pub(crate) fn new(cursor: u64) -> Self {
        Self { starts_after: cursor, ends_at: None, journal: Journal::new(cursor, []), skipped: cursor }
    }

    /// A detour as the last owner wrote it, in a lane whose cursor stands at `cursor`: what lies below was gone past.
    pub(crate) fn restored(row: &Detour, cursor: u64) -> Self {
        Self {
            starts_after: row.starts_after,
            ends_at: row.ends_at,
            journal: Journal::new(row.watermark.max(row.starts_after), row.acked.iter().copied()),
            skipped: cursor,
        }
    }

    /// Whether an event of the tenant belongs to the detour.
    pub(crate) fn covers(&self, position: u64) -> bool {
        position > self.starts_after && self.ends_at.is_none_or(|end| position <= end)
    }

    /// Whether an event of the tenant that the lane reads has to wait, because earlier ones are still to be read here.
    pub(crate) fn holds_up(&self, position: u64) -> bool {
        self.ends_at.is_some_and(|end| position > end && self.journal.cursor() < end)
    }

    /// Whether an event at `position` may belong to it and was not read yet.
    pub(crate) fn has_before_it(&self, position: u64) -> bool {
        self.covers(position) && position > self.journal.cursor()
    }

    /// Whether it is worked off, towards a lane whose watermark stands at `watermark`: then a new owner would not miss it.
    pub(crate) fn is_over(&self, watermark: u64) -> bool {
        self.ends_at.is_some_and(|end| {
            watermark >= end && self.journal.watermark() >= end && self.journal.window_len() == 0
        })
    }

    pub(crate) fn row(&self, tenant: TenantNo) -> Detour {
        Detour {
            tenant,
            starts_after: self.starts_after,
            ends_at: self.ends_at,
            watermark: self.journal.watermark(),
            acked: self.journal.acked(),
        }
    }
}
