//! Following the store's revision.

mod catch_up;
mod mend;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use portero_keyring::Keyring;
use portero_store::{ConfigChanges, ConfigStore, Revision};
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use self::mend::Mending;
use crate::clocks::{Clocks, Moment};
use crate::report::{Reporter, Reporting, Told};
use crate::{Snapshot, metrics};

/// Shortest time between two looks, however many hints come in.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(20);

/// How a directory follows its store.
#[derive(Clone, Debug)]
pub struct DirectoryConfig {
    /// Time between two looks at the revision. Default 500 ms.
    pub poll_interval: Duration,
    /// How old the last confirmation may be before the directory is no longer fresh. Default 5 s.
    pub stale_after: Duration,
    /// How long one call to the store may take. Default 4 s: a new connection over a slow wire takes a dozen round trips, and one that is
    /// given up is begun again.
    pub call_timeout: Duration,
    /// How long reading all configuration may take. Default 30 s.
    pub load_timeout: Duration,
    /// Who reports what it has applied, and by which wall clock. Default `None`: somebody who only looks.
    pub reporting: Option<Reporting>,
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_millis(500),
            stale_after: Duration::from_secs(5),
            call_timeout: Duration::from_secs(4),
            load_timeout: Duration::from_secs(30),
            reporting: None,
        }
    }
}

/// Why the directory was not refreshed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error("the configuration cannot be read")]
    Store(#[from] portero_store::Error),
    /// The store did not answer in time.
    #[error("the configuration cannot be read in time")]
    Timeout,
    /// The program is ending.
    #[error("loading the configuration was interrupted")]
    Interrupted,
}

/// The configuration in memory. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct Directory(Arc<Shared>);

struct Shared {
    store: Arc<dyn ConfigStore>,
    keyring: Arc<Keyring>,
    config: DirectoryConfig,
    clocks: Clocks,
    reporter: Reporter,
    snapshot: ArcSwap<Snapshot>,
    /// When the snapshot was last known to be the latest.
    confirmed: ArcSwap<Moment>,
    revision: watch::Sender<Revision>,
    /// Somebody heard that the configuration changed.
    look: Notify,
    /// Held while refreshing, so that an older snapshot never replaces a newer one.
    refreshing: Mutex<Refreshing>,
    /// When [`Directory::catch_up`] may look next; held by who does.
    next_catch_up: Mutex<Instant>,
}

/// What is known of the store beside the snapshot.
struct Refreshing {
    /// Which line of history the snapshot belongs to.
    history: Option<String>,
    mending: Mending,
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory")
            .field("revision", &self.snapshot().revision())
            .field("fresh", &self.is_fresh())
            .finish_non_exhaustive()
    }
}

