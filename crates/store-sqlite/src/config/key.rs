//! Tenants' data keys, wrapped.

use async_trait::async_trait;
use portero_store::{
    Change, KeyStore, KeyUse, Name, NewAuditEntry, Resealed, ResealedSettings, Result, Revision, Rewrapped,
    SealedSettings, Secret, TENANT_KEYS_MAX, TenantKey,
};
use portero_types::{SourceId, SourceNo, TenantId, TenantNo, Timestamp, WrappedKey};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use super::{database_now, failed_precondition, freed, grant, insert_error, secret, source, subscription};
use crate::SqliteStore;
use crate::audit::append_in;
use crate::error::{not_found, statement};
use crate::log::json;
use crate::row::{get, parse, timestamp, unsigned};

/// Data keys with the names of their tenants; a condition follows.
macro_rules! keys {
    ($rest:literal) => {
        concat!(
            "SELECT k.*, t.tenant_id FROM tenant_keys AS k JOIN tenants AS t ON t.tenant_no = k.tenant_no ",
            $rest
        )
    };
}

fn key(row: &SqliteRow) -> Result<TenantKey> {
    Ok(TenantKey {
        tenant_no: TenantNo(get(row, "tenant_no")?),
        tenant: parse(row, "tenant_id")?,
        key: WrappedKey {
            version: unsigned(row, "version")?,
            key_id: get(row, "key_id")?,
            bytes: get(row, "wrapped")?,
        },
        created_at: timestamp(row, "created_at")?,
    })
}

/// Of every tenant that was not erased.
pub(super) async fn all(connection: &mut SqliteConnection) -> Result<Vec<TenantKey>> {
    let query = sqlx::query(keys!("ORDER BY k.tenant_no, k.version"));
    query.fetch_all(connection).await.map_err(statement)?.iter().map(key).collect()
}

/// Of these tenants.
pub(super) async fn of(connection: &mut SqliteConnection, tenants: &[TenantNo]) -> Result<Vec<TenantKey>> {
    let numbers: Vec<i64> = tenants.iter().map(|tenant| tenant.0).collect();
    let query = sqlx::query(keys!(
        "WHERE k.tenant_no IN (SELECT value FROM json_each(?)) ORDER BY k.tenant_no, k.version"
    ));
    query.bind(json(&numbers)).fetch_all(connection).await.map_err(statement)?.iter().map(key).collect()
}

/// All of each tenant that got one after a revision.
pub(super) async fn changed(connection: &mut SqliteConnection, since: Revision) -> Result<Vec<TenantKey>> {
    let query = sqlx::query(keys!(
        "WHERE k.tenant_no IN (SELECT tenant_no FROM tenant_keys WHERE revision > ?) \
         ORDER BY k.tenant_no, k.version"
    ));
    query.bind(since.0).fetch_all(connection).await.map_err(statement)?.iter().map(key).collect()
}

/// Writes a tenant's data key.
pub(super) async fn insert(
    connection: &mut SqliteConnection,
    tenant: TenantNo,
    key: &WrappedKey,
    created_at: Timestamp,
) -> Result<()> {
    let sql = "INSERT INTO tenant_keys (tenant_no, version, key_id, wrapped, created_at) \
               SELECT tenant_no, ?2, ?3, ?4, ?5 FROM tenants WHERE tenant_no = ?1 AND erased_at IS NULL";
    let inserted = sqlx::query(sql)
        .bind(tenant.0)
        .bind(key.version)
        .bind(key.key_id.as_str())
        .bind(key.bytes.as_slice())
        .bind(created_at.as_micros())
        .execute(connection)
        .await
        .map_err(insert_error)?;
    if inserted.rows_affected() == 0 { Err(not_found("tenant")) } else { Ok(()) }
}

#[async_trait]
impl KeyStore for SqliteStore {
    async fn erase_tenant(&self, tenant: &TenantId, change: &Change) -> Result<()> {
        let id = tenant.clone();
        self.change(change, move |connection, change| Box::pin(erase(connection, id, change))).await
    }

    async fn tenant_keys(&self, tenant: &TenantId) -> Result<Vec<TenantKey>> {
        let query = sqlx::query(keys!("WHERE t.tenant_id = ? AND t.deleted_at IS NULL ORDER BY k.version"))
            .bind(tenant.as_str());
        query.fetch_all(self.readers.pool()).await.map_err(statement)?.iter().map(key).collect()
    }

    async fn key_uses(&self) -> Result<Vec<KeyUse>> {
        let sql = "SELECT key_id, count(*) AS data_keys, count(DISTINCT tenant_no) AS tenants \
                   FROM tenant_keys GROUP BY key_id ORDER BY key_id";
        let found = sqlx::query(sql).fetch_all(self.readers.pool()).await.map_err(statement)?;
        let key_use = |row: &SqliteRow| {
            Ok(KeyUse {
                key_id: get(row, "key_id")?,
                data_keys: unsigned(row, "data_keys")?,
                tenants: unsigned(row, "tenants")?,
            })
        };
        found.iter().map(key_use).collect()
    }

