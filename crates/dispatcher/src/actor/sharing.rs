//! Which lanes are here: saying how much work this gateway can take, claiming lanes up to its share, handing over those
//! above it.
//!
//! A handover never waits for a time-out of the session: dispatch on the lane stops, what is in consumers' hands is awaited
//! for a bounded time and then taken back uncounted, everything is written, and just that lane is released, which tells
//! the others. One call about ownership is under way at a time, so that they take effect in the order they were decided in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portero_store::ClaimedLane;
use portero_types::LaneNo;
use tokio::time::Instant;

use super::jobs::broken_write;
use super::{Actor, CLAIM_EVERY, Done, PACE};
use crate::metrics;
use crate::roll::Reported;

/// How long there must be too many lanes here before one is handed over, so that a stream that flaps moves none. Longer than
/// lanes are kept for outcomes that come outside of a stream.
const SETTLED_AFTER: Duration = Duration::from_millis(2_500);
/// How long a handover waits for what is in consumers' hands when balance asks for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same when all consumers here have said goodbye and finish what they have: they may take as long as platforms
/// usually give a process.
const LEAVING_PATIENCE: Duration = Duration::from_secs(30);
/// Lanes that balance hands over at a time.
const MOVES_MAX: usize = 4;
/// Rolls in which the store says that we own lanes that are not here, until they are given up.
const ORPHAN_ROLLS: u32 = 2;

/// What is known and under way about this session's lanes of the subscription.
pub(super) struct Sharing {
    /// A call about ownership is under way.
    busy: bool,
    /// Lanes may be free for us.
    wanted: bool,
    /// Not before this moment is a claim tried, or a changed weight said.
    not_before: Instant,
    /// The weight that the store knows; `None` when that is uncertain.
    said: Option<u32>,
    /// When the last call about ownership ended: an older roll may not show it.
    changed_at: Instant,
    /// A roll came that could not be acted on: another one is asked for as soon as it can.
    missed_roll: bool,
    /// Lanes that are ours and cannot be used, because what is stored of them breaks an invariant.
    broken: BTreeSet<LaneNo>,
    /// The session may own lanes that are not here: they are given up before the next claim.
    may_have_orphans: bool,
    orphan_rolls: u32,
    /// Since when there are too many lanes here.
    over_since: Option<Instant>,
    /// Lanes that are being handed over, with the moment when they are taken from consumers.
    leaving: BTreeMap<LaneNo, Instant>,
}

/// A call about ownership that came back.
pub(super) enum OwnedDone {
    Claimed { weight: u32, result: portero_store::Result<Vec<ClaimedLane>> },
    Said { weight: u32, result: portero_store::Result<()> },
    Released { all: bool, result: portero_store::Result<()> },
}

impl Sharing {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            busy: false,
            wanted: false,
            not_before: now,
            said: Some(0),
            changed_at: now,
            missed_roll: false,
            broken: BTreeSet::new(),
            may_have_orphans: true,
            orphan_rolls: 0,
            over_since: None,
            leaving: BTreeMap::new(),
        }
    }

    pub(super) fn is_leaving(&self, lane: LaneNo) -> bool {
        self.leaving.contains_key(&lane)
    }

    /// When something here has to be looked at again. While nothing may be claimed, no claim is due.
    pub(super) fn due_at(&self, may_claim: bool) -> Option<Instant> {
        if self.busy {
            return None;
        }
        let claim = (self.wanted && may_claim).then_some(self.not_before);
        claim.into_iter().chain(self.leaving.values().min().copied()).min()
    }

    /// Whether a claim is under way or due.
    pub(super) const fn is_claiming(&self) -> bool {
        self.busy || self.wanted
    }

    /// Asks for a claim at once.
    pub(super) fn want(&mut self) {
        self.wanted = true;
        self.not_before = Instant::now();
    }
}

impl Actor {
    /// How much work this gateway can take, relative to others.
    fn weight(&self) -> u32 {
        if self.drain.is_some() {
            return 0;
        }
        let streams = self.streams.values().filter(|stream| !stream.closing);
        let windows = streams.map(|stream| stream.flow.events_max).fold(0, u32::saturating_add);
        if windows == 0 && Instant::now() < self.late_until { 1 } else { windows }
    }

    /// Whether someone needs this subscription's lanes here: a stream, or outcomes that came a moment ago.
    pub(super) fn has_interest(&self) -> bool {
        self.drain.is_none()
            && (self.streams.values().any(|stream| !stream.closing) || Instant::now() < self.late_until)
    }

    /// Claims, says and hands over what is due. Without trust in its session nothing is claimed.
    pub(super) fn share_lanes(&mut self, alive: bool) {
        let interest = self.has_interest();
        if alive && interest {
            self.claim_when_due();
        }
        if !interest && self.sharing.leaving.len() < self.lanes.len() {
            self.hand_over_all(Instant::now() + LEAVING_PATIENCE);
        }
        // First the weight: what is released then has somewhere to go.
        if alive {
            self.say_weight();
        }
        self.hand_over_when_quiet();
    }

