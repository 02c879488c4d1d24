//! Databases, and dispatchers on them: each as one run of a process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portero_directory::{Directory, DirectoryConfig};
use portero_dispatcher::{
    AttachError, Delivery, DeliveryToken, Dispatcher, DispatcherConfig, EndReason, Flow, Frame, Outcome,
    Reason, STREAM_AGE, Settlement, Status, StreamHandle, StreamSpec,
};
use portero_store::testing::fixture::{self, NOW};
use portero_store::{DeliveryStore, DynStore, StartAt, Subscription};
use portero_store_sqlite::SqliteStore;
use portero_types::{Clock, ManualClock, SessionId, SubscriptionId};

use crate::postgres::TestDatabase;

/// How long anything that must come to pass may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A database with a tenant, a source and a subscription.
pub enum Place {
    Sqlite(tempfile::TempDir),
    Postgres(TestDatabase),
}

impl Place {
    /// A file.
    pub async fn sqlite() -> Self {
        let place = Self::Sqlite(tempfile::tempdir().expect("a folder"));
        place.fill().await;
        place
    }

    /// A database of the test server, which several dispatchers can use.
    pub async fn postgres() -> Self {
        let place = Self::Postgres(TestDatabase::create().await);
        place.fill().await;
        place
    }

    /// Opens it, as another process would.
    pub async fn open(&self) -> DynStore {
        match self {
            Self::Sqlite(folder) => {
                Arc::new(SqliteStore::open(folder.path().join("portero.db")).await.expect("opens"))
            }
            Self::Postgres(database) => Arc::new(database.store().await),
        }
    }

    async fn fill(&self) {
        let store = self.open().await;
        store.migrate().await.expect("migrates");
        store.create_tenant(fixture::new_tenant("acme"), &fixture::tester()).await.expect("a tenant");
        store
            .create_source(fixture::new_source("acme", "stripe-eu"), &fixture::tester())
            .await
            .expect("a source");
        let mut subscription = fixture::new_subscription("billing");
        subscription.start_at = StartAt::Earliest;
        subscription.attempts_max = 2;
        store.create_subscription(subscription, &fixture::tester()).await.expect("a subscription");
    }
}

/// How a dispatcher is started.
pub struct Options {
    pub instance: String,
    pub session_ttl: Duration,
    pub stream_age: Duration,
    /// What the dispatcher sees of the store; `None` for the store itself.
    pub deliveries: Option<Arc<dyn DeliveryStore>>,
    pub clock: Option<Arc<dyn Clock>>,
}

impl Options {
    pub fn new(instance: &str) -> Self {
        Self {
            instance: instance.to_owned(),
            session_ttl: Duration::from_secs(12),
            stream_age: STREAM_AGE,
            deliveries: None,
            clock: None,
        }
    }
}

/// A dispatcher, as one run of a process.
pub struct Run {
    pub store: DynStore,
    pub dispatcher: Dispatcher,
    pub clock: ManualClock,
    pub session: SessionId,
    pub subscription: Subscription,
}

impl Run {
    /// The only process on a database.
    pub async fn start(place: &Place) -> Self {
        Self::start_as(place, "test").await
    }

    pub async fn start_as(place: &Place, instance: &str) -> Self {
        Self::start_with(place.open().await, Options::new(instance)).await
    }

    pub async fn start_with(store: DynStore, options: Options) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(1);
        let run = RUNS.fetch_add(1, Ordering::SeqCst);
        let keyring = Arc::new(fixture::keyring());
        let (directory, _) = Directory::open(store.clone(), keyring, DirectoryConfig::default())
            .await
            .expect("the directory opens");
        let clock = ManualClock::at(NOW);
        let new_id = move || SessionId::new(NOW, fixture::random(fixture::fresh() + (run << 32)));
        let session = new_id();
        let first = std::sync::Mutex::new(Some(session));
        let config = DispatcherConfig {
            instance: options.instance,
            new_session: Arc::new(move || first.lock().expect("sound").take().unwrap_or_else(new_id)),
            session_ttl: options.session_ttl,
            stream_age: options.stream_age,
            trace: None,
            seed: run,
        };
        let deliveries = options.deliveries.unwrap_or_else(|| store.clone());
        let time = options.clock.unwrap_or_else(|| Arc::new(clock.clone()));
        let dispatcher =
            Dispatcher::start(deliveries, directory, time, config).await.expect("the dispatcher starts");
        let billing = SubscriptionId::new("billing").expect("valid");
        let subscription = store.subscription(&billing).await.expect("read").expect("there");
        Self { store, dispatcher, clock, session, subscription }
    }

    /// Accepts events of one entity, in order.
    pub async fn accept(&self, entity: &str, ids: &[&str]) {
        accept(&self.store, entity, ids).await;
        self.dispatcher.hint();
    }

    pub async fn attach(&self, instance: &str) -> StreamHandle {
        self.attach_with(self.spec(instance)).await.expect("attached")
    }

    pub async fn attach_with(&self, spec: StreamSpec) -> Result<StreamHandle, AttachError> {
        self.dispatcher.attach(spec).await
    }

    pub fn spec(&self, instance: &str) -> StreamSpec {
        StreamSpec {
            subscription: self.subscription.no,
            instance: instance.to_owned(),
            boot: "1".to_owned(),
            flow: Flow::default(),
            message_bytes_max: 4 << 20,
            unsettled: Vec::new(),
        }
    }

    pub async fn stop(self) {
        self.dispatcher.stop(PATIENCE).await;
    }

    /// How many lanes of the subscription a session has, and its target.
    pub async fn share(&self) -> (u16, u16) {
        let roll = self.store.roll(self.session).await.expect("a roll");
        roll.shares.first().map_or((0, 0), |share| (share.owned, share.target))
    }
}

