//! Outcomes come in, statuses and revocations go out.

use portero_engine::{Outcome, Reason, Settlement, Status, Tag};

use super::{Reply, SimReplica};
use crate::planted::Planted;
use crate::shared::Shared;
use crate::words::{Item, LaneToken, ServerFrame, ToConsumer};

impl SimReplica {
    pub(super) fn settle(&mut self, shared: &mut Shared, reply: Reply, items: Vec<Item>) {
        let now = self.wall(shared);
        for item in items {
            self.give_back(&item.token);
            let Some(lane) = self.lanes.get_mut(&item.token.lane) else {
                tell(shared, reply, item, Status::TryAgain);
                continue;
            };
            self.next_tag += 1;
            self.tags.insert(self.next_tag, (reply, item));
            let mut token = item.token.token;
            if shared.has(Planted::TakesOldTokensForNewOnes) {
                token.epoch = lane.epoch();
            }
            let outcome = match item.outcome {
                Outcome::Release if shared.has(Planted::CountsAReleaseAsAFailure) => {
                    Outcome::Retry { delay: None }
                }
                outcome => outcome,
            };
            let settlement = Settlement { token, outcome, reason: Reason::default() };
            lane.handle_settle(now, &mut shared.rng, settlement, Tag(self.next_tag));
        }
    }

    pub(super) fn poll_outputs(&mut self, shared: &mut Shared) {
        let (mut revoked, mut settled) = (Vec::new(), Vec::new());
        for (no, lane) in &mut self.lanes {
            while let Some(revoke) = lane.poll_revoke() {
                revoked.push((LaneToken { lane: *no, token: revoke.token }, revoke));
            }
            settled.extend(std::iter::from_fn(|| lane.poll_settled()));
        }
        for (token, revoke) in revoked {
            self.give_back(&token);
            shared.checker.revoked(token, revoke.reason);
            // What is withdrawn in time never reaches the consumer.
            let was_sent = !self.unsent.remove(&token);
            if let Some(stream) = self.streams.get(&revoke.stream).filter(|_| was_sent) {
                shared.send_to_consumer(stream.conn, ServerFrame::Revoke(token));
            }
        }
        for settled in settled {
            if let Some((reply, item)) = self.tags.remove(&settled.tag.0) {
                tell(shared, reply, item, settled.status);
            }
        }
    }
}

fn tell(shared: &mut Shared, reply: Reply, item: Item, status: Status) {
    shared.checker.answered(&shared.store, shared.now, &item, status);
    match reply {
        Reply::Conn(conn) => shared.send_to_consumer(conn, ServerFrame::Settled(vec![(item, status)])),
        Reply::Client(client) => shared.tell_consumer(client, ToConsumer::Statuses(vec![(item, status)])),
    }
}
