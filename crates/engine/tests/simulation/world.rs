//! Replicas, consumers and a store on virtual time, driven by one seeded source of chance.

mod faults;
mod producing;

use std::collections::BTreeSet;

use portero_engine::Action;

use crate::checker::{Promise, Violation};
use crate::consumer::SimConsumer;
use crate::network::Conn;
use crate::planted::Planted;
use crate::profile::Weather;
use crate::replica::SimReplica;
use crate::shared::Shared;
use crate::store::Step;
use crate::time::{MS, SEC};
use crate::words::{Answer, Ask, Happening, Process, ToReplica};

/// How long everything may take to come to rest once nothing goes wrong any more: clocks differ by twenty minutes, and what
/// one replica wrote another one waits for.
const REST_MAX: u64 = 3 * 3_600 * SEC;

/// One run.
pub(crate) struct World {
    pub(crate) shared: Shared,
    replicas: Vec<SimReplica>,
    consumers: Vec<SimConsumer>,
    /// Until when a replica's process stands still.
    paused: Vec<u64>,
    /// Replicas that are gone and will be started again.
    down: BTreeSet<usize>,
    ends_at: u64,
    finals: bool,
    over: bool,
}

impl World {
    pub(crate) fn new(seed: u64, weather: Weather, planted: Option<Planted>, traced: bool) -> Self {
        let mut shared = Shared::new(seed, weather, planted, traced);
        let (replicas, consumers) = (shared.profile.replicas, shared.profile.consumers);
        let replicas: Vec<SimReplica> =
            (0..replicas).map(|slot| SimReplica::new(Process { slot, boot: 1 }, &mut shared)).collect();
        let consumers = (0..consumers).map(|slot| SimConsumer::new(slot, 1, &mut shared)).collect();
        let ends_at = shared.now + shared.profile.lasts;
        let paused = vec![0; replicas.len()];
        let down = BTreeSet::new();
        let mut world =
            Self { shared, replicas, consumers, paused, down, ends_at, finals: false, over: false };
        world.plan_accepts();
        world.shared.after(2 * SEC, Happening::Fault);
        world.shared.queue.push(ends_at, Happening::Look);
        world
    }

    /// Runs to the end, or until a promise is broken.
    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        while !self.over {
            let Some((at, what)) = self.shared.queue.pop() else { break };
            self.shared.now = at;
            self.happen(what);
            if let Some(violation) = self.shared.checker.violation.clone() {
                return Err(violation);
            }
        }
        Ok(())
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Replica(to, what) => self.tell_replica(to, what),
            Happening::Consumer(to, what) => {
                let replicas = self.open_replicas();
                let consumer = &mut self.consumers[to.slot];
                if consumer.me == to {
                    consumer.handle(&mut self.shared, &replicas, what);
                }
            }
            Happening::Ask { from, number, ask, reply_after } => self.ask(from, number, ask, reply_after),
            Happening::Commit { number, reply_after } => self.commit(number, reply_after),
            Happening::Accept => self.accept(),
            Happening::Fault => self.fault(),
            Happening::Restart { slot } => self.restart(slot),
            Happening::Revive { slot } => {
                let boot = self.consumers[slot].me.boot + 1;
                if !self.consumers[slot].alive {
                    self.consumers[slot] = SimConsumer::new(slot, boot, &mut self.shared);
                }
            }
            Happening::Look => self.look(),
        }
    }

    fn tell_replica(&mut self, to: Process, what: ToReplica) {
        let until = self.paused[to.slot];
        if until > self.shared.now {
            self.shared.queue.push(until, Happening::Replica(to, what));
            return;
        }
        let replica = &mut self.replicas[to.slot];
        if replica.me == to {
            replica.handle(&mut self.shared, what);
            self.see_whether_it_ended(to.slot);
        }
    }

    fn see_whether_it_ended(&mut self, slot: usize) {
        if !self.replicas[slot].alive && self.down.insert(slot) {
            let delay = self.down_time();
            self.shared.after(delay, Happening::Restart { slot });
        }
    }

    fn restart(&mut self, slot: usize) {
        let me = self.replicas[slot].me;
        for conn in self.shared.net.of(|conn: &Conn| conn.process == me) {
            self.shared.break_conn(conn);
        }
        self.down.remove(&slot);
        self.paused[slot] = 0;
        let me = Process { slot, boot: me.boot + 1 };
        self.shared.checker.trace(|| format!("replica {me:?} starts"));
        self.replicas[slot] = SimReplica::new(me, &mut self.shared);
    }

    /// Replicas that new streams may go to.
    fn open_replicas(&self) -> Vec<Process> {
        self.replicas.iter().filter(|replica| replica.is_open()).map(|replica| replica.me).collect()
    }

    fn ask(&mut self, from: Process, number: u64, ask: Ask, reply_after: Option<u64>) {
        let now = self.shared.now;
        match self.shared.store.ask(now, from, number, ask.clone()) {
            Step::Answer(answer) => {
                if let Answer::Claimed(claimed) = &answer {
                    for claimed in claimed {
                        self.shared.checker.claimed(&self.shared.store, claimed.lane, now);
                    }
                }
                if let Some(delay) = reply_after {
                    self.shared.answer_after(delay, from, number, answer);
                }
            }
            Step::Wait => self.shared.after(5 * MS, Happening::Ask { from, number, ask, reply_after }),
            Step::Began => {
                let lasts = self.shared.commit_time();
                self.shared.after(lasts, Happening::Commit { number, reply_after });
            }
        }
    }

    fn commit(&mut self, number: u64, reply_after: Option<u64>) {
        let Some(commit) = self.shared.store.commit(number) else { return };
        for (lane, epoch) in commit.changed {
            self.shared.checker.committed(&self.shared.store, self.shared.now, lane, epoch);
        }
        if let Some(delay) = reply_after {
            self.shared.answer_after(delay, commit.from, number, Answer::Written(commit.written));
        }
    }

    /// Faults end at some time; then everything has to come to rest, twice: the second time after one more event of each entity.
    fn look(&mut self) {
        let now = self.shared.now;
        if !self.shared.healed {
            self.heal();
        }
        self.shared.checker.look(&self.shared.store, now);
        for entity in self.shared.store.blocked() {
            self.tell_operator(entity, Action::Retry);
        }
        let is_at_rest = self.consumers.iter().all(SimConsumer::is_quiet)
            && self.shared.checker.is_empty_of_open(&self.shared.store);
        if is_at_rest && self.finals {
            self.over = true;
            return;
        }
        if is_at_rest {
            self.finals = true;
            self.accept_finals();
        } else if now > self.ends_at + REST_MAX {
            let open = self.shared.checker.open(&self.shared.store);
            let quiet: Vec<bool> = self.consumers.iter().map(SimConsumer::is_quiet).collect();
            self.shared
                .checker
                .broken(Promise::S4, format!("this never ends: {open:?}, consumers {quiet:?}"));
        }
        self.shared.after(SEC, Happening::Look);
    }
}
