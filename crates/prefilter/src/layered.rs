//! The layers together, and the fence around them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout};

use crate::entry::{Digest, Namespace};
use crate::{Hit, Key, Local, Prefilter, Redis, metrics};

/// How long a confirmed identity is trusted. A database that lost rows is back under another identity; until that is
/// noticed, at most this long, an old entry could answer for a lost event.
pub const LEASE: Duration = Duration::from_secs(3);
/// How often [`Layered::follow`] asks for the identity.
pub const POLL: Duration = Duration::from_secs(1);
/// How long nothing is remembered or answered after the identity changed while running: longer than any accept statement
/// may take, so that no commit of the former identity is noted under the new one.
pub const SETTLE: Duration = Duration::from_secs(30);

/// Asks the local cache first and Redis for what it does not know; each is optional. What Redis knows is kept locally too.
///
/// It knows nothing until the store's identity was confirmed, and ceases to answer when that was too long ago: the
/// supervisor runs [`Self::follow`].
pub struct Layered {
    local: Option<Local>,
    redis: Option<Redis>,
    binding: Mutex<Option<Binding>>,
}

#[derive(Clone, Copy)]
struct Binding {
    namespace: Namespace,
    usable_from: Instant,
    usable_until: Instant,
}

impl Layered {
    /// Puts layers together; without any it knows nothing.
    #[must_use]
    pub const fn new(local: Option<Local>, redis: Option<Redis>) -> Self {
        Self { local, redis, binding: Mutex::new(None) }
    }

    /// The local layer.
    #[must_use]
    pub const fn local(&self) -> Option<&Local> {
        self.local.as_ref()
    }

    /// The shared layer.
    #[must_use]
    pub const fn redis(&self) -> Option<&Redis> {
        self.redis.as_ref()
    }

    /// The store told its identity, when it was asked at `asked_at`. Trusted for [`LEASE`] from then on. Another identity
    /// than before drops everything known, and nothing is known for [`SETTLE`].
    pub fn confirm(&self, identity: &str, asked_at: Instant) {
        let namespace = Namespace::of(identity);
        let mut binding = self.binding();
        let usable_from = match *binding {
            Some(former) if former.namespace == namespace => former.usable_from,
            Some(_) => {
                tracing::warn!("the database's identity changed; everything that was remembered is dropped");
                asked_at + SETTLE
            }
            None => asked_at,
        };
        *binding = Some(Binding { namespace, usable_from, usable_until: asked_at + LEASE });
    }

    /// Asks for the identity every [`POLL`] and confirms it, and looks after Redis. `identity` answers `None` when the store
    /// cannot be asked. Never returns; cancel-safe. Run it in a supervised task.
    pub async fn follow<F, Fut>(&self, mut identity: F)
    where
        F: FnMut() -> Fut + Send,
        Fut: Future<Output = Option<String>> + Send,
    {
        loop {
            let asked_at = Instant::now();
            if let Ok(Some(identity)) = timeout(LEASE, identity()).await {
                self.confirm(&identity, asked_at);
            }
            self.tend().await;
            tokio::time::sleep(POLL).await;
        }
    }

    /// Looks once whether a skipped Redis is back. Part of [`Self::follow`]. Takes about a second at most; cancel-safe.
    pub async fn tend(&self) {
        if let Some(redis) = &self.redis {
            redis.probe().await;
        }
    }

    /// The namespace to use now, or `None` while there is no confirmed one.
    fn namespace(&self) -> Option<Namespace> {
        let now = Instant::now();
        let binding = (*self.binding())?;
        (binding.usable_from <= now && now < binding.usable_until).then_some(binding.namespace)
    }

    fn binding(&self) -> std::sync::MutexGuard<'_, Option<Binding>> {
        self.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills the gaps in `hits` from Redis. Returns how many it filled.
    async fn ask_redis(&self, namespace: Namespace, digests: &[Digest], hits: &mut [Option<Hit>]) -> usize {
        let Some(redis) = &self.redis else { return 0 };
        let gaps: Vec<usize> = (0..hits.len()).filter(|i| hits[*i].is_none()).collect();
        let wanted: Vec<Digest> = gaps.iter().map(|i| digests[*i]).collect();
        let mut filled = 0;
        for (i, found) in gaps.into_iter().zip(redis.get(namespace, &wanted).await) {
            if let Some(hit) = found {
                filled += 1;
                hits[i] = Some(hit);
                if let Some(local) = &self.local {
                    local.put(digests[i], hit);
                }
            }
        }
        filled
    }
}

