//! Tenants, sources, secrets, subscriptions and their revision.

mod secret;
mod source;
pub(crate) mod subscription;
mod tenant;

use async_trait::async_trait;
use portero_store::{
    Change, ConfigSnapshot, ConfigStore, Error, ErrorKind, NewSecret, NewSource, NewSubscription, NewTenant,
    Page, Result, Revision, Sealed, Secret, Source, SourceUpdate, Subscription, SubscriptionUpdate, Tenant,
};
use portero_types::{SecretId, SourceId, SourceNo, SubscriptionId, TenantId, Timestamp};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

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
        self.readers.snapshot(|connection| Box::pin(snapshot(connection))).await
    }

    async fn create_tenant(&self, new: NewTenant, change: &Change) -> Result<Tenant> {
        self.change(change, move |connection| Box::pin(tenant::create(connection, new))).await
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>> {
        tenant::get_one(self.readers.pool(), id).await
    }

    async fn tenants(&self, after: Option<&TenantId>, limit: u32) -> Result<Page<Tenant>> {
        tenant::list(self.readers.pool(), after, limit).await
    }

    async fn delete_tenant(&self, id: &TenantId, change: &Change) -> Result<()> {
        let id = id.clone();
        self.change(change, move |connection| Box::pin(tenant::delete(connection, id))).await
    }

    async fn create_source(&self, new: NewSource, change: &Change) -> Result<Source> {
        self.change(change, move |connection| Box::pin(source::create(connection, new))).await
    }

    async fn source(&self, tenant: &TenantId, id: &SourceId) -> Result<Option<Source>> {
        source::get_one(self.readers.pool(), tenant, id).await
    }

    async fn sources(&self, tenant: &TenantId, after: Option<&SourceId>, limit: u32) -> Result<Page<Source>> {
        source::list(self.readers.pool(), tenant, after, limit).await
    }

    async fn update_source(&self, update: SourceUpdate, change: &Change) -> Result<Source> {
        self.change(change, move |connection| Box::pin(source::update(connection, update))).await
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
        self.writer
            .write(move |connection| Box::pin(secret::add_by_handshake(connection, source_no, new, now)))
            .await
    }

    async fn delete_source(&self, tenant: &TenantId, id: &SourceId, change: &Change) -> Result<()> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.change(change, move |connection| Box::pin(source::delete(connection, tenant, id))).await
    }

    async fn add_secret(&self, new: NewSecret, change: &Change) -> Result<Secret> {
        self.change(change, move |connection| Box::pin(secret::add(connection, new))).await
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
        self.writer
            .write(move |connection| Box::pin(secret::take_unseen(connection, tenant, source, id)))
            .await
    }

    async fn delete_secret(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
        change: &Change,
    ) -> Result<()> {
        let (tenant, source, id) = (tenant.clone(), source.clone(), id.clone());
        self.change(change, move |connection| Box::pin(secret::delete(connection, tenant, source, id))).await
    }

    async fn create_subscription(&self, new: NewSubscription, change: &Change) -> Result<Subscription> {
        self.change(change, move |connection| Box::pin(subscription::create(connection, new))).await
    }

    async fn update_subscription(&self, update: SubscriptionUpdate, change: &Change) -> Result<Subscription> {
        self.change(change, move |connection| Box::pin(subscription::update(connection, update))).await
    }

    async fn subscription(&self, id: &SubscriptionId) -> Result<Option<Subscription>> {
        subscription::get_one(self.readers.pool(), id).await
    }

    async fn subscriptions(&self, after: Option<&SubscriptionId>, limit: u32) -> Result<Page<Subscription>> {
        subscription::list(self.readers.pool(), after, limit).await
    }

    async fn delete_subscription(&self, id: &SubscriptionId, change: &Change) -> Result<()> {
        let id = id.clone();
        self.change(change, move |connection| Box::pin(subscription::delete(connection, id))).await
    }
}

impl SqliteStore {
    /// A change of configuration: raises the revision in its transaction.
    async fn change<T, F>(&self, _change: &Change, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> Work<'c, T> + Send + 'static,
    {
        self.writer
            .write(move |connection| {
                Box::pin(async move {
                    raise_revision(connection).await?;
                    work(connection).await
                })
            })
            .await
    }
}

async fn raise_revision(connection: &mut SqliteConnection) -> Result<()> {
    let sql = "UPDATE config_revision SET revision = revision + 1";
    sqlx::query(sql).execute(connection).await.map(drop).map_err(statement)
}

const REVISION: &str = "SELECT revision FROM config_revision";

async fn snapshot(connection: &mut SqliteConnection) -> Result<ConfigSnapshot> {
    let row = sqlx::query(REVISION).fetch_one(&mut *connection).await.map_err(statement)?;
    Ok(ConfigSnapshot {
        revision: Revision(get(&row, "revision")?),
        tenants: tenant::all(connection).await?,
        sources: source::all(connection).await?,
        secrets: secret::all_recent(connection).await?,
        subscriptions: subscription::all(connection).await?,
    })
}

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