    fn claim_when_due(&mut self) {
        let now = Instant::now();
        if !self.sharing.wanted || self.sharing.busy || now < self.sharing.not_before {
            return;
        }
        self.sharing.wanted = false;
        self.sharing.busy = true;
        let weight = self.weight();
        let (store, session) = (self.shared.store.clone(), self.session);
        let (subscription, lanes) = (self.subscription.no, self.subscription.lanes);
        // Lanes that this session has without anyone here holding them (their last actor was dropped in an outage, or giving
        // them up failed) would be nobody's for ever.
        let give_up_first = std::mem::take(&mut self.sharing.may_have_orphans) && self.lanes.is_empty();
        let claim = async move {
            if give_up_first {
                store.release_lanes(session, subscription, None).await?;
            }
            store.claim_lanes(session, subscription, lanes, weight).await
        };
        self.spawn(
            async move { Done::Owned(OwnedDone::Claimed { weight, result: claim.await }) },
            move || Done::Owned(OwnedDone::Claimed { weight, result: Err(broken_write()) }),
        );
    }

    /// Tells the store how much work can be taken here, when that has changed: at once when it comes from nothing or goes to
    /// it, otherwise now and then.
    fn say_weight(&mut self) {
        let weight = self.weight();
        let (now, said) = (Instant::now(), self.sharing.said);
        if self.sharing.busy || said == Some(weight) || (self.sharing.wanted && weight > 0) {
            return;
        }
        if weight > 0 && said != Some(0) && now < self.sharing.not_before {
            return;
        }
        self.sharing.busy = true;
        self.sharing.not_before = now + CLAIM_EVERY;
        let (store, session, subscription) = (self.shared.store.clone(), self.session, self.subscription.no);
        self.spawn(
            async move {
                let result = store.attend(session, subscription, weight).await;
                if result.is_err() {
                    tokio::time::sleep(PACE).await;
                }
                Done::Owned(OwnedDone::Said { weight, result })
            },
            move || Done::Owned(OwnedDone::Said { weight, result: Err(broken_write()) }),
        );
    }

    /// Hands all lanes over, at the given moment without waiting any longer.
    pub(super) fn hand_over_all(&mut self, by: Instant) {
        for lane in self.lanes.keys() {
            let known = self.sharing.leaving.entry(*lane).or_insert(by);
            *known = by.min(*known);
        }
        self.reassign();
    }

    fn hand_over_when_quiet(&mut self) {
        if self.sharing.leaving.is_empty() {
            return;
        }
        self.recall_overdue();
        for (no, lane) in &mut self.lanes {
            if self.sharing.leaving.contains_key(no) {
                lane.hurry_flush();
            }
        }
        self.flush_when_due();
        if self.sharing.busy {
            return;
        }
        let quiet: Vec<LaneNo> = self
            .lanes
            .iter()
            .filter(|(no, lane)| self.sharing.is_leaving(**no) && lane.can_be_handed_over())
            .map(|(no, _)| *no)
            .collect();
        if quiet.is_empty() {
            return;
        }
        for no in &quiet {
            self.lanes.remove(no);
            self.sharing.leaving.remove(no);
        }
        metrics::handed_over(quiet.len());
        self.close_circuit_when_left();
        self.reassign();
        self.release(Some(quiet));
    }

    /// Takes back what consumers still have of lanes whose handover has waited long enough.
    fn recall_overdue(&mut self) {
        let (now, wall) = (Instant::now(), self.now());
        let mut recalled = 0;
        for (no, by) in &mut self.sharing.leaving {
            if *by > now {
                continue;
            }
            // What is released may not be delivered here again, so once is enough; the moment is moved out of the way.
            *by = now + LEAVING_PATIENCE;
            if let Some(lane) = self.lanes.get_mut(no) {
                recalled += lane.stats().in_flight;
                lane.handle_recalled(wall);
            }
        }
        if recalled > 0 {
            metrics::recalled(recalled);
            tracing::info!(subscription.id = %self.subscription.id, deliveries = recalled, "deliveries were taken back, uncounted, to hand their lanes over");
            self.poll_revokes();
        }
    }

    /// Gives lanes up; `None` means all that the session has.
    fn release(&mut self, lanes: Option<Vec<LaneNo>>) {
        self.sharing.busy = true;
        let (store, session, subscription) = (self.shared.store.clone(), self.session, self.subscription.no);
        let all = lanes.is_none();
        self.spawn(
            async move {
                let result = store.release_lanes(session, subscription, lanes.as_deref()).await;
                Done::Owned(OwnedDone::Released { all, result })
            },
            move || Done::Owned(OwnedDone::Released { all, result: Err(broken_write()) }),
        );
    }

