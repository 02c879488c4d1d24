//! Flushes: judged when they begin, written when they are committed, in one piece, under the session's lock.

use portero_types::{Epoch, LaneNo};

use super::{SimStore, Step};
use crate::planted::Planted;
use crate::words::{Answer, LaneFlush, Process, Session};

/// A flush that has its locks and is not committed yet.
pub(super) struct OpenFlush {
    from: Process,
    pub(super) session: Session,
    pub(super) flushes: Vec<LaneFlush>,
}

/// A committed flush.
pub(crate) struct Commit {
    pub(crate) from: Process,
    /// The lanes that count as written.
    pub(crate) written: Vec<LaneNo>,
    /// Those that were written now, with the epoch under which they were.
    pub(crate) changed: Vec<(LaneNo, Epoch)>,
}

impl SimStore {
    pub(super) fn begin_flush(
        &mut self,
        now: u64,
        from: Process,
        number: u64,
        session: Session,
        flushes: Vec<LaneFlush>,
    ) -> Step {
        let writes_always = self.has(Planted::WritesForAFencedOwner);
        if !writes_always && !self.is_alive(session, now) {
            return Step::Answer(Answer::Fenced);
        }
        let owned: Vec<LaneFlush> = flushes
            .into_iter()
            .filter(|flush| writes_always || self.owns(session, flush.lane, flush.epoch))
            .collect();
        let falls = owned
            .iter()
            .any(|flush| !self.is_known(flush) && self.row(flush.lane).watermark > flush.flush.watermark);
        if falls && !writes_always && !self.has(Planted::LetsAnOlderFlushWin) {
            return Step::Answer(Answer::Refused);
        }
        self.open.insert(number, OpenFlush { from, session, flushes: owned });
        Step::Began
    }

    /// Whether this state or a later one of its epoch is there already.
    fn is_known(&self, flush: &LaneFlush) -> bool {
        let (epoch, seq) = self.row(flush.lane).written;
        epoch == flush.epoch.0 && seq >= flush.flush.seq && !self.has(Planted::LetsAnOlderFlushWin)
    }

    pub(crate) fn commit(&mut self, number: u64) -> Option<Commit> {
        let open = self.open.remove(&number)?;
        let written = open.flushes.iter().map(|flush| flush.lane).collect();
        let mut changed = Vec::new();
        for flush in open.flushes {
            if !self.is_known(&flush) {
                changed.push((flush.lane, flush.epoch));
                self.write(flush);
            }
        }
        Some(Commit { from: open.from, written, changed })
    }

    fn write(&mut self, LaneFlush { lane, epoch, mut flush }: LaneFlush) {
        if self.has(Planted::LosesAParkedRow) {
            flush.park.pop();
        }
        if self.has(Planted::LosesADeferredRow) {
            flush.defer.pop();
        }
        if self.has(Planted::LosesAnOverflow) {
            for row in &mut flush.park {
                row.overflow = row.overflow.filter(|_| row.positions.is_empty());
            }
        }
        let keeps_attempts = self.has(Planted::CountsAttemptsOfWaitingEvents);
        let row = self.row_mut(lane);
        // A state of an earlier epoch is in the journal, but it is not the last one.
        if (epoch.0, flush.seq) > row.written || self.planted == Some(Planted::LetsAnOlderFlushWin) {
            let row = self.row_mut(lane);
            row.written = (epoch.0, flush.seq);
            row.watermark = flush.watermark;
            row.acked = flush.acked;
            row.detours = flush.detours;
        }
        let row = self.row_mut(lane);
        for entity in &flush.unpark {
            row.parked.remove(entity);
        }
        for position in &flush.undefer {
            row.deferred.remove(position);
        }
        for mut parked in flush.park {
            if let Some(before) = row.parked.get(&parked.entity).filter(|_| keeps_attempts) {
                parked.attempts = parked.attempts.max(before.attempts);
            }
            row.parked.insert(parked.entity, parked);
        }
        row.deferred.extend(flush.defer.into_iter().map(|row| (row.position, row)));
        for letter in flush.dead {
            row.dead.entry(letter.position).or_insert(letter);
        }
    }
}
