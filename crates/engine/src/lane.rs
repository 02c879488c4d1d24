//! One lane of one subscription: its state, its figures, and how an entity changes its phase. The inputs and outputs
//! are in the modules below, one for each concern.

mod adopting;
mod detours;
mod ending;
mod fate;
mod flushing;
mod handover;
mod intake;
mod offering;
mod operating;
mod overflow;
mod parking;
mod restoring;
mod settling;
mod side_reads;
mod timing;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use portero_types::{EntityHash, Epoch, TenantNo, Timestamp};

use crate::batch::{Batch, Sent};
use crate::detour::OpenDetour;
use crate::entity::{Entity, Event};
use crate::journal::Journal;
use crate::phase::Phase;
use crate::timers::{Timer, Timers};
use crate::turns::{Turn, Turns};
use crate::{LaneConfig, ParkedState, Revoke, Settled, StreamId};

pub use operating::{Action, Requested};

/// The delivery state of one lane of one subscription, under one epoch.
///
/// # Calling order
///
/// 1. [`Lane::new`] with what the store gave at the claim. Parked and deferred positions come without their log entries:
///    as long as [`Lane::needs_entries`] names positions, read them and call [`Lane::handle_entries`]. Other entities
///    do not wait for that.
/// 2. Feed the log: when [`Lane::is_hungry`], read a page after [`Lane::cursor`] and call
///    [`Lane::handle_page`]. Pages may overlap; they may not leave a gap.
///    Read what [`Lane::side_reads`] names as well, and call [`Lane::handle_side_read`].
/// 3. [`Lane::set_stream`] names the stream that new deliveries go to, [`Lane::handle_adopt`] one that former deliveries go
///    on at. [`Lane::handle_stream_ended`] must follow once for every stream that was ever named, when it ends.
/// 4. After **every** `handle_*` and `set_stream`, ask the outputs until they are empty, in any order:
///    [`Lane::poll_revoke`], [`Lane::poll_settled`], [`Lane::poll_delivery`] (while the stream has room), and
///    [`Lane::poll_flush`] when it is time to write. When room is left and nothing is offered, [`Lane::waits_for`] tells
///    whether something would be with more of it.
/// 5. A polled flush must be answered by exactly one [`Lane::handle_flushed`]; until then there is no other flush.
/// 6. Call [`Lane::handle_timeout`] at the moment that [`Lane::poll_timeout`] names; it changes with every other call.
///    Calling early or late is harmless.
/// 7. After [`FlushResult::Lost`](crate::FlushResult::Lost) or [`Lane::handle_lost`] the lane is over: it answers what is
///    open and then stays silent.
///
/// `now` is wall time and should not go backwards by much: timers wait for it.
///
/// Everything is synchronous; there is nothing to cancel. Memory is bounded by [`LaneConfig::positions_max`] events, plus
/// four waiting statuses for each event of the window; settlements beyond that are answered with
/// [`Status::TryAgain`](crate::Status::TryAgain).
#[derive(Debug)]
pub struct Lane {
    config: LaneConfig,
    epoch: Epoch,
    stream: Option<StreamId>,
    journal: Journal,
    detours: BTreeMap<TenantNo, OpenDetour>,
    /// Unsettled events in the window by tenant; those in detours are not in it.
    load: HashMap<TenantNo, usize>,
    /// Entities with an overflow.
    overflowing: BTreeSet<EntityHash>,
    /// Every position that the lane holds. A `Done` event leaves when the flush that says so is written.
    events: HashMap<u64, Event>,
    /// Every entity of those events, unless all of them are `Done` and nothing blocks it.
    entities: HashMap<EntityHash, Entity>,
    /// Entities in phase `Ready` by turn.
    ready: Turns,
    /// The same of those whose next event has to be alone on its stream.
    suspects: Turns,
    /// Whether the last delivery was of those: they and the others take turns.
    suspect_was_last: bool,
    /// Failures count no attempts.
    frozen: bool,
    /// Entities in phase `InFlight` by stream and position.
    in_flight: BTreeMap<(StreamId, u64), EntityHash>,
    timers: Timers,
    /// Events of which no entry is known.
    unknown: BTreeSet<u64>,
    /// Parked and deferred events.
    outside: BTreeSet<u64>,
    /// Last number given to a turn or a decision.
    serial: u64,
    batch: Batch,
    sent: Option<Sent>,
    seq: u64,
    /// Watermark of the last flush that was made and has not failed.
    flushed_watermark: u64,
    /// When a watermark that moved without settlements is to be written.
    idle_flush_at: Option<Timestamp>,
    settled: VecDeque<Settled>,
    revoked: VecDeque<Revoke>,
    counts: Counts,
    lost: bool,
}

/// Running figures, so that nobody has to walk the maps for them.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Events in place `Done`.
    done: usize,
    /// Events in place `Deferred`.
    deferred: usize,
    /// Entities with a head.
    parked_entities: usize,
    /// Those of them that are blocked.
    blocked: usize,
    /// Statuses that wait for a flush.
    answers: usize,
    expired: u64,
    dead: u64,
}

