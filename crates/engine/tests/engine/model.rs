//! The reference model: what must be true of a lane, told without queues, timers, rows or journals. Per event one small
//! record, per entity two questions: which event may start now, and is a decision still unwritten.

use std::collections::{BTreeMap, BTreeSet};

use portero_engine::{
    Delivery, Flush, LaneConfig, Outcome, Status, StreamId, Tag, Token, Undeliverable, reason,
};
use portero_types::{EntityHash, Timestamp};

mod adopting;
mod fates;
mod operating;

/// How an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Acked,
    Dead,
    Expired,
}

/// An event that was read and whose end is not written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) entity: EntityHash,
    pub(crate) end: Option<End>,
    pub(crate) attempts: u32,
    pub(crate) interruptions: u32,
    /// It failed, counted or not, and was not deferred since.
    pub(crate) failed: bool,
    /// The moments between which its next attempt may be due.
    pub(crate) due: (Timestamp, Timestamp),
    /// Deferred, and not failed since.
    pub(crate) aside: bool,
    /// Deferred, and to be offered again.
    pub(crate) woken: bool,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) deliveries: u32,
    pub(crate) offers_before: u32,
    pub(crate) known: bool,
}

/// A delivery that goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) token: Token,
    pub(crate) stream: StreamId,
    pub(crate) until: Timestamp,
}

/// The last delivery of an entity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    pub(crate) token: Token,
    /// Whether the end of its stream cut it short, and how the event stood before that counted against it.
    pub(crate) cut: Option<Cut>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    Gracefully,
    Abnormally { before: Event },
}

/// What waits for one flush.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unwritten {
    pub(crate) entities: BTreeSet<EntityHash>,
    pub(crate) ended: Vec<u64>,
    pub(crate) answers: Vec<(Tag, Status)>,
    pub(crate) dead: BTreeMap<u64, (u32, u32, Option<&'static str>)>,
}

impl Unwritten {
    fn take_back(&mut self, earlier: Self) {
        self.entities.extend(earlier.entities);
        self.ended.splice(0..0, earlier.ended);
        self.answers.splice(0..0, earlier.answers);
        self.dead.extend(earlier.dead);
    }
}

/// When the status of a settlement must come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Now(Status),
    Written(Status),
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) config: LaneConfig,
    pub(crate) epoch: i64,
    pub(crate) events: BTreeMap<u64, Event>,
    /// Ends that are written.
    pub(crate) gone: BTreeMap<u64, End>,
    pub(crate) held: BTreeMap<EntityHash, Held>,
    /// Entities that wait for an operator.
    pub(crate) blocked: BTreeSet<EntityHash>,
    /// What was offered last of an entity in this epoch.
    pub(crate) last: BTreeMap<EntityHash, Last>,
    /// Failures count no attempts.
    pub(crate) frozen: bool,
    pub(crate) open: Unwritten,
    pub(crate) sent: Option<Unwritten>,
    pub(crate) revoked: Vec<Token>,
}

impl Model {
    pub(crate) fn new(config: LaneConfig) -> Self {
        Self {
            config,
            epoch: 1,
            events: BTreeMap::new(),
            gone: BTreeMap::new(),
            held: BTreeMap::new(),
            blocked: BTreeSet::new(),
            last: BTreeMap::new(),
            frozen: false,
            open: Unwritten::default(),
            sent: None,
            revoked: Vec::new(),
        }
    }

    /// The log was read over this position.
    pub(crate) fn read(&mut self, position: u64, entity: EntityHash) {
        if self.gone.contains_key(&position) || self.events.contains_key(&position) {
            return;
        }
        let nothing = Event {
            entity,
            end: None,
            attempts: 0,
            interruptions: 0,
            failed: false,
            due: (Timestamp::EPOCH, Timestamp::EPOCH),
            aside: false,
            woken: false,
            deadline: None,
            deliveries: 0,
            offers_before: 0,
            known: true,
        };
        self.events.insert(position, nothing);
    }

    /// The event that may start now, if any: S1, S2, S3, S5 and the times, in one place.
    fn may_start(&self, entity: EntityHash, now: Timestamp, generously: bool) -> Option<u64> {
        let unwritten = |waiting: &Unwritten| waiting.entities.contains(&entity);
        if self.held.contains_key(&entity)
            || self.blocked.contains(&entity)
            || unwritten(&self.open)
            || self.sent.as_ref().is_some_and(unwritten)
        {
            return None;
        }
        let (position, event) = self.next(entity)?;
        let due = if generously { event.due.0 } else { event.due.1 };
        (event.known && due <= now).then_some(position)
    }

