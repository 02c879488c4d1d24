//! Tenants. A deleted tenant's row stays behind its receipts, marked with the time of its deletion.

use portero_store::{
    Change, Error, ErrorKind, Limits, NewAuditEntry, NewTenant, Page, Result, Revision, Tenant, TenantUpdate,
};
use portero_types::{TenantId, TenantNo, Timestamp, WrappedKey};
use sqlx::postgres::PgRow;

use super::{Changing, not_found, one, one_more, page};
use crate::error::{Effect, corrupt};
use crate::lease::{PgQuery, rows};
use crate::pools::Pool;
use crate::row::{get, parse};

pub(super) fn read(row: &PgRow) -> Result<Tenant> {
    Ok(Tenant {
        no: TenantNo(get(row, "tenant_no")?),
        id: parse(row, "tenant_id")?,
        display_name: get(row, "display_name")?,
        limits: limits(row)?,
        created_at: Timestamp::from_micros(get(row, "created_at")?),
    })
}

/// How much a tenant or a source may send.
pub(super) fn limits(row: &PgRow) -> Result<Limits> {
    let columns = [get(row, "limit_events")?, get(row, "limit_burst")?, get(row, "limit_bytes")?];
    Limits::from_columns(columns).ok_or_else(|| corrupt("limits"))
}

pub(super) fn all() -> PgQuery<'static> {
    sqlx::query("SELECT * FROM tenants WHERE deleted_at IS NULL ORDER BY tenant_id")
}

/// Those whose last change is later than a revision.
pub(super) fn changed(since: Revision) -> PgQuery<'static> {
    sqlx::query("SELECT * FROM tenants WHERE deleted_at IS NULL AND revision > $1").bind(since.0)
}

pub(super) async fn create(pool: &Pool, tenant: NewTenant, change: &Change) -> Result<Tenant> {
    tenant.limits.check()?;
    let [events, burst, bytes] = tenant.limits.columns();
    let query = sqlx::query(
        "INSERT INTO tenants (tenant_id, display_name, limit_events, limit_burst, limit_bytes, created_at)
         VALUES ($1, $2, $3, $4, $5, $6) RETURNING *",
    )
    .bind(tenant.id.as_str())
    .bind(tenant.display_name.as_str())
    .bind(events)
    .bind(burst)
    .bind(bytes)
    .bind(tenant.created_at.as_micros());
    let mut changing = Changing::begin(pool, change).await?;
    let outcome = match changing.create(query, "tenant", "tenant").await.and_then(|row| read(&row)) {
        Ok(created) => keyed(&mut changing, created, &tenant.key).await,
        Err(error) => Err(error),
    };
    changing.end(outcome).await
}

/// Writes a new tenant's first data key, and tells the audit log of both.
async fn keyed(changing: &mut Changing, created: Tenant, key: &WrappedKey) -> Result<Tenant> {
    super::keys::insert_in(changing, created.no, key, created.created_at).await?;
    recorded(changing, "CreateTenant", None, Ok(created)).await
}

pub(super) async fn update(pool: &Pool, update: TenantUpdate, change: &Change) -> Result<Tenant> {
    update.limits.as_ref().map_or(Ok(()), Limits::check)?;
    let [events, burst, bytes] = update.limits.unwrap_or_default().columns();
    let query = sqlx::query(
        "UPDATE tenants
         SET display_name = coalesce($2, display_name),
             limit_events = CASE WHEN $3 THEN $4 ELSE limit_events END,
             limit_burst = CASE WHEN $3 THEN $5 ELSE limit_burst END,
             limit_bytes = CASE WHEN $3 THEN $6 ELSE limit_bytes END
         WHERE tenant_id = $1 AND deleted_at IS NULL
         RETURNING *",
    )
    .bind(update.id.as_str())
    .bind(update.display_name.as_deref())
    .bind(update.limits.is_some())
    .bind(events)
    .bind(burst)
    .bind(bytes);
    let mut changing = Changing::begin(pool, change).await?;
    let outcome = match find_in(&mut changing, &update.id).await {
        Ok(before) => {
            let outcome = changing.rows(query).await;
            let after = outcome.and_then(|found| one(&found, read)?.ok_or_else(|| not_found("tenant")));
            recorded(&mut changing, "UpdateTenant", Some(&before), after).await
        }
        Err(error) => Err(error),
    };
    changing.end(outcome).await
}

/// The live tenant, as the change finds it.
async fn find_in(changing: &mut Changing, id: &TenantId) -> Result<Tenant> {
    let query = sqlx::query("SELECT * FROM tenants WHERE tenant_id = $1 AND deleted_at IS NULL");
    one(&changing.rows(query.bind(id.as_str())).await?, read)?.ok_or_else(|| not_found("tenant"))
}

/// Tells the audit log what became of a tenant.
async fn recorded(
    changing: &mut Changing,
    action: &str,
    before: Option<&Tenant>,
    after: Result<Tenant>,
) -> Result<Tenant> {
    let after = after?;
    changing.record(NewAuditEntry::tenant(&changing.change, action, before, Some(&after))).await?;
    Ok(after)
}

pub(super) async fn get_one(pool: &Pool, id: &TenantId) -> Result<Option<Tenant>> {
    let query =
        sqlx::query("SELECT * FROM tenants WHERE tenant_id = $1 AND deleted_at IS NULL").bind(id.as_str());
    one(&rows(pool, query, Effect::None).await?, read)
}

pub(super) async fn list(pool: &Pool, after: Option<&TenantId>, limit: u32) -> Result<Page<Tenant>> {
    let query = sqlx::query(
        "SELECT * FROM tenants WHERE deleted_at IS NULL AND tenant_id > $1 ORDER BY tenant_id LIMIT $2",
    )
    .bind(after.map_or("", TenantId::as_str))
    .bind(one_more(limit));
    page(&rows(pool, query, Effect::None).await?, limit, read)
}

pub(super) async fn delete(pool: &Pool, id: &TenantId, change: &Change) -> Result<()> {
    let mut changing = Changing::begin(pool, change).await?;
    let outcome = mark_deleted(&mut changing, id).await;
    changing.end(outcome).await
}

async fn mark_deleted(changing: &mut Changing, id: &TenantId) -> Result<()> {
    let uses = sqlx::query(
        "SELECT EXISTS (SELECT FROM sources s WHERE s.tenant_no = t.tenant_no AND s.deleted_at IS NULL) AS has_sources,
                EXISTS (SELECT FROM subscriptions s WHERE s.tenant_no = t.tenant_no) AS has_subscriptions
         FROM tenants t WHERE t.tenant_id = $1 AND t.deleted_at IS NULL",
    )
    .bind(id.as_str());
    let found = changing.rows(uses).await?;
    let row = found.first().ok_or_else(|| not_found("tenant"))?;
    for (column, message) in [
        ("has_sources", "the tenant has sources: delete them first"),
        ("has_subscriptions", "a subscription names the tenant: delete it first"),
    ] {
        if get(row, column)? {
            return Err(Error::new(ErrorKind::FailedPrecondition, message));
        }
    }
    let delete = sqlx::query(
        "UPDATE tenants SET deleted_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
         WHERE tenant_id = $1 AND deleted_at IS NULL",
    )
    .bind(id.as_str());
    let tenant = find_in(changing, id).await?;
    super::grants::delete_of_tenant(changing, tenant.no.0).await?;
    super::freed::by_tenants(changing, &[tenant.no.0]).await?;
    changing.rows(delete).await?;
    changing.record(NewAuditEntry::tenant(&changing.change, "DeleteTenant", Some(&tenant), None)).await
}
