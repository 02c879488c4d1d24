//! Keeps one subscription alive: connects, runs a stream, and connects again until it is closed or refused for good.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portero_proto::v1;
use rand::rngs::StdRng;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use crate::backoff::Backoff;
use crate::batch::{Batch, Item};
use crate::error::Error;
use crate::held::Held;
use crate::late::{Brought, Late};
use crate::link::{Connect, Link};
use crate::live::Live;
use crate::observer::{Disconnect, Observer};
use crate::outcome::SettlementStatus;
use crate::queue::Queue;
use crate::session::Ended;
use crate::told::Told;

/// Commands that may wait between the application and the driver.
pub(crate) const COMMANDS_MAX: usize = 1_024;

/// What the application asks of the driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// An outcome.
    Settle(Item),
    /// More time for a delivery.
    Hold { token: Bytes, duration: Duration },
    /// New flow limits.
    Flow(v1::Flow),
    /// No more deliveries.
    Goodbye,
    /// All outcomes are given: bring them home until the deadline and end.
    Close { deadline: Instant },
}

/// How far a shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    No,
    Goodbye,
    Close(Instant),
}

/// One subscription.
pub(crate) struct Driver {
    pub(crate) connect: Arc<dyn Connect>,
    /// Everything of Hello but the flow limits, which may change.
    pub(crate) hello: v1::Hello,
    pub(crate) flow: v1::Flow,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) queue: Queue,
    pub(crate) commands: mpsc::Receiver<Command>,
    /// For the deliveries, which may ask for more time.
    pub(crate) sender: mpsc::Sender<Command>,
    pub(crate) rng: StdRng,
    pub(crate) batch: Batch,
    pub(crate) late: Late,
    /// What has no outcome yet.
    pub(crate) held: Held,
    pub(crate) backoff: Backoff,
    pub(crate) told: Told,
    pub(crate) stop: Stop,
    /// A stream that was left while work on its deliveries went on. It stays open until the next one has resumed that work,
    /// so that the gateway does not take the work back in between.
    pub(crate) former: Option<Box<Live>>,
}

