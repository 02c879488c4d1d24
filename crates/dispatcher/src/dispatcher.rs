//! The handle that the rest of the gateway holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use portero_directory::Directory;
use portero_store::{DeliveryStore, Subscription};
use portero_types::{Clock, Generation, SessionId, ShardCount, SubscriptionNo, Timestamp};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actor::Command;
use crate::actors::Actors;
use crate::generation::Incarnations;
use crate::heads::watch_heads;
use crate::opening::Opener;
use crate::session::{Keeper, Standing, Times};
use crate::shared::Shared;
use crate::stream::{Settlement, Status, StreamSpec};
use crate::stream_handle::{StreamHandle, settle};
use crate::{hints, roll};

/// How often it is looked whether a drain is complete.
const DRAIN_POLL: Duration = Duration::from_millis(5);
/// How long outcomes outside of a stream wait for their lanes, and how often they are tried meanwhile.
const LATE_PATIENCE: Duration = Duration::from_secs(1);
const LATE_RETRY: Duration = Duration::from_millis(50);

/// How long the end waits for what runs beside.
const BACKGROUND_PATIENCE: Duration = Duration::from_secs(1);

/// Makes a span part of the trace that a `traceparent` names.
pub type TraceHook = Arc<dyn Fn(&tracing::Span, &str) + Send + Sync>;

/// How long a session lives without renewal unless the configuration says otherwise.
pub const SESSION_TTL: Duration = Duration::from_secs(12);

/// How long a stream may live unless the configuration says otherwise.
pub const STREAM_AGE: Duration = Duration::from_secs(30 * 60);

/// What a dispatcher needs to know of its process.
pub struct DispatcherConfig {
    /// Stable name of this process's place: a new session fences the older ones of the same name.
    pub instance: String,
    /// Makes the id of a session: at the start, and after an outage in which the former one expired.
    pub new_session: Arc<dyn Fn() -> SessionId + Send + Sync>,
    /// How long others wait for this process before they take its lanes over, by the database's clock. This process stops
    /// by itself after three quarters of it without a renewal. [`SESSION_TTL`] unless there is a reason.
    pub session_ttl: Duration,
    /// About how old a stream gets before its consumer is asked to reconnect, so that streams spread over gateways that came
    /// later. Each stream gets up to a fifth more or less. [`STREAM_AGE`] unless there is a reason.
    pub stream_age: Duration,
    /// Joins delivery spans to the traces of their events; `None` when traces are off.
    pub trace: Option<TraceHook>,
    /// Seeds the jitter of retries.
    pub seed: u64,
}

/// Why a stream could not be opened, or a settlement not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// There is no such subscription.
    #[error("the subscription does not exist")]
    NotFound,
    /// This gateway has as many streams of the subscription as it takes.
    #[error("the subscription has too many streams on this gateway")]
    TooManyStreams,
    /// Its deliveries broke down a moment ago and begin anew in a moment.
    #[error("the subscription's deliveries begin anew; reconnect in a moment")]
    Recovering,
    /// This gateway is shutting down.
    #[error("this gateway is shutting down")]
    ShuttingDown,
}

struct Inner {
    shared: Arc<Shared>,
    actors: Arc<Actors>,
    tasks: TaskTracker,
    background: CancellationToken,
}

/// Hands accepted events to consumers. Clones are handles to the same dispatcher.
#[derive(Clone)]
pub struct Dispatcher(Arc<Inner>);

impl Dispatcher {
    /// Opens this process's session and begins to watch the log.
    ///
    /// # Errors
    /// The store's, when the session cannot be opened.
    pub async fn start(
        store: Arc<dyn DeliveryStore>,
        directory: Directory,
        clock: Arc<dyn Clock>,
        config: DispatcherConfig,
    ) -> portero_store::Result<Self> {
        let keeper = Keeper {
            store: store.clone(),
            instance: config.instance,
            new_id: config.new_session,
            times: Times::new(config.session_ttl),
        };
        let standing = keeper.start().await?;
        let generation = store.incarnation().await?;
        let heads = store.heads().await?;
        let shards = u16::try_from(heads.len()).ok().and_then(|count| ShardCount::new(count).ok());
        let shards = shards.ok_or_else(|| {
            portero_store::Error::new(
                portero_store::ErrorKind::Corrupt,
                "the log's number of shards is not a power of two",
            )
        })?;
        let shared = Arc::new(Shared {
            store,
            opener: Arc::new(Opener::new(directory.clone())),
            directory,
            clock,
            heads: watch::Sender::new(heads),
            standing: watch::Sender::new(standing),
            incarnations: Incarnations::new(generation),
            stream_age: config.stream_age,
            trace: config.trace,
            stop: CancellationToken::new(),
            refusing: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            look_at_log: Notify::new(),
            look_at_roll: Notify::new(),
            tell_of_log: Notify::new(),
        });
        let actors = Arc::new(Actors::new(Arc::clone(&shared), shards, config.seed));
        let (tasks, background) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(keeper.run(Arc::clone(&shared), background.clone()));
        tasks.spawn(watch_heads(Arc::clone(&shared), background.clone()));
        tasks.spawn(roll::watch_roll(Arc::clone(&shared), Arc::clone(&actors), background.clone()));
        tasks.spawn(hints::tell(Arc::clone(&shared), background.clone()));
        tasks.spawn(hints::listen(Arc::clone(&shared), background.clone()));
        Ok(Self(Arc::new(Inner { shared, actors, tasks, background })))
    }

