//! Work, and what is said of it.

use std::time::Duration;

use portero_engine::{Entry, Outcome};
use rand::RngExt;

use super::{NEVER, RESEND_AFTER, SimConsumer, Unanswered, Work};
use crate::checker::Promise;
use crate::ledger::Nature;
use crate::profile::Weather;
use crate::shared::Shared;
use crate::store::Place;
use crate::time::{MS, SEC};
use crate::words::{ClientFrame, Item, LaneToken, Process, Sent};

impl SimConsumer {
    pub(super) fn begin(&mut self, shared: &mut Shared, sent: &Sent) {
        if self.stalled {
            return;
        }
        let shard = shared.shard_of(sent.token.lane);
        let is_planned = shared.profile.weather == Weather::Planned && !shared.healed;
        let lasts = match shared.ledger.nature(shard, sent.entry.n) {
            Nature::Slow => shared.rng.random_range(8 * SEC..30 * SEC),
            Nature::Stuck(_) => {
                shared.ledger.wear(shard, sent.entry.n);
                NEVER
            }
            _ if shared.is_stormy() && shared.chance(0.25) => shared.rng.random_range(50 * MS..8 * SEC),
            _ if is_planned && shared.chance(0.15) => shared.rng.random_range(50 * MS..4 * SEC),
            _ => shared.rng.random_range(MS..10 * MS),
        };
        self.work.insert(sent.token, Work { entry: sent.entry, done_at: shared.now + lasts });
    }

    pub(super) fn finish_work(&mut self, shared: &mut Shared) {
        let done: Vec<(LaneToken, Entry)> = self
            .work
            .iter()
            .filter(|(_, work)| work.done_at <= shared.now)
            .map(|(token, work)| (*token, work.entry))
            .collect();
        for (token, entry) in done {
            self.work.remove(&token);
            let Some(outcome) = self.outcome(shared, token, &entry) else {
                self.crash(shared);
                return;
            };
            self.say(shared, token, outcome);
        }
    }

    /// What becomes of an event; `None` when it ends its consumer.
    fn outcome(&self, shared: &mut Shared, token: LaneToken, entry: &Entry) -> Option<Outcome> {
        let shard = shared.shard_of(token.lane);
        let nature = shared.ledger.nature(shard, entry.n);
        if shared.is_stormy() && shared.chance(0.02) {
            return Some(Outcome::Release);
        }
        match nature {
            Nature::Flaky(_) | Nature::Poison => {
                shared.ledger.wear(shard, entry.n);
                let delay = shared.rng.random_range(0..3_000);
                let delay = shared.rng.random_bool(0.5).then(|| Duration::from_millis(delay));
                return Some(Outcome::Retry { delay });
            }
            Nature::Rejected => return Some(Outcome::Reject),
            Nature::Killer(_) => {
                shared.ledger.wear(shard, entry.n);
                return None;
            }
            Nature::Early if shared.ledger.is_ready(entry) => {}
            Nature::Early | Nature::NeverReady => {
                shared.ledger.put_off(shard, entry.n);
                return Some(Outcome::Defer);
            }
            Nature::Fine | Nature::Slow | Nature::Stuck(_) => {}
        }
        if !shared.ledger.apply(shard, entry)
            && shared.store.place(token.lane, entry) != Place::Dead
            && !shared.store.is_dropped(shard, entry.n)
        {
            let text = format!("{} of {:?} came after a later event had been applied", entry.n, entry.entity);
            shared.checker.broken(Promise::S1, text);
        }
        Some(Outcome::Ack)
    }

    pub(super) fn say(&mut self, shared: &mut Shared, token: LaneToken, outcome: Outcome) {
        let item = Item { token, outcome };
        shared.checker.said(&item);
        if let Some(conn) = self.conn() {
            shared.send_to_replica(conn, ClientFrame::Settle(vec![item]));
        }
        let wait = if self.conn().is_some() { RESEND_AFTER } else { MS };
        self.unanswered.insert(token, Unanswered { outcome, resend_at: shared.now + wait });
    }

    /// What was not answered goes to any replica, outside of the stream.
    pub(super) fn resend(&mut self, shared: &mut Shared, replicas: &[Process]) {
        let now = shared.now;
        let due: Vec<Item> = self
            .unanswered
            .iter_mut()
            .filter(|(_, waiting)| waiting.resend_at <= now)
            .map(|(token, waiting)| {
                waiting.resend_at = now + RESEND_AFTER;
                Item { token: *token, outcome: waiting.outcome }
            })
            .collect();
        if !due.is_empty() && !replicas.is_empty() {
            let to = replicas[shared.rng.random_range(0..replicas.len())];
            shared.unary(self.me, to, due);
        }
    }
}
