//! Tenants. A deleted tenant's row stays behind its receipts, marked with the time of its deletion.

use portero_store::{Change, Error, ErrorKind, NewTenant, Page, Result, Tenant};
use portero_types::{TenantId, TenantNo, Timestamp};
use sqlx::postgres::PgRow;

use super::{Changing, not_found, one, one_more, page};
use crate::error::Effect;
use crate::lease::{PgQuery, rows};
use crate::pools::Pool;
use crate::row::{get, parse};

pub(super) fn read(row: &PgRow) -> Result<Tenant> {
    Ok(Tenant {
        no: TenantNo(get(row, "tenant_no")?),
        id: parse(row, "tenant_id")?,
        display_name: get(row, "display_name")?,
        created_at: Timestamp::from_micros(get(row, "created_at")?),
    })
}

pub(super) fn all() -> PgQuery<'static> {
    sqlx::query("SELECT * FROM tenants WHERE deleted_at IS NULL ORDER BY tenant_id")
}

pub(super) async fn create(pool: &Pool, tenant: NewTenant, change: &Change) -> Result<Tenant> {
    let query = sqlx::query(
        "INSERT INTO tenants (tenant_id, display_name, created_at) VALUES ($1, $2, $3) RETURNING *",
    )
    .bind(tenant.id.as_str())
    .bind(tenant.display_name.as_str())
    .bind(tenant.created_at.as_micros());
    let mut changing = Changing::begin(pool, change).await?;
    let created = changing.create(query, "tenant", "tenant").await.and_then(|row| read(&row));
    changing.end(created).await
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
    changing.rows(delete).await.map(|_| ())
}
