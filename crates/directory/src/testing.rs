//! A configuration store in memory that can be changed, failed and frozen, for tests of what reads a directory.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use portero_store::{
    Change, ConfigSnapshot, ConfigStore, Error, ErrorKind, NewSecret, NewSource, NewSubscription, NewTenant,
    Page, Result, Revision, Sealed, Secret, Source, SourceUpdate, Subscription, SubscriptionUpdate, Tenant,
};
use portero_types::{SecretId, SourceId, SourceNo, SubscriptionId, TenantId, Timestamp};
use tokio::sync::Semaphore;

/// Holds one snapshot. Only `revision` and `snapshot` answer; everything else fails with `Unavailable`.
#[derive(Clone, Debug)]
pub struct FixedConfig(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    gate: Semaphore,
}

#[derive(Debug)]
struct State {
    snapshot: ConfigSnapshot,
    down: bool,
    snapshots_read: usize,
}

impl FixedConfig {
    /// A store that holds `snapshot`.
    #[must_use]
    pub fn new(snapshot: ConfigSnapshot) -> Self {
        let state = Mutex::new(State { snapshot, down: false, snapshots_read: 0 });
        Self(Arc::new(Inner { state, gate: Semaphore::new(1) }))
    }

    /// Changes the configuration and raises the revision.
    pub fn change(&self, change: impl FnOnce(&mut ConfigSnapshot)) {
        self.with(|state| {
            change(&mut state.snapshot);
            state.snapshot.revision.0 += 1;
        });
    }

    /// Makes every call fail, or ends that.
    pub fn set_down(&self, down: bool) {
        self.with(|state| state.down = down);
    }

    /// Makes every call hang until the guard is dropped.
    pub async fn hang(&self) -> impl Drop + '_ {
        self.0.gate.acquire().await.expect("never closed")
    }

    /// How often everything was read.
    #[must_use]
    pub fn snapshots_read(&self) -> usize {
        self.with(|state| state.snapshots_read)
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn call<T>(&self, look: impl FnOnce(&mut State) -> T) -> Result<T> {
        let _through = self.0.gate.acquire().await.expect("never closed");
        self.with(|state| if state.down { Err(refused()) } else { Ok(look(state)) })
    }
}

fn refused() -> Error {
    Error::new(ErrorKind::Unavailable, "the test store does not answer this")
}

#[async_trait]
impl ConfigStore for FixedConfig {
    async fn revision(&self) -> Result<Revision> {
        self.call(|state| state.snapshot.revision).await
    }
    async fn snapshot(&self) -> Result<ConfigSnapshot> {
        self.call(|state| {
            state.snapshots_read += 1;
            state.snapshot.clone()
        })
        .await
    }
    async fn create_tenant(&self, _: NewTenant, _: &Change) -> Result<Tenant> {
        Err(refused())
    }
    async fn tenant(&self, _: &TenantId) -> Result<Option<Tenant>> {
        Err(refused())
    }
    async fn tenants(&self, _: Option<&TenantId>, _: u32) -> Result<Page<Tenant>> {
        Err(refused())
    }
    async fn delete_tenant(&self, _: &TenantId, _: &Change) -> Result<()> {
        Err(refused())
    }
    async fn create_source(&self, _: NewSource, _: &Change) -> Result<Source> {
        Err(refused())
    }
    async fn source(&self, _: &TenantId, _: &SourceId) -> Result<Option<Source>> {
        Err(refused())
    }
    async fn sources(&self, _: &TenantId, _: Option<&SourceId>, _: u32) -> Result<Page<Source>> {
        Err(refused())
    }
    async fn update_source(&self, _: SourceUpdate, _: &Change) -> Result<Source> {
        Err(refused())
    }
    async fn write_handshake_secret(
        &self,
        _: SourceNo,
        _: NewSecret,
        _: Timestamp,
        _: &Change,
    ) -> Result<bool> {
        Err(refused())
    }
    async fn delete_source(&self, _: &TenantId, _: &SourceId, _: &Change) -> Result<()> {
        Err(refused())
    }
    async fn add_secret(&self, _: NewSecret, _: &Change) -> Result<Secret> {
        Err(refused())
    }
    async fn secret(&self, _: &TenantId, _: &SourceId, _: &SecretId) -> Result<Option<Secret>> {
        Err(refused())
    }
    async fn secrets(
        &self,
        _: &TenantId,
        _: &SourceId,
        _: Option<&SecretId>,
        _: u32,
    ) -> Result<Page<Secret>> {
        Err(refused())
    }
    async fn take_unseen(
        &self,
        _: &TenantId,
        _: &SourceId,
        _: &SecretId,
        _: &Change,
    ) -> Result<Option<Sealed>> {
        Err(refused())
    }
    async fn delete_secret(&self, _: &TenantId, _: &SourceId, _: &SecretId, _: &Change) -> Result<()> {
        Err(refused())
    }
    async fn create_subscription(&self, _: NewSubscription, _: &Change) -> Result<Subscription> {
        Err(refused())
    }
    async fn update_subscription(&self, _: SubscriptionUpdate, _: &Change) -> Result<Subscription> {
        Err(refused())
    }
    async fn subscription(&self, _: &SubscriptionId) -> Result<Option<Subscription>> {
        Err(refused())
    }
    async fn subscriptions(&self, _: Option<&SubscriptionId>, _: u32) -> Result<Page<Subscription>> {
        Err(refused())
    }
    async fn delete_subscription(&self, _: &SubscriptionId, _: &Change) -> Result<()> {
        Err(refused())
    }
}
