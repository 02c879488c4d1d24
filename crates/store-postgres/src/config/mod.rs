//! Configuration. Every change first raises the revision in its transaction, which also makes changes serial: none of them
//! has to think of another one under way.

mod changes;
mod freed;
mod grants;
mod keys;
mod replicas;
mod secret_life;
mod secrets;
mod sources;
mod subscriptions;
mod tenants;

use async_trait::async_trait;
use portero_store::{
    Change, ConfigChanges, ConfigSnapshot, ConfigStore, Error, ErrorKind, Grant, Hint, NewAuditEntry,
    NewGrant, NewSecret, NewSource, NewSubscription, NewTenant, Page, Replica, ReplicaEcho, ReplicaReport,
    Result, Revision, Sealed, Secret, Source, SourceUpdate, Subscription, SubscriptionUpdate, Tenant,
    TenantKey, TenantUpdate,
};
use portero_types::{
    GrantId, ReplicaId, SecretId, SourceId, SourceNo, SubscriptionId, TenantId, TenantNo, Timestamp,
};
use sqlx::postgres::PgRow;

use crate::PostgresStore;
use crate::audit::append_in;
use crate::error::{Effect, broken_unique, corrupt, store_error};
use crate::hints::{CHANNEL, word};
use crate::lease::{PgQuery, Tx, rows};
use crate::pools::Pool;
use crate::row::get;

/// A transaction that changes configuration.
struct Changing {
    tx: Tx,
    change: Change,
    /// Whether the audit log tells of it.
    recorded: bool,
}

impl Changing {
    async fn begin(pool: &Pool, change: &Change) -> Result<Self> {
        let mut tx = Tx::begin(pool).await?;
        let raise = sqlx::query(
            "WITH raised AS (UPDATE config_revision SET revision = revision + 1 RETURNING revision)
             SELECT revision, pg_notify($1, $2) FROM raised",
        );
        tx.rows(raise.bind(CHANNEL).bind(word(Hint::Config))).await?;
        Ok(Self { tx, change: change.clone(), recorded: false })
    }

    /// Runs a statement of the change.
    async fn rows(&mut self, query: PgQuery<'_>) -> Result<Vec<PgRow>> {
        self.tx.rows(query).await
    }

    /// Writes to the audit log what the change did.
    async fn record(&mut self, entry: NewAuditEntry) -> Result<()> {
        self.recorded = true;
        append_in(&mut self.tx, entry).await
    }

    /// Commits, or undoes the change and its revision.
    async fn end<T>(self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Ok(value) => {
                debug_assert!(self.recorded, "no change without an entry of the audit log");
                self.tx.commit().await.map(|()| value)
            }
            Err(error) => {
                self.tx.roll_back().await;
                Err(error)
            }
        }
    }

    /// Runs an insert that yields one row, or none when what it belongs to does not exist.
    async fn create(&mut self, query: PgQuery<'_>, what: &str, under: &str) -> Result<PgRow> {
        match self.tx.try_rows(query).await {
            Ok(created) => created.into_iter().next().ok_or_else(|| not_found(under)),
            Err(error) if broken_unique(&error).is_some() => {
                Err(Error::new(ErrorKind::AlreadyExists, format!("this {what} exists already")))
            }
            Err(error) => Err(store_error(&error, Effect::None)),
        }
    }
}

fn not_found(what: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no such {what}"))
}

/// The first row as a resource.
pub(crate) fn one<T>(found: &[PgRow], read: impl Fn(&PgRow) -> Result<T>) -> Result<Option<T>> {
    found.first().map(read).transpose()
}

/// Rows as a page; one row more than the limit was asked for.
pub(crate) fn page<T>(found: &[PgRow], limit: u32, read: impl Fn(&PgRow) -> Result<T>) -> Result<Page<T>> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let items = found.iter().take(limit).map(read).collect::<Result<_>>()?;
    Ok(Page { items, more: found.len() > limit })
}

/// How many rows to ask for to fill a page and to know whether there are more.
pub(crate) fn one_more(limit: u32) -> i64 {
    i64::from(limit) + 1
}

#[async_trait]
impl ConfigStore for PostgresStore {
    async fn revision(&self) -> Result<Revision> {
        let query = sqlx::query("SELECT revision FROM config_revision");
        let found = rows(&self.pools.directory, query, Effect::None).await?;
        one(&found, |row| get(row, "revision").map(Revision))?.ok_or_else(|| corrupt("config_revision"))
    }

    async fn snapshot(&self) -> Result<ConfigSnapshot> {
        changes::all(&self.pools.directory).await
    }

    async fn changes(&self, since: Revision) -> Result<ConfigChanges> {
        changes::since(&self.pools.directory, since).await
    }

    async fn tenant_keys_of(&self, tenants: &[TenantNo]) -> Result<Vec<TenantKey>> {
        keys::of(&self.pools.directory, tenants).await
    }

    async fn report(&self, report: &ReplicaReport) -> Result<ReplicaEcho> {
        replicas::report(&self.pools.directory, report).await
    }

