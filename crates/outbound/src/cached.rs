//! At most one fetch per key at once, none while an answer is fresh, and only so many in all, to a host and because of a
//! source.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _, Shared, WeakShared};
use portero_types::SourceNo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::bucket::{Buckets, NewKeys, Rate};
use crate::lru::Lru;
use crate::{Fetch, FetchError, metrics};

/// Longest key, bytes. A longer one is an attempt to fill the memory.
const KEY_BYTES_MAX: usize = 4 * 1024;

/// Bounds of the cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// Most answers kept, and as many failures. Default 1,000.
    pub entries_max: usize,
    /// Longest time that an answer is kept, whatever it was fetched for. Default 24 h.
    pub ttl_max: Duration,
    /// How long a failure is answered without asking again. Default 30 s.
    pub failure_ttl: Duration,
    /// Most fetches at once; one more is [`FetchError::Busy`]. Default 8.
    pub fetches_max: usize,
    /// How many keys never seen before a host is asked for because of one source; beyond it, [`FetchError::Busy`].
    /// Default 10 at once and then one in 6 s.
    pub new_per_source: Rate,
    /// The same because of all sources together. Default 300 at once and then five a second.
    pub new_per_host: Rate,
    /// How often answers that are not kept are asked for because of one source. Default 5 at once and then one in 30 s.
    pub unkept_per_source: Rate,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            entries_max: 1_000,
            ttl_max: Duration::from_secs(24 * 60 * 60),
            failure_ttl: Duration::from_secs(30),
            fetches_max: 8,
            new_per_source: Rate { burst: 10, refill: Duration::from_secs(6) },
            new_per_host: Rate { burst: 300, refill: Duration::from_millis(200) },
            unkept_per_source: Rate { burst: 5, refill: Duration::from_secs(30) },
        }
    }
}

/// Keeps what another one fetched. Cheap to clone; clones share everything.
///
/// Answers to `cache_for` of zero are never kept or shared. A recipe asks for them only after verification, so they count
/// against a bucket of their source alone: who has seen a signed request may send it again and again.
#[derive(Clone)]
pub struct CachedFetcher(Arc<Inner>);

struct Inner {
    upstream: Arc<dyn Fetch>,
    config: CacheConfig,
    slots: Arc<Semaphore>,
    state: Mutex<State>,
}

struct State {
    /// Kept beyond their time until there is no more room: a key that was good once is not new.
    answers: Lru<Kept<Bytes>>,
    failures: Lru<Kept<FetchError>>,
    /// Fetches under way, each kept alive by those who wait for it. No more than there are slots, but for those
    /// that nobody waits for any more.
    flights: Vec<(String, WeakShared<Flight>)>,
    new: NewKeys,
    unkept: Buckets<SourceNo>,
}

struct Kept<T> {
    value: T,
    until: Instant,
}

type Flight = BoxFuture<'static, Result<Bytes, FetchError>>;

/// What a look into the cache says.
enum Found {
    Known(Result<Bytes, FetchError>),
    Flight(Shared<Flight>),
}

impl std::fmt::Debug for CachedFetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedFetcher").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl CachedFetcher {
    /// A cache over another fetcher.
    #[must_use]
    pub fn new(upstream: Arc<dyn Fetch>, config: CacheConfig) -> Self {
        let state = State {
            answers: Lru::new(config.entries_max),
            failures: Lru::new(config.entries_max),
            flights: Vec::new(),
            new: NewKeys::new(config.new_per_source, config.new_per_host),
            unkept: Buckets::new(config.unkept_per_source),
        };
        let slots = Arc::new(Semaphore::new(config.fetches_max));
        Self(Arc::new(Inner { upstream, config, slots, state: Mutex::new(state) }))
    }

    fn find(&self, wanted: &portero_recipe::Fetch, source: SourceNo) -> Result<Found, FetchError> {
        let inner = &self.0;
        let key = &wanted.cache_key;
        if key.len() > KEY_BYTES_MAX {
            return Err(FetchError::Forbidden);
        }
        let now = Instant::now();
        let mut state = inner.state();
        let seen = match state.answers.get(key) {
            Some(kept) if kept.until > now => {
                metrics::lookup("hit");
                return Ok(Found::Known(Ok(kept.value.clone())));
            }
            kept => kept.is_some(),
        };
        if let Some(kept) = state.failures.get(key).filter(|kept| kept.until > now) {
            metrics::lookup("failed_before");
            return Ok(Found::Known(Err(kept.value)));
        }
        if let Some(flight) = state.flight(key) {
            metrics::lookup("joined");
            return Ok(Found::Flight(flight));
        }
        let slot = inner.slot()?;
        if !seen && !state.new.take(host(&wanted.url), source, now) {
            return Err(FetchError::Busy);
        }
        metrics::lookup("fetched");
        let flight = Arc::clone(inner).fly(wanted.clone(), source, slot).boxed().shared();
        let weak = flight.downgrade().expect("it was not polled yet");
        state.flights.push((key.clone(), weak));
        Ok(Found::Flight(flight))
    }
}

#[async_trait]
impl Fetch for CachedFetcher {
    async fn fetch(&self, wanted: &portero_recipe::Fetch, source: SourceNo) -> Result<Bytes, FetchError> {
        if wanted.cache_for.is_zero() {
            let _slot = self.0.slot_for_unkept(source).inspect_err(|_| metrics::lookup("busy"))?;
            metrics::lookup("fetched");
            return self.0.upstream.fetch(wanted, source).await;
        }
        match self.find(wanted, source) {
            Ok(Found::Known(result)) => result,
            Ok(Found::Flight(flight)) => flight.await,
            Err(error) => {
                metrics::lookup("busy");
                Err(error)
            }
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // No operation leaves it half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self) -> Result<OwnedSemaphorePermit, FetchError> {
        Arc::clone(&self.slots).try_acquire_owned().map_err(|_| FetchError::Busy)
    }

    fn slot_for_unkept(&self, source: SourceNo) -> Result<OwnedSemaphorePermit, FetchError> {
        let slot = self.slot()?;
        let has_token = self.state().unkept.take(source, Instant::now());
        has_token.then_some(slot).ok_or(FetchError::Busy)
    }

    /// Fetches and keeps what came. When everyone who waits leaves, this is dropped with its slot.
    async fn fly(
        self: Arc<Self>,
        wanted: portero_recipe::Fetch,
        source: SourceNo,
        slot: OwnedSemaphorePermit,
    ) -> Result<Bytes, FetchError> {
        let result = self.upstream.fetch(&wanted, source).await;
        let now = Instant::now();
        let key = &wanted.cache_key;
        let mut state = self.state();
        match &result {
            Ok(value) => {
                let until = now + wanted.cache_for.min(self.config.ttl_max);
                state.failures.remove(key);
                state.answers.insert(key, Kept { value: value.clone(), until });
            }
            // It says something about this moment only.
            Err(FetchError::Busy) => {}
            Err(error) => {
                state.failures.insert(key, Kept { value: *error, until: now + self.config.failure_ttl });
            }
        }
        state.flights.retain(|(other, _)| other != key);
        drop((state, slot));
        result
    }
}

impl State {
    /// The fetch under way for a key. Forgets those that nobody waits for any more.
    fn flight(&mut self, key: &str) -> Option<Shared<Flight>> {
        let mut found = None;
        self.flights.retain(|(other, flight)| {
            let alive = flight.upgrade();
            let keep = alive.is_some();
            if other == key {
                found = alive;
            }
            keep
        });
        found
    }
}

/// The part of a URL that names its host and port; not more than a key for a bucket.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests;
