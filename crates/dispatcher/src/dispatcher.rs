//! The handle that the rest of the gateway holds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portero_directory::Directory;
use portero_engine::StreamId;
use portero_store::{DynStore, Subscription};
use portero_types::{Clock, Generation, SessionId, ShardCount, SubscriptionId, SubscriptionNo, Timestamp};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actor::{Actor, Command, MAILBOX};
use crate::heads::watch_heads;
use crate::session::{Keeper, Standing};
use crate::stream::{Backlog, DeliveryToken, EndReason, Ending, Flow, Frame, Settlement, Status, StreamSpec};

/// How often it is looked whether a drain or stop is complete.
const DRAIN_POLL: Duration = Duration::from_millis(5);
/// How long outcomes outside of a stream wait for their lanes, and how often they are tried meanwhile.
const LATE_PATIENCE: Duration = Duration::from_secs(1);
const LATE_RETRY: Duration = Duration::from_millis(50);

/// Makes a span part of the trace that a `traceparent` names.
pub type TraceHook = Arc<dyn Fn(&tracing::Span, &str) + Send + Sync>;

/// What a dispatcher needs to know of its process.
pub struct DispatcherConfig {
    /// Stable name of this process's place: a new session fences the older ones of the same name.
    pub instance: String,
    /// Makes the id of a session: at the start, and after an outage in which the former one expired.
    pub new_session: Arc<dyn Fn() -> SessionId + Send + Sync>,
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
    /// This gateway is shutting down.
    #[error("this gateway is shutting down")]
    ShuttingDown,
}

/// What actors share.
pub(crate) struct Shared {
    pub(crate) store: DynStore,
    pub(crate) directory: Directory,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) heads: watch::Sender<Vec<u64>>,
    pub(crate) standing: watch::Sender<Standing>,
    pub(crate) trace: Option<TraceHook>,
    pub(crate) stop: CancellationToken,
    /// New streams are refused.
    pub(crate) refusing: AtomicBool,
    /// Open streams.
    pub(crate) streams: AtomicUsize,
}

