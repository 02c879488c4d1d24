//! The running actors, and what is done when one of them panics.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use portero_store::Subscription;
use portero_types::{ShardCount, SubscriptionNo};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actor::{Actor, Command, MAILBOX, Place};
use crate::dispatcher::AttachError;
use crate::metrics;
use crate::roll::Reported;
use crate::shared::Shared;

/// How long a subscription rests after its actor panicked; doubles with each further time.
const REST: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(10);
/// An actor that ran so long without a panic starts at once after the next one.
const FORGIVEN_AFTER: Duration = Duration::from_secs(300);

/// One actor per subscription that has, or had, streams here.
pub(crate) struct Actors {
    shared: Arc<Shared>,
    shards: ShardCount,
    seed: u64,
    running: Mutex<HashMap<SubscriptionNo, Running>>,
    panics: Mutex<HashMap<SubscriptionNo, Panics>>,
    tasks: TaskTracker,
    /// Ends all actors as they stand.
    abandon: CancellationToken,
}

struct Running {
    mailbox: mpsc::Sender<Command>,
    shares: watch::Sender<Option<Reported>>,
}

/// How often a subscription's actor has panicked of late.
struct Panics {
    count: u32,
    last: Instant,
}

impl Panics {
    /// Until when no actor starts.
    fn rest_until(&self) -> Instant {
        self.last + REST.saturating_mul(1 << (self.count - 1).min(16)).min(REST_MAX)
    }
}

impl Actors {
    pub(crate) fn new(shared: Arc<Shared>, shards: ShardCount, seed: u64) -> Self {
        Self {
            shared,
            shards,
            seed,
            running: Mutex::default(),
            panics: Mutex::default(),
            tasks: TaskTracker::new(),
            abandon: CancellationToken::new(),
        }
    }

    /// The mailbox of a subscription's actor, which is started when it does not run.
    pub(crate) fn mailbox(
        self: &Arc<Self>,
        subscription: Arc<Subscription>,
    ) -> Result<mpsc::Sender<Command>, AttachError> {
        if self.shared.stop.is_cancelled() {
            return Err(AttachError::ShuttingDown);
        }
        let no = subscription.no;
        let mut running = self.running();
        running.retain(|_, actor| !actor.mailbox.is_closed());
        if let Some(actor) = running.get(&no) {
            return Ok(actor.mailbox.clone());
        }
        if self.panics().get(&no).is_some_and(|panics| Instant::now() < panics.rest_until()) {
            return Err(AttachError::Recovering);
        }
        let session = self.shared.standing.borrow().session().ok_or(AttachError::ShuttingDown)?;
        let (mailbox, commands) = mpsc::channel(MAILBOX);
        let (shares, reports) = watch::channel(None);
        running.insert(no, Running { mailbox: mailbox.clone(), shares });
        let place = Place {
            session,
            generation: self.shared.incarnations.present(),
            shards: self.shards,
            seed: self.seed ^ u64::try_from(no.0).unwrap_or(0),
        };
        let actor = Actor::new(Arc::clone(&self.shared), place, subscription);
        self.tasks.spawn(Arc::clone(self).supervise(no, actor.run(commands, reports)));
        Ok(mailbox)
    }

    /// Hands a share to its actor; false when none runs.
    pub(crate) fn report(&self, reported: Reported) -> bool {
        match self.running().get(&reported.share.subscription) {
            Some(actor) => actor.shares.send(Some(reported)).is_ok(),
            None => false,
        }
    }

    /// Asks every actor to drain.
    pub(crate) async fn tell_all(&self, command: impl Fn() -> Command) {
        let mailboxes: Vec<_> = self.running().values().map(|actor| actor.mailbox.clone()).collect();
        for mailbox in mailboxes {
            // An actor that has ended has nothing left to do.
            let _ = mailbox.send(command()).await;
        }
    }

    /// Waits until every actor has ended, which they do once the shared stop is set; after `patience` they end as they stand.
    /// Whether all have written everything.
    pub(crate) async fn ended(&self, patience: Duration) -> bool {
        self.tasks.close();
        let in_time = tokio::time::timeout(patience, self.tasks.wait()).await.is_ok();
        self.abandon.cancel();
        self.tasks.wait().await;
        in_time
    }

    async fn supervise(self: Arc<Self>, no: SubscriptionNo, actor: impl Future<Output = ()>) {
        let actor = self.abandon.run_until_cancelled(actor);
        if AssertUnwindSafe(actor).catch_unwind().await.is_ok() {
            return;
        }
        // Its streams and lanes went with it: consumers reconnect, and the next actor starts from what is written.
        let mut panics = self.panics();
        let now = Instant::now();
        let entry = panics.entry(no).or_insert(Panics { count: 0, last: now });
        let is_forgiven = now.duration_since(entry.last) > FORGIVEN_AFTER;
        entry.count = if is_forgiven { 1 } else { entry.count.saturating_add(1) };
        entry.last = now;
        metrics::panicked("actor");
        tracing::error!(
            subscription.no = no.0,
            panics = entry.count,
            "the deliveries of a subscription broke down; they begin anew from what is written"
        );
    }

    fn running(&self) -> MutexGuard<'_, HashMap<SubscriptionNo, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn panics(&self) -> MutexGuard<'_, HashMap<SubscriptionNo, Panics>> {
        self.panics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_after_a_panic_doubles_up_to_its_bound() {
        let now = Instant::now();
        let rest = |count| Panics { count, last: now }.rest_until().duration_since(now);
        assert_eq!(rest(1), REST);
        assert_eq!(rest(3), REST * 4);
        assert_eq!(rest(u32::MAX), REST_MAX);
    }
}
