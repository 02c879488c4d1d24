//! Deliveries that end without a settlement.

use portero_types::{EntityHash, Timestamp};
use rand::Rng;

use super::Lane;
use super::fate::{Failure, Fate};
use crate::batch::{Batch, Effect};
use crate::entity::{Before, Cut, Place};
use crate::{Ending, Reason, RevokeReason, Settled, Status, StreamId, Token, Undeliverable, reason};

impl Lane {
    /// A stream is over. What it had is released or interrupted, oldest first, until another stream adopts it
    /// ([`Lane::handle_adopt`]). Unknown streams are ignored.
    pub fn handle_stream_ended(
        &mut self,
        now: Timestamp,
        rng: &mut dyn Rng,
        stream: StreamId,
        ending: Ending,
    ) {
        if self.stream == Some(stream) {
            self.stream = None;
        }
        let held: Vec<(u64, EntityHash)> = self
            .in_flight
            .range((stream, 0)..=(stream, u64::MAX))
            .map(|((_, position), entity)| (*position, *entity))
            .collect();
        for (position, entity) in held {
            let token = self.offer_of(position).expect("in flight").token;
            let before = match ending {
                Ending::Graceful => {
                    self.release(now, position);
                    None
                }
                Ending::Abnormal => {
                    let was_deferred = self.event(position).place == Place::Deferred;
                    let before = Before { head: self.entity_mut(entity).head.clone(), was_deferred };
                    self.fail(now, rng, position, Failure::Interrupted);
                    Some(before)
                }
            };
            if self.event(position).place != Place::Done {
                self.entity_mut(entity).cut = Some(Box::new(Cut { token, before }));
            }
        }
    }

    /// The caller could not send a delivery. Ignored when that delivery is over.
    pub fn handle_undeliverable(&mut self, now: Timestamp, token: Token, why: Undeliverable) {
        if self.offer(token).is_none() {
            return;
        }
        let position = token.position;
        match why {
            Undeliverable::NotSent => self.release(now, position),
            Undeliverable::BodyGone => self.conclude(now, position, Fate::Expired),
            Undeliverable::TooLarge => {
                let entity = self.event(position).entity;
                let tally = self.entity_mut(entity).tally(position, now);
                let reason = Reason::new(reason::TOO_LARGE_FOR_CLIENT, "");
                self.die(now, position, reason, tally);
            }
            Undeliverable::Unreadable => {
                let entity = self.event(position).entity;
                let tally = self.entity_mut(entity).tally(position, now);
                let reason = Reason::new(reason::BODY_UNREADABLE, "");
                self.postpone(now, position, tally, self.config.unreadable_pause, reason);
            }
        }
    }

    /// The lane belongs to another owner: all open settlements are answered with [`Status::TryAgain`], all deliveries
    /// revoked, and everything else is forgotten.
    pub fn handle_lost(&mut self) {
        if self.lost {
            return;
        }
        self.lost = true;
        self.stream = None;
        let sent = self.sent.take().map(|sent| sent.batch);
        for batch in sent.into_iter().chain([std::mem::take(&mut self.batch)]) {
            self.take_back_answers(batch);
        }
        let held: Vec<u64> = self.in_flight.keys().map(|(_, position)| *position).collect();
        for position in held {
            let offer = self.offer_of(position).expect("in flight");
            self.revoke(offer, RevokeReason::LaneLost);
        }
        self.events.clear();
        self.entities.clear();
        self.ready.clear();
        self.suspects.clear();
        self.in_flight.clear();
        self.timers.clear();
        self.unknown.clear();
        self.detours.clear();
        self.load.clear();
        self.overflowing.clear();
        self.outside.clear();
        self.idle_flush_at = None;
        self.counts.done = 0;
        self.counts.deferred = 0;
        self.counts.parked_entities = 0;
        self.counts.blocked = 0;
        self.counts.answers = 0;
    }

    fn take_back_answers(&mut self, batch: Batch) {
        for effect in batch.effects {
            if let Effect::Answer { tag, .. } = effect {
                self.settled.push_back(Settled { tag, status: Status::TryAgain });
            }
        }
    }
}
