//! A configuration store in memory that can be changed, failed and frozen, for tests of what reads a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use portero_keyring::{DataKey, Keyring, TenantKeys};
use portero_store::{
    Change, ConfigChanges, ConfigDelta, ConfigSnapshot, ConfigStore, Error, ErrorKind, FreedName, Grant,
    NewGrant, NewSecret, NewSource, NewSubscription, NewTenant, Page, Removed, Replica, ReplicaEcho,
    ReplicaReport, Result, Revision, Sealed, Secret, Source, SourceUpdate, Subscription, SubscriptionUpdate,
    Tenant, TenantKey, TenantUpdate,
};
use portero_types::{
    GrantId, ReplicaId, SecretId, SourceId, SourceNo, SubscriptionId, TenantId, TenantNo, Timestamp,
};
use tokio::sync::Semaphore;

/// Holds one snapshot, and who reported. What changes configuration fails with `Unavailable`.
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
    /// What it was at each revision.
    former: BTreeMap<Revision, ConfigSnapshot>,
    down: bool,
    snapshots_read: usize,
    deltas_read: usize,
    keys_read: usize,
    looks: usize,
    database_time: Timestamp,
    history: String,
    replicas: BTreeMap<ReplicaId, Replica>,
}

impl FixedConfig {
    /// A store that holds `snapshot`.
    #[must_use]
    pub fn new(snapshot: ConfigSnapshot) -> Self {
        let state = Mutex::new(State {
            former: BTreeMap::from([(snapshot.revision, snapshot.clone())]),
            snapshot,
            down: false,
            snapshots_read: 0,
            deltas_read: 0,
            keys_read: 0,
            looks: 0,
            database_time: Timestamp::EPOCH,
            history: "1".to_owned(),
            replicas: BTreeMap::new(),
        });
        Self(Arc::new(Inner { state, gate: Semaphore::new(1) }))
    }

    /// Changes the configuration and raises the revision.
    pub fn change(&self, change: impl FnOnce(&mut ConfigSnapshot)) {
        self.with(|state| {
            change(&mut state.snapshot);
            state.snapshot.revision.0 += 1;
            state.former.insert(state.snapshot.revision, state.snapshot.clone());
        });
    }

    /// The present revision.
    #[must_use]
    pub fn present(&self) -> Revision {
        self.with(|state| state.snapshot.revision)
    }

    /// Makes every call fail, or ends that.
    pub fn set_down(&self, down: bool) {
        self.with(|state| state.down = down);
    }

