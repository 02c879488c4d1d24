//! Calls the handler: many entities at a time, one event per entity, panics caught, shutdown in order.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

use crate::delivery::{Delivery, Entity};
use crate::error::Error;
use crate::observer::Observer;
use crate::options::SubscribeOptions;
use crate::outcome::Outcome;
use crate::subscription::{Settler, Subscription};

/// How long dropped handlers may take to let go (they run to their next `await`).
const ABORT: Duration = Duration::from_secs(1);
/// How long the last outcomes may take to be recorded.
const CLOSE: Duration = Duration::from_secs(5);

/// A handler's result.
struct Done {
    delivery: Delivery,
    outcome: Outcome,
    took: Duration,
    panicked: bool,
}

/// An entity with a running handler.
struct Work {
    delivery: Delivery,
    /// Offers of the same entity that came on a newer stream while the handler ran.
    waiting: VecDeque<Delivery>,
}

struct Runner<H> {
    settler: Settler,
    observer: Arc<dyn Observer>,
    handler: Arc<H>,
    tasks: JoinSet<Done>,
    working: HashMap<Entity, Work>,
}

/// Runs until the shutdown is complete (`Ok`) or the subscription is refused for good.
pub(crate) async fn run<H, F>(
    mut subscription: Subscription,
    options: SubscribeOptions,
    handler: H,
) -> Result<(), Error>
where
    H: Fn(Delivery) -> F + Send + Sync + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    let mut runner = Runner {
        settler: subscription.settler(),
        observer: Arc::clone(&options.observer),
        handler: Arc::new(handler),
        tasks: JoinSet::new(),
        working: HashMap::new(),
    };
    loop {
        let room = runner.tasks.len() < options.concurrency;
        tokio::select! {
            Some(done) = runner.tasks.join_next() => runner.finished(done, &subscription).await,
            delivery = subscription.next(), if room => match delivery? {
                Some(delivery) => runner.offer(delivery),
                None => break,
            },
            // With all handlers busy nothing else would notice.
            () = options.shutdown.cancelled(), if !room => break,
        }
    }
    runner.wind_down(options.shutdown_deadline).await;
    subscription.close(CLOSE).await
}

impl<H, F> Runner<H>
where
    H: Fn(Delivery) -> F + Send + Sync + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    fn offer(&mut self, delivery: Delivery) {
        match self.working.get_mut(&delivery.entity()) {
            None => self.start(delivery),
            Some(work) => {
                work.waiting.retain(|waiting| !waiting.revoked().is_cancelled());
                work.waiting.push_back(delivery);
            }
        }
    }

    fn start(&mut self, delivery: Delivery) {
        self.working.insert(delivery.entity(), Work { delivery: delivery.clone(), waiting: VecDeque::new() });
        let handler = Arc::clone(&self.handler);
        self.tasks.spawn(async move {
            let began = Instant::now();
            let offered = delivery.clone();
            // The handler is shared as it is: one that keeps its state behind locks sees them poisoned.
            let work = AssertUnwindSafe(async move { handler(offered).await });
            let (outcome, panicked) = match work.catch_unwind().await {
                Ok(outcome) => (outcome, false),
                Err(_) => (Outcome::retry("HANDLER_PANICKED", "the handler panicked"), true),
            };
            Done { delivery, outcome, took: began.elapsed(), panicked }
        });
    }

    async fn finished(&mut self, done: Result<Done, JoinError>, subscription: &Subscription) {
        let Some((done, mut waiting)) = self.settle(done).await else { return };
        while let Some(next) = waiting.pop_front() {
            if next.revoked().is_cancelled() {
                continue;
            }
            // The same event, offered again because the stream broke: its work is done.
            if next.receipt_id() == done.delivery.receipt_id() && done.outcome != Outcome::Release {
                self.settler.send(&next, done.outcome.clone(), None).await;
                continue;
            }
            if !subscription.queue.is_live() {
                // Whether it goes on is decided by the next stream.
                waiting.push_front(next);
                subscription.queue.put_back(waiting);
                return;
            }
            self.start(next.clone());
            if let Some(work) = self.working.get_mut(&next.entity()) {
                work.waiting = waiting;
            }
            return;
        }
    }

    /// Gives the outcome; `None` when the task was dropped.
    async fn settle(&mut self, done: Result<Done, JoinError>) -> Option<(Done, VecDeque<Delivery>)> {
        // Panics are caught inside the task: what remains is a task that a shutdown dropped.
        let done = done.ok()?;
        if done.panicked {
            self.observer.panicked(&done.delivery);
        }
        self.observer.handled(&done.delivery, &done.outcome, done.took);
        self.settler.send(&done.delivery, done.outcome.clone(), None).await;
        let waiting =
            self.working.remove(&done.delivery.entity()).map(|work| work.waiting).unwrap_or_default();
        Some((done, waiting))
    }

    /// Lets handlers finish until the deadline, then drops them, and releases what has no outcome.
    async fn wind_down(&mut self, within: Duration) {
        self.settler.goodbye().await;
        self.join_until(Instant::now() + within).await;
        if !self.tasks.is_empty() {
            for work in self.working.values() {
                work.delivery.revoked().cancel();
            }
            self.tasks.abort_all();
            self.join_until(Instant::now() + ABORT).await;
        }
        for work in std::mem::take(&mut self.working).into_values() {
            self.settler.send(&work.delivery, Outcome::Release, None).await;
            for waiting in work.waiting {
                self.settler.send(&waiting, Outcome::Release, None).await;
            }
        }
    }

    async fn join_until(&mut self, deadline: Instant) {
        while let Ok(Some(done)) = timeout_at(deadline, self.tasks.join_next()).await {
            if let Some((_, waiting)) = self.settle(done).await {
                for waiting in waiting {
                    self.settler.send(&waiting, Outcome::Release, None).await;
                }
            }
        }
    }
}
