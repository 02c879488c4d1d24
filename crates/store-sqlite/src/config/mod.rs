//! Tenants, sources, secrets, subscriptions and their revision.

mod changes;
mod freed;
mod grant;
mod key;
mod replica;
mod secret;
mod secret_life;
mod source;
pub(crate) mod subscription;
mod tenant;

use async_trait::async_trait;
use portero_store::{
    Change, ConfigChanges, ConfigSnapshot, ConfigStore, Error, ErrorKind, Grant, Hint, HintStore as _,
    NewGrant, NewSecret, NewSource, NewSubscription, NewTenant, Page, Replica, ReplicaEcho, ReplicaReport,
    Result, Revision, Sealed, Secret, Source, SourceUpdate, Subscription, SubscriptionUpdate, Tenant,
    TenantKey, TenantUpdate,
};
use portero_types::{
    GrantId, ReplicaId, SecretId, SourceId, SourceNo, SubscriptionId, TenantId, TenantNo, Timestamp,
};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use self::secret_life::Name;
use crate::SqliteStore;
use crate::error::{breaks_unique, statement};
use crate::row::get;
use crate::writer::Work;

/// The database's clock, microseconds. It ticks in milliseconds.
macro_rules! database_now {
    () => {
        "CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER)"
    };
}
pub(crate) use database_now;

#[async_trait]
impl ConfigStore for SqliteStore {
    async fn revision(&self) -> Result<Revision> {
        let row = sqlx::query(REVISION).fetch_one(self.readers.pool()).await.map_err(statement)?;
        get(&row, "revision").map(Revision)
    }

    async fn snapshot(&self) -> Result<ConfigSnapshot> {
        self.readers.snapshot(|connection| Box::pin(changes::all(connection))).await
    }

    async fn changes(&self, since: Revision) -> Result<ConfigChanges> {
        self.readers.snapshot(move |connection| Box::pin(changes::since(connection, since))).await
    }

    async fn tenant_keys_of(&self, tenants: &[TenantNo]) -> Result<Vec<TenantKey>> {
        let tenants = tenants.to_vec();
        self.readers
            .snapshot(move |connection| Box::pin(async move { key::of(connection, &tenants).await }))
            .await
    }

    async fn report(&self, report: &ReplicaReport) -> Result<ReplicaEcho> {
        let (told, report, replica) = (report.clone(), report.clone(), report.replica);
        let is_news =
            self.readers.snapshot(move |connection| Box::pin(replica::is_news(connection, told))).await?;
        if is_news {
            self.writer.write(move |connection| Box::pin(replica::write(connection, report))).await?;
        }
        self.readers.snapshot(move |connection| Box::pin(replica::echo(connection, replica))).await
    }

    async fn sign_off(&self, replica: ReplicaId) -> Result<()> {
        self.writer.write(move |connection| Box::pin(replica::sign_off(connection, replica))).await
    }

    async fn replicas(&self) -> Result<Vec<Replica>> {
        self.readers.snapshot(|connection| Box::pin(replica::all(connection))).await
    }

    async fn create_tenant(&self, new: NewTenant, change: &Change) -> Result<Tenant> {
        self.change(change, move |connection, change| Box::pin(tenant::create(connection, new, change))).await
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>> {
        tenant::get_one(self.readers.pool(), id).await
    }

    async fn tenants(&self, after: Option<&TenantId>, limit: u32) -> Result<Page<Tenant>> {
        tenant::list(self.readers.pool(), after, limit).await
    }

    async fn update_tenant(&self, update: TenantUpdate, change: &Change) -> Result<Tenant> {
        self.change(change, move |connection, change| Box::pin(tenant::update(connection, update, change)))
            .await
    }

    async fn delete_tenant(&self, id: &TenantId, change: &Change) -> Result<()> {
        let id = id.clone();
        self.change(change, move |connection, change| Box::pin(tenant::delete(connection, id, change))).await
    }

    async fn create_source(&self, new: NewSource, change: &Change) -> Result<Source> {
        self.change(change, move |connection, change| Box::pin(source::create(connection, new, change))).await
    }

    async fn source(&self, tenant: &TenantId, id: &SourceId) -> Result<Option<Source>> {
        source::get_one(self.readers.pool(), tenant, id).await
    }

    async fn sources(&self, tenant: &TenantId, after: Option<&SourceId>, limit: u32) -> Result<Page<Source>> {
        source::list(self.readers.pool(), tenant, after, limit).await
    }

    async fn update_source(&self, update: SourceUpdate, change: &Change) -> Result<Source> {
        self.change(change, move |connection, change| Box::pin(source::update(connection, update, change)))
            .await
    }

    async fn write_handshake_secret(
        &self,
        source_no: SourceNo,
        new: NewSecret,
        now: Timestamp,
        change: &Change,
    ) -> Result<bool> {
        // Who calls here is not known, and must not take the writer's time.
        if !source::waits(self.readers.pool(), source_no, now).await? {
            return Ok(false);
        }
        let change = change.clone();
        let written = self
            .writer
            .write(move |connection| {
                Box::pin(secret::add_by_handshake(connection, source_no, new, now, change))
            })
            .await?;
        if written {
            self.hint(Hint::Config).await?;
        }
        Ok(written)
    }

    async fn delete_source(&self, tenant: &TenantId, id: &SourceId, change: &Change) -> Result<()> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.change(change, move |connection, change| {
            Box::pin(source::delete(connection, tenant, id, change))
        })
        .await
    }

