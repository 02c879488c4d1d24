//! Names that were given up, by the transactions that delete what had them.

use portero_store::{FreedName, Name, Result, Revision};
use portero_types::{SubscriptionId, Timestamp};
use sqlx::postgres::PgRow;

use super::Changing;
use crate::error::corrupt;
use crate::lease::PgQuery;
use crate::row::get;

pub(super) fn read(row: &PgRow) -> Result<FreedName> {
    let name = Name::from_columns(get(row, "kind")?, get(row, "name")?);
    let name = name.ok_or_else(|| corrupt("freed_names.name"))?;
    Ok(FreedName { name, at: Timestamp::from_micros(get(row, "freed_at")?) })
}

pub(super) fn all() -> PgQuery<'static> {
    sqlx::query("SELECT kind, name, freed_at FROM freed_names ORDER BY kind, name")
}

/// Those that were given up after a revision, perhaps once more.
pub(super) fn changed(since: Revision) -> PgQuery<'static> {
    sqlx::query("SELECT kind, name, freed_at FROM freed_names WHERE revision > $1").bind(since.0)
}

/// Those of these tenants that are not deleted yet give up their names: before they are marked.
pub(super) async fn by_tenants(changing: &mut Changing, tenants: &[i64]) -> Result<()> {
    let query = sqlx::query(
        "INSERT INTO freed_names (kind, name, freed_at)
         SELECT 'tenant', tenant_id, $2 FROM tenants WHERE tenant_no = ANY ($1) AND deleted_at IS NULL
         ON CONFLICT (kind, name) DO UPDATE SET freed_at = greatest(freed_names.freed_at, excluded.freed_at)",
    )
    .bind(tenants)
    .bind(changing.change.at.as_micros());
    changing.rows(query).await.map(drop)
}

/// A subscription gives up its name.
pub(super) async fn by_subscription(changing: &mut Changing, id: &SubscriptionId) -> Result<()> {
    let query = sqlx::query(
        "INSERT INTO freed_names (kind, name, freed_at) VALUES ('subscription', $1, $2)
         ON CONFLICT (kind, name) DO UPDATE SET freed_at = greatest(freed_names.freed_at, excluded.freed_at)",
    )
    .bind(id.as_str())
    .bind(changing.change.at.as_micros());
    changing.rows(query).await.map(drop)
}