    async fn keys_not_under(
        &self,
        key_id: &str,
        after: Option<(TenantNo, u16)>,
        limit: u32,
    ) -> Result<Vec<TenantKey>> {
        let (tenant, version) = after.map_or((i64::MIN, 0), |(tenant, version)| (tenant.0, version));
        let query = sqlx::query(keys!(
            "WHERE k.key_id <> ? AND (k.tenant_no, k.version) > (?, ?) ORDER BY k.tenant_no, k.version LIMIT ?"
        ))
        .bind(key_id)
        .bind(tenant)
        .bind(version)
        .bind(limit);
        query.fetch_all(self.readers.pool()).await.map_err(statement)?.iter().map(key).collect()
    }

    async fn rewrap(&self, keys: Vec<Rewrapped>, change: &Change) -> Result<u64> {
        let change = change.clone();
        self.writer.write(move |connection| Box::pin(rewrap(connection, keys, change))).await
    }

    async fn newest_keys_before(
        &self,
        before: Timestamp,
        after: Option<TenantNo>,
        limit: u32,
    ) -> Result<Vec<TenantKey>> {
        let query = sqlx::query(keys!(
            "WHERE k.tenant_no > ? AND k.created_at < ? AND t.deleted_at IS NULL AND NOT EXISTS (\
             SELECT 1 FROM tenant_keys AS n WHERE n.tenant_no = k.tenant_no AND n.version > k.version) \
             ORDER BY k.tenant_no LIMIT ?"
        ))
        .bind(after.map_or(i64::MIN, |after| after.0))
        .bind(before.as_micros())
        .bind(limit);
        query.fetch_all(self.readers.pool()).await.map_err(statement)?.iter().map(key).collect()
    }

    async fn add_tenant_key(&self, tenant_no: TenantNo, key: WrappedKey, change: &Change) -> Result<()> {
        self.change(change, move |connection, change| Box::pin(add(connection, tenant_no, key, change))).await
    }

    async fn secrets_of(&self, tenant_no: TenantNo) -> Result<Vec<(SourceId, Secret)>> {
        let sql = "SELECT secrets.*, sources.source_id FROM secrets \
                   JOIN sources ON sources.source_no = secrets.source_no \
                   WHERE sources.tenant_no = ? AND sources.deleted_at IS NULL \
                   ORDER BY sources.source_id, secrets.secret_id";
        let query = sqlx::query(sql).bind(tenant_no.0);
        let found = query.fetch_all(self.readers.pool()).await.map_err(statement)?;
        found.iter().map(|row| Ok((parse(row, "source_id")?, secret::read(row)?))).collect()
    }

    async fn reseal(&self, secrets: Vec<Resealed>) -> Result<u64> {
        self.writer.write(move |connection| Box::pin(reseal(connection, secrets))).await
    }

    async fn sealed_settings_of(
        &self,
        tenant_no: TenantNo,
    ) -> Result<Vec<(SourceNo, SourceId, SealedSettings)>> {
        let sql = "SELECT source_no, source_id, sealed_settings FROM sources \
                   WHERE tenant_no = ? AND deleted_at IS NULL AND sealed_settings <> '{}' ORDER BY source_id";
        let query = sqlx::query(sql).bind(tenant_no.0);
        let found = query.fetch_all(self.readers.pool()).await.map_err(statement)?;
        let settings = |row: &SqliteRow| {
            Ok((SourceNo(get(row, "source_no")?), parse(row, "source_id")?, source::sealed(row)?))
        };
        found.iter().map(settings).collect()
    }

    async fn reseal_settings(&self, settings: Vec<ResealedSettings>) -> Result<u64> {
        self.writer.write(move |connection| Box::pin(reseal_settings(connection, settings))).await
    }
}

async fn rewrap(connection: &mut SqliteConnection, keys: Vec<Rewrapped>, change: Change) -> Result<u64> {
    let sql = "UPDATE tenant_keys SET key_id = ?, wrapped = ? \
               WHERE tenant_no = ? AND version = ? AND key_id = ? AND wrapped = ?";
    let mut replaced = 0;
    for key in &keys {
        let done = sqlx::query(sql)
            .bind(key.to.key_id.as_str())
            .bind(key.to.bytes.as_slice())
            .bind(key.tenant_no.0)
            .bind(key.from.version)
            .bind(key.from.key_id.as_str())
            .bind(key.from.bytes.as_slice())
            .execute(&mut *connection)
            .await
            .map_err(statement)?;
        replaced += done.rows_affected();
    }
    if let Some(key) = keys.first().filter(|_| replaced > 0) {
        let name = format!("keyring/{}", key.to.key_id);
        append_in(connection, NewAuditEntry::deed(&change, "RewrapDataKeys", name, None)).await?;
    }
    Ok(replaced)
}

