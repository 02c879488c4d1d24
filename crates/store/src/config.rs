//! Tenants, sources, secrets, subscriptions and grants.

use std::fmt;

use async_trait::async_trait;
use portero_types::{
    GrantId, LaneCount, ReplicaId, SecretId, SecretNo, SourceId, SourceNo, SubscriptionId, SubscriptionNo,
    TenantId, TenantNo, Timestamp, WrappedKey,
};

use crate::{
    Change, ConfigChanges, FreedName, Grant, Limits, NewGrant, NewSource, Replica, ReplicaEcho,
    ReplicaReport, Source, SourceUpdate, TenantKey,
};

/// The number of the last configuration change. It rises with every change, in the change's own transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

/// A page of a list, in the order of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The resources.
    pub items: Vec<T>,
    /// Whether there are more after the last one.
    pub more: bool,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Row number.
    pub no: TenantNo,
    /// Name.
    pub id: TenantId,
    /// For people; up to 200 characters.
    pub display_name: String,
    /// How much it may send.
    pub limits: Limits,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A tenant to be created.
#[derive(Clone, Debug)]
pub struct NewTenant {
    /// Name.
    pub id: TenantId,
    /// For people.
    pub display_name: String,
    /// Its first data key, wrapped.
    pub key: WrappedKey,
    /// How much it may send.
    pub limits: Limits,
    /// Now.
    pub created_at: Timestamp,
}

/// A value that one of its tenant's data keys encrypted, in the keyring's format, which says which one. Debug shows its
/// length.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(pub Vec<u8>);

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

/// A change of a tenant. What is `None` stays as it is.
#[derive(Clone, Debug)]
pub struct TenantUpdate {
    /// The tenant.
    pub id: TenantId,
    /// For people.
    pub display_name: Option<String>,
    /// How much it may send; replaces all three numbers.
    pub limits: Option<Limits>,
}

/// A secret of a source. It verifies from `not_before` until `not_after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Row number.
    pub no: SecretNo,
    /// The source's row number.
    pub source_no: SourceNo,
    /// Name.
    pub id: SecretId,
    /// Its encrypted value.
    pub sealed: Sealed,
    /// When it begins to verify.
    pub not_before: Timestamp,
    /// When it ceases to verify; `None` while it is active.
    pub not_after: Option<Timestamp>,
    /// When it was revoked: it verifies at no time, and what it verified is not accepted any more.
    pub revoked_at: Option<Timestamp>,
    /// Whether a handshake brought it and [`ConfigStore::take_unseen`] has not taken it yet.
    pub unseen: bool,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A secret to be added.
#[derive(Clone, Debug)]
pub struct NewSecret {
    /// The tenant.
    pub tenant: TenantId,
    /// The source.
    pub source: SourceId,
    /// Name.
    pub id: SecretId,
    /// Its encrypted value.
    pub sealed: Sealed,
    /// When it begins to verify.
    pub not_before: Timestamp,
    /// A rotation: when the source's other secrets that have no end yet cease to verify; `None` leaves them as they are, and so
    /// are those in any case that begin later than both this one and now.
    pub retire_others_at: Option<Timestamp>,
    /// Now.
    pub created_at: Timestamp,
}

/// Where a new subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// With the events accepted after its creation.
    Latest,
    /// With the oldest event that retention has kept.
    Earliest,
}

/// What becomes of an entity when one of its events is given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeadLetterPolicy {
    /// Its later events go on.
    #[default]
    Continue,
    /// Its later events wait until an operator asks for a retry.
    ParkEntity,
}

impl DeadLetterPolicy {
    /// As databases hold it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::ParkEntity => "park_entity",
        }
    }

    /// From what databases hold.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Continue, Self::ParkEntity].into_iter().find(|policy| policy.name() == name)
    }
}