    /// The log's present incarnation. A stream keeps the one it was opened under: see [`StreamHandle::generation`].
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.0.shared.incarnations.present()
    }

    /// Says that something was committed here: the log is read at once instead of at the next poll, and others are told.
    pub fn hint(&self) {
        self.0.shared.look_at_log.notify_one();
        self.0.shared.tell_of_log.notify_one();
    }

    /// Resolves when another process with this one's instance name took over: nothing will be delivered here any more.
    pub async fn fenced(&self) {
        let mut standing = self.0.shared.standing.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = standing.wait_for(|standing| *standing == Standing::Replaced).await;
    }

    /// Whether this process may deliver now.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.shared.standing.borrow().alive().is_some()
    }

    /// Opens a consumer's stream. Dropping the handle ends it as an abnormal one.
    ///
    /// # Errors
    /// [`AttachError`].
    pub async fn attach(&self, spec: StreamSpec) -> Result<StreamHandle, AttachError> {
        let actor = self.actor(spec.subscription).await?;
        let (reply, answer) = oneshot::channel();
        actor.send(Command::Attach { spec, reply }).await.map_err(|_| AttachError::Recovering)?;
        let attached = answer.await.map_err(|_| AttachError::Recovering)??;
        Ok(StreamHandle::new(attached, self.0.shared.standing.subscribe(), actor))
    }

    /// Takes outcomes outside of a stream; one status per item, in order. Lanes that nobody has are fetched for it; an item
    /// whose lane cannot be had within a second gets `TryAgain`.
    ///
    /// # Errors
    /// [`AttachError`].
    pub async fn settle(
        &self,
        subscription: SubscriptionNo,
        items: Vec<Settlement>,
    ) -> Result<Vec<Status>, AttachError> {
        let actor = self.actor(subscription).await?;
        let deadline = Instant::now() + LATE_PATIENCE;
        let mut statuses = vec![Status::TryAgain; items.len()];
        let mut open: Vec<usize> = (0..items.len()).collect();
        loop {
            let again = open.iter().map(|item| items[*item].clone()).collect();
            let Some(answers) = settle(&actor, again, false).await else { return Ok(statuses) };
            for (item, status) in open.iter().zip(answers) {
                statuses[*item] = status;
            }
            open.retain(|item| statuses[*item] == Status::TryAgain);
            if open.is_empty() || Instant::now() >= deadline {
                return Ok(statuses);
            }
            tokio::time::sleep(LATE_RETRY).await;
        }
    }

    /// Gives up all lanes, one by one as each goes quiet, and asks all consumers to settle and reconnect. No new stream is
    /// opened. At `deadline` what is still in consumers' hands is taken back uncounted and all streams end; so this returns
    /// soon after it at the latest.
    pub async fn drain(&self, deadline: Timestamp) {
        self.0.shared.refusing.store(true, Ordering::SeqCst);
        self.0.actors.tell_all(|| Command::Drain { deadline }).await;
        while self.0.shared.streams.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(DRAIN_POLL).await;
        }
    }

    /// Ends all streams, writes all progress, gives up the session. At most `patience` long.
    pub async fn stop(&self, patience: Duration) {
        let inner = &self.0;
        inner.shared.stop.cancel();
        if !inner.actors.ended(patience).await {
            tracing::warn!("some progress could not be written before the end; it will be delivered again");
        }
        inner.background.cancel();
        inner.tasks.close();
        // One may be in a call to a database that does not answer; it ends with the process.
        let _ = tokio::time::timeout(BACKGROUND_PATIENCE, inner.tasks.wait()).await;
        let Some(session) = inner.shared.standing.borrow().session() else { return };
        if let Err(error) = inner.shared.store.close_session(session).await {
            tracing::warn!(%error, "the session could not be closed; it expires by itself");
        }
    }

    async fn actor(&self, no: SubscriptionNo) -> Result<mpsc::Sender<Command>, AttachError> {
        let subscription = self.subscription(no).await.ok_or(AttachError::NotFound)?;
        self.0.actors.mailbox(subscription)
    }

    /// Finds a subscription, in the store too when it may have been created a moment ago.
    async fn subscription(&self, no: SubscriptionNo) -> Option<Arc<Subscription>> {
        let directory = &self.0.shared.directory;
        let find = || directory.snapshot().subscription_by_no(no).map(Arc::clone);
        if let Some(subscription) = find() {
            return Some(subscription);
        }
        if let Err(error) = directory.refresh_now().await {
            tracing::warn!(%error, "the configuration could not be refreshed");
        }
        find()
    }
}
