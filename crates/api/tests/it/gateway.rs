//! A gateway in this process, on a database file and a socket of its own: everything behind the gRPC port is real.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use portero_api::{Api, ApiConfig, Services};
use portero_auth::{Grant, Issuer, NewToken, Verifier};
use portero_directory::{Directory, DirectoryConfig};
use portero_dispatcher::{Dispatcher, DispatcherConfig, SESSION_TTL, STREAM_AGE};
use portero_keyring::{KeyId, Keyring};
use portero_store::testing::fixture::{self, NOW};
use portero_store::{AcceptStore as _, ConfigStore as _, Revision, SchemaStore as _, StartAt, Verdict};
use portero_store_sqlite::SqliteStore;
use portero_types::{Clock, LaneCount, ManualClock, SessionId, SubscriptionId, Timestamp};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// How long anything that must come to pass may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A clock that begins at a fixed moment, goes on by itself, and can be moved forward.
#[derive(Clone)]
pub(crate) struct Running {
    ahead: ManualClock,
    began: Instant,
}

impl Running {
    pub(crate) fn advance(&self, by: Duration) {
        self.ahead.advance(by);
    }
}

impl Clock for Running {
    fn now(&self) -> Timestamp {
        self.ahead.now().plus(self.began.elapsed())
    }
}

/// What a gateway hears of changes that it did not make.
#[derive(Clone, Copy)]
enum Hears {
    All,
    Nothing,
}

/// One run of a gateway.
pub(crate) struct Gateway {
    /// `http://127.0.0.1:…`.
    pub(crate) endpoint: String,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) clock: Running,
    directory: Directory,
    issuer: Issuer,
    shutdown: CancellationToken,
    serving: AbortOnDropHandle<()>,
}

impl Gateway {
    /// The first run on a folder: with the tenant `acme`, its source `stripe-eu`, and the subscription `billing` of four
    /// lanes, whose events have two attempts.
    pub(crate) async fn start(folder: &Path) -> Self {
        Self::run(Self::set_up(folder).await, Hears::All).await
    }

    /// The same, which hears of no change by itself: as a gateway at which a caller comes sooner than the word of a change.
    pub(crate) async fn start_late(folder: &Path) -> Self {
        Self::run(Self::set_up(folder).await, Hears::Nothing).await
    }

    async fn set_up(folder: &Path) -> Arc<SqliteStore> {
        let store = SqliteStore::open_in(folder).await.expect("opens");
        store.migrate().await.expect("migrates");
        store.create_tenant(fixture::new_tenant("acme"), &fixture::tester()).await.expect("a tenant");
        store
            .create_source(fixture::new_source("acme", "stripe-eu"), &fixture::tester())
            .await
            .expect("a source");
        let mut billing = fixture::new_subscription("billing");
        billing.start_at = StartAt::Earliest;
        billing.lanes = LaneCount::new(4).expect("valid");
        billing.attempts_max = 2;
        store.create_subscription(billing, &fixture::tester()).await.expect("a subscription");
        Arc::new(store)
    }