async fn reseal(connection: &mut SqliteConnection, secrets: Vec<Resealed>) -> Result<u64> {
    let sql = "UPDATE secrets SET sealed = ? WHERE secret_no = ? AND sealed = ?";
    let mut replaced = 0;
    for secret in secrets {
        let done = sqlx::query(sql)
            .bind(secret.to.0)
            .bind(secret.no.0)
            .bind(secret.from.0)
            .execute(&mut *connection)
            .await
            .map_err(statement)?;
        replaced += done.rows_affected();
    }
    Ok(replaced)
}

async fn reseal_settings(connection: &mut SqliteConnection, settings: Vec<ResealedSettings>) -> Result<u64> {
    let sql = "UPDATE sources SET sealed_settings = ? \
               WHERE source_no = ? AND sealed_settings = ? AND deleted_at IS NULL";
    let mut replaced = 0;
    for of in settings {
        let done = sqlx::query(sql)
            .bind(of.to.to_text())
            .bind(of.source.0)
            .bind(of.from.to_text())
            .execute(&mut *connection)
            .await
            .map_err(statement)?;
        replaced += done.rows_affected();
    }
    Ok(replaced)
}

async fn add(
    connection: &mut SqliteConnection,
    tenant: TenantNo,
    key: WrappedKey,
    change: Change,
) -> Result<()> {
    insert(connection, tenant, &key, change.at).await?;
    let sql = "SELECT tenant_id, (SELECT count(*) FROM tenant_keys WHERE tenant_no = ?1) AS data_keys \
               FROM tenants WHERE tenant_no = ?1";
    let row = sqlx::query(sql).bind(tenant.0).fetch_one(&mut *connection).await.map_err(statement)?;
    if unsigned::<usize>(&row, "data_keys")? > TENANT_KEYS_MAX {
        return Err(failed_precondition(format!(
            "the tenant has {TENANT_KEYS_MAX} data keys, the most that one can have"
        )));
    }
    let id: TenantId = parse(&row, "tenant_id")?;
    let entry = NewAuditEntry::deed(&change, "RotateDataKey", format!("tenants/{id}"), Some(&id));
    append_in(connection, entry).await
}

/// The keys first: whatever happens after is undone together with their end.
async fn erase(connection: &mut SqliteConnection, id: TenantId, change: Change) -> Result<()> {
    let find = "SELECT tenant_no, deleted_at IS NULL AS is_living FROM tenants \
                WHERE tenant_id = ?1 AND erased_at IS NULL AND (deleted_at IS NULL \
                OR NOT EXISTS (SELECT 1 FROM tenants WHERE tenant_id = ?1 AND deleted_at IS NULL))";
    let found = sqlx::query(find).bind(id.as_str()).fetch_all(&mut *connection).await.map_err(statement)?;
    if found.is_empty() {
        return Err(not_found("tenant"));
    }
    for row in &found {
        let no: i64 = get(row, "tenant_no")?;
        if get(row, "is_living")? {
            freed::insert(connection, &Name::Tenant(id.clone()), change.at).await?;
        }
        for sql in [
            // What is overwritten is not left behind in a free page.
            "UPDATE tenant_keys SET wrapped = zeroblob(length(wrapped)) WHERE tenant_no = ?",
            "DELETE FROM tenant_keys WHERE tenant_no = ?",
            "DELETE FROM secrets WHERE source_no IN (SELECT source_no FROM sources WHERE tenant_no = ?)",
            "DELETE FROM rejections WHERE source_no IN (SELECT source_no FROM sources WHERE tenant_no = ?)",
            concat!(
                "UPDATE sources SET sealed_settings = '{}', deleted_at = ",
                database_now!(),
                " WHERE tenant_no = ? AND deleted_at IS NULL"
            ),
            concat!(
                "UPDATE tenants SET erased_at = ",
                database_now!(),
                ", deleted_at = coalesce(deleted_at, ",
                database_now!(),
                ") WHERE tenant_no = ?"
            ),
        ] {
            sqlx::query(sql).bind(no).execute(&mut *connection).await.map_err(statement)?;
        }
        grant::delete_of_tenant(connection, TenantNo(no), &change).await?;
        let of = sqlx::query("SELECT subscription_id FROM subscriptions WHERE tenant_no = ?").bind(no);
        for row in of.fetch_all(&mut *connection).await.map_err(statement)? {
            subscription::delete(connection, parse(&row, "subscription_id")?, change.clone()).await?;
        }
    }
    let entry = NewAuditEntry::deed(&change, "EraseTenant", format!("tenants/{id}"), Some(&id));
    append_in(connection, entry).await
}