impl Directory {
    /// Loads the configuration. Run the [`Follower`] to keep it fresh.
    ///
    /// # Errors
    /// When the store cannot be read. Safe to try again.
    pub async fn open(
        store: Arc<dyn ConfigStore>,
        keyring: Arc<Keyring>,
        config: DirectoryConfig,
    ) -> Result<(Self, Follower), Error> {
        let reporter = Reporter::new(config.reporting.clone());
        let clocks = Clocks::new(config.reporting.as_ref().map(|me| Arc::clone(&me.clock)));
        // Asked before everything is read: what is lost in between is noticed by the next look.
        let asked = clocks.now();
        let told =
            within(&config, reporter.report(store.as_ref(), Revision::default(), keyring.active_mark()))
                .await?;
        let reading = async {
            let stored = patiently(&config, store.snapshot()).await?;
            build(ConfigChanges::Full(stored), Arc::clone(&keyring), None).await
        };
        let snapshot = match reading.await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                sign_off(&config, &reporter, store.as_ref()).await;
                return Err(error);
            }
        };
        let (revision, _) = watch::channel(snapshot.revision());
        metrics::loaded("everything");
        metrics::applied(&snapshot);
        let directory = Self(Arc::new(Shared {
            store,
            keyring,
            config,
            clocks,
            reporter,
            snapshot: ArcSwap::from_pointee(snapshot),
            confirmed: ArcSwap::from_pointee(asked),
            revision,
            look: Notify::new(),
            refreshing: Mutex::new(Refreshing {
                history: told.history,
                mending: Mending::from(asked.steady),
            }),
            next_catch_up: Mutex::new(asked.steady),
        }));
        Ok((directory.clone(), Follower(directory)))
    }

    /// The configuration as last loaded. Never waits.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.snapshot.load_full()
    }

    /// Whether the snapshot was known to be the latest within [`DirectoryConfig::stale_after`], by the steady and by the wall
    /// clock. Never waits.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        let shared = &self.0;
        shared.confirmed.load().is_within(shared.config.stale_after, &shared.clocks.now())
    }

    /// Whether the snapshot was known to be the latest within `age`. Never waits.
    #[must_use]
    pub fn is_confirmed_within(&self, age: Duration) -> bool {
        self.0.confirmed.load().is_within(age, &self.0.clocks.now())
    }

    /// Among how many live processes the edge's traffic is divided, as last told; at least one. It takes up to a minute
    /// to notice one that vanished.
    #[must_use]
    pub fn edges(&self) -> u32 {
        self.0.reporter.edges()
    }

    /// How far this machine's wall clock is ahead of the database's, microseconds, as last measured; negative when it is
    /// behind, and zero for somebody who does not report.
    #[must_use]
    pub fn clock_skew_micros(&self) -> i64 {
        self.0.reporter.skew_micros()
    }

    /// Makes the follower look at once. Never waits.
    pub fn look(&self) {
        self.0.look.notify_one();
    }

    /// Tells of each new revision, after its snapshot can be seen.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<Revision> {
        self.0.revision.subscribe()
    }

    /// Loads what changed until now and returns the revision that the snapshot then has.
    ///
    /// Every change committed before the call is in it. Cancel-safe.
    ///
    /// # Errors
    /// When the store cannot be read; the former snapshot stays.
    pub async fn refresh_now(&self) -> Result<Revision, Error> {
        let called = self.0.clocks.now();
        self.refresh(called, false).await
    }

    /// Looks, and says what is applied; not when somebody did so since `called`, unless this is the follower's own look.
    async fn refresh(&self, called: Moment, follows: bool) -> Result<Revision, Error> {
        let shared = &self.0;
        let mut state = shared.refreshing.lock().await;
        if !follows && self.was_confirmed_after(called) {
            // Somebody has begun and finished after the call: of many who wait, two look.
            return Ok(shared.snapshot.load().revision());
        }
        // What is confirmed is the state at this moment, not at the answer's.
        let asked = shared.clocks.now();
        let known = shared.snapshot.load_full();
        let told = self.report(known.revision()).await?;
        let is_same_history = told.history.is_none() || told.history == state.history;
        if told.revision != known.revision() || !is_same_history {
            let loaded = self.apply(known, is_same_history).await?;
            state.history = told.history.or_else(|| state.history.take());
            // So that whoever waits for this process need not wait for its next look.
            if let Err(error) = self.report(loaded).await {
                tracing::debug!(%error, "that the configuration is applied is reported a moment later");
            }
        }
        shared.confirmed.store(Arc::new(asked));
        if follows && let Err(error) = self.mend(&mut state.mending).await {
            tracing::debug!(%error, "data keys that could not be opened are looked at again a moment later");
        }
        Ok(shared.snapshot.load().revision())
    }

    /// Whether what the store had at some moment after this one is in the snapshot.
    fn was_confirmed_after(&self, moment: Moment) -> bool {
        self.0.confirmed.load().steady > moment.steady
    }

    /// Puts what the store has now in the place of `known`: only the changes, unless they belong to another history.
    async fn apply(&self, known: Arc<Snapshot>, is_same_history: bool) -> Result<Revision, Error> {
        let shared = &self.0;
        let changes = async {
            if is_same_history {
                shared.store.changes(known.revision()).await
            } else {
                shared.store.snapshot().await.map(ConfigChanges::Full)
            }
        };
        let changes = patiently(&shared.config, changes).await?;
        let kind = match &changes {
            ConfigChanges::Delta(_) => "changes",
            ConfigChanges::Full(_) => "everything",
        };
        let snapshot = build(changes, Arc::clone(&shared.keyring), Some(known)).await?;
        metrics::loaded(kind);
        metrics::applied(&snapshot);
        tracing::info!(revision = snapshot.revision().0, kind, "the configuration changed");
        Ok(self.put(snapshot))
    }

    /// Lets everybody see a snapshot, and tells those who wait for one.
    fn put(&self, snapshot: Snapshot) -> Revision {
        let revision = snapshot.revision();
        self.0.snapshot.store(Arc::new(snapshot));
        self.0.revision.send_replace(revision);
        revision
    }

    async fn report(&self, applied: Revision) -> Result<Told, Error> {
        let shared = &self.0;
        let report = shared.reporter.report(shared.store.as_ref(), applied, shared.keyring.active_mark());
        within(&shared.config, report).await
    }

    pub(crate) fn store(&self) -> &dyn ConfigStore {
        self.0.store.as_ref()
    }

    pub(crate) fn config(&self) -> &DirectoryConfig {
        &self.0.config
    }
}