/// Who gets which events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Row number.
    pub no: SubscriptionNo,
    /// Name.
    pub id: SubscriptionId,
    /// Only this tenant's events; `None` means every tenant's.
    pub tenant: Option<TenantId>,
    /// Only events of these sources; empty means all.
    pub sources: Vec<SourceId>,
    /// Only events of these types; `invoice.*` matches a prefix that ends at a dot; empty means all.
    pub event_types: Vec<String>,
    /// How many lanes.
    pub lanes: LaneCount,
    /// Counted attempts before an event becomes a dead letter. 1 to 1,000.
    pub attempts_max: u32,
    /// How long a deferred event waits before it becomes a dead letter, milliseconds.
    pub defer_deadline_ms: u64,
    /// What becomes of an entity when one of its events is given up.
    pub dead_letter_policy: DeadLetterPolicy,
    /// Position of each shard, in shard order, after which it begins.
    pub starts_after: Vec<u64>,
    /// How many of its events retention has dropped before they were delivered.
    pub expired: u64,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A subscription to be created.
#[derive(Clone, Debug)]
pub struct NewSubscription {
    /// Name.
    pub id: SubscriptionId,
    /// See [`Subscription::tenant`].
    pub tenant: Option<TenantId>,
    /// See [`Subscription::sources`].
    pub sources: Vec<SourceId>,
    /// See [`Subscription::event_types`].
    pub event_types: Vec<String>,
    /// See [`Subscription::lanes`].
    pub lanes: LaneCount,
    /// See [`Subscription::attempts_max`].
    pub attempts_max: u32,
    /// See [`Subscription::defer_deadline_ms`].
    pub defer_deadline_ms: u64,
    /// See [`Subscription::dead_letter_policy`].
    pub dead_letter_policy: DeadLetterPolicy,
    /// Where it begins.
    pub start_at: StartAt,
    /// Now.
    pub created_at: Timestamp,
}

/// A change of a subscription. What is `None` stays as it is. What it carries is not changed: its progress is written in
/// positions of the events that it carries.
#[derive(Clone, Debug)]
pub struct SubscriptionUpdate {
    /// The subscription.
    pub id: SubscriptionId,
    /// See [`Subscription::attempts_max`].
    pub attempts_max: Option<u32>,
    /// See [`Subscription::defer_deadline_ms`].
    pub defer_deadline_ms: Option<u64>,
    /// See [`Subscription::dead_letter_policy`].
    pub dead_letter_policy: Option<DeadLetterPolicy>,
}

impl SubscriptionUpdate {
    /// A change that changes nothing yet.
    #[must_use]
    pub const fn new(id: SubscriptionId) -> Self {
        Self { id, attempts_max: None, defer_deadline_ms: None, dead_letter_policy: None }
    }
}

/// All configuration at one revision.
#[derive(Clone, Debug)]
pub struct ConfigSnapshot {
    /// The revision.
    pub revision: Revision,
    /// Every tenant.
    pub tenants: Vec<Tenant>,
    /// The data keys of every tenant that was not erased, deleted ones included: their events may still be delivered.
    pub tenant_keys: Vec<TenantKey>,
    /// Every source.
    pub sources: Vec<Source>,
    /// Every secret that is not past its end by more than a day, nor past its revocation.
    pub secrets: Vec<Secret>,
    /// Every subscription.
    pub subscriptions: Vec<Subscription>,
    /// Every grant.
    pub grants: Vec<Grant>,
    /// Every name that a tenant or a subscription gave up.
    pub freed_names: Vec<FreedName>,
}

