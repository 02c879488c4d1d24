//! What goes wrong, and what is done on purpose.

use portero_engine::{Action, ParkedState};
use portero_types::EntityHash;
use rand::RngExt;

use super::World;
use crate::profile::Weather;
use crate::time::{MS, SEC};
use crate::words::{Happening, ToReplica};

impl World {
    pub(super) fn fault(&mut self) {
        if self.shared.healed {
            return;
        }
        let pause = match self.shared.profile.weather {
            Weather::Storm => {
                self.storm();
                self.shared.rng.random_range(500 * MS..6 * SEC)
            }
            Weather::Planned => {
                let slot = self.shared.rng.random_range(0..self.replicas.len() + self.consumers.len());
                match slot.checked_sub(self.replicas.len()) {
                    Some(slot) => self.consumers[slot].leave(&mut self.shared),
                    None => self.terminate(slot),
                }
                self.shared.rng.random_range(SEC..5 * SEC)
            }
            Weather::Stalled => {
                self.consumers[0].stalled = true;
                return;
            }
            Weather::Failing => return,
        };
        self.shared.after(pause, Happening::Fault);
    }

    fn storm(&mut self) {
        let replica = self.shared.rng.random_range(0..self.replicas.len());
        let consumer = self.shared.rng.random_range(0..self.consumers.len());
        match self.shared.rng.random_range(0..25) {
            0..3 => self.kill(replica),
            3..6 => {
                let until = self.shared.now + self.shared.rng.random_range(SEC..25 * SEC);
                self.paused[replica] = self.paused[replica].max(until);
                self.shared.checker.trace(|| format!("replica {replica} is paused until {until}"));
            }
            6..9 => {
                let until = self.shared.now + self.shared.rng.random_range(2 * SEC..22 * SEC);
                self.shared.cut_off.insert(replica, until);
                self.shared.checker.trace(|| format!("replica {replica} is cut off until {until}"));
            }
            9..11 => self.terminate(replica),
            11..13 if self.consumers[consumer].alive => self.consumers[consumer].crash(&mut self.shared),
            13..15 => self.consumers[consumer].leave(&mut self.shared),
            15..21 => {
                if let Some(conn) = self.consumers[consumer].conn() {
                    self.shared.break_conn(conn);
                }
            }
            21 => {
                if let Some(conn) = self.consumers[consumer].conn() {
                    self.shared.silence_conn(conn);
                }
            }
            22 => self.drop_an_event(),
            _ => self.operate(),
        }
    }

    fn kill(&mut self, slot: usize) {
        if self.replicas[slot].alive {
            self.replicas[slot].kill(&mut self.shared);
            self.see_whether_it_ended(slot);
        }
    }

    fn terminate(&mut self, slot: usize) {
        let me = self.replicas[slot].me;
        self.shared.after(MS, Happening::Replica(me, ToReplica::Terminate));
    }

    pub(super) fn down_time(&mut self) -> u64 {
        let longest = if self.shared.chance(0.6) { 600 * MS } else { 16 * SEC };
        self.shared.rng.random_range(50 * MS..longest)
    }

    /// Retention reaches an event that is not over.
    fn drop_an_event(&mut self) {
        let open = self.shared.checker.oldest_open(&self.shared.store);
        if let Some((shard, n)) = open {
            self.shared.checker.trace(|| format!("retention drops {n} of shard {shard}"));
            self.shared.store.drop_event(shard, n);
            self.shared.checker.dropped(shard, n);
        }
    }

    fn operate(&mut self) {
        let action = if self.shared.chance(0.5) { Action::Retry } else { Action::DeadLetter };
        let mut entities = self.shared.store.parked_in(ParkedState::Retry);
        entities.extend(self.shared.store.blocked());
        if !entities.is_empty() {
            let entity = entities[self.shared.rng.random_range(0..entities.len())];
            self.tell_operator(entity, action);
        }
    }

    pub(super) fn tell_operator(&mut self, entity: EntityHash, action: Action) {
        if action == Action::DeadLetter {
            self.shared.checker.may_be_given_up(entity);
        }
        for slot in 0..self.replicas.len() {
            let me = self.replicas[slot].me;
            self.shared.after(MS, Happening::Replica(me, ToReplica::Operator { entity, action }));
        }
    }

    /// From now on nothing goes wrong.
    pub(super) fn heal(&mut self) {
        self.shared.checker.trace(|| "the storm is over".to_owned());
        self.shared.healed = true;
        self.shared.cut_off.clear();
        for consumer in &mut self.consumers {
            if std::mem::take(&mut consumer.stalled) && consumer.alive {
                consumer.crash(&mut self.shared);
            }
        }
    }
}
