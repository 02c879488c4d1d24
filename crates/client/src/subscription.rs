//! The stream without a handler: take deliveries, settle them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use portero_proto::v1;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::batch::Item;
use crate::delivery::Delivery;
use crate::driver::Command;
use crate::error::Error;
use crate::outcome::{Outcome, SettlementStatus};
use crate::queue::Queue;

/// A subscription's deliveries, across reconnects.
///
/// Each delivery wants one [`settle`](Self::settle): without it the event stays in flight, and its entity waits, until the
/// gateway takes it back. After a reconnect the new stream goes on with what was unsettled, as far as its gateway can; of the
/// rest [`Delivery::revoked`] is cancelled, and those events may come again while older work on them still runs:
/// [`run`](crate::Subscriber::run) keeps these apart, here that is the caller's part. While there is no stream nothing is
/// handed out. Dropping the subscription closes the stream at once; the gateway then offers what was unsettled again.
/// [`close`](Self::close) is the gentle way.
#[derive(Debug)]
pub struct Subscription {
    pub(crate) queue: Queue,
    pub(crate) settler: Settler,
    pub(crate) shutdown: CancellationToken,
    pub(crate) driver: Option<AbortOnDropHandle<Result<(), Error>>>,
}

impl Subscription {
    /// The next delivery; `None` after the shutdown token was cancelled or the subscription ended. Cancel safe.
    ///
    /// # Errors
    /// What ended the subscription for good; told once.
    pub async fn next(&mut self) -> Result<Option<Delivery>, Error> {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => {
                self.settler.goodbye().await;
                Ok(None)
            }
            delivery = self.queue.next() => match delivery {
                Some(delivery) => Ok(Some(delivery)),
                None => self.ended().await.map(|()| None),
            }
        }
    }

    /// Gives a delivery's outcome. The result is a future of the gateway's status; whoever does not need it may drop it.
    /// Not cancel safe: dropped before it is ready, the outcome may not be given.
    pub async fn settle(&self, delivery: &Delivery, outcome: Outcome) -> Settling {
        self.settler.settle(delivery, outcome).await
    }

    /// For settling from other tasks.
    #[must_use]
    pub fn settler(&self) -> Settler {
        self.settler.clone()
    }

    /// Replaces the flow limits of this and later streams; see [`SubscribeOptions`](crate::SubscribeOptions).
    pub async fn set_flow(&self, max_inflight_events: u32, max_inflight_bytes: u64) {
        let max_inflight_events = max_inflight_events.min(crate::options::INFLIGHT_EVENTS_MAX);
        let flow = v1::Flow { max_inflight_events, max_inflight_bytes };
        // A subscription that ended needs no limits.
        let _ = self.settler.commands.send(Command::Flow(flow)).await;
    }

    /// Takes no more deliveries, brings the outcomes given so far home, and ends the stream; at most for `within`. What was
    /// not settled is released uncounted.
    ///
    /// # Errors
    /// What had ended the subscription for good before.
    pub async fn close(mut self, within: Duration) -> Result<(), Error> {
        self.settler.goodbye().await;
        // When the driver is gone already, its result says why.
        let _ = self.settler.commands.send(Command::Close { deadline: Instant::now() + within }).await;
        self.ended().await
    }

    async fn ended(&mut self) -> Result<(), Error> {
        match self.driver.take() {
            Some(driver) => driver.await.unwrap_or(Err(Error::Closed)),
            None => Ok(()),
        }
    }
}

/// Gives outcomes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Settler {
    pub(crate) commands: mpsc::Sender<Command>,
}

impl Settler {
    /// As [`Subscription::settle`].
    pub async fn settle(&self, delivery: &Delivery, outcome: Outcome) -> Settling {
        let (reply, status) = oneshot::channel();
        self.send(delivery, outcome, Some(reply)).await;
        Settling(status)
    }

    /// Without waiting for the status.
    pub(crate) async fn send(
        &self,
        delivery: &Delivery,
        outcome: Outcome,
        reply: Option<oneshot::Sender<SettlementStatus>>,
    ) {
        let item = Item {
            token: delivery.token().clone(),
            receipt_id: delivery.receipt_id().to_owned(),
            outcome,
            reply,
        };
        // When the driver is gone, the dropped reply says that the outcome is lost.
        let _ = self.commands.send(Command::Settle(item)).await;
    }

    pub(crate) async fn goodbye(&self) {
        // A driver that is gone has said goodbye.
        let _ = self.commands.send(Command::Goodbye).await;
    }
}

/// The gateway's status of one outcome, once it has it. Cancel safe.
#[derive(Debug)]
pub struct Settling(oneshot::Receiver<SettlementStatus>);

impl Future for Settling {
    type Output = Result<SettlementStatus, Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_err(|_| Lost)
    }
}

/// The subscription ended before the outcome was recorded, or nothing needed to be: the event may come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the subscription ended before the outcome was recorded")]
pub struct Lost;