/// From here on nobody waits for this process.
async fn sign_off(config: &DirectoryConfig, reporter: &Reporter, store: &dyn ConfigStore) {
    if let Err(error) = within(config, reporter.sign_off(store)).await {
        tracing::debug!(%error, "this process could not sign off; others wait for it a while");
    }
}

/// Keeps a directory fresh.
#[derive(Debug)]
pub struct Follower(Directory);

impl Follower {
    /// Follows the store until `shutdown`, and then signs off: from there on nobody waits for this process. So it must not
    /// take webhooks any more by then.
    pub async fn run(self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.follow()).await;
        let Directory(shared) = &self.0;
        sign_off(&shared.config, &shared.reporter, shared.store.as_ref()).await;
    }

    async fn follow(&self) {
        let directory = &self.0;
        let mut ticks = tokio::time::interval(directory.0.config.poll_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = directory.0.look.notified() => ticks.reset(),
            }
            let began = Instant::now();
            match directory.refresh(directory.0.clocks.now(), true).await {
                Ok(_) if std::mem::take(&mut failing) => {
                    tracing::info!("the configuration can be read again");
                }
                Ok(_) => {}
                Err(error) => {
                    metrics::loaded("failed");
                    // Said once per outage, not twice a second.
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(
                            %error, stale_after_ms = directory.0.config.stale_after.as_millis(),
                            "the configuration cannot be read; the edge refuses events when this lasts"
                        );
                    }
                }
            }
            tokio::time::sleep_until(began + LOOK_EVERY_MIN).await;
        }
    }
}

/// Opens secrets and makes recipes ready, away from the threads that serve requests.
async fn build(
    changes: ConfigChanges,
    keyring: Arc<Keyring>,
    former: Option<Arc<Snapshot>>,
) -> Result<Snapshot, Error> {
    let building = tokio::task::spawn_blocking(move || match (changes, former) {
        (ConfigChanges::Delta(delta), Some(former)) => former.apply(delta, &keyring),
        (ConfigChanges::Delta(delta), None) => Snapshot::default().apply(delta, &keyring),
        // Stores answer with everything also where the revision is one of another history.
        (ConfigChanges::Full(stored), former) => {
            let former = former.map(|former| former.with_keys_of(&stored.tenant_keys));
            Snapshot::build(stored, &keyring, former.as_ref())
        }
    });
    building.await.map_err(|_| Error::Interrupted)
}

/// What a call that may read everything answers in time.
async fn patiently<T>(
    config: &DirectoryConfig,
    call: impl Future<Output = portero_store::Result<T>>,
) -> Result<T, Error> {
    match tokio::time::timeout(config.load_timeout, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::Timeout),
    }
}

/// What a call answers in time.
pub(crate) async fn within<T>(
    config: &DirectoryConfig,
    call: impl Future<Output = portero_store::Result<T>>,
) -> Result<T, Error> {
    match tokio::time::timeout(config.call_timeout, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::Timeout),
    }
}
