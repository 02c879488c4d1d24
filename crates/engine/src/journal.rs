//! A lane's progress through the log: which positions still hold the watermark, and which were passed above it.

use std::collections::BTreeSet;

/// Progress in memory. What of it is durable is the flushes' business.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    cursor: u64,
    watermark: u64,
    window: BTreeSet<u64>,
    acked: BTreeSet<u64>,
    /// How many of `acked` lie above the cursor: settled by an earlier owner, not read again yet.
    ahead: usize,
}

impl Journal {
    pub(crate) fn new(watermark: u64, acked: impl IntoIterator<Item = u64>) -> Self {
        let acked: BTreeSet<u64> = acked.into_iter().filter(|position| *position > watermark).collect();
        let ahead = acked.len();
        Self { cursor: watermark, watermark, window: BTreeSet::new(), acked, ahead }
    }

    pub(crate) const fn cursor(&self) -> u64 {
        self.cursor
    }

    pub(crate) const fn watermark(&self) -> u64 {
        self.watermark
    }

    pub(crate) fn window_len(&self) -> usize {
        self.window.len()
    }

    /// The oldest event that holds the watermark.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.window.first().copied()
    }

    /// Settled positions above the watermark, ascending.
    pub(crate) fn acked(&self) -> Vec<u64> {
        self.acked.iter().copied().collect()
    }

    /// How many positions this owner has passed above the watermark.
    pub(crate) fn acked_len(&self) -> usize {
        self.acked.len() - self.ahead
    }

    /// The highest position that it knows: after a restart a former owner may have settled some above the cursor.
    pub(crate) fn top(&self) -> u64 {
        self.acked.last().copied().unwrap_or(0).max(self.cursor)
    }

    /// Whether nothing of this position is open as far as the journal knows.
    pub(crate) fn has_passed(&self, position: u64) -> bool {
        position <= self.watermark || self.acked.contains(&position)
    }

    /// The log was read up to `cursor`.
    pub(crate) fn read_to(&mut self, cursor: u64) {
        self.cursor = self.cursor.max(cursor);
        if self.ahead > 0 {
            self.ahead = self.acked.range(self.cursor + 1..).count();
        }
        self.rise();
    }

    /// An event at `position`, above the cursor, has to be delivered.
    pub(crate) fn open(&mut self, position: u64) {
        self.window.insert(position);
        self.read_to(position);
    }

    /// Nothing of `position`, at or below the cursor, is open any more, or it stands in a row of its own.
    pub(crate) fn pass(&mut self, position: u64) {
        self.window.remove(&position);
        if position > self.watermark {
            self.acked.insert(position);
        }
        self.rise();
    }

    fn rise(&mut self) {
        let limit = self.window.first().map_or(self.cursor, |oldest| oldest - 1);
        if limit > self.watermark {
            self.watermark = limit;
            while self.acked.first().is_some_and(|position| *position <= limit) {
                self.acked.pop_first();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watermark_stays_below_the_oldest_open_position_and_takes_the_passed_ones_with_it() {
        let mut journal = Journal::new(10, []);
        journal.open(12);
        journal.open(15);
        journal.open(16);
        journal.read_to(20);
        assert_eq!(journal.watermark(), 11);
        journal.pass(15);
        assert_eq!((journal.watermark(), journal.acked()), (11, vec![15]));
        journal.pass(12);
        assert_eq!((journal.watermark(), journal.acked()), (15, vec![]));
        journal.pass(16);
        assert_eq!(journal.watermark(), 20);
    }

    #[test]
    fn positions_that_an_earlier_owner_settled_stay_until_they_are_read_again() {
        let mut journal = Journal::new(10, [9, 12, 14]);
        assert_eq!((journal.acked(), journal.acked_len()), (vec![12, 14], 0));
        assert!(journal.has_passed(9) && journal.has_passed(14) && !journal.has_passed(13));
        journal.open(11);
        journal.read_to(13);
        assert_eq!((journal.watermark(), journal.acked_len()), (10, 1));
        journal.pass(11);
        assert_eq!((journal.watermark(), journal.acked()), (13, vec![14]));
        journal.read_to(14);
        assert_eq!((journal.watermark(), journal.acked()), (14, vec![]));
    }
}
