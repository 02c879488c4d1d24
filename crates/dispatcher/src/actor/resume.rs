//! A consumer that reconnects goes on with the deliveries that it still works on, instead of getting them again.

use portero_engine::Ending;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Actor, Attached, CLAIM_EVERY};
use crate::dispatcher::AttachError;
use crate::stream::DeliveryToken;

/// Streams that wait for the first claim before they are welcomed.
#[derive(Default)]
pub(super) struct Resuming(Vec<Waiting>);

struct Waiting {
    attached: Attached,
    unsettled: Vec<DeliveryToken>,
    reply: oneshot::Sender<Result<Attached, AttachError>>,
    by: Instant,
}

impl Resuming {
    /// When the next one is welcomed, lanes or not.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.0.iter().map(|waiting| waiting.by).min()
    }
}

impl Actor {
    /// Welcomes a stream: at once, unless it still works on deliveries of lanes that are on their way here.
    pub(super) fn welcome(
        &mut self,
        attached: Attached,
        unsettled: Vec<DeliveryToken>,
        reply: oneshot::Sender<Result<Attached, AttachError>>,
    ) {
        let by = Instant::now() + CLAIM_EVERY;
        self.resuming.0.push(Waiting { attached, unsettled, reply, by });
        self.resume();
    }

    /// Lets deliveries go on whose events are known by now, before anything of their entities is offered, and welcomes the
    /// streams for which that is decided, or that have waited long enough. Without trust in the session nothing goes on.
    pub(super) fn resume(&mut self) {
        let now = Instant::now();
        let alive = self.is_alive();
        for mut waiting in std::mem::take(&mut self.resuming.0) {
            let unsettled = std::mem::take(&mut waiting.unsettled);
            waiting.unsettled = unsettled
                .into_iter()
                .filter(|token| !alive || !self.resume_one(&mut waiting.attached, *token))
                .collect();
            if !waiting.unsettled.is_empty() && now < waiting.by {
                self.resuming.0.push(waiting);
                continue;
            }
            let Waiting { mut attached, reply, .. } = waiting;
            let id = attached.id;
            attached.lanes = self.streams.get(&id).map_or(0, |stream| stream.lanes.len());
            if reply.send(Ok(attached)).is_err() {
                self.ended(id, Ending::Graceful);
            }
        }
    }

    /// Lets one delivery go on at its consumer's new stream, if it may; whether that is decided.
    fn resume_one(&mut self, attached: &mut Attached, token: DeliveryToken) -> bool {
        let now = self.now();
        let Some(stream) = self.streams.get_mut(&attached.id) else { return true };
        let Some(lane) = self.lanes.get_mut(&token.lane) else { return !self.sharing.is_claiming() };
        if lane.has_to_read_for(token.token) {
            return false;
        }
        if !self.in_hand.contains_key(&token) && lane.handle_adopt(now, token.token, attached.id) {
            let bytes = lane.entry(token.token.position).map_or(0, |entry| u64::from(entry.body_bytes));
            stream.events += 1;
            stream.bytes += bytes;
            self.in_hand.insert(token, (attached.id, bytes));
            attached.resumed.push(token);
        }
        true
    }
}
