//! Streams come and go.

use portero_engine::Outcome;
use rand::RngExt;

use super::{Leaving, Link, ORPHANED_MAX, SimConsumer};
use crate::profile::Weather;
use crate::shared::Shared;
use crate::time::{MS, SEC};
use crate::words::{ClientFrame, ConnId, Happening, LaneToken, Process};

impl SimConsumer {
    /// The stream is over; the work goes on for a while.
    pub(super) fn unlink(&mut self, shared: &mut Shared, conn: ConnId) {
        shared.close_conn(conn);
        self.work.retain(|_, work| !work.never_ends());
        let delay = shared.rng.random_range(10 * MS..400 * MS);
        self.link = Link::Down { next_try: shared.now + delay, since: shared.now };
        for waiting in self.unanswered.values_mut() {
            waiting.resend_at = waiting.resend_at.min(shared.now + 50 * MS);
        }
    }

    pub(super) fn relink(&mut self, shared: &mut Shared, replicas: &[Process]) {
        match self.link {
            // Asked to leave: at once when nothing is in hand, and with what is released when it takes too long.
            Link::Up { conn, draining: Some(since) } => {
                if since + 2 * SEC <= shared.now {
                    self.release_rest(shared);
                }
                if self.is_quiet() || since + 4 * SEC <= shared.now {
                    shared.send_to_replica(conn, ClientFrame::Close);
                    self.link = Link::Down { next_try: shared.now + 20 * MS, since: shared.now };
                }
            }
            Link::Greeting { conn, until } if until <= shared.now => {
                shared.break_conn(conn);
                self.link = Link::Down { next_try: shared.now, since: shared.now };
            }
            Link::Up { .. } | Link::Greeting { .. } | Link::Down { .. } => {}
        }
        let Link::Down { next_try, since } = self.link else { return };
        if since + ORPHANED_MAX <= shared.now && !self.zombie {
            self.work.clear();
        }
        if next_try > shared.now {
            return;
        }
        if self.leaving.is_some() || replicas.is_empty() {
            self.link = Link::Down { next_try: shared.now + 200 * MS, since };
            return;
        }
        let may_move = matches!(shared.profile.weather, Weather::Storm | Weather::Planned);
        let to = match self.last.filter(|last| replicas.contains(last)) {
            Some(last) if shared.chance(0.6) => last,
            _ if may_move => replicas[shared.rng.random_range(0..replicas.len())],
            _ => replicas[self.me.slot % replicas.len()],
        };
        self.last = Some(to);
        let conn = shared.connect(self.me, to);
        let unsettled: Vec<LaneToken> = self.work.keys().copied().collect();
        let (events_max, bytes_max) = (shared.profile.events_max, shared.profile.bytes_max);
        shared.send_to_replica(conn, ClientFrame::Hello { unsettled, events_max, bytes_max });
        self.link = Link::Greeting { conn, until: shared.now + 6 * SEC };
    }

    /// Ends without a word.
    pub(crate) fn crash(&mut self, shared: &mut Shared) {
        let me = self.me;
        shared.checker.trace(|| format!("consumer {me:?} crashes"));
        self.alive = false;
        if let Some(conn) = self.conn() {
            if shared.is_stormy() && shared.chance(0.2) {
                shared.checker.stream_over(conn, shared.now);
                shared.silence_conn(conn);
            } else {
                shared.break_conn(conn);
            }
        }
        self.plan_revival(shared);
    }

    /// Ends as planned: finishes what it can in a second, releases the rest, and says goodbye.
    pub(crate) fn leave(&mut self, shared: &mut Shared) {
        if !self.alive || self.leaving.is_some() {
            return;
        }
        let me = self.me;
        shared.checker.trace(|| format!("consumer {me:?} leaves"));
        if let Some(conn) = self.conn() {
            shared.send_to_replica(conn, ClientFrame::Goodbye);
        }
        let releases = shared.chance(0.5);
        self.leaving = Some(Leaving { since: shared.now, releases });
        self.plan(shared);
    }

    pub(super) fn leave_when_done(&mut self, shared: &mut Shared) {
        let Some(Leaving { since, releases }) = self.leaving else { return };
        let is_over_time = since + SEC <= shared.now;
        if is_over_time && releases {
            self.release_rest(shared);
        }
        if self.is_quiet() || (is_over_time && !releases) || since + 6 * SEC <= shared.now {
            if let Some(conn) = self.conn() {
                shared.send_to_replica(conn, ClientFrame::Close);
            }
            self.alive = false;
            self.plan_revival(shared);
        }
    }

    fn release_rest(&mut self, shared: &mut Shared) {
        let rest: Vec<LaneToken> = self.work.keys().copied().collect();
        for token in rest {
            self.work.remove(&token);
            self.say(shared, token, Outcome::Release);
        }
    }

    fn plan_revival(&self, shared: &mut Shared) {
        let delay = shared.rng.random_range(300 * MS..4 * SEC);
        shared.after(delay, Happening::Revive { slot: self.me.slot });
    }
}
