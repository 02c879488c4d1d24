//! S3: what is answered as durable is written, and does not come again.

use portero_engine::{Outcome, Status};

use super::{Checker, Promise};
use crate::store::{Place, SimStore};
use crate::words::{Item, Sent};

impl Checker {
    pub(super) fn check_durable(&mut self, store: &SimStore, sent: &Sent) {
        let Some(fact) = self.fact(sent.token.lane, sent.entry.n) else { return };
        let place = store.place(fact.lane, &fact.entry);
        let (n, entity) = (sent.entry.n, sent.entry.entity);
        if fact.answered {
            self.broken(Promise::S3, format!("{n} of {entity:?} was sent after its end was answered"));
        } else if place.is_over() && !fact.is_dropped {
            self.broken(Promise::S3, format!("{n} of {entity:?} was sent though it is {place:?}"));
        }
    }

    /// A consumer is told what became of an outcome.
    pub(crate) fn answered(&mut self, store: &SimStore, now: u64, item: &Item, status: Status) {
        self.trace(|| format!("{now}:   answers {status:?} to {:?} of {:?}", item.outcome, item.token));
        self.seen.late_acks += u64::from(status == Status::DurableLate);
        let is_durable = matches!(status, Status::Durable | Status::DurableLate | Status::Already);
        let Some(fact) = self.fact(item.token.lane, item.token.token.position).filter(|_| is_durable) else {
            return;
        };
        let place = store.place(fact.lane, &fact.entry);
        let ends = status == Status::Already || matches!(item.outcome, Outcome::Ack | Outcome::Reject);
        let is_written = match item.outcome {
            _ if ends => place.is_over() || fact.is_dropped,
            Outcome::Release => true,
            Outcome::Ack | Outcome::Retry { .. } | Outcome::Reject | Outcome::Defer => place != Place::Open,
        };
        if !is_written {
            let text = format!("{status:?} was answered to {item:?} while the event was {place:?}");
            self.broken(Promise::S3, text);
        }
        if ends {
            self.check_delay(now, item.token.lane, item.token.token.position);
            if let Some(fact) = self.fact_mut(item.token.lane, item.token.token.position) {
                fact.answered = true;
            }
        }
    }
}
