//! Flushes, what becomes of them, and who comes after a crash.

use std::collections::BTreeSet;

use portero_engine::{FlushResult, Lane, ParkedState, Room, Status, Tag, Token};
use portero_types::Epoch;

use super::{Pending, World};
use crate::model::{End, Event, Model};

impl World {
    pub(super) fn send(&mut self) {
        let Some(flush) = self.lane.poll_flush(self.now) else {
            assert!(
                self.model.sent.is_some() || self.model.open.ended.is_empty(),
                "an end waits to be written"
            );
            return;
        };
        match &self.pending {
            Some(sent) => assert_eq!(sent.flush, flush, "an unknown flush comes again as it was"),
            None => {
                self.model.sent(&flush);
                let (events, blocked) = (self.model.events.clone(), self.model.blocked.clone());
                self.pending = Some(Pending { flush, events, blocked, is_applied: false });
            }
        }
    }

    pub(super) fn answer(&mut self, result: FlushResult, is_applied: bool) {
        let Some(pending) = &self.pending else { return };
        let seq = pending.flush.seq;
        // What was written before its outcome was known cannot fail afterwards.
        let cannot_fail = pending.is_applied && result == FlushResult::Failed;
        let result = if cannot_fail { FlushResult::Unknown } else { result };
        if result == FlushResult::Written || (is_applied && result != FlushResult::Failed) {
            self.apply();
        }
        let lost = self.model.open_answers();
        self.lane.handle_flushed(self.now, seq, result);
        match result {
            FlushResult::Written => {
                self.pending = None;
                let answers = self.model.written();
                self.expect_statuses(answers);
            }
            FlushResult::Failed => {
                self.pending = None;
                self.model.failed();
                self.expect_statuses(Vec::new());
            }
            FlushResult::Unknown => {
                self.expect_statuses(Vec::new());
                self.send();
            }
            FlushResult::Lost => self.lose(&lost),
        }
    }

    fn lose(&mut self, open: &BTreeSet<Tag>) {
        let statuses: Vec<_> = std::iter::from_fn(|| self.lane.poll_settled()).collect();
        assert!(statuses.iter().all(|settled| settled.status == Status::TryAgain));
        assert_eq!(statuses.iter().map(|settled| settled.tag).collect::<BTreeSet<_>>(), *open);
        assert_eq!(statuses.len(), open.len());
        let revoked: BTreeSet<Token> =
            std::iter::from_fn(|| self.lane.poll_revoke()).map(|r| r.token).collect();
        assert_eq!(revoked, self.model.held.values().map(|held| held.token).collect());
        assert_eq!(self.lane.poll_delivery(self.now, Room::UNLIMITED), None);
        self.restart();
    }

    /// The store commits the flush on its way, and everything that must hold of a committed state does.
    pub(super) fn apply(&mut self) {
        let Some(pending) = &mut self.pending else { return };
        self.store.write(&pending.flush);
        if std::mem::replace(&mut pending.is_applied, true) {
            return;
        }
        self.durable.extend(std::mem::take(&mut pending.events));
        self.durably_blocked = std::mem::take(&mut pending.blocked);
        let rows = self.store.parked.values().filter(|row| row.state == ParkedState::Blocked);
        assert_eq!(rows.map(|row| row.entity).collect::<BTreeSet<_>>(), self.durably_blocked);
        let Self { store, durable, log, model, lane, .. } = self;
        let own = store.acked.iter().filter(|n| **n <= lane.cursor()).count();
        assert!(own <= model.config.acked_max, "the list of settled positions keeps its cap");
        for (n, entity) in log.iter().filter_map(|(n, entity)| entity.map(|entity| (*n, entity))) {
            let event = durable.get(&n);
            let is_done = event.is_some_and(|event| event.end.is_some());
            let row = store.parked.get(&entity).filter(|row| row.positions.contains(&n));
            let is_aside = event.is_some_and(|event| event.aside && !is_done);
            assert!(!(is_done && row.is_some()), "{n} is settled and parked");
            if store.has_passed(n) {
                assert!(is_done || row.is_some() || is_aside, "{n} was passed but is nowhere");
            } else {
                assert!(row.is_none() && !is_aside && !is_done, "{n} has an outcome but was not passed");
            }
            let deferred = event.filter(|event| !is_done && event.deadline.is_some());
            assert_eq!(store.deferred.get(&n).map(|row| row.deadline), deferred.and_then(|e| e.deadline));
            assert_eq!(store.dead.contains_key(&n), event.is_some_and(|e| e.end == Some(End::Dead)));
            if let Some(event) = event.filter(|event| !is_done && event.failed) {
                let row = row.expect("a failed event is parked");
                assert_eq!((row.positions[0], row.state), (n, ParkedState::Retry));
                assert_eq!((row.attempts, row.interruptions), (event.attempts, event.interruptions));
            }
        }
    }

    /// The process is gone; the next owner claims what the store has.
    pub(super) fn restart(&mut self) {
        self.pending = None;
        self.current = None;
        self.streams.clear();
        let restored = self.store.claim();
        let config = self.model.config.clone();
        let mut model = Model::new(config.clone());
        model.epoch = self.model.epoch + 1;
        model.blocked.clone_from(&self.durably_blocked);
        let in_rows: BTreeSet<u64> = restored.parked.iter().flat_map(|row| row.positions.clone()).collect();
        self.durable.retain(|n, event| match event.end {
            Some(end) => {
                model.gone.insert(*n, end);
                true
            }
            None => {
                if in_rows.contains(n) || event.aside {
                    let offers_before = event.attempts + event.interruptions;
                    let fresh =
                        Event { deliveries: 0, offers_before, known: false, woken: event.aside, ..*event };
                    model.events.insert(*n, fresh);
                }
                true
            }
        });
        // Whatever is parked was read by the former owner, even if the model's record of it came with that very flush.
        assert!(in_rows.iter().all(|n| model.events.contains_key(n)));
        self.model = model;
        self.lane = Lane::new(config, Epoch(self.model.epoch), restored, self.now).expect("valid");
    }
}