#[async_trait]
impl Prefilter for Layered {
    /// Takes at most one Redis call's time-out; none while Redis is skipped or absent.
    async fn lookup(&self, keys: &[Key]) -> Vec<Option<Hit>> {
        let Some(namespace) = self.namespace() else {
            metrics::skipped();
            return vec![None; keys.len()];
        };
        let digests: Vec<Digest> = keys.iter().map(|key| Digest::of(namespace, key)).collect();
        let mut hits: Vec<Option<Hit>> = match &self.local {
            Some(local) => digests.iter().map(|digest| local.get(digest)).collect(),
            None => vec![None; keys.len()],
        };
        let in_local = hits.iter().flatten().count();
        let in_redis = self.ask_redis(namespace, &digests, &mut hits).await;
        metrics::lookups(in_local, in_redis, hits.len() - in_local - in_redis);
        // The identity may have changed while Redis was asked.
        if self.namespace() == Some(namespace) { hits } else { vec![None; keys.len()] }
    }

    /// Takes at most one Redis call's time-out; none while Redis is skipped or absent.
    async fn remember(&self, events: &[(Key, Hit)]) {
        let Some(namespace) = self.namespace() else {
            metrics::skipped();
            return;
        };
        let entries: Vec<(Digest, Hit)> =
            events.iter().map(|(key, hit)| (Digest::of(namespace, key), *hit)).collect();
        if let Some(local) = &self.local {
            for (digest, hit) in &entries {
                local.put(*digest, *hit);
            }
        }
        if let Some(redis) = &self.redis {
            redis.put(namespace, &entries).await;
        }
    }
}

impl std::fmt::Debug for Layered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layered").field("local", &self.local).field("redis", &self.redis).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portero_types::{ManualClock, ProviderName, ReceiptId, TenantNo, Timestamp};
    use tokio::time::advance;

    use super::*;
    use crate::LocalConfig;

    fn layered() -> Layered {
        let clock = Arc::new(ManualClock::at(Timestamp::EPOCH));
        Layered::new(Some(Local::new(LocalConfig::default(), clock)), None)
    }

    fn event() -> (Key, Hit) {
        let key = Key {
            tenant_no: TenantNo(1),
            provider: ProviderName::new("stripe").expect("valid"),
            event_id: "evt_1".to_owned(),
        };
        (key, Hit { receipt_id: ReceiptId::new(Timestamp::EPOCH, 1), body_digest: [1; 32] })
    }

    async fn knows(layered: &Layered) -> bool {
        layered.lookup(&[event().0]).await[0].is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn it_knows_nothing_before_the_identity_is_confirmed() {
        let layered = layered();
        layered.remember(&[event()]).await;
        layered.confirm("db-1", Instant::now());
        assert!(!knows(&layered).await);
        layered.remember(&[event()]).await;
        assert!(knows(&layered).await);
    }

    #[tokio::test(start_paused = true)]
    async fn it_ceases_to_answer_when_the_confirmation_is_old() {
        let layered = layered();
        layered.confirm("db-1", Instant::now());
        layered.remember(&[event()]).await;
        advance(LEASE - Duration::from_millis(1)).await;
        assert!(knows(&layered).await);
        advance(Duration::from_millis(1)).await;
        assert!(!knows(&layered).await);
        layered.confirm("db-1", Instant::now());
        assert!(knows(&layered).await);
    }

    #[tokio::test(start_paused = true)]
    async fn another_identity_drops_everything_and_late_commits_of_the_former_are_not_noted() {
        let layered = layered();
        layered.confirm("db-1", Instant::now());
        layered.remember(&[event()]).await;
        layered.confirm("db-2", Instant::now());
        assert!(!knows(&layered).await);
        layered.remember(&[event()]).await;
        advance(SETTLE).await;
        layered.confirm("db-2", Instant::now());
        assert!(!knows(&layered).await, "what came while settling was not noted");
        layered.remember(&[event()]).await;
        assert!(knows(&layered).await);
    }

    #[tokio::test(start_paused = true)]
    async fn following_keeps_the_confirmation_fresh_until_the_store_is_away() {
        let layered = Arc::new(layered());
        let is_up = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let (follower, up) = (layered.clone(), is_up.clone());
        let following = tokio::spawn(async move {
            let identity = || {
                let answer = up.load(std::sync::atomic::Ordering::SeqCst).then(|| "db-1".to_owned());
                std::future::ready(answer)
            };
            follower.follow(identity).await;
        });
        tokio::time::sleep(POLL / 2).await;
        layered.remember(&[event()]).await;
        tokio::time::sleep(LEASE * 10).await;
        assert!(knows(&layered).await);
        is_up.store(false, std::sync::atomic::Ordering::SeqCst);
        tokio::time::sleep(LEASE + POLL).await;
        assert!(!knows(&layered).await);
        following.abort();
    }

    #[tokio::test]
    async fn without_layers_it_knows_nothing() {
        let layered = Layered::new(None, None);
        layered.confirm("db-1", Instant::now());
        layered.remember(&[event()]).await;
        assert!(!knows(&layered).await);
    }
}