    async fn add_secret(&self, new: NewSecret, change: &Change) -> Result<Secret> {
        self.change(change, move |connection, change| Box::pin(secret::add(connection, new, change))).await
    }

    async fn secret(&self, tenant: &TenantId, source: &SourceId, id: &SecretId) -> Result<Option<Secret>> {
        secret::get_one(self.readers.pool(), tenant, source, id).await
    }

    async fn secrets(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        after: Option<&SecretId>,
        limit: u32,
    ) -> Result<Page<Secret>> {
        secret::list(self.readers.pool(), tenant, source, after, limit).await
    }

    async fn take_unseen(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        change: &Change,
    ) -> Result<Option<Sealed>> {
        let (tenant, source, id) = (tenant.clone(), source.clone(), id.clone());
        let change = change.clone();
        self.writer
            .write(move |connection| Box::pin(secret::take_unseen(connection, (tenant, source, id), change)))
            .await
    }

    async fn retire_secret(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        at: Timestamp,
        change: &Change,
    ) -> Result<Secret> {
        let name = Name::new(tenant, source, id);
        self.change(change, move |connection, change| {
            Box::pin(secret_life::retire(connection, name, at, change))
        })
        .await
    }

    async fn revoke_secret(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        change: &Change,
    ) -> Result<Secret> {
        let name = Name::new(tenant, source, id);
        if let Some(known) = self.secret(tenant, source, id).await?
            && known.revoked_at.is_some()
        {
            // There is no way back, so nothing changes, and the revision stays.
            return Ok(known);
        }
        self.change(change, move |connection, change| Box::pin(secret_life::revoke(connection, name, change)))
            .await
    }

    async fn delete_secret(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        change: &Change,
    ) -> Result<()> {
        let name = Name::new(tenant, source, id);
        self.change(change, move |connection, change| Box::pin(secret_life::delete(connection, name, change)))
            .await
    }

    async fn create_subscription(&self, new: NewSubscription, change: &Change) -> Result<Subscription> {
        self.change(change, move |connection, change| Box::pin(subscription::create(connection, new, change)))
            .await
    }

    async fn update_subscription(&self, update: SubscriptionUpdate, change: &Change) -> Result<Subscription> {
        self.change(change, move |connection, change| {
            Box::pin(subscription::update(connection, update, change))
        })
        .await
    }

    async fn subscription(&self, id: &SubscriptionId) -> Result<Option<Subscription>> {
        subscription::get_one(self.readers.pool(), id).await
    }

    async fn subscriptions(&self, after: Option<&SubscriptionId>, limit: u32) -> Result<Page<Subscription>> {
        subscription::list(self.readers.pool(), after, limit).await
    }

    async fn delete_subscription(&self, id: &SubscriptionId, change: &Change) -> Result<()> {
        let id = id.clone();
        self.change(change, move |connection, change| Box::pin(subscription::delete(connection, id, change)))
            .await
    }

    async fn create_grant(&self, new: NewGrant, change: &Change) -> Result<Grant> {
        self.change(change, move |connection, change| Box::pin(grant::create(connection, new, change))).await
    }

    async fn grant(&self, id: &GrantId) -> Result<Option<Grant>> {
        grant::get_one(self.readers.pool(), id).await
    }

    async fn grants(&self, after: Option<&GrantId>, limit: u32) -> Result<Page<Grant>> {
        grant::list(self.readers.pool(), after, limit).await
    }

    async fn delete_grant(&self, id: &GrantId, change: &Change) -> Result<()> {
        let id = id.clone();
        self.change(change, move |connection, change| Box::pin(grant::delete(connection, id, change))).await
    }
}

impl SqliteStore {
    /// A change of configuration: raises the revision in its transaction.
    async fn change<T, F>(&self, change: &Change, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection, Change) -> Work<'c, T> + Send + 'static,
    {
        let change = change.clone();
        let outcome = self
            .writer
            .write(move |connection| {
                Box::pin(async move {
                    raise_revision(connection).await?;
                    work(connection, change).await
                })
            })
            .await;
        if outcome.is_ok() {
            self.hint(Hint::Config).await?;
        }
        outcome
    }
}

async fn raise_revision(connection: &mut SqliteConnection) -> Result<()> {
    let sql = "UPDATE config_revision SET revision = revision + 1";
    sqlx::query(sql).execute(connection).await.map(drop).map_err(statement)
}

const REVISION: &str = "SELECT revision FROM config_revision";

/// How many rows a page's statement asks for: one more than the page holds, to know whether there are more.
pub(crate) fn one_more(limit: u32) -> i64 {
    i64::from(limit) + 1
}

/// Makes a page of rows that were asked for with [`one_more`].
pub(crate) fn page<T>(
    rows: &[SqliteRow],
    limit: u32,
    read: impl Fn(&SqliteRow) -> Result<T>,
) -> Result<Page<T>> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let items = rows.iter().take(limit).map(read).collect::<Result<_>>()?;
    Ok(Page { items, more: rows.len() > limit })
}

/// The error of an insert: a unique key in its way means that the resource exists.
fn insert_error(error: sqlx::Error) -> Error {
    if breaks_unique(&error) {
        return Error::new(ErrorKind::AlreadyExists, "a resource with this name or key exists");
    }
    statement(error)
}

fn failed_precondition(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::FailedPrecondition, message)
}
