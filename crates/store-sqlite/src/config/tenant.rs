//! Tenants.

use portero_store::{NewTenant, Page, Result, Tenant};
use portero_types::{TenantId, TenantNo};
use sqlx::sqlite::SqliteRow;
use sqlx::{SqliteConnection, SqlitePool};

use super::{database_now, failed_precondition, insert_error, one_more, page};
use crate::error::{not_found, statement};
use crate::row::{get, parse, timestamp};

/// The row number of a live tenant.
pub(super) async fn find(connection: &mut SqliteConnection, id: &TenantId) -> Result<TenantNo> {
    let sql = "SELECT tenant_no FROM tenants WHERE tenant_id = ? AND deleted_at IS NULL";
    let row = sqlx::query(sql).bind(id.as_str()).fetch_optional(connection).await.map_err(statement)?;
    get(&row.ok_or_else(|| not_found("tenant"))?, "tenant_no").map(TenantNo)
}

pub(super) async fn create(connection: &mut SqliteConnection, new: NewTenant) -> Result<Tenant> {
    let sql = "INSERT INTO tenants (tenant_id, display_name, created_at) VALUES (?, ?, ?) RETURNING *";
    let row = sqlx::query(sql)
        .bind(new.id.as_str())
        .bind(new.display_name)
        .bind(new.created_at.as_micros())
        .fetch_one(connection)
        .await
        .map_err(insert_error)?;
    tenant(&row)
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

pub(super) async fn delete(connection: &mut SqliteConnection, id: TenantId) -> Result<()> {
    let no = find(connection, &id).await?;
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
    sqlx::query(sql).bind(no.0).execute(connection).await.map(drop).map_err(statement)
}

fn tenant(row: &SqliteRow) -> Result<Tenant> {
    Ok(Tenant {
        no: TenantNo(get(row, "tenant_no")?),
        id: parse(row, "tenant_id")?,
        display_name: get(row, "display_name")?,
        created_at: timestamp(row, "created_at")?,
    })
}
