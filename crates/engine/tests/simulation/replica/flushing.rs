//! Writing progress: one flush at a time for all lanes that have something to write.

use portero_engine::{Flush, FlushResult, ParkedState};
use portero_types::LaneNo;

use super::{Asked, PACE, SimReplica};
use crate::checker::Promise;
use crate::planted::Planted;
use crate::shared::Shared;
use crate::words::{Answer, Ask, LaneFlush};

impl SimReplica {
    pub(super) fn flush(&mut self, shared: &mut Shared) {
        let Some(session) = self.session.filter(|_| !self.flushing && shared.now >= self.flush_at) else {
            return;
        };
        let now = self.wall(shared);
        let mut flushes = Vec::new();
        for (no, lane) in &mut self.lanes {
            if let Some(mut flush) = lane.poll_flush(now) {
                tamper(shared, *no, &mut flush);
                flushes.push(LaneFlush { lane: *no, epoch: lane.epoch(), flush });
            }
        }
        if flushes.is_empty() {
            return;
        }
        self.flushing = true;
        let sent: Vec<(LaneNo, u64)> = flushes.iter().map(|flush| (flush.lane, flush.flush.seq)).collect();
        let number = shared.ask(self.me, Ask::Flush { session, flushes });
        self.asks.insert(number, Asked::Flush { sent: sent.clone() });
        if shared.has(Planted::AnswersBeforeItIsWritten) {
            for (no, seq) in sent {
                if let Some(lane) = self.lanes.get_mut(&no) {
                    lane.handle_flushed(now, seq, FlushResult::Written);
                }
            }
            self.poll_outputs(shared);
        }
    }

    pub(super) fn flushed(&mut self, shared: &mut Shared, sent: Vec<(LaneNo, u64)>, answer: Answer) {
        self.flushing = false;
        let now = self.wall(shared);
        let (other, written) = match answer {
            Answer::Written(lanes) => (FlushResult::Lost, lanes),
            Answer::Fenced => {
                self.lose_session(shared);
                return;
            }
            Answer::Unknown if shared.has(Planted::TakesUnknownForWritten) => {
                (FlushResult::Written, Vec::new())
            }
            Answer::Unknown => (FlushResult::Unknown, Vec::new()),
            Answer::Refused => {
                shared.checker.broken(Promise::S4, format!("a flush of {sent:?} was refused"));
                (FlushResult::Failed, Vec::new())
            }
            _ => (FlushResult::Failed, Vec::new()),
        };
        if other != FlushResult::Lost {
            self.flush_at = shared.now + PACE;
        }
        for (no, seq) in sent {
            let result = if written.contains(&no) { FlushResult::Written } else { other };
            if let Some(lane) = self.lanes.get_mut(&no) {
                if result == FlushResult::Written {
                    shared.checker.told_written(no, shared.now);
                }
                lane.handle_flushed(now, seq, result);
            }
        }
        self.poll_outputs(shared);
        self.drop_lost(shared);
    }
}

/// What a wrong lane would write.
fn tamper(shared: &Shared, lane: LaneNo, flush: &mut Flush) {
    let is_read = flush.watermark < shared.store.head(shared.shard_of(lane));
    if is_read && shared.has(Planted::RaisesTheWatermarkByOne) {
        flush.watermark += 1;
        flush.acked.retain(|position| *position > flush.watermark);
    }
    if shared.has(Planted::UnparksWhatStillWaits) {
        let (last, rest) = std::mem::take(&mut flush.park).into_iter().partition(|row| {
            row.state == ParkedState::Draining && row.positions.len() == 1 && row.overflow.is_none()
        });
        flush.park = rest;
        let last: Vec<portero_engine::ParkedEntity> = last;
        flush.unpark.extend(last.iter().map(|row| row.entity));
    }
}
