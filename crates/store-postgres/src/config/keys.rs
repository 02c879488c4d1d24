//! Tenants' data keys, wrapped. Changes of configuration are serial; wrapping again is none, and compares what it replaces.

use async_trait::async_trait;
use portero_store::{
    Change, Error, ErrorKind, KeyStore, KeyUse, NewAuditEntry, Resealed, ResealedSettings, Result, Revision,
    Rewrapped, SealedSettings, Secret, TENANT_KEYS_MAX, TenantKey,
};
use portero_types::{SourceId, SourceNo, TenantId, TenantNo, Timestamp, WrappedKey};
use sqlx::postgres::{PgBindIterExt, PgRow};

use super::{Changing, freed, grants, not_found, one, secrets, sources, subscriptions};
use crate::PostgresStore;
use crate::audit::{append_in, lock};
use crate::error::{Effect, corrupt};
use crate::lease::{PgQuery, Tx, rows};
use crate::pools::Pool;
use crate::row::{get, parse, unsigned};

/// Data keys with the names of their tenants; a condition follows.
macro_rules! keys {
    ($rest:literal) => {
        concat!("SELECT k.*, t.tenant_id FROM tenant_keys k JOIN tenants t USING (tenant_no) ", $rest)
    };
}

pub(super) fn read(row: &PgRow) -> Result<TenantKey> {
    Ok(TenantKey {
        tenant_no: TenantNo(get(row, "tenant_no")?),
        tenant: parse(row, "tenant_id")?,
        key: WrappedKey { version: version(row)?, key_id: get(row, "key_id")?, bytes: get(row, "wrapped")? },
        created_at: Timestamp::from_micros(get(row, "created_at")?),
    })
}

fn version(row: &PgRow) -> Result<u16> {
    u16::try_from(get::<i32>(row, "version")?).map_err(|_| corrupt("tenant_keys.version"))
}

/// Of every tenant that was not erased.
pub(super) fn all() -> PgQuery<'static> {
    sqlx::query(keys!("ORDER BY k.tenant_no, k.version"))
}

/// Of these tenants.
pub(super) async fn of(pool: &Pool, tenants: &[TenantNo]) -> Result<Vec<TenantKey>> {
    let query = sqlx::query(keys!("WHERE k.tenant_no = ANY ($1) ORDER BY k.tenant_no, k.version"))
        .bind(tenants.iter().map(|tenant| tenant.0).collect::<Vec<_>>());
    rows(pool, query, Effect::None).await?.iter().map(read).collect()
}

/// All of each tenant that got one after a revision.
pub(super) fn changed(since: Revision) -> PgQuery<'static> {
    sqlx::query(keys!(
        "WHERE k.tenant_no IN (SELECT tenant_no FROM tenant_keys WHERE revision > $1)
         ORDER BY k.tenant_no, k.version"
    ))
    .bind(since.0)
}

/// Writes a tenant's data key.
pub(super) async fn insert_in(
    changing: &mut Changing,
    tenant: TenantNo,
    key: &WrappedKey,
    created_at: Timestamp,
) -> Result<()> {
    let insert = sqlx::query(
        "INSERT INTO tenant_keys (tenant_no, version, key_id, wrapped, created_at)
         SELECT tenant_no, $2, $3, $4, $5 FROM tenants WHERE tenant_no = $1 AND erased_at IS NULL
         RETURNING tenant_no",
    )
    .bind(tenant.0)
    .bind(i32::from(key.version))
    .bind(key.key_id.as_str())
    .bind(key.bytes.as_slice())
    .bind(created_at.as_micros());
    changing.create(insert, "version of the tenant's data key", "tenant").await.map(drop)
}

#[async_trait]
impl KeyStore for PostgresStore {
    async fn erase_tenant(&self, tenant: &TenantId, change: &Change) -> Result<()> {
        let mut changing = Changing::begin(&self.pools.admin, change).await?;
        let outcome = erase_in(&mut changing, tenant).await;
        changing.end(outcome).await
    }

    async fn tenant_keys(&self, tenant: &TenantId) -> Result<Vec<TenantKey>> {
        let query = sqlx::query(keys!("WHERE t.tenant_id = $1 AND t.deleted_at IS NULL ORDER BY k.version"))
            .bind(tenant.as_str());
        rows(&self.pools.admin, query, Effect::None).await?.iter().map(read).collect()
    }