    /// What the entity has to offer next. A failed event keeps everything else of its entity back.
    fn next(&self, entity: EntityHash) -> Option<(u64, Event)> {
        let open = || self.events.iter().filter(|(_, e)| e.entity == entity && e.end.is_none());
        let first = open().find(|(_, event)| !event.aside);
        let failed = first.filter(|(_, event)| event.failed);
        let woken = open().find(|(_, event)| event.aside && event.woken);
        failed.or(woken).or(first).map(|(position, event)| (*position, *event))
    }

    /// The lane starts a delivery: it must be a legal one.
    pub(crate) fn deliver(&mut self, now: Timestamp, stream: StreamId, delivery: &Delivery) {
        let position = delivery.token.position;
        let entity = delivery.entry.entity;
        assert_eq!(delivery.stream, stream, "on the present stream");
        assert_eq!(self.may_start(entity, now, true), Some(position), "only the event whose turn it is");
        let until = now.plus(self.config.max_hold);
        let event = self.events.get_mut(&position).expect("it may start");
        assert_eq!(delivery.alone, event.interruptions >= self.config.isolate_after, "a suspect is alone");
        event.deliveries += 1;
        event.woken = false;
        let token = Token { epoch: portero_types::Epoch(self.epoch), position, delivery: event.deliveries };
        assert_eq!(delivery.token, token);
        assert_eq!(delivery.attempt, event.offers_before + event.deliveries);
        self.held.insert(entity, Held { token, stream, until });
        self.last.insert(entity, Last { token, cut: None });
    }

    /// The lane offers nothing more although there is room: then nothing may be ready, but what has to be alone.
    pub(crate) fn nothing_is_ready(&self, now: Timestamp, is_idle: bool) {
        let entities: BTreeSet<EntityHash> = self.events.values().map(|event| event.entity).collect();
        for entity in entities {
            let ready = self.may_start(entity, now, false);
            let ready = ready.filter(|position| is_idle || !self.is_suspect(*position));
            assert_eq!(ready, None, "{entity:?} waits although it could start");
        }
    }

    pub(crate) fn is_suspect(&self, position: u64) -> bool {
        self.events[&position].interruptions >= self.config.isolate_after
    }

    fn holder(&self, token: Token) -> Option<Held> {
        let event = self.events.get(&token.position)?;
        self.held.get(&event.entity).copied().filter(|held| held.token == token)
    }

    /// A settlement, and the status it must get.
    pub(crate) fn settle(
        &mut self,
        now: Timestamp,
        token: Token,
        outcome: Outcome,
        cursor: u64,
        has_code: bool,
    ) -> Verdict {
        let waiting = self.open.answers.len() + self.sent.as_ref().map_or(0, |sent| sent.answers.len());
        if waiting >= self.config.window_events_max * 4 {
            return Verdict::Now(Status::TryAgain);
        }
        let Some(event) = self.events.get(&token.position).copied() else {
            return Verdict::Now(match self.gone.contains_key(&token.position) {
                true => Status::Already,
                false if token.position > cursor && token.epoch.0 < self.epoch => Status::TryAgain,
                false => Status::UnknownToken,
            });
        };
        let is_ours = token.epoch.0 == self.epoch;
        if is_ours && (token.delivery == 0 || token.delivery > event.deliveries) {
            return Verdict::Now(Status::UnknownToken);
        }
        if event.end.is_some() {
            return Verdict::Written(Status::Already);
        }
        if self.holder(token).is_none() {
            if outcome != Outcome::Ack {
                return Verdict::Now(Status::Stale);
            }
            if let Some(held) = self.held.get(&event.entity)
                && held.token.position == token.position
            {
                self.revoked.push(held.token);
            }
            self.end(token.position, End::Acked);
            let late = !is_ours || event.deliveries > token.delivery;
            return Verdict::Written(if late { Status::DurableLate } else { Status::Durable });
        }
        match outcome {
            Outcome::Ack => self.end(token.position, End::Acked),
            Outcome::Retry { delay } => self.fail(now, token.position, delay, has_code.then_some("CODE")),
            Outcome::Release => {
                self.release(now, token.position);
                return Verdict::Now(Status::Durable);
            }
            Outcome::Reject => {
                let code = if has_code { "CODE" } else { reason::REJECTED };
                self.give_up(token.position, (event.attempts + 1, event.interruptions, Some(code)));
            }
            Outcome::Defer => self.defer(now, token.position),
        }
        Verdict::Written(Status::Durable)
    }