    /// Makes every call hang until the guard is dropped.
    pub async fn hang(&self) -> impl Drop + '_ {
        self.0.gate.acquire().await.expect("never closed")
    }

    /// Sets the database's clock, which stands still.
    pub fn set_database_time(&self, now: Timestamp) {
        self.with(|state| state.database_time = now);
    }

    /// Puts a configuration in place as a restore would: whatever its revision is, it is of another line of history.
    pub fn restore(&self, snapshot: ConfigSnapshot) {
        self.with(|state| {
            state.history.push('1');
            state.former = BTreeMap::from([(snapshot.revision, snapshot.clone())]);
            state.snapshot = snapshot;
        });
    }

    /// What a replica says of itself, or that it is silent.
    pub fn set_replica(&self, replica: Replica) {
        self.with(|state| state.replicas.insert(replica.id, replica));
    }

    /// How often everything was read.
    #[must_use]
    pub fn snapshots_read(&self) -> usize {
        self.with(|state| state.snapshots_read)
    }

    /// How often only changes were read.
    #[must_use]
    pub fn deltas_read(&self) -> usize {
        self.with(|state| state.deltas_read)
    }

    /// How many data keys were read beside the configuration.
    #[must_use]
    pub fn keys_read(&self) -> usize {
        self.with(|state| state.keys_read)
    }

    /// How often the revision was asked for.
    #[must_use]
    pub fn looks(&self) -> usize {
        self.with(|state| state.looks)
    }

    /// Changes rows past the store: no revision tells of it.
    pub fn tamper(&self, change: impl FnOnce(&mut ConfigSnapshot)) {
        self.with(|state| change(&mut state.snapshot));
    }

    /// Forgets what was deleted until now, as stores do after a day.
    pub fn forget(&self) {
        self.with(|state| state.former = BTreeMap::new());
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

/// A data key of a tenant, wrapped by a keyring, as stores hold it.
#[must_use]
pub fn tenant_key(no: TenantNo, tenant: &TenantId, keyring: &Keyring) -> TenantKey {
    let key = keyring.wrap(&DataKey::new(1, [11; 32]), tenant, [5; 12]);
    TenantKey { tenant_no: no, tenant: tenant.clone(), key, created_at: Timestamp::EPOCH }
}

/// What a tenant with that key seals with.
///
/// # Panics
/// Never.
#[must_use]
pub fn tenant_keys() -> TenantKeys {
    TenantKeys::new(vec![DataKey::new(1, [11; 32])]).expect("one key is a set")
}

/// What changed between two moments.
fn difference(former: &ConfigSnapshot, present: &ConfigSnapshot) -> ConfigDelta {
    let mut delta = ConfigDelta { revision: present.revision, ..ConfigDelta::default() };
    let Removed { tenants, tenant_keys, sources, secrets, subscriptions, grants } = &mut delta.removed;
    delta.tenants = compare(&former.tenants, &present.tenants, |row| row.no, tenants);
    let keyed = |snapshot: &ConfigSnapshot| -> BTreeSet<TenantNo> {
        snapshot.tenant_keys.iter().map(|key| key.tenant_no).collect()
    };
    tenant_keys.extend(keyed(former).difference(&keyed(present)));
    let new = |key: &&TenantKey| !former.tenant_keys.contains(key);
    let renewed: BTreeSet<_> = present.tenant_keys.iter().filter(new).map(|key| key.tenant_no).collect();
    delta.tenant_keys =
        present.tenant_keys.iter().filter(|key| renewed.contains(&key.tenant_no)).cloned().collect();
    delta.sources = compare(&former.sources, &present.sources, |row| row.no, sources);
    delta.secrets = compare(&former.secrets, &present.secrets, |row| row.no, secrets);
    delta.subscriptions = compare(&former.subscriptions, &present.subscriptions, |row| row.no, subscriptions);
    delta.grants = compare(&former.grants, &present.grants, |row| row.no, grants);
    let is_new = |freed: &&FreedName| !former.freed_names.contains(freed);
    delta.freed_names = present.freed_names.iter().filter(is_new).cloned().collect();
    delta
}

fn compare<T: Clone + PartialEq, N: PartialEq>(
    former: &[T],
    present: &[T],
    no: impl Fn(&T) -> N,
    removed: &mut Vec<N>,
) -> Vec<T> {
    let is_there = |row: &&T| present.iter().any(|other| no(other) == no(row));
    removed.extend(former.iter().filter(|row| !is_there(row)).map(&no));
    present.iter().filter(|row| !former.contains(row)).cloned().collect()
}

#[async_trait]
impl ConfigStore for FixedConfig {
    async fn revision(&self) -> Result<Revision> {
        self.call(|state| {
            state.looks += 1;
            state.snapshot.revision
        })
        .await
    }
    async fn snapshot(&self) -> Result<ConfigSnapshot> {
        self.call(|state| {
            state.snapshots_read += 1;
            state.snapshot.clone()
        })
        .await
    }
    async fn changes(&self, since: Revision) -> Result<ConfigChanges> {
        self.call(|state| match state.former.get(&since) {
            Some(former) => {
                state.deltas_read += 1;
                ConfigChanges::Delta(difference(former, &state.snapshot))
            }
            None => {
                state.snapshots_read += 1;
                ConfigChanges::Full(state.snapshot.clone())
            }
        })
        .await
    }
    async fn tenant_keys_of(&self, tenants: &[TenantNo]) -> Result<Vec<TenantKey>> {
        self.call(|state| {
            let keys = state.snapshot.tenant_keys.iter().filter(|key| tenants.contains(&key.tenant_no));
            let keys: Vec<_> = keys.cloned().collect();
            state.keys_read += keys.len();
            keys
        })
        .await
    }
    async fn report(&self, report: &ReplicaReport) -> Result<ReplicaEcho> {
        self.call(|state| {
            state.looks += 1;
            if report.first && !state.replicas.contains_key(&report.replica) {
                state.replicas.retain(|_, known| known.instance != report.instance);
            }
            let now = state.database_time;
            let replica = Replica {
                id: report.replica,
                instance: report.instance.clone(),
                roles: report.roles.clone(),
                version: report.version.clone(),
                key_id: report.key_id.clone(),
                revision: report.revision,
                started_at: state.replicas.get(&report.replica).map_or(now, |known| known.started_at),
                seen_at: now,
                skew_micros: report.clock.as_micros() - now.as_micros(),
                live: true,
            };
            state.replicas.insert(report.replica, replica);
            ReplicaEcho {
                revision: state.snapshot.revision,
                database_time: now,
                edges: state.replicas.values().map(|replica| u32::from(replica.is_live_edge())).sum(),
                others: state
                    .replicas
                    .values()
                    .map(|replica| u32::from(replica.live && replica.id != report.replica))
                    .sum(),
                history: state.history.clone(),
            }
        })
        .await
    }
    async fn sign_off(&self, replica: ReplicaId) -> Result<()> {
        self.call(|state| state.replicas.remove(&replica)).await.map(drop)
    }
    async fn replicas(&self) -> Result<Vec<Replica>> {
        self.call(|state| state.replicas.values().cloned().collect()).await
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
    async fn update_tenant(&self, _: TenantUpdate, _: &Change) -> Result<Tenant> {
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
    async fn retire_secret(
        &self,
        _: &TenantId,
        _: &SourceId,
        _: &SecretId,
        _: Timestamp,
        _: &Change,
    ) -> Result<Secret> {
        Err(refused())
    }
    async fn revoke_secret(&self, _: &TenantId, _: &SourceId, _: &SecretId, _: &Change) -> Result<Secret> {
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
    async fn create_grant(&self, _: NewGrant, _: &Change) -> Result<Grant> {
        Err(refused())
    }
    async fn grant(&self, _: &GrantId) -> Result<Option<Grant>> {
        Err(refused())
    }
    async fn grants(&self, _: Option<&GrantId>, _: u32) -> Result<Page<Grant>> {
        Err(refused())
    }
    async fn delete_grant(&self, _: &GrantId, _: &Change) -> Result<()> {
        Err(refused())
    }
}