/// Looks after configuration. Every change of what gateways act upon raises the revision in the same transaction.
///
/// Create fails with `AlreadyExists`, get returns `None`, delete and add fail with `NotFound`; what is created under a
/// tenant or source that does not exist fails with `NotFound`. A list under a tenant or source that does not exist is
/// empty. Deleting a tenant that has sources or that a subscription names fails with `FailedPrecondition`. The row of a
/// deleted source or tenant stays behind its receipts, unseen by every call here; its name may be used again. What changes
/// something says who asked for it, and is in the audit log if and only if it happened.
#[async_trait]
pub trait ConfigStore: Send + Sync + 'static {
    /// The present revision.
    async fn revision(&self) -> crate::Result<Revision>;
    /// All configuration, as one transaction sees it. Spans tenants.
    async fn snapshot(&self) -> crate::Result<ConfigSnapshot>;

    /// What changed since a revision, as one transaction sees it. Spans tenants. What was deleted is known for a day.
    async fn changes(&self, since: Revision) -> crate::Result<ConfigChanges>;

    /// All data keys of these tenants as they are wrapped now, in the order of tenants' numbers and versions. Of a tenant that is
    /// not there or was erased there are none. Spans tenants.
    async fn tenant_keys_of(&self, tenants: &[TenantNo]) -> crate::Result<Vec<TenantKey>>;

    /// Says how far a process has applied the configuration, and is told the present revision: what every process asks twice
    /// a second. A process that is not known becomes known, and if it says so for the [first](ReplicaReport::first) time, others
    /// of its name are forgotten. What is new is written down at once, other reports only every
    /// [`REPLICA_WRITTEN_EVERY`](crate::REPLICA_WRITTEN_EVERY).
    ///
    /// # Errors
    /// `Unavailable` and `OutcomeUnknown`: nothing is known of the configuration.
    async fn report(&self, report: &ReplicaReport) -> crate::Result<ReplicaEcho>;
    /// Forgets a process that ends. One that is not known is fine.
    async fn sign_off(&self, replica: ReplicaId) -> crate::Result<()>;
    /// The processes that have not signed off, live ones first, in the order of their names; those that are silent for more
    /// than [`REPLICA_SHOWN`](crate::REPLICA_SHOWN) are left out.
    async fn replicas(&self) -> crate::Result<Vec<Replica>>;

    /// Creates a tenant.
    async fn create_tenant(&self, tenant: NewTenant, change: &Change) -> crate::Result<Tenant>;
    /// A tenant by name.
    async fn tenant(&self, id: &TenantId) -> crate::Result<Option<Tenant>>;
    /// Tenants whose names come after `after`.
    async fn tenants(&self, after: Option<&TenantId>, limit: u32) -> crate::Result<Page<Tenant>>;
    /// Changes what is given, and nothing else.
    ///
    /// # Errors
    /// `NotFound`; `Refused` when a bound is broken.
    async fn update_tenant(&self, update: TenantUpdate, change: &Change) -> crate::Result<Tenant>;
    /// Deletes a tenant that has no sources. Its data keys stay: its events are delivered.
    async fn delete_tenant(&self, id: &TenantId, change: &Change) -> crate::Result<()>;

    /// Creates a source.
    async fn create_source(&self, source: NewSource, change: &Change) -> crate::Result<Source>;
    /// A tenant's source by name.
    async fn source(&self, tenant: &TenantId, id: &SourceId) -> crate::Result<Option<Source>>;
    /// A tenant's sources whose names come after `after`.
    async fn sources(
        &self,
        tenant: &TenantId,
        after: Option<&SourceId>,
        limit: u32,
    ) -> crate::Result<Page<Source>>;
    /// Changes what is given, and nothing else.
    ///
    /// # Errors
    /// `NotFound`; `Refused` when a bound is broken.
    async fn update_source(&self, update: SourceUpdate, change: &Change) -> crate::Result<Source>;
    /// Adds the secret that a handshake brought, unseen, when the source waits for one at `now`, and ends the wait, in one
    /// transaction. `false`, and nothing changes, when the source waits for none or no longer, or is deleted. Of many at
    /// once one succeeds.
    ///
    /// # Errors
    /// As [`ConfigStore::add_secret`]; `NotFound` when the secret names another source. The source waits on then.
    async fn write_handshake_secret(
        &self,
        source_no: SourceNo,
        secret: NewSecret,
        now: Timestamp,
        change: &Change,
    ) -> crate::Result<bool>;
    /// Deletes a source with its secrets and rejections. Its URL is unknown from then on. Its receipts stay.
    async fn delete_source(&self, tenant: &TenantId, id: &SourceId, change: &Change) -> crate::Result<()>;

    /// Adds a secret and, when asked, sets the end of the others, in one transaction. A source that waited for a secret of a
    /// handshake waits no longer.
    ///
    /// # Errors
    /// `FailedPrecondition` when more than [`portero_types::limits::ACTIVE_SECRETS_MAX`] would verify at one moment.
    async fn add_secret(&self, secret: NewSecret, change: &Change) -> crate::Result<Secret>;
    /// A secret by name.
    async fn secret(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
    ) -> crate::Result<Option<Secret>>;
    /// A source's secrets whose names come after `after`.
    async fn secrets(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        after: Option<&SecretId>,
        limit: u32,
    ) -> crate::Result<Page<Secret>>;
    /// The value of an unseen secret, which is unseen no longer: of many calls at once one gets it. `None` for one that was
    /// taken already, that no handshake brought, or that does not exist. It verifies as before, so the revision stays.
    ///
    /// # Errors
    /// After `OutcomeUnknown` the value may be taken, and by nobody.
    async fn take_unseen(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        change: &Change,
    ) -> crate::Result<Option<Sealed>>;
    /// Sets when a secret ceases to verify. One that ends later may be given another end.
    ///
    /// # Errors
    /// `FailedPrecondition` when it has ended by the change's time or is revoked, or when more than
    /// [`portero_types::limits::ACTIVE_SECRETS_MAX`] would verify at one moment.
    async fn retire_secret(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        at: Timestamp,
        change: &Change,
    ) -> crate::Result<Secret>;
    /// Revokes a secret: from its commit on [`crate::AcceptStore::accept`] refuses what it verified, whoever asks. There is no
    /// way back. One that is revoked already stays as it is, and so does the revision.
    async fn revoke_secret(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        change: &Change,
    ) -> crate::Result<Secret>;
    /// Deletes a secret that does not verify at the change's time. What it verified is not accepted any more.
    ///
    /// # Errors
    /// `FailedPrecondition` when it verifies: it must be retired or revoked first.
    async fn delete_secret(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        change: &Change,
    ) -> crate::Result<()>;

    /// Creates a subscription; the start positions are read in the same transaction.
    ///
    /// # Errors
    /// `FailedPrecondition` when it has fewer lanes than the log has shards.
    async fn create_subscription(
        &self,
        subscription: NewSubscription,
        change: &Change,
    ) -> crate::Result<Subscription>;
    /// Changes what is given, and nothing else.
    ///
    /// # Errors
    /// `NotFound`.
    async fn update_subscription(
        &self,
        update: SubscriptionUpdate,
        change: &Change,
    ) -> crate::Result<Subscription>;
    /// A subscription by name.
    async fn subscription(&self, id: &SubscriptionId) -> crate::Result<Option<Subscription>>;
    /// Subscriptions whose names come after `after`.
    async fn subscriptions(
        &self,
        after: Option<&SubscriptionId>,
        limit: u32,
    ) -> crate::Result<Page<Subscription>>;
    /// Deletes a subscription with its lanes, journal, parked entities and dead letters.
    async fn delete_subscription(&self, id: &SubscriptionId, change: &Change) -> crate::Result<()>;

    /// Creates a grant.
    ///
    /// # Errors
    /// `NotFound` when its tenant or one of its subscriptions does not exist; `Refused` when a bound is broken.
    async fn create_grant(&self, grant: NewGrant, change: &Change) -> crate::Result<Grant>;
    /// A grant by name.
    async fn grant(&self, id: &GrantId) -> crate::Result<Option<Grant>>;
    /// Grants whose names come after `after`.
    async fn grants(&self, after: Option<&GrantId>, limit: u32) -> crate::Result<Page<Grant>>;
    /// Deletes a grant. Grants also go with their tenant, and those of consumers with the last of their subscriptions: a name
    /// that is used again brings none back.
    async fn delete_grant(&self, id: &GrantId, change: &Change) -> crate::Result<()>;
}
