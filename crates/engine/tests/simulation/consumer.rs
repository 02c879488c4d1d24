//! A consumer: works on what it is given, says what became of it until it is answered, comes and goes in every way.

mod handling;
mod linking;

use std::collections::BTreeMap;

use portero_engine::{Entry, Outcome, Status};

use crate::shared::Shared;
use crate::time::{MS, SEC};
use crate::words::{Client, ConnId, Happening, Item, LaneToken, Process, ServerFrame, ToConsumer};

/// How long an outcome waits for its answer before it is sent again.
const RESEND_AFTER: u64 = 5 * SEC;
/// How long work goes on without a stream.
const ORPHANED_MAX: u64 = 6 * SEC;
/// How often one that leaves looks whether it is done.
const LEAVING_STEP: u64 = 200 * MS;

pub(crate) struct SimConsumer {
    pub(crate) me: Client,
    pub(crate) alive: bool,
    /// Reads nothing after it was welcomed.
    pub(crate) stalled: bool,
    /// Ignores that it is told to stop.
    zombie: bool,
    link: Link,
    work: BTreeMap<LaneToken, Work>,
    unanswered: BTreeMap<LaneToken, Unanswered>,
    leaving: Option<Leaving>,
    /// Where its last stream went.
    last: Option<Process>,
    /// When the next wake-up is planned.
    wake_at: Option<u64>,
}

/// A planned end.
#[derive(Clone, Copy)]
struct Leaving {
    since: u64,
    /// What is not done in time is released; otherwise it is left to the end of the stream.
    releases: bool,
}

enum Link {
    /// Not before this moment.
    Down { next_try: u64, since: u64 },
    /// Not welcomed yet.
    Greeting { conn: ConnId, until: u64 },
    /// Asked to leave at the given moment.
    Up { conn: ConnId, draining: Option<u64> },
}

struct Work {
    entry: Entry,
    done_at: u64,
}

impl Work {
    const fn never_ends(&self) -> bool {
        self.done_at >= NEVER
    }
}

/// Further away than any run lasts.
const NEVER: u64 = 1 << 50;

struct Unanswered {
    outcome: Outcome,
    resend_at: u64,
}

impl SimConsumer {
    pub(crate) fn new(slot: usize, boot: u64, shared: &mut Shared) -> Self {
        let zombie = shared.is_stormy() && shared.chance(0.25);
        let next_try = shared.now + MS;
        let mut consumer = Self {
            me: Client { slot, boot },
            alive: true,
            stalled: false,
            zombie,
            link: Link::Down { next_try, since: next_try },
            work: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            leaving: None,
            last: None,
            wake_at: None,
        };
        consumer.plan(shared);
        consumer
    }

    /// Whether every outcome was answered and nothing is in hand.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.alive || (self.work.is_empty() && self.unanswered.is_empty())
    }

    pub(crate) fn handle(&mut self, shared: &mut Shared, replicas: &[Process], what: ToConsumer) {
        if !self.alive {
            return;
        }
        match what {
            ToConsumer::Wake => self.wake_at = None,
            ToConsumer::Frame { conn, frame } => {
                if shared.net.carries(conn) && self.conn() == Some(conn) {
                    self.frame(shared, conn, frame);
                }
            }
            ToConsumer::Broken { conn } => {
                if self.conn() == Some(conn) {
                    self.unlink(shared, conn);
                }
            }
            ToConsumer::Statuses(statuses) => self.statuses(shared, statuses),
        }
        self.advance(shared, replicas);
    }

    pub(crate) const fn conn(&self) -> Option<ConnId> {
        match self.link {
            Link::Down { .. } => None,
            Link::Greeting { conn, .. } | Link::Up { conn, .. } => Some(conn),
        }
    }

    fn frame(&mut self, shared: &mut Shared, conn: ConnId, frame: ServerFrame) {
        match frame {
            ServerFrame::Welcome { resumed } => {
                self.link = Link::Up { conn, draining: None };
                if !self.zombie {
                    self.work.retain(|token, _| resumed.contains(token));
                }
            }
            ServerFrame::Deliver(items) => {
                for sent in items {
                    self.begin(shared, &sent);
                }
            }
            ServerFrame::Settled(statuses) => self.statuses(shared, statuses),
            ServerFrame::Revoke(token) => {
                if !self.zombie || self.work.get(&token).is_some_and(Work::never_ends) {
                    self.work.remove(&token);
                }
            }
            ServerFrame::Drain => {
                self.link = Link::Up { conn, draining: Some(shared.now) };
            }
            ServerFrame::End => self.unlink(shared, conn),
        }
    }

    fn statuses(&mut self, shared: &mut Shared, statuses: Vec<(Item, Status)>) {
        for (item, status) in statuses {
            let Some(waiting) = self.unanswered.get_mut(&item.token) else { continue };
            if status == Status::TryAgain {
                waiting.resend_at = shared.now + 300 * MS;
            } else {
                self.unanswered.remove(&item.token);
            }
        }
    }

    fn advance(&mut self, shared: &mut Shared, replicas: &[Process]) {
        self.finish_work(shared);
        if !self.alive {
            return;
        }
        self.resend(shared, replicas);
        self.leave_when_done(shared);
        if self.alive {
            self.relink(shared, replicas);
            self.plan(shared);
        }
    }

    /// Plans the next moment at which there is something to do.
    fn plan(&mut self, shared: &mut Shared) {
        let link = match self.link {
            Link::Down { next_try, .. } => Some(next_try),
            Link::Up { draining, .. } => draining.map(|_| shared.now + LEAVING_STEP),
            Link::Greeting { until, .. } => Some(until),
        };
        let leaving = self.leaving.map(|_| shared.now + LEAVING_STEP);
        let work = self.work.values().map(|work| work.done_at);
        let resend = self.unanswered.values().map(|waiting| waiting.resend_at);
        let Some(next) = work.chain(resend).chain(link).chain(leaving).min() else { return };
        let next = next.max(shared.now + MS / 10);
        if self.wake_at.is_none_or(|at| next < at) {
            self.wake_at = Some(next);
            shared.queue.push(next, Happening::Consumer(self.me, ToConsumer::Wake));
        }
    }
}