impl Driver {
    /// Runs until the subscription is closed (`Ok`) or refused for good. Not cancel safe: dropping it loses outcomes that
    /// are not yet recorded, whose events then come again.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        let result = self.drive().await;
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Settle(item) = command {
                self.keep(item);
            }
        }
        for item in self.batch.take_all().into_iter().chain(self.late.take_all()) {
            self.observer.lost(&item.receipt_id, &item.outcome);
        }
        self.queue.close();
        result
    }

    async fn drive(&mut self) -> Result<(), Error> {
        while self.stop == Stop::No {
            let ended = self.one_stream().await;
            self.queue.pause();
            self.held.stream_ended();
            self.late.recall();
            for item in self.batch.take_all() {
                self.keep(item);
            }
            let wait = match ended {
                Ended::Stopped => break,
                Ended::Closed => {
                    self.observer.disconnected(&Disconnect::Closed, None);
                    // Outcomes of older streams may be left.
                    break;
                }
                Ended::Drained { wait, unfinished } => {
                    self.observer.disconnected(&Disconnect::Drained, Some(wait));
                    self.former = unfinished;
                    wait
                }
                Ended::Failed(error) if error.is_fatal(self.connect.can_renew()) => {
                    self.observer.disconnected(&Disconnect::Failed(&error), None);
                    return Err(error);
                }
                Ended::Failed(error) => {
                    let wait = self.backoff.next(&mut self.rng);
                    self.observer.disconnected(&Disconnect::Failed(&error), Some(wait));
                    self.failing(&error);
                    wait
                }
            };
            self.attend(sleep(wait)).await;
        }
        self.finish_without_stream().await;
        self.leave_former().await;
        Ok(())
    }

    /// Tells why there is no stream, each reason once until there is one again.
    fn failing(&mut self, error: &Error) {
        let subscription = &self.hello.subscription;
        if self.told.is_new(error) {
            tracing::warn!(subscription.id = %subscription, %error, "there is no stream; trying again");
            self.observer.failing(error);
        } else {
            tracing::debug!(subscription.id = %subscription, %error, "there is no stream; trying again");
        }
    }

    /// Ends the stream that was left with unfinished work, in a way that is not held against that work.
    pub(crate) async fn leave_former(&mut self) {
        if let Some(former) = self.former.take() {
            former.farewell().await;
        }
    }

    /// Connects, settles what earlier streams left, and runs a stream.
    async fn one_stream(&mut self) -> Ended {
        let link = match self.attend(self.connect.connect()).await {
            None => return Ended::Stopped,
            Some(Err(error)) => return Ended::Failed(error),
            Some(Ok(link)) => link,
        };
        // First, so that the gateway does not offer again what is done.
        if !self.settle_late(&*link).await {
            return Ended::Stopped;
        }
        Box::pin(self.session(link)).await
    }

    /// Calls until nothing is left or a call fails; `false` when a shutdown began.
    async fn settle_late(&mut self, link: &dyn Link) -> bool {
        while self.late.due(Instant::now()).is_some() {
            let call = self.late.call(link, &self.hello.subscription);
            let Some(answer) = self.attend(call).await else {
                self.late.recall();
                return false;
            };
            let brought = self.late.answered(answer, Instant::now());
            let again = brought.again;
            self.report(brought);
            if again > 0 {
                break;
            }
        }
        true
    }

    /// The rest of a shutdown that has no stream: waits for the last outcomes and settles them by unary calls.
    async fn finish_without_stream(&mut self) {
        let deadline = loop {
            if let Stop::Close(deadline) = self.stop {
                break deadline;
            }
            match self.commands.recv().await {
                Some(command) => self.offline(command),
                None => return,
            }
        };
        let done = timeout_at(deadline, async {
            while !self.late.is_empty() {
                if let Ok(link) = self.connect.connect().await {
                    while self.late.due(Instant::now()).is_some() {
                        let answer = self.late.call(&*link, &self.hello.subscription).await;
                        let brought = self.late.answered(answer, Instant::now());
                        let again = brought.again;
                        self.report(brought);
                        if again > 0 {
                            break;
                        }
                    }
                }
                if !self.late.is_empty() {
                    sleep(self.backoff.next(&mut self.rng)).await;
                }
            }
        });
        if done.await.is_err() {
            self.late.recall();
        }
    }

    /// Waits for something while there is no stream, and takes commands meanwhile; `None` when a shutdown began.
    pub(crate) async fn attend<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        while self.stop == Stop::No {
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.offline(command),
                    None => return None,
                },
                output = &mut work => return Some(output),
            }
        }
        None
    }

    fn offline(&mut self, command: Command) {
        match command {
            Command::Settle(item) => {
                self.held.finish(&item.token);
                self.keep(item);
            }
            // The next stream begins to count anew.
            Command::Hold { .. } => {}
            Command::Flow(flow) => self.flow = flow,
            Command::Goodbye if self.stop == Stop::No => self.stop = Stop::Goodbye,
            Command::Goodbye => {}
            Command::Close { deadline } => self.stop = Stop::Close(deadline),
        }
    }

    /// Keeps an outcome whose stream is over.
    pub(crate) fn keep(&mut self, item: Item) {
        if let Some(lost) = self.late.push(item) {
            self.observer.lost(&lost.receipt_id, &lost.outcome);
        }
    }

    /// Tells what a unary call brought.
    pub(crate) fn report(&mut self, brought: Brought) {
        for item in brought.lost {
            self.observer.lost(&item.receipt_id, &item.outcome);
        }
        self.settled(brought.done, brought.again);
    }

    /// Tells statuses.
    pub(crate) fn settled(&self, done: Vec<(Item, SettlementStatus)>, again: usize) {
        if again > 0 {
            self.observer.resent(again);
        }
        for (item, status) in done {
            self.observer.settled(&item.receipt_id, &item.outcome, status);
            if let Some(reply) = item.reply {
                // Nobody has to wait for it.
                let _ = reply.send(status);
            }
        }
    }
}

#[cfg(test)]
mod tests;
