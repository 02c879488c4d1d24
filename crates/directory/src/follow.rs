//! Following the store's revision.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use portero_keyring::Keyring;
use portero_store::{ConfigStore, Revision};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::Snapshot;

/// How a directory follows its store.
#[derive(Clone, Debug)]
pub struct DirectoryConfig {
    /// Time between two looks at the revision. Default 500 ms.
    pub poll_interval: Duration,
    /// How old the last confirmation may be before the directory is no longer fresh. Default 5 s.
    pub stale_after: Duration,
    /// How long one call to the store may take. Default 2 s.
    pub call_timeout: Duration,
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_millis(500),
            stale_after: Duration::from_secs(5),
            call_timeout: Duration::from_secs(2),
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
    snapshot: ArcSwap<Snapshot>,
    /// Milliseconds from `began` until the snapshot was last known to be the latest.
    confirmed_ms: AtomicU64,
    began: Instant,
    revision: watch::Sender<Revision>,
    /// Held while refreshing, so that an older snapshot never replaces a newer one.
    refreshing: Mutex<()>,
}

impl Shared {
    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
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
        let began = Instant::now();
        let snapshot = load(&store, &keyring, &config, None).await?;
        let (revision, _) = watch::channel(snapshot.revision());
        let directory = Self(Arc::new(Shared {
            store,
            keyring,
            config,
            snapshot: ArcSwap::from_pointee(snapshot),
            confirmed_ms: AtomicU64::new(0),
            began,
            revision,
            refreshing: Mutex::new(()),
        }));
        Ok((directory.clone(), Follower(directory)))
    }

    /// The configuration as last loaded. Never waits.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.snapshot.load_full()
    }

    /// Whether the snapshot was known to be the latest within [`DirectoryConfig::stale_after`].
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        let confirmed = self.0.began + Duration::from_millis(self.0.confirmed_ms.load(Ordering::Acquire));
        confirmed.elapsed() < self.0.config.stale_after
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
        let shared = &self.0;
        let called_ms = shared.elapsed_ms();
        let _alone = shared.refreshing.lock().await;
        if shared.confirmed_ms.load(Ordering::Acquire) > called_ms {
            // Somebody has begun and finished after the call: of many who wait, two look.
            return Ok(shared.snapshot.load().revision());
        }
        // What is confirmed is the state at this moment, not at the answer's.
        let asked_ms = shared.elapsed_ms();
        let known = shared.snapshot.load_full();
        let revision = within(&shared.config, shared.store.revision()).await?;
        if revision != known.revision() {
            let snapshot = load(&shared.store, &shared.keyring, &shared.config, Some(known)).await?;
            let loaded = snapshot.revision();
            shared.snapshot.store(Arc::new(snapshot));
            tracing::info!(revision = loaded.0, "the configuration changed");
            shared.revision.send_replace(loaded);
        }
        shared.confirmed_ms.fetch_max(asked_ms, Ordering::AcqRel);
        Ok(shared.snapshot.load().revision())
    }
}

/// Keeps a directory fresh.
#[derive(Debug)]
pub struct Follower(Directory);

impl Follower {
    /// Follows the store until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let directory = self.0;
        let mut ticks = tokio::time::interval(directory.0.config.poll_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let refreshed = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                refreshed = directory.refresh_now() => refreshed,
            };
            match refreshed {
                Ok(_) if std::mem::take(&mut failing) => {
                    tracing::info!("the configuration can be read again");
                }
                Ok(_) => {}
                // Said once per outage, not twice a second.
                Err(error) if !std::mem::replace(&mut failing, true) => {
                    tracing::warn!(
                        %error, stale_after_ms = directory.0.config.stale_after.as_millis(),
                        "the configuration cannot be read; the edge refuses events when this lasts"
                    );
                }
                Err(_) => {}
            }
        }
    }
}

/// Reads everything and opens the secrets, away from the threads that serve requests.
async fn load(
    store: &Arc<dyn ConfigStore>,
    keyring: &Arc<Keyring>,
    config: &DirectoryConfig,
    former: Option<Arc<Snapshot>>,
) -> Result<Snapshot, Error> {
    let stored = within(config, store.snapshot()).await?;
    let keyring = Arc::clone(keyring);
    let building = tokio::task::spawn_blocking(move || Snapshot::build(stored, &keyring, former.as_deref()));
    building.await.map_err(|_| Error::Interrupted)
}

async fn within<T>(
    config: &DirectoryConfig,
    call: impl Future<Output = portero_store::Result<T>>,
) -> Result<T, Error> {
    match tokio::time::timeout(config.call_timeout, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::Timeout),
    }
}
