//! What operators ask of lanes: taken from the store by whoever owns them.

use portero_engine::{Action, Requested};
use portero_store::{LaneAction, LaneRequest};

use super::jobs::broken_write;
use super::{Actor, Done};

/// Whether requests are being taken.
#[derive(Default)]
pub(super) struct Requests {
    busy: bool,
    /// Those whose events' entries are still being read.
    early: Vec<LaneRequest>,
}

/// Requests that were taken.
pub(super) struct RequestsDone {
    result: portero_store::Result<Vec<LaneRequest>>,
}

impl Actor {
    pub(super) fn take_requests(&mut self) {
        if self.requests.busy || self.drain.is_some() {
            return;
        }
        self.requests.busy = true;
        let (store, session, subscription) = (self.shared.store.clone(), self.session, self.subscription.no);
        self.spawn(
            async move {
                let result = store.take_requests(session, subscription).await;
                Done::Requests(RequestsDone { result })
            },
            || Done::Requests(RequestsDone { result: Err(broken_write()) }),
        );
    }

    pub(super) fn requests_taken(&mut self, done: RequestsDone) {
        self.requests.busy = false;
        match done.result {
            Ok(requests) => requests.into_iter().for_each(|request| self.fulfil(request)),
            Err(error) => {
                tracing::warn!(subscription.id = %self.subscription.id, %error, "operators' requests could not be taken");
            }
        }
    }

    fn fulfil(&mut self, request: LaneRequest) {
        let now = self.now();
        let action = match request.action {
            LaneAction::Retry => Action::Retry,
            LaneAction::DeadLetter => Action::DeadLetter,
        };
        let done = self.lanes.get_mut(&request.lane).map(|lane| {
            // Another event may have come to the head since it was asked: nobody has seen that one.
            let is_over = action == Action::DeadLetter
                && request.position.is_some_and(|position| lane.head_of(request.entity) != Some(position));
            if is_over { Requested::NotParked } else { lane.handle_request(now, request.entity, action) }
        });
        match done {
            Some(Requested::Done | Requested::InFlight | Requested::NotParked) => tracing::info!(
                subscription.id = %self.subscription.id, lane = %request.lane, action = ?action, by = request.by,
                done = ?done, "an operator asked something of a parked entity"
            ),
            Some(Requested::NotYet) => self.requests.early.push(request),
            // The lane has moved meanwhile: its next owner shall find it.
            None => self.hand_on(request),
        }
    }

    /// Looks again at requests whose events were not known.
    pub(super) fn fulfil_early(&mut self) {
        for request in std::mem::take(&mut self.requests.early) {
            self.fulfil(request);
        }
    }

    fn hand_on(&mut self, request: LaneRequest) {
        let (store, subscription) = (self.shared.store.clone(), self.subscription.no);
        self.spawn(async move { Done::HandedOn(store.request(subscription, request).await) }, || {
            Done::HandedOn(Err(broken_write()))
        });
    }

    pub(super) fn handed_on(&self, result: portero_store::Result<()>) {
        if let Err(error) = result {
            tracing::warn!(subscription.id = %self.subscription.id, %error, "an operator's request was lost as its lane moved");
        }
    }
}