/// Accepts events of one entity, in order, without a hint to anybody.
pub async fn accept(store: &DynStore, entity: &str, ids: &[&str]) {
    let tenant = store.tenant(&fixture::tenant_id("acme")).await.expect("read").expect("there");
    let source = store
        .source(&fixture::tenant_id("acme"), &fixture::source_id("stripe-eu"))
        .await
        .expect("read")
        .expect("there");
    let events: Vec<_> = ids.iter().map(|id| fixture::event_of(&tenant, &source, id, entity)).collect();
    store.accept(&events).await.expect("accepted");
}

/// The next `count` deliveries.
pub async fn deliveries(stream: &mut StreamHandle, count: usize) -> Vec<Delivery> {
    let mut got = Vec::new();
    while got.len() < count {
        let frame = tokio::time::timeout(PATIENCE, stream.next()).await.expect("a frame comes in time");
        if let Frame::Deliver(deliveries) = frame.expect("the stream goes on") {
            got.extend(deliveries);
        }
    }
    got
}

/// Takes frames until the stream ends; the deliveries and why it ended.
pub async fn until_the_end(stream: &mut StreamHandle) -> (Vec<Delivery>, EndReason) {
    let mut got = Vec::new();
    loop {
        match tokio::time::timeout(PATIENCE, stream.next()).await.expect("it ends in time") {
            Ok(Frame::Deliver(deliveries)) => got.extend(deliveries),
            Ok(Frame::Revoke { .. } | Frame::Drain { .. }) => {}
            Err(reason) => return (got, reason),
        }
    }
}

pub fn settlement(token: DeliveryToken, outcome: Outcome) -> Settlement {
    Settlement { token: Some(token), outcome, reason: Reason::new("TEST", "said the test") }
}

pub async fn settle(stream: &StreamHandle, delivery: &Delivery, outcome: Outcome) -> Status {
    let settler = stream.settler();
    let settled = settler.settle(vec![settlement(delivery.token, outcome)]);
    tokio::time::timeout(PATIENCE, settled).await.expect("settled in time")[0]
}

/// Settles until the outcome is recorded, as a consumer would.
pub async fn settle_for_good(run: &Run, delivery: &Delivery, outcome: Outcome) -> Status {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let items = vec![settlement(delivery.token, outcome)];
        let status = run.dispatcher.settle(run.subscription.no, items).await.expect("taken")[0];
        if status != Status::TryAgain {
            return status;
        }
        assert!(tokio::time::Instant::now() < deadline, "not recorded in time");
    }
}

pub fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.event.event_id.as_str()).collect()
}

/// What consumers saw, to be checked at the end.
#[derive(Default)]
pub struct History {
    seen: BTreeMap<String, Vec<(u64, String)>>,
}

impl History {
    /// An event that was acked durably.
    pub fn acked(&mut self, delivery: &Delivery) {
        let entry = (delivery.position.n, delivery.event.event_id.clone());
        self.seen.entry(delivery.event.ordering_key.clone()).or_default().push(entry);
    }

    pub fn len(&self) -> usize {
        self.seen.values().map(Vec::len).sum()
    }

    /// Each entity's events in order, none twice.
    #[track_caller]
    pub fn assert_in_order(&self) {
        for (entity, events) in &self.seen {
            assert!(events.is_sorted_by(|a, b| a.0 < b.0), "{entity}: {events:?}");
        }
    }
}

/// Waits for a condition.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