    pub(super) fn owned(&mut self, done: OwnedDone) {
        self.sharing.busy = false;
        self.sharing.changed_at = Instant::now();
        self.look_again();
        match done {
            OwnedDone::Claimed { weight, result } => {
                self.sharing.not_before = self.sharing.changed_at + CLAIM_EVERY;
                self.sharing.said = result.is_ok().then_some(weight);
                self.claimed(result);
            }
            OwnedDone::Said { weight, result } => {
                self.sharing.said = result.is_ok().then_some(weight);
                if let Err(error) = result {
                    tracing::warn!(subscription.id = %self.subscription.id, %error, "others could not be told how much work is taken here");
                }
            }
            OwnedDone::Released { all, result } => {
                if all {
                    self.sharing.said = None;
                }
                if let Err(error) = result {
                    self.sharing.may_have_orphans = true;
                    tracing::warn!(subscription.id = %self.subscription.id, %error, "lanes could not be given up; it is tried again");
                }
            }
        }
    }

    /// Asks for another roll when one was missed and can be acted on now.
    fn look_again(&mut self) {
        if !self.sharing.busy && std::mem::take(&mut self.sharing.missed_roll) {
            self.shared.look_at_roll.notify_one();
        }
    }

    /// After a claim that failed, or whose lanes were lost.
    pub(super) fn claim_again(&mut self, orphans: bool) {
        self.sharing.wanted = true;
        self.sharing.not_before = Instant::now() + CLAIM_EVERY;
        self.sharing.may_have_orphans |= orphans;
    }

    /// Acts on this session's part of the roll.
    pub(super) fn reported(&mut self, reported: &Reported) {
        self.end_replaced(reported);
        if reported.share.has_requests {
            self.take_requests();
        }
        // What was said or done since is not in it.
        if self.sharing.busy || reported.asked_at <= self.sharing.changed_at {
            self.sharing.missed_roll = true;
            self.look_again();
            return;
        }
        self.give_up_orphans(usize::from(reported.share.owned));
        let (held, target) = (self.held(), usize::from(reported.share.target));
        if held < target && reported.share.free > 0 {
            self.sharing.want();
        }
        if !self.has_interest() {
            return;
        }
        if held <= target {
            self.sharing.over_since = None;
            if !self.sharing.leaving.is_empty() {
                self.sharing.leaving.clear();
                self.reassign();
            }
            return;
        }
        let now = Instant::now();
        let since = *self.sharing.over_since.get_or_insert(now);
        if now.duration_since(since) >= SETTLED_AFTER {
            self.move_some(held - target);
        }
    }

    /// Begins to hand over some of the lanes that are too many: those with the least in consumers' hands.
    fn move_some(&mut self, too_many: usize) {
        let moves = too_many.min(MOVES_MAX).saturating_sub(self.sharing.leaving.len());
        let mut staying: Vec<(usize, LaneNo)> = self
            .lanes
            .iter()
            .filter(|(no, _)| !self.sharing.is_leaving(**no))
            .map(|(no, lane)| (lane.stats().in_flight, *no))
            .collect();
        staying.sort_unstable();
        let by = Instant::now() + PATIENCE;
        for (_, no) in staying.into_iter().take(moves) {
            self.sharing.leaving.insert(no, by);
        }
        self.reassign();
    }

    /// Gives up what the store says is ours and is not here.
    fn give_up_orphans(&mut self, owned: usize) {
        if owned <= self.held() {
            self.sharing.orphan_rolls = 0;
            return;
        }
        self.sharing.orphan_rolls += 1;
        if self.sharing.orphan_rolls >= ORPHAN_ROLLS {
            self.sharing.orphan_rolls = 0;
            let not_here = |no: &LaneNo| !self.lanes.contains_key(no) && !self.sharing.broken.contains(no);
            let orphans: Vec<LaneNo> = self.subscription.lanes.lanes().filter(not_here).collect();
            tracing::warn!(subscription.id = %self.subscription.id, "lanes that nobody here holds are given up");
            self.release(Some(orphans));
        }
    }

    fn held(&self) -> usize {
        self.lanes.len() + self.sharing.broken.len()
    }

    /// A claimed lane cannot be used.
    pub(super) fn set_lane_apart(&mut self, lane: LaneNo) {
        self.sharing.broken.insert(lane);
    }

    /// All lanes go on that were about to leave for want of streams.
    pub(super) fn keep_lanes(&mut self) {
        self.sharing.leaving.clear();
    }

    /// Forgets handovers of lanes that are not here any more.
    pub(super) fn forget_leaving(&mut self) {
        let lanes = &self.lanes;
        self.sharing.leaving.retain(|no, _| lanes.contains_key(no));
    }
}
