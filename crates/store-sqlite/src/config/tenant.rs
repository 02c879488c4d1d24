//! Tenants.

use portero_store::{
    Change, Limits, Name, NewAuditEntry, NewTenant, Page, Result, Revision, Tenant, TenantUpdate,
};
use portero_types::{TenantId, TenantNo};
use sqlx::sqlite::SqliteRow;
use sqlx::{SqliteConnection, SqlitePool};

use super::{database_now, failed_precondition, insert_error, one_more, page};
use crate::audit::append_in;
use crate::error::{corrupt, not_found, statement};
use crate::row::{get, parse, timestamp};

/// The row number of a live tenant.
pub(super) async fn find(connection: &mut SqliteConnection, id: &TenantId) -> Result<TenantNo> {
    let sql = "SELECT tenant_no FROM tenants WHERE tenant_id = ? AND deleted_at IS NULL";
    let row = sqlx::query(sql).bind(id.as_str()).fetch_optional(connection).await.map_err(statement)?;
    get(&row.ok_or_else(|| not_found("tenant"))?, "tenant_no").map(TenantNo)
}

pub(super) async fn create(
    connection: &mut SqliteConnection,
    new: NewTenant,
    change: Change,
) -> Result<Tenant> {
    new.limits.check()?;
    let [events, burst, bytes] = new.limits.columns();
    let sql = "INSERT INTO tenants (tenant_id, display_name, limit_events, limit_burst, limit_bytes, created_at) \
               VALUES (?, ?, ?, ?, ?, ?) RETURNING *";
    let row = sqlx::query(sql)
        .bind(new.id.as_str())
        .bind(new.display_name)
        .bind(events)
        .bind(burst)
        .bind(bytes)
        .bind(new.created_at.as_micros())
        .fetch_one(&mut *connection)
        .await
        .map_err(insert_error)?;
    let created = tenant(&row)?;
    super::key::insert(connection, created.no, &new.key, created.created_at).await?;
    append_in(connection, NewAuditEntry::tenant(&change, "CreateTenant", None, Some(&created))).await?;
    Ok(created)
}

pub(super) async fn update(
    connection: &mut SqliteConnection,
    update: TenantUpdate,
    change: Change,
) -> Result<Tenant> {
    update.limits.as_ref().map_or(Ok(()), Limits::check)?;
    let [events, burst, bytes] = update.limits.unwrap_or_default().columns();
    let before = find_whole(connection, &update.id).await?;
    let sql = "UPDATE tenants SET display_name = coalesce(?2, display_name), \
               limit_events = CASE WHEN ?3 THEN ?4 ELSE limit_events END, \
               limit_burst = CASE WHEN ?3 THEN ?5 ELSE limit_burst END, \
               limit_bytes = CASE WHEN ?3 THEN ?6 ELSE limit_bytes END \
               WHERE tenant_id = ?1 AND deleted_at IS NULL RETURNING *";
    let row = sqlx::query(sql)
        .bind(update.id.as_str())
        .bind(update.display_name)
        .bind(update.limits.is_some())
        .bind(events)
        .bind(burst)
        .bind(bytes)
        .fetch_optional(&mut *connection)
        .await
        .map_err(statement)?;
    let after = tenant(&row.ok_or_else(|| not_found("tenant"))?)?;
    append_in(connection, NewAuditEntry::tenant(&change, "UpdateTenant", Some(&before), Some(&after)))
        .await?;
    Ok(after)
}

/// The live tenant, as a change finds it.
async fn find_whole(connection: &mut SqliteConnection, id: &TenantId) -> Result<Tenant> {
    let sql = "SELECT * FROM tenants WHERE tenant_id = ? AND deleted_at IS NULL";
    let row = sqlx::query(sql).bind(id.as_str()).fetch_optional(connection).await.map_err(statement)?;
    tenant(&row.ok_or_else(|| not_found("tenant"))?)
}

pub(super) async fn get_one(pool: &SqlitePool, id: &TenantId) -> Result<Option<Tenant>> {
    let sql = "SELECT * FROM tenants WHERE tenant_id = ? AND deleted_at IS NULL";
    let row = sqlx::query(sql).bind(id.as_str()).fetch_optional(pool).await.map_err(statement)?;
    row.map(|row| tenant(&row)).transpose()
}

pub(super) async fn list(pool: &SqlitePool, after: Option<&TenantId>, limit: u32) -> Result<Page<Tenant>> {
    let sql = "SELECT * FROM tenants WHERE tenant_id > ? AND deleted_at IS NULL ORDER BY tenant_id LIMIT ?";
    let rows = sqlx::query(sql)
        .bind(after.map_or("", TenantId::as_str))
        .bind(one_more(limit))
        .fetch_all(pool)
        .await
        .map_err(statement)?;
    page(&rows, limit, tenant)
}

/// Every live tenant.
pub(super) async fn all(connection: &mut SqliteConnection) -> Result<Vec<Tenant>> {
    let sql = "SELECT * FROM tenants WHERE deleted_at IS NULL ORDER BY tenant_id";
    let rows = sqlx::query(sql).fetch_all(connection).await.map_err(statement)?;
    rows.iter().map(tenant).collect()
}

/// Those whose last change is later than a revision.
pub(super) async fn changed(connection: &mut SqliteConnection, since: Revision) -> Result<Vec<Tenant>> {
    let sql = "SELECT * FROM tenants WHERE deleted_at IS NULL AND revision > ?";
    let rows = sqlx::query(sql).bind(since.0).fetch_all(connection).await.map_err(statement)?;
    rows.iter().map(tenant).collect()
}

pub(super) async fn delete(connection: &mut SqliteConnection, id: TenantId, change: Change) -> Result<()> {
    let before = find_whole(connection, &id).await?;
    let no = before.no;
    let used = "SELECT EXISTS (SELECT 1 FROM sources WHERE tenant_no = ?1 AND deleted_at IS NULL) AS has_sources, \
                EXISTS (SELECT 1 FROM subscriptions WHERE tenant_no = ?1) AS has_subscriptions";
    let row = sqlx::query(used).bind(no.0).fetch_one(&mut *connection).await.map_err(statement)?;
    if get::<bool>(&row, "has_sources")? {
        return Err(failed_precondition("the tenant has sources; delete them first"));
    }
    if get::<bool>(&row, "has_subscriptions")? {
        return Err(failed_precondition("a subscription names the tenant; delete it first"));
    }
    let sql = concat!("UPDATE tenants SET deleted_at = ", database_now!(), " WHERE tenant_no = ?");
    super::grant::delete_of_tenant(connection, no, &change).await?;
    super::freed::insert(connection, &Name::Tenant(id), change.at).await?;
    sqlx::query(sql).bind(no.0).execute(&mut *connection).await.map_err(statement)?;
    append_in(connection, NewAuditEntry::tenant(&change, "DeleteTenant", Some(&before), None)).await
}

fn tenant(row: &SqliteRow) -> Result<Tenant> {
    Ok(Tenant {
        no: TenantNo(get(row, "tenant_no")?),
        id: parse(row, "tenant_id")?,
        display_name: get(row, "display_name")?,
        limits: limits(row)?,
        created_at: timestamp(row, "created_at")?,
    })
}

/// How much a tenant or a source may send.
pub(super) fn limits(row: &SqliteRow) -> Result<Limits> {
    let columns = [get(row, "limit_events")?, get(row, "limit_burst")?, get(row, "limit_bytes")?];
    Limits::from_columns(columns).ok_or_else(|| corrupt("limits"))
}