    async fn key_uses(&self) -> Result<Vec<KeyUse>> {
        let query = sqlx::query(
            "SELECT key_id, count(*) AS data_keys, count(DISTINCT tenant_no) AS tenants
             FROM tenant_keys GROUP BY key_id ORDER BY key_id",
        );
        let found = rows(&self.pools.admin, query, Effect::None).await?;
        let key_use = |row: &PgRow| {
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
            "WHERE k.key_id <> $1 AND (k.tenant_no, k.version) > ($2, $3)
             ORDER BY k.tenant_no, k.version LIMIT $4"
        ))
        .bind(key_id)
        .bind(tenant)
        .bind(i32::from(version))
        .bind(i64::from(limit));
        rows(&self.pools.admin, query, Effect::None).await?.iter().map(read).collect()
    }

    async fn rewrap(&self, keys: Vec<Rewrapped>, change: &Change) -> Result<u64> {
        let mut tx = Tx::begin(&self.pools.admin).await?;
        match rewrap_in(&mut tx, &keys, change).await {
            Ok(replaced) if replaced > 0 => tx.commit().await.map(|()| replaced),
            outcome => {
                tx.roll_back().await;
                outcome
            }
        }
    }

    async fn newest_keys_before(
        &self,
        before: Timestamp,
        after: Option<TenantNo>,
        limit: u32,
    ) -> Result<Vec<TenantKey>> {
        let query = sqlx::query(keys!(
            "WHERE k.tenant_no > $1 AND k.created_at < $2 AND t.deleted_at IS NULL AND NOT EXISTS (
                 SELECT FROM tenant_keys n WHERE n.tenant_no = k.tenant_no AND n.version > k.version
             )
             ORDER BY k.tenant_no LIMIT $3"
        ))
        .bind(after.map_or(i64::MIN, |after| after.0))
        .bind(before.as_micros())
        .bind(i64::from(limit));
        rows(&self.pools.admin, query, Effect::None).await?.iter().map(read).collect()
    }

    async fn add_tenant_key(&self, tenant_no: TenantNo, key: WrappedKey, change: &Change) -> Result<()> {
        let mut changing = Changing::begin(&self.pools.admin, change).await?;
        let outcome = add_in(&mut changing, tenant_no, &key).await;
        changing.end(outcome).await
    }

    async fn secrets_of(&self, tenant_no: TenantNo) -> Result<Vec<(SourceId, Secret)>> {
        let query = sqlx::query(
            "SELECT k.*, s.source_id FROM secrets k JOIN sources s USING (source_no)
             WHERE s.tenant_no = $1 AND s.deleted_at IS NULL ORDER BY s.source_id, k.secret_id",
        )
        .bind(tenant_no.0);
        let found = rows(&self.pools.admin, query, Effect::None).await?;
        found.iter().map(|row| Ok((parse(row, "source_id")?, secrets::read(row)?))).collect()
    }

    async fn reseal(&self, resealed: Vec<Resealed>) -> Result<u64> {
        let query = sqlx::query(
            "WITH replaced AS (
                 UPDATE secrets k SET sealed = g.sealed
                 FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS g (secret_no, from_sealed, sealed)
                 WHERE k.secret_no = g.secret_no AND k.sealed = g.from_sealed RETURNING 1
             )
             SELECT count(*) AS replaced FROM replaced",
        )
        .bind(resealed.iter().map(|secret| secret.no.0).bind_iter())
        .bind(resealed.iter().map(|secret| secret.from.0.as_slice()).bind_iter())
        .bind(resealed.iter().map(|secret| secret.to.0.as_slice()).bind_iter());
        count(&rows(&self.pools.admin, query, Effect::Commits).await?)
    }

    async fn sealed_settings_of(
        &self,
        tenant_no: TenantNo,
    ) -> Result<Vec<(SourceNo, SourceId, SealedSettings)>> {
        let query = sqlx::query(
            "SELECT source_no, source_id, sealed_settings FROM sources
             WHERE tenant_no = $1 AND deleted_at IS NULL AND sealed_settings <> '{}' ORDER BY source_id",
        )
        .bind(tenant_no.0);
        let found = rows(&self.pools.admin, query, Effect::None).await?;
        let settings = |row: &PgRow| {
            Ok((SourceNo(get(row, "source_no")?), parse(row, "source_id")?, sources::sealed(row)?))
        };
        found.iter().map(settings).collect()
    }

    async fn reseal_settings(&self, settings: Vec<ResealedSettings>) -> Result<u64> {
        let query = sqlx::query(
            "WITH replaced AS (
                 UPDATE sources s SET sealed_settings = g.sealed
                 FROM unnest($1::bigint[], $2::text[], $3::text[]) AS g (source_no, from_sealed, sealed)
                 WHERE s.source_no = g.source_no AND s.sealed_settings = g.from_sealed AND s.deleted_at IS NULL
                 RETURNING 1
             )
             SELECT count(*) AS replaced FROM replaced",
        )
        .bind(settings.iter().map(|of| of.source.0).bind_iter())
        .bind(settings.iter().map(|of| of.from.to_text()).bind_iter())
        .bind(settings.iter().map(|of| of.to.to_text()).bind_iter());
        count(&rows(&self.pools.admin, query, Effect::Commits).await?)
    }
}

