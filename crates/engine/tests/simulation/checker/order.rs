//! S1 and S2: how deliveries start, and who holds them.

use portero_engine::{ParkedState, RevokeReason};

use super::{Checker, Holder, Promise};
use crate::store::{Place, SimStore};
use crate::words::{ConnId, LaneToken, Sent, Session};

impl Checker {
    /// A delivery is on its way to a consumer.
    pub(crate) fn started(
        &mut self,
        store: &SimStore,
        now: u64,
        session: Session,
        conn: ConnId,
        sent: &Sent,
    ) {
        self.seen.starts += 1;
        self.seen.alone += u64::from(sent.alone);
        let LaneToken { lane, token } = sent.token;
        let (entity, n) = (sent.entry.entity, sent.entry.n);
        self.trace(|| {
            format!("{now}: session {session} sends {entity:?} {n} {:?} on connection {conn}", sent.token)
        });
        if !store.owns(session, lane, token.epoch) {
            self.broken(
                Promise::S2,
                format!("{n} of {entity:?} was sent by a session that has lost its lane"),
            );
        }
        self.check_durable(store, sent);
        self.check_deferred(store, sent);
        for earlier in self.earlier(lane, sent) {
            let Some(fact) = self.fact(lane, earlier) else { continue };
            let place = store.place(lane, &fact.entry);
            if !place.is_over() && place != Place::Deferred && !fact.is_dropped {
                let text = format!("{n} of {entity:?} was sent while {earlier} was {place:?}");
                self.broken(Promise::S1, text);
            }
        }
        let furthest = self.furthest.entry(entity).or_insert(n);
        let goes_back = *furthest > n;
        *furthest = n.max(*furthest);
        let was_deferred = self.fact(lane, n).is_some_and(|fact| fact.defer_said);
        if goes_back && !was_deferred {
            self.broken(Promise::S1, format!("{n} of {entity:?} was sent after a later event of it"));
        }
        let row = store.row(lane).parked.get(&entity);
        if row.is_some_and(|row| row.state == ParkedState::Blocked) {
            self.broken(Promise::S1, format!("{n} of {entity:?} was sent though its entity is blocked"));
        }
        self.hold(store, session, conn, sent);
        // What a consumer had and goes on with is its own affair; what it is sent fits.
        self.check_room(conn);
    }

    fn earlier(&self, lane: portero_types::LaneNo, sent: &Sent) -> Vec<u64> {
        let all = self.entities.get(&sent.entry.entity).map_or(&[][..], Vec::as_slice);
        let is_open = |n: &&u64| self.fact(lane, **n).is_some_and(|fact| !fact.is_over);
        all.iter().take_while(|n| **n < sent.entry.n).filter(is_open).copied().collect()
    }

    /// Someone else works on it from now on, or goes on working.
    fn hold(&mut self, store: &SimStore, session: Session, conn: ConnId, sent: &Sent) {
        let entity = sent.entry.entity;
        let holders = self.holders.entry(entity).or_default();
        holders.retain(|holder| !store.is_fenced(holder.session));
        let other = holders.first().copied();
        let bytes = u64::from(sent.entry.body_bytes);
        holders.push(Holder { token: sent.token, conn, session, bytes, alone: sent.alone });
        if let Some(other) = other {
            let text = format!(
                "{:?} of {entity:?} is held on connection {conn} while {:?} is on {}",
                sent.token, other.token, other.conn
            );
            self.broken(Promise::S2, text);
        }
    }

    /// A consumer goes on with a delivery on a new connection.
    pub(crate) fn adopted(&mut self, store: &SimStore, session: Session, conn: ConnId, sent: &Sent) {
        self.seen.adoptions += 1;
        self.trace(|| {
            format!("  connection {conn} goes on with {:?} of {:?}", sent.token, sent.entry.entity)
        });
        self.check_durable(store, sent);
        let is_done = self.said.range((sent.token, 0)..=(sent.token, u8::MAX)).next().is_some();
        self.let_go(sent.token, false);
        if !is_done {
            self.hold(store, session, conn, sent);
        }
    }

    /// A consumer is told to stop.
    pub(crate) fn revoked(&mut self, token: LaneToken, reason: RevokeReason) {
        self.trace(|| format!("  revoked {token:?}: {reason:?}"));
        self.let_go(token, true);
        if reason == RevokeReason::HoldExpired
            && let Some(fact) = self.fact_mut(token.lane, token.token.position)
        {
            fact.held_too_long += 1;
            fact.woken = None;
        }
    }

    /// It was taken back before it was sent.
    pub(crate) fn not_sent(&mut self, token: LaneToken) {
        self.let_go(token, true);
    }

    /// A stream has ended for at least one of its sides.
    pub(crate) fn stream_over(&mut self, conn: ConnId, now: u64) {
        self.trace(|| format!("{now}: connection {conn} is over"));
        let held: Vec<LaneToken> = self
            .holders
            .values()
            .flatten()
            .filter(|holder| holder.conn == conn)
            .map(|holder| holder.token)
            .collect();
        for token in held {
            self.let_go(token, true);
        }
    }

    /// What a consumer has in hand: deliveries, bytes, and whether one of them is to be alone.
    pub(super) fn in_hand(&self, conn: ConnId) -> (u32, u64, bool) {
        let held = self.holders.values().flatten().filter(|holder| holder.conn == conn);
        held.fold((0, 0, false), |(events, bytes, alone), holder| {
            (events + 1, bytes + holder.bytes, alone || holder.alone)
        })
    }
}