    async fn sign_off(&self, replica: ReplicaId) -> Result<()> {
        replicas::sign_off(&self.pools.control, replica).await
    }

    async fn replicas(&self) -> Result<Vec<Replica>> {
        replicas::all(&self.pools.control).await
    }

    async fn create_tenant(&self, tenant: NewTenant, change: &Change) -> Result<Tenant> {
        tenants::create(&self.pools.admin, tenant, change).await
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>> {
        tenants::get_one(&self.pools.admin, id).await
    }

    async fn tenants(&self, after: Option<&TenantId>, limit: u32) -> Result<Page<Tenant>> {
        tenants::list(&self.pools.admin, after, limit).await
    }

    async fn update_tenant(&self, update: TenantUpdate, change: &Change) -> Result<Tenant> {
        tenants::update(&self.pools.admin, update, change).await
    }

    async fn delete_tenant(&self, id: &TenantId, change: &Change) -> Result<()> {
        tenants::delete(&self.pools.admin, id, change).await
    }

    async fn create_source(&self, source: NewSource, change: &Change) -> Result<Source> {
        sources::create(&self.pools.admin, source, change).await
    }

    async fn source(&self, tenant: &TenantId, id: &SourceId) -> Result<Option<Source>> {
        sources::get_one(&self.pools.admin, tenant, id).await
    }

    async fn sources(&self, tenant: &TenantId, after: Option<&SourceId>, limit: u32) -> Result<Page<Source>> {
        sources::list(&self.pools.admin, tenant, after, limit).await
    }

    async fn update_source(&self, update: SourceUpdate, change: &Change) -> Result<Source> {
        sources::update(&self.pools.admin, update, change).await
    }

    async fn write_handshake_secret(
        &self,
        source_no: SourceNo,
        secret: NewSecret,
        now: Timestamp,
        change: &Change,
    ) -> Result<bool> {
        secrets::add_by_handshake(&self.pools.admin, source_no, &secret, now, change).await
    }

    async fn delete_source(&self, tenant: &TenantId, id: &SourceId, change: &Change) -> Result<()> {
        sources::delete(&self.pools.admin, tenant, id, change).await
    }

    async fn add_secret(&self, secret: NewSecret, change: &Change) -> Result<Secret> {
        secrets::add(&self.pools.admin, secret, change).await
    }

    async fn secret(&self, tenant: &TenantId, source: &SourceId, id: &SecretId) -> Result<Option<Secret>> {
        secrets::get_one(&self.pools.admin, tenant, source, id).await
    }

    async fn secrets(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        after: Option<&SecretId>,
        limit: u32,
    ) -> Result<Page<Secret>> {
        secrets::list(&self.pools.admin, tenant, source, after, limit).await
    }

    async fn take_unseen(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        change: &Change,
    ) -> Result<Option<Sealed>> {
        secrets::take_unseen(&self.pools.admin, tenant, source, id, change).await
    }

    async fn retire_secret(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        at: Timestamp,
        change: &Change,
    ) -> Result<Secret> {
        secret_life::retire(&self.pools.admin, tenant, source, id, at, change).await
    }

    async fn revoke_secret(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        change: &Change,
    ) -> Result<Secret> {
        secret_life::revoke(&self.pools.admin, tenant, source, id, change).await
    }

    async fn delete_secret(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        change: &Change,
    ) -> Result<()> {
        secret_life::delete(&self.pools.admin, tenant, source, id, change).await
    }

    async fn create_subscription(
        &self,
        subscription: NewSubscription,
        change: &Change,
    ) -> Result<Subscription> {
        let shards = self.shards().await?;
        subscriptions::create(&self.pools.admin, shards, subscription, change).await
    }

    async fn update_subscription(&self, update: SubscriptionUpdate, change: &Change) -> Result<Subscription> {
        subscriptions::update(&self.pools.admin, update, change).await
    }

    async fn subscription(&self, id: &SubscriptionId) -> Result<Option<Subscription>> {
        subscriptions::get_one(&self.pools.admin, id).await
    }

    async fn subscriptions(&self, after: Option<&SubscriptionId>, limit: u32) -> Result<Page<Subscription>> {
        subscriptions::list(&self.pools.admin, after, limit).await
    }

    async fn delete_subscription(&self, id: &SubscriptionId, change: &Change) -> Result<()> {
        subscriptions::delete(&self.pools.admin, id, change).await
    }

    async fn create_grant(&self, grant: NewGrant, change: &Change) -> Result<Grant> {
        grants::create(&self.pools.admin, grant, change).await
    }

    async fn grant(&self, id: &GrantId) -> Result<Option<Grant>> {
        grants::get_one(&self.pools.admin, id).await
    }

    async fn grants(&self, after: Option<&GrantId>, limit: u32) -> Result<Page<Grant>> {
        grants::list(&self.pools.admin, after, limit).await
    }

    async fn delete_grant(&self, id: &GrantId, change: &Change) -> Result<()> {
        grants::delete(&self.pools.admin, id, change).await
    }
}
