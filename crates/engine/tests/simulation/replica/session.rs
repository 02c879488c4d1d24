//! The session: opened, renewed, and given up by the monotonic clock.

use super::{Asked, SimReplica};
use crate::planted::Planted;
use crate::shared::Shared;
use crate::time::{MS, SEC};
use crate::words::{Answer, Ask, Session};

const RENEW_EVERY: u64 = 3 * SEC;
const RETRY_EVERY: u64 = 500 * MS;
/// How long after the start of the last renewal the session is trusted.
const TRUST: u64 = 9 * SEC;

impl SimReplica {
    /// Whether what the session owns may be acted on now.
    pub(super) fn is_trusted(&self, shared: &Shared) -> bool {
        let is_in_time = shared.now < self.trusted_until || shared.has(Planted::TrustsForEver);
        self.session.is_some() && is_in_time
    }

    pub(super) fn keep_session(&mut self, shared: &mut Shared) {
        if self.renewing || self.closing || shared.now < self.renew_at {
            return;
        }
        self.renewing = true;
        let began = shared.now;
        match self.session {
            Some(session) => {
                let number = shared.ask(self.me, Ask::Renew { session });
                self.asks.insert(number, Asked::Renew { began });
            }
            None => {
                let session = shared.fresh();
                let number = shared.ask(self.me, Ask::Open { session, slot: self.me.slot });
                self.asks.insert(number, Asked::Open { session, began });
            }
        }
    }

    pub(super) fn opened(&mut self, shared: &mut Shared, session: Session, began: u64, answer: &Answer) {
        self.renewing = false;
        self.renew_at = shared.now + RETRY_EVERY;
        if matches!(answer, Answer::Done) {
            self.session = Some(session);
            self.trusted_until = began + TRUST;
            self.renew_at = began + RENEW_EVERY;
            self.roll_at = shared.now;
        }
    }

    pub(super) fn renewed(&mut self, shared: &mut Shared, began: u64, answer: &Answer) {
        self.renewing = false;
        match answer {
            Answer::Done => {
                self.trusted_until = began + TRUST;
                self.renew_at = began + RENEW_EVERY;
            }
            Answer::Fenced => self.lose_session(shared),
            _ => self.renew_at = shared.now + RETRY_EVERY,
        }
    }

    /// The session was fenced: whatever was done for it is over, and another one is opened.
    pub(super) fn lose_session(&mut self, shared: &mut Shared) {
        let me = self.me;
        shared.checker.trace(|| format!("replica {me:?} has lost its session"));
        self.lose_lanes(shared);
        self.end_all(shared);
        self.session = None;
        self.asks.clear();
        self.renewing = false;
        self.renew_at = shared.now;
        self.rolling = false;
        self.claiming = false;
        self.releasing = false;
        self.flushing = false;
        self.reading.clear();
        self.fetching.clear();
        self.side_reading.clear();
        self.leaving.clear();
        if self.draining.is_some() {
            self.alive = false;
        }
    }
}