    pub(crate) fn hold(&mut self, now: Timestamp, token: Token, asked: std::time::Duration) -> bool {
        if self.holder(token).is_none() {
            return false;
        }
        let entity = self.events[&token.position].entity;
        let held = self.held.get_mut(&entity).expect("held");
        held.until = held.until.max(now.plus(asked.min(self.config.hold_extension_max)));
        true
    }

    pub(crate) fn undeliverable(&mut self, now: Timestamp, token: Token, why: Undeliverable) {
        if self.holder(token).is_none() {
            return;
        }
        let event = self.events[&token.position];
        match why {
            Undeliverable::NotSent => self.release(now, token.position),
            Undeliverable::BodyGone => self.end(token.position, End::Expired),
            Undeliverable::TooLarge => self.give_up(
                token.position,
                (event.attempts, event.interruptions, Some(reason::TOO_LARGE_FOR_CLIENT)),
            ),
            Undeliverable::Unreadable => self.postpone(now, token.position),
        }
    }

    pub(crate) fn stream_ended(&mut self, now: Timestamp, stream: StreamId, gracefully: bool) {
        let held: Vec<Token> =
            self.held.values().filter(|held| held.stream == stream).map(|held| held.token).collect();
        for token in held {
            let before = self.events[&token.position];
            let cut = if gracefully {
                self.release(now, token.position);
                Cut::Gracefully
            } else {
                self.interrupt(now, token.position);
                Cut::Abnormally { before }
            };
            self.last.insert(before.entity, Last { token, cut: Some(cut) });
        }
    }

    pub(crate) fn entries(&mut self, found: &[u64], missing: &[u64]) {
        for position in found {
            self.events.get_mut(position).expect("it was asked for").known = true;
        }
        for position in missing {
            self.end(*position, End::Expired);
        }
    }

    /// What time brings: holds that expire, deadlines that pass.
    pub(crate) fn time(&mut self, now: Timestamp) {
        let expired: Vec<Token> =
            self.held.values().filter(|held| held.until <= now).map(|held| held.token).collect();
        for token in expired {
            self.revoked.push(token);
            self.fail(now, token.position, None, Some(reason::HOLD_EXPIRED));
        }
        let passed: Vec<u64> = self
            .events
            .iter()
            .filter(|(position, event)| {
                let held = self.held.get(&event.entity).is_some_and(|held| held.token.position == **position);
                let is_past = event.deadline.is_some_and(|deadline| deadline <= now);
                event.end.is_none() && event.aside && event.known && is_past && !held
            })
            .map(|(position, _)| *position)
            .collect();
        for position in passed {
            self.die(position, (0, 0, Some(reason::DEFER_DEADLINE)));
        }
    }

    /// A new flush was made.
    pub(crate) fn sent(&mut self, flush: &Flush) {
        let unwritten = std::mem::take(&mut self.open);
        let dead: BTreeMap<u64, (u32, u32, Option<&str>)> = flush
            .dead
            .iter()
            .map(|letter| {
                (letter.position, (letter.attempts, letter.interruptions, Some(letter.reason_code.as_str())))
            })
            .collect();
        assert_eq!(dead, unwritten.dead, "exactly the dead letters that are due");
        for row in &flush.park {
            let Some(first) = row.positions.first() else { continue };
            let event = self.events.get_mut(first).expect("a parked event is open");
            if event.failed && !self.blocked.contains(&row.entity) {
                assert!(event.due.0 <= row.due_at && row.due_at <= event.due.1, "due within its bounds");
                event.due = (row.due_at, row.due_at);
            }
        }
        self.sent = Some(unwritten);
    }

    /// The flush is written: the statuses that must come now.
    pub(crate) fn written(&mut self) -> Vec<(Tag, Status)> {
        let sent = self.sent.take().expect("a flush is on its way");
        for position in sent.ended {
            let event = self.events.remove(&position).expect("it stays until its end is written");
            let end = event.end.expect("ended");
            assert_eq!(self.gone.insert(position, end), None);
            if end == End::Acked {
                for other in self.events.values_mut().filter(|other| other.entity == event.entity) {
                    other.woken |= other.aside;
                }
            }
        }
        sent.answers
    }

    /// Nothing of the flush was written.
    pub(crate) fn failed(&mut self) {
        let sent = self.sent.take().expect("a flush is on its way");
        self.open.take_back(sent);
    }

    /// All that would be answered if the lane were lost.
    pub(crate) fn open_answers(&self) -> BTreeSet<Tag> {
        let sent = self.sent.iter().flat_map(|sent| &sent.answers);
        self.open.answers.iter().chain(sent).map(|(tag, _)| *tag).collect()
    }
}