    /// A later run on a folder, once the former has let go of it.
    pub(crate) async fn again(folder: &Path) -> Self {
        let opened = patient(async {
            loop {
                match SqliteStore::open_in(folder).await {
                    Ok(store) => return store,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        });
        Self::run(Arc::new(opened.await), Hears::All).await
    }

    async fn run(store: Arc<SqliteStore>, hears: Hears) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(1);
        let run = RUNS.fetch_add(1, Ordering::SeqCst);
        let keyring = Arc::new(Keyring::generate(KeyId::new("k1").expect("valid"), [7; 32]).expect("usable"));
        let config =
            DirectoryConfig { poll_interval: Duration::from_millis(50), ..DirectoryConfig::default() };
        let (directory, follower) =
            Directory::open(Arc::clone(&store) as _, Arc::clone(&keyring), config).await.expect("readable");
        let shutdown = CancellationToken::new();
        match hears {
            Hears::All => drop(tokio::spawn(follower.run(shutdown.clone()))),
            Hears::Nothing => drop(follower),
        }
        let clock = Running { ahead: ManualClock::at(NOW), began: Instant::now() };
        let config = DispatcherConfig {
            instance: "gateway".to_owned(),
            new_session: Arc::new(move || {
                SessionId::new(NOW, fixture::random(fixture::fresh() + (run << 32)))
            }),
            session_ttl: SESSION_TTL,
            stream_age: STREAM_AGE,
            trace: None,
            seed: run,
        };
        let dispatcher =
            Dispatcher::start(Arc::clone(&store) as _, directory.clone(), Arc::new(clock.clone()), config)
                .await
                .expect("the dispatcher starts");
        let issuer = Issuer::generate("portero", "portero", [1; 32]);
        let next = AtomicU8::new(1);
        let api = Api::new(ApiConfig {
            store: Arc::clone(&store) as _,
            directory: directory.clone(),
            dispatcher: dispatcher.clone(),
            keyring: Some(keyring),
            verifier: Arc::new(Verifier::new(vec![issuer.trusted()]).expect("usable")),
            clock: Arc::new(clock.clone()),
            entropy: Arc::new(move || [next.fetch_add(1, Ordering::Relaxed); 32]),
            services: Services { subscriber: true, admin: true },
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let serving = api.serve(listener, shutdown.clone());
        let serving = AbortOnDropHandle::new(tokio::spawn(serving));
        Self { endpoint, store, dispatcher, clock, directory, issuer, shutdown, serving }
    }

    /// Waits until the gateway acts upon a revision of the configuration.
    pub(crate) async fn has_seen(&self, revision: Revision) {
        let mut changed = self.directory.changed();
        patient(changed.wait_for(|seen| *seen >= revision)).await.expect("it is followed");
    }

    /// A token, valid from the gateway's present moment.
    pub(crate) fn token(&self, grant: Grant, lifetime: Duration) -> String {
        self.token_of("tester", Some(grant), lifetime)
    }

    /// A token of this subject, which may grant nothing by itself.
    pub(crate) fn token_of(&self, subject: &str, grant: Option<Grant>, lifetime: Duration) -> String {
        let new = NewToken { subject: subject.to_owned(), grant, lifetime };
        let minted = self.issuer.mint(&new, self.clock.now(), u128::from(fixture::fresh()));
        minted.expect("a token").token.expose_secret().to_owned()
    }

    /// A token that may consume `billing`.
    pub(crate) fn consumer_token(&self) -> String {
        let billing = SubscriptionId::new("billing").expect("valid");
        self.token(Grant::consumer(vec![billing]), Duration::from_secs(86_400))
    }

    /// Accepts events of one entity, in order.
    pub(crate) async fn accept(&self, entity: &str, ids: &[&str]) {
        let events: Vec<_> = ids.iter().map(|id| (*id, None)).collect();
        self.accept_with(entity, &events).await;
    }

    /// Accepts events of one entity, some with bodies of their own.
    pub(crate) async fn accept_with(&self, entity: &str, events: &[(&str, Option<Bytes>)]) {
        let (acme, stripe) = (fixture::tenant_id("acme"), fixture::source_id("stripe-eu"));
        let tenant = self.store.tenant(&acme).await.expect("read").expect("there");
        let source = self.store.source(&acme, &stripe).await.expect("read").expect("there");
        let of = |(id, body): &(&str, Option<Bytes>)| {
            let event = fixture::event_of(&tenant, &source, id, entity);
            body.as_ref().map_or_else(|| fixture::again(&event), |body| fixture::with_body(&event, body))
        };
        let events: Vec<_> = events.iter().map(of).collect();
        let verdicts = self.store.accept(&events).await.expect("accepted");
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Accepted { .. })), "{verdicts:?}");
        self.dispatcher.hint();
    }

    /// Asks consumers to leave within `time`, as a process does that is told to stop, and ends when they have.
    pub(crate) async fn drain(&self, time: Duration) {
        let deadline: Timestamp = self.clock.now().plus(time);
        self.dispatcher.drain(deadline).await;
    }

    /// Ends in order.
    pub(crate) async fn stop(self) {
        self.dispatcher.stop(PATIENCE).await;
        self.shutdown.cancel();
        patient(self.serving).await.expect("no panic");
        self.store.close().await;
    }
}

/// Waits, but not for ever.
pub(crate) async fn patient<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it takes too long")
}