/// Figures for metrics and heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Last position that was read.
    pub cursor: u64,
    /// Position that the next flush would write.
    pub watermark: u64,
    /// Unsettled events in the window.
    pub window: usize,
    /// Deliveries in consumers' hands.
    pub in_flight: usize,
    /// Entities out of the window.
    pub parked_entities: usize,
    /// Those of them that wait for an operator.
    pub blocked_entities: usize,
    /// Events out of the window, deferred ones included.
    pub parked_positions: usize,
    /// Deferred events.
    pub deferred: usize,
    /// Tenants with a detour.
    pub detours: usize,
    /// Entities with an overflow.
    pub overflows: usize,
    /// When the oldest unsettled event was accepted; `None` when there is none, or its entry is not known yet.
    pub oldest_unsettled: Option<Timestamp>,
    /// Events that retention dropped before they were settled, since the lane was made. Counted when it is written.
    pub expired: u64,
    /// Dead letters since the lane was made. Counted when they are written.
    pub dead: u64,
}

impl Lane {
    /// The epoch under which the lane was claimed.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Up to which position the log was read, for all tenants without a detour.
    #[must_use]
    pub const fn cursor(&self) -> u64 {
        self.journal.cursor()
    }

    /// Up to which position everything was read.
    #[must_use]
    pub fn read_through(&self) -> u64 {
        self.journals().map(Journal::cursor).min().unwrap_or(0)
    }

    /// Whether nothing is in a consumer's hands and no change waits to be written: then the lane can be handed over. An
    /// idle watermark may still be unwritten; see [`Lane::hurry_flush`].
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.in_flight.is_empty() && self.batch.is_empty() && self.sent.is_none()
    }

    /// Whether the lane was lost.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        self.lost
    }

    /// Figures for metrics and heartbeats. Cheap.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let oldest = self.journals().filter_map(Journal::oldest).chain(self.outside.first().copied()).min();
        Stats {
            cursor: self.journal.cursor(),
            watermark: self.journal.watermark(),
            window: self.journals().map(Journal::window_len).sum(),
            in_flight: self.in_flight.len(),
            parked_entities: self.counts.parked_entities,
            blocked_entities: self.counts.blocked,
            parked_positions: self.outside.len(),
            deferred: self.counts.deferred,
            detours: self.detours.len(),
            overflows: self.overflowing.len(),
            oldest_unsettled: oldest
                .and_then(|position| self.event(position).entry)
                .map(|entry| entry.accepted_at),
            expired: self.counts.expired,
            dead: self.counts.dead,
        }
    }

    /// The lane's own journal and those of its detours.
    fn journals(&self) -> impl Iterator<Item = &Journal> {
        std::iter::once(&self.journal).chain(self.detours.values().map(|detour| &detour.journal))
    }

    fn event(&self, position: u64) -> &Event {
        self.events.get(&position).expect("every open position has its event")
    }

    fn event_mut(&mut self, position: u64) -> &mut Event {
        self.events.get_mut(&position).expect("every open position has its event")
    }

    fn entity_mut(&mut self, entity: EntityHash) -> &mut Entity {
        self.entities.get_mut(&entity).expect("every open event has its entity")
    }

    /// The next turn of a known event's tenant.
    fn turn_of(&mut self, position: u64) -> Turn {
        let tenant = self.event(position).entry.expect("only known events take turns").tenant;
        self.ready.give(tenant)
    }

    const fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// The only way in which an entity's phase changes: leaves the old phase's queue, map and timer, and enters those
    /// of the new one.
    fn enter(&mut self, entity: EntityHash, next: Phase) {
        let Self { entities, ready, suspects, in_flight, timers, config, .. } = self;
        let state = entities.get_mut(&entity).expect("every open event has its entity");
        debug_assert!(state.phase.may_become(&next), "{:?} may not become {next:?}", state.phase);
        match state.phase {
            Phase::Ready { turn } => {
                ready.leave(turn);
                suspects.leave(turn);
                if matches!(next, Phase::InFlight(_)) {
                    ready.has_served(turn);
                }
            }
            Phase::InFlight(offer) => {
                in_flight.remove(&(offer.stream, offer.token.position));
            }
            Phase::Idle | Phase::Fetching | Phase::Settling { .. } | Phase::Waiting { .. } => {}
        }
        if let Some(at) = state.timer.take() {
            timers.cancel(at, Timer::Entity(entity));
        }
        match next {
            Phase::Ready { turn } => {
                let line = if state.is_suspect(config.isolate_after) { suspects } else { ready };
                line.enter(turn, entity);
            }
            Phase::InFlight(offer) => {
                in_flight.insert((offer.stream, offer.token.position), entity);
                let age_at = offer.started_at.plus(config.window_age_max);
                state.timer =
                    Some(if state.head.is_none() { age_at.min(offer.hold_until) } else { offer.hold_until });
            }
            Phase::Waiting { until } => state.timer = Some(until),
            Phase::Idle | Phase::Fetching | Phase::Settling { .. } => {}
        }
        if let Some(at) = state.timer {
            timers.set(at, Timer::Entity(entity));
        }
        state.phase = next;
    }

    /// Lets an entity whose hands are free do what comes next, or forgets it when there is nothing left.
    fn advance(&mut self, entity: EntityHash, now: Timestamp) {
        let Some(state) = self.entities.get(&entity) else { return };
        let phase = state.phase;
        let next = match state.candidate() {
            None => Phase::Idle,
            Some((position, _)) if self.event(position).entry.is_none() => Phase::Fetching,
            Some((_, Some(until))) if until > now => Phase::Waiting { until },
            Some((position, _)) => Phase::Ready { turn: self.turn_of(position) },
        };
        let stays = matches!((phase, next), (Phase::Idle, Phase::Idle) | (Phase::Fetching, Phase::Fetching));
        if !stays {
            self.enter(entity, next);
        }
        if self.entities.get(&entity).is_some_and(Entity::is_empty) {
            self.entities.remove(&entity);
        }
    }
}
