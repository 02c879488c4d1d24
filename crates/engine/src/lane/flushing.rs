//! Changes are written, and what waits for that goes on.

use portero_types::Timestamp;

use super::Lane;
use crate::batch::{Batch, Effect, End, Sent};
use crate::entity::Place;
use crate::phase::Phase;
use crate::{Deferred, Flush, FlushResult, Settled};

impl Lane {
    /// What is to be written, when something is and no flush is on its way.
    pub fn poll_flush(&mut self, now: Timestamp) -> Option<Flush> {
        if self.lost {
            return None;
        }
        if let Some(sent) = &mut self.sent {
            return std::mem::take(&mut sent.resend).then(|| sent.flush.clone());
        }
        let idle_is_due = self.idle_flush_at.is_some_and(|at| at <= now);
        if self.batch.is_empty() && !idle_is_due {
            return None;
        }
        let mut batch = std::mem::take(&mut self.batch);
        let flush = self.make_flush(&mut batch);
        self.sent = Some(Sent { flush: flush.clone(), batch, resend: false });
        Some(flush)
    }

    fn make_flush(&mut self, batch: &mut Batch) -> Flush {
        self.tend_detours();
        self.seq += 1;
        self.idle_flush_at = None;
        self.flushed_watermark = self.journal.watermark();
        let mut flush = Flush {
            seq: self.seq,
            watermark: self.journal.watermark(),
            acked: self.journal.acked(),
            detours: self.detours.iter().map(|(tenant, detour)| detour.row(*tenant)).collect(),
            dead: batch.dead.clone(),
            expired: batch.expired(),
            ..Flush::default()
        };
        for entity in &batch.parks {
            match self.entities.get(entity).and_then(|state| state.row(*entity)) {
                Some(row) => flush.park.push(row),
                None => flush.unpark.push(*entity),
            }
        }
        for position in &batch.defers {
            let row = self.events.get(position).filter(|event| event.place != Place::Done);
            match row.and_then(|event| event.note.as_deref().map(|note| (event.entity, note))) {
                Some((entity, note)) => flush.defer.push(Deferred {
                    entity,
                    position: *position,
                    deadline: note.deadline,
                    reason_code: note.reason.code().to_owned(),
                    reason_text: note.reason.text().to_owned(),
                }),
                None => flush.undefer.push(*position),
            }
        }
        flush
    }

    /// Makes an unwritten watermark due at once, for a last flush before the lane is handed over.
    pub fn hurry_flush(&mut self) {
        if !self.lost && self.journal.watermark() > self.flushed_watermark {
            self.idle_flush_at = Some(Timestamp::from_micros(i64::MIN));
        }
    }

    /// Answers the flush that is on its way. Another `seq` is ignored.
    pub fn handle_flushed(&mut self, now: Timestamp, seq: u64, result: FlushResult) {
        let Some(sent) = self.sent.take_if(|sent| sent.flush.seq == seq) else { return };
        match result {
            FlushResult::Written => {
                for effect in sent.batch.effects {
                    self.take_effect(now, effect);
                }
            }
            FlushResult::Failed => {
                self.batch.take_back(sent.batch);
                self.flushed_watermark = 0;
                self.idle_flush_at = Some(now.plus(self.config.idle_flush_after));
            }
            FlushResult::Unknown => self.sent = Some(Sent { resend: true, ..sent }),
            FlushResult::Lost => {
                self.sent = Some(sent);
                self.handle_lost();
            }
        }
    }

    fn take_effect(&mut self, now: Timestamp, effect: Effect) {
        match effect {
            Effect::Concluded { position, end } => {
                let event =
                    self.events.remove(&position).expect("a concluded event stays until it is written");
                self.counts.done -= 1;
                match end {
                    End::Acked => {
                        if let Some(state) = self.entities.get_mut(&event.entity) {
                            state.due.append(&mut state.resting);
                        }
                    }
                    End::Dead => self.counts.dead += 1,
                    End::Expired => self.counts.expired += 1,
                }
            }
            Effect::Resume { entity, serial } => {
                let Some(state) = self.entities.get_mut(&entity) else { return };
                state.unwritten.take_if(|unwritten| *unwritten == serial);
                if state.phase == (Phase::Settling { serial }) {
                    self.advance(entity, now);
                }
            }
            Effect::Answer { tag, status } => {
                self.counts.answers -= 1;
                self.settled.push_back(Settled { tag, status });
            }
        }
    }
}