fn count(found: &[PgRow]) -> Result<u64> {
    one(found, |row| unsigned(row, "replaced")).map(Option::unwrap_or_default)
}

/// Wraps them, and tells the audit log of it.
async fn rewrap_in(tx: &mut Tx, keys: &[Rewrapped], change: &Change) -> Result<u64> {
    lock(tx).await?;
    let query = sqlx::query(
        "WITH replaced AS (
             UPDATE tenant_keys k SET key_id = g.key_id, wrapped = g.wrapped
             FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::bytea[], $5::text[], $6::bytea[])
                  AS g (tenant_no, version, from_key_id, from_wrapped, key_id, wrapped)
             WHERE k.tenant_no = g.tenant_no AND k.version = g.version AND k.key_id = g.from_key_id
               AND k.wrapped = g.from_wrapped
             RETURNING 1
         )
         SELECT count(*) AS replaced FROM replaced",
    )
    .bind(keys.iter().map(|key| key.tenant_no.0).bind_iter())
    .bind(keys.iter().map(|key| i32::from(key.from.version)).bind_iter())
    .bind(keys.iter().map(|key| key.from.key_id.as_str()).bind_iter())
    .bind(keys.iter().map(|key| key.from.bytes.as_slice()).bind_iter())
    .bind(keys.iter().map(|key| key.to.key_id.as_str()).bind_iter())
    .bind(keys.iter().map(|key| key.to.bytes.as_slice()).bind_iter());
    let replaced = count(&tx.rows(query).await?)?;
    if let Some(key) = keys.first().filter(|_| replaced > 0) {
        let name = format!("keyring/{}", key.to.key_id);
        append_in(tx, NewAuditEntry::deed(change, "RewrapDataKeys", name, None)).await?;
    }
    Ok(replaced)
}

async fn add_in(changing: &mut Changing, tenant: TenantNo, key: &WrappedKey) -> Result<()> {
    let at = changing.change.at;
    insert_in(changing, tenant, key, at).await?;
    let query = sqlx::query(
        "SELECT t.tenant_id, (SELECT count(*) FROM tenant_keys k WHERE k.tenant_no = t.tenant_no) AS data_keys
         FROM tenants t WHERE t.tenant_no = $1",
    );
    let found = changing.rows(query.bind(tenant.0)).await?;
    let row = found.first().ok_or_else(|| not_found("tenant"))?;
    if unsigned(row, "data_keys")? > TENANT_KEYS_MAX as u64 {
        return Err(Error::new(
            ErrorKind::FailedPrecondition,
            format!("the tenant has {TENANT_KEYS_MAX} data keys, the most that one can have"),
        ));
    }
    let id: TenantId = parse(row, "tenant_id")?;
    let name = format!("tenants/{id}");
    changing.record(NewAuditEntry::deed(&changing.change, "RotateDataKey", name, Some(&id))).await
}

/// The keys first: whatever happens after is undone together with their end.
async fn erase_in(changing: &mut Changing, id: &TenantId) -> Result<()> {
    let find = sqlx::query(
        "SELECT tenant_no FROM tenants t WHERE tenant_id = $1 AND erased_at IS NULL AND (
             deleted_at IS NULL
             OR NOT EXISTS (SELECT FROM tenants l WHERE l.tenant_id = $1 AND l.deleted_at IS NULL)
         )",
    );
    let found = changing.rows(find.bind(id.as_str())).await?;
    let tenants = found.iter().map(|row| get(row, "tenant_no")).collect::<Result<Vec<i64>>>()?;
    if tenants.is_empty() {
        return Err(not_found("tenant"));
    }
    freed::by_tenants(changing, &tenants).await?;
    for statement in [
        "DELETE FROM tenant_keys WHERE tenant_no = ANY ($1)",
        "DELETE FROM secrets k USING sources s WHERE s.source_no = k.source_no AND s.tenant_no = ANY ($1)",
        "DELETE FROM rejections r USING sources s WHERE s.source_no = r.source_no AND s.tenant_no = ANY ($1)",
        "UPDATE sources SET deleted_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
                            sealed_settings = '{}'
         WHERE tenant_no = ANY ($1) AND deleted_at IS NULL",
        "UPDATE tenants SET erased_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
             deleted_at = coalesce(deleted_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
         WHERE tenant_no = ANY ($1)",
    ] {
        changing.rows(sqlx::query(statement).bind(&tenants)).await?;
    }
    for tenant in &tenants {
        grants::delete_of_tenant(changing, *tenant).await?;
    }
    let of = sqlx::query("SELECT subscription_id FROM subscriptions WHERE tenant_no = ANY ($1)");
    for row in changing.rows(of.bind(&tenants)).await? {
        subscriptions::delete_in(changing, &parse(&row, "subscription_id")?).await?;
    }
    let name = format!("tenants/{id}");
    changing.record(NewAuditEntry::deed(&changing.change, "EraseTenant", name, Some(id))).await
}