struct Inner {
    shared: Arc<Shared>,
    shards: ShardCount,
    generation: Generation,
    hint: Arc<Notify>,
    actors: Mutex<HashMap<SubscriptionNo, mpsc::Sender<Command>>>,
    tasks: TaskTracker,
    background: CancellationToken,
    seed: u64,
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
        store: DynStore,
        directory: Directory,
        clock: Arc<dyn Clock>,
        config: DispatcherConfig,
    ) -> portero_store::Result<Self> {
        let background = CancellationToken::new();
        let keeper = Keeper {
            store: store.clone(),
            instance: config.instance,
            new_id: config.new_session,
            standing: watch::Sender::new(Standing::Replaced),
            stop: background.clone(),
        };
        let session = keeper.open().await?;
        keeper.standing.send_replace(Standing::Alive(session));
        let generation = store.generation().await?;
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
            directory,
            clock,
            heads: watch::Sender::new(heads),
            standing: keeper.standing.clone(),
            trace: config.trace,
            stop: CancellationToken::new(),
            refusing: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
        });
        let (tasks, hint) = (TaskTracker::new(), Arc::new(Notify::new()));
        tasks.spawn(watch_heads(
            shared.store.clone(),
            Arc::clone(&hint),
            shared.heads.clone(),
            background.clone(),
        ));
        tasks.spawn(keeper.run());
        let actors = Mutex::default();
        Ok(Self(Arc::new(Inner {
            shared,
            shards,
            generation,
            hint,
            actors,
            tasks,
            background,
            seed: config.seed,
        })))
    }

    /// The log's incarnation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.0.generation
    }

    /// Says that something was committed: the log is read at once instead of at the next poll.
    pub fn hint(&self) {
        self.0.hint.notify_one();
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
        matches!(*self.0.shared.standing.borrow(), Standing::Alive(_))
    }

    /// Opens a consumer's stream. Dropping the handle ends it as an abnormal one.
    ///
    /// # Errors
    /// [`AttachError`].
    pub async fn attach(&self, spec: StreamSpec) -> Result<StreamHandle, AttachError> {
        let actor = self.actor(&spec.subscription).await?;
        let (reply, answer) = oneshot::channel();
        actor.send(Command::Attach { spec, reply }).await.map_err(|_| AttachError::ShuttingDown)?;
        let attached = answer.await.map_err(|_| AttachError::ShuttingDown)??;
        Ok(StreamHandle {
            id: attached.id,
            lanes: attached.lanes,
            frames: attached.frames,
            end: attached.end,
            actor,
            ended: false,
        })
    }

    /// Takes outcomes outside of a stream; one status per item, in order. Lanes that nobody has are fetched for it; an item
    /// whose lane cannot be had within a second gets `TryAgain`.
    ///
    /// # Errors
    /// [`AttachError`].
    pub async fn settle(
        &self,
        subscription: &SubscriptionId,
        items: Vec<Settlement>,
    ) -> Result<Vec<Status>, AttachError> {
        let actor = self.actor(subscription).await?;
        let deadline = Instant::now() + LATE_PATIENCE;
        let mut statuses = vec![Status::TryAgain; items.len()];
        let mut open: Vec<usize> = (0..items.len()).collect();
        loop {
            let again = open.iter().map(|item| items[*item].clone()).collect();
            let Some(answers) = settle(&actor, again).await else { return Ok(statuses) };
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

    /// Asks all consumers to settle and reconnect; they get no further deliveries here, and no new stream is opened.
    /// Returns when the last stream has ended; bound it by a time-out of its own.
    pub async fn drain(&self, deadline: Timestamp) {
        self.0.shared.refusing.store(true, Ordering::SeqCst);
        let actors: Vec<_> = self.lock().values().cloned().collect();
        for actor in actors {
            // A closed actor has no streams left to drain.
            let _ = actor.send(Command::Drain { deadline }).await;
        }
        while self.0.shared.streams.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(DRAIN_POLL).await;
        }
    }

    /// Ends all streams, writes all progress, gives up the session. At most `patience` long.
    pub async fn stop(&self, patience: Duration) {
        let inner = &self.0;
        inner.shared.stop.cancel();
        inner.tasks.close();
        let until_idle = async {
            while inner.tasks.len() > 2 {
                tokio::time::sleep(DRAIN_POLL).await;
            }
        };
        if tokio::time::timeout(patience, until_idle).await.is_err() {
            tracing::warn!("some progress could not be written before the end; it will be delivered again");
        }
        inner.background.cancel();
        let Some(session) = inner.shared.standing.borrow().session() else { return };
        if let Err(error) = inner.shared.store.close_session(session).await {
            tracing::warn!(%error, "the session could not be closed; it expires by itself");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SubscriptionNo, mpsc::Sender<Command>>> {
        self.0.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn actor(&self, id: &SubscriptionId) -> Result<mpsc::Sender<Command>, AttachError> {
        let subscription = self.subscription(id).await.ok_or(AttachError::NotFound)?;
        if self.0.shared.stop.is_cancelled() {
            return Err(AttachError::ShuttingDown);
        }
        let session = self.0.shared.standing.borrow().session().ok_or(AttachError::ShuttingDown)?;
        let mut actors = self.lock();
        actors.retain(|_, actor| !actor.is_closed());
        if let Some(actor) = actors.get(&subscription.no) {
            return Ok(actor.clone());
        }
        let (sender, mailbox) = mpsc::channel(MAILBOX);
        actors.insert(subscription.no, sender.clone());
        let seed = self.0.seed ^ u64::try_from(subscription.no.0).unwrap_or(0);
        let actor = Actor::new(Arc::clone(&self.0.shared), session, subscription, self.0.shards, seed);
        self.0.tasks.spawn(actor.run(mailbox));
        Ok(sender)
    }

    /// Finds a subscription, in the store too when it may have been created a moment ago.
    async fn subscription(&self, id: &SubscriptionId) -> Option<Arc<Subscription>> {
        let directory = &self.0.shared.directory;
        if let Some(subscription) = directory.snapshot().subscription(id) {
            return Some(Arc::clone(subscription));
        }
        if let Err(error) = directory.refresh_now().await {
            tracing::warn!(%error, "the configuration could not be refreshed");
        }
        directory.snapshot().subscription(id).map(Arc::clone)
    }
}

async fn settle(actor: &mpsc::Sender<Command>, items: Vec<Settlement>) -> Option<Vec<Status>> {
    let (reply, answer) = oneshot::channel();
    actor.send(Command::Settle { items, reply }).await.ok()?;
    answer.await.ok()
}

/// A consumer's open stream.
pub struct StreamHandle {
    id: StreamId,
    lanes: usize,
    frames: mpsc::Receiver<Frame>,
    end: watch::Receiver<Option<EndReason>>,
    actor: mpsc::Sender<Command>,
    ended: bool,
}

/// Takes outcomes for a stream while its frames are read elsewhere.
#[derive(Clone)]
pub struct Settler(mpsc::Sender<Command>);

impl Settler {
    /// One status per item, in order, after what has to be written is written.
    pub async fn settle(&self, items: Vec<Settlement>) -> Vec<Status> {
        let count = items.len();
        settle(&self.0, items).await.unwrap_or_else(|| vec![Status::TryAgain; count])
    }
}

impl StreamHandle {
    /// Its number within the subscription on this gateway, for logs.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id.0
    }

    /// Lanes that it served when it was opened.
    #[must_use]
    pub const fn lanes(&self) -> usize {
        self.lanes
    }

    /// The next frame, or the reason why there is none any more. Cancel-safe.
    ///
    /// # Errors
    /// [`EndReason`] when this side ended the stream.
    pub async fn next(&mut self) -> Result<Frame, EndReason> {
        tokio::select! {
            biased;
            // The end first: what still lies in the channel belongs to others by then.
            ended = self.end.wait_for(Option::is_some) => {
                Err(ended.ok().and_then(|reason| *reason).unwrap_or(EndReason::ShuttingDown))
            }
            frame = self.frames.recv() => frame.ok_or(EndReason::ShuttingDown),
        }
    }

    /// Resolves with the reason when this side ends the stream, whether frames are taken or not.
    pub fn ended(&self) -> impl Future<Output = EndReason> + Send + 'static {
        let mut end = self.end.clone();
        async move {
            let ended = end.wait_for(Option::is_some).await;
            ended.ok().and_then(|reason| *reason).unwrap_or(EndReason::ShuttingDown)
        }
    }

    /// Takes outcomes apart from the frames.
    #[must_use]
    pub fn settler(&self) -> Settler {
        Settler(self.actor.clone())
    }

    /// Replaces the limits.
    pub async fn flow(&self, flow: Flow) {
        self.tell(Command::Flow { stream: self.id, flow }).await;
    }

    /// Gives a delivery more time.
    pub async fn hold(&self, token: DeliveryToken, duration: Duration) {
        self.tell(Command::Hold { token, duration }).await;
    }

    /// No more deliveries, please.
    pub async fn goodbye(&self) {
        self.tell(Command::Goodbye { stream: self.id }).await;
    }

    /// How far behind the subscription is.
    pub async fn backlog(&self) -> Backlog {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::Backlog { reply }).await;
        answer.await.unwrap_or_default()
    }

    /// Ends the stream from the consumer's side.
    pub async fn end(mut self, ending: Ending) {
        self.ended = true;
        self.tell(Command::Ended { stream: self.id, ending }).await;
    }

    async fn tell(&self, command: Command) {
        // An actor that is gone has ended the stream; `next` says so.
        let _ = self.actor.send(command).await;
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let command = Command::Ended { stream: self.id, ending: Ending::Abnormal };
        if let Err(mpsc::error::TrySendError::Full(command)) = self.actor.try_send(command) {
            let actor = self.actor.clone();
            tokio::spawn(async move { actor.send(command).await });
        }
    }
}
