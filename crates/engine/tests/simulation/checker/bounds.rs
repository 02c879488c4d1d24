//! S5 and S6: who is healthy is not delayed, and nothing grows without bound.

use portero_engine::Stats;
use portero_types::LaneNo;

use super::{Checker, Promise};
use crate::profile::Weather;
use crate::time::SEC;
use crate::words::ConnId;

/// How long a healthy event may take from its acceptance to the answer to its ack while nothing is wrong with the system.
const DELAY_MAX: u64 = 3 * SEC;
/// What a lane may hold beyond its limit: pieces of overflows, and what it took over.
const SLACK: usize = 64;

impl Checker {
    pub(super) fn check_room(&mut self, conn: ConnId) {
        let (events, bytes, alone) = self.in_hand(conn);
        if events > self.events_max || (bytes > self.bytes_max && events > 1) {
            self.broken(
                Promise::S6,
                format!("connection {conn} has {events} events and {bytes} bytes in hand"),
            );
        }
        if alone && events > 1 {
            self.broken(
                Promise::S5,
                format!("connection {conn} has more in hand than the one that is to be alone"),
            );
        }
    }

    pub(super) fn check_delay(&mut self, now: u64, lane: LaneNo, n: u64) {
        let Some(fact) = self.fact(lane, n).filter(|fact| fact.is_healthy && !fact.answered) else { return };
        let accepted_at = u64::try_from(fact.entry.accepted_at.as_micros()).unwrap_or(0);
        let delay = now.saturating_sub(accepted_at);
        if delay <= DELAY_MAX {
            return;
        }
        let text = format!("{n} of {:?} took {} ms", fact.entry.entity, delay / 1_000);
        match self.weather {
            Weather::Failing => self.broken(Promise::S5, text),
            Weather::Stalled if !self.spoiled.contains(&lane) => self.broken(Promise::S6, text),
            Weather::Stalled | Weather::Storm | Weather::Planned => {}
        }
    }

    /// The stalled consumer has the lane: its events wait.
    pub(crate) fn spoils(&mut self, lane: LaneNo) {
        self.spoiled.insert(lane);
    }

    /// What a lane holds.
    pub(crate) fn stats(&mut self, lane: LaneNo, stats: &Stats) {
        let held_max = self.config.positions_max + SLACK;
        if stats.window + stats.parked_positions > held_max {
            self.broken(Promise::S6, format!("lane {lane} holds more than {held_max}: {stats:?}"));
        }
    }
}
