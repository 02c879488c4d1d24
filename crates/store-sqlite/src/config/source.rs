//! Sources.

use portero_store::{
    Change, NewAuditEntry, NewSource, Page, Result, Revision, SealedSettings, Source, SourceUpdate,
    SourcesHeld,
};
use portero_types::{IngestKey, SourceId, SourceNo, TenantId, TenantNo, Timestamp};
use sqlx::sqlite::SqliteRow;
use sqlx::{SqliteConnection, SqlitePool};

use super::{database_now, insert_error, one_more, page, tenant};
use crate::audit::append_in;
use crate::error::{corrupt, not_found, statement};
use crate::log::json;
use crate::row::{bytes, from_json, get, parse, timestamp, unsigned};

/// Live sources with their tenants; a condition follows.
macro_rules! live_sources {
    ($rest:literal) => {
        concat!(
            "SELECT sources.*, tenants.tenant_id FROM sources JOIN tenants ON tenants.tenant_no = sources.tenant_no ",
            "WHERE sources.deleted_at IS NULL AND tenants.deleted_at IS NULL ",
            $rest
        )
    };
}

/// The row number of a live source.
pub(super) async fn find(
    connection: &mut SqliteConnection,
    tenant: &TenantId,
    id: &SourceId,
) -> Result<SourceNo> {
    let sql = live_sources!("AND tenants.tenant_id = ? AND sources.source_id = ?");
    let row = sqlx::query(sql)
        .bind(tenant.as_str())
        .bind(id.as_str())
        .fetch_optional(connection)
        .await
        .map_err(statement)?;
    get(&row.ok_or_else(|| not_found("source"))?, "source_no").map(SourceNo)
}

/// The live source, as a change finds it.
async fn find_whole(connection: &mut SqliteConnection, tenant: &TenantId, id: &SourceId) -> Result<Source> {
    let sql = live_sources!("AND tenants.tenant_id = ? AND sources.source_id = ?");
    let query = sqlx::query(sql).bind(tenant.as_str()).bind(id.as_str());
    let row = query.fetch_optional(connection).await.map_err(statement)?;
    source(&row.ok_or_else(|| not_found("source"))?)
}

pub(super) async fn create(
    connection: &mut SqliteConnection,
    new: NewSource,
    change: Change,
) -> Result<Source> {
    new.check()?;
    let tenant_no = tenant::find(connection, &new.tenant).await?;
    new.check_room(held(connection, tenant_no).await?)?;
    let sql = "INSERT INTO sources (tenant_no, source_id, provider, preset, recipe, ingest_key, public_urls, settings, \
               secret_expected_until, created_at, limit_events, limit_burst, limit_bytes, sealed_settings) \
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING source_no";
    let [events, burst, bytes] = new.limits.columns();
    let row = sqlx::query(sql)
        .bind(tenant_no.0)
        .bind(new.id.as_str())
        .bind(new.provider.as_str())
        .bind(new.preset.as_str())
        .bind(new.recipe.as_str())
        .bind(new.ingest_key.as_bytes().as_slice())
        .bind(json(&new.public_urls))
        .bind(json(&new.settings))
        .bind(new.secret_expected_until.map(Timestamp::as_micros))
        .bind(new.created_at.as_micros())
        .bind(events)
        .bind(burst)
        .bind(bytes)
        .bind(new.sealed_settings.to_text())
        .fetch_one(&mut *connection)
        .await
        .map_err(insert_error)?;
    let created = Source {
        no: SourceNo(get(&row, "source_no")?),
        tenant_no,
        tenant: new.tenant,
        id: new.id,
        provider: new.provider,
        preset: new.preset,
        recipe: new.recipe,
        ingest_key: new.ingest_key,
        public_urls: new.public_urls,
        settings: new.settings,
        sealed_settings: new.sealed_settings,
        secret_expected_until: new.secret_expected_until,
        limits: new.limits,
        created_at: new.created_at,
    };
    append_in(connection, NewAuditEntry::source(&change, "CreateSource", None, Some(&created))).await?;
    Ok(created)
}

/// What a tenant has of sources.
async fn held(connection: &mut SqliteConnection, tenant_no: TenantNo) -> Result<SourcesHeld> {
    let sql = "SELECT count(*) AS sources, coalesce(sum(length(CAST(recipe AS BLOB))), 0) AS recipe_bytes \
               FROM sources WHERE tenant_no = ? AND deleted_at IS NULL";
    let row = sqlx::query(sql).bind(tenant_no.0).fetch_one(connection).await.map_err(statement)?;
    Ok(SourcesHeld { count: unsigned(&row, "sources")?, recipe_bytes: unsigned(&row, "recipe_bytes")? })
}

pub(super) async fn update(
    connection: &mut SqliteConnection,
    update: SourceUpdate,
    change: Change,
) -> Result<Source> {
    update.check()?;
    let before = find_whole(connection, &update.tenant, &update.id).await?;
    let no = before.no;
    if update.recipe.as_ref().is_some_and(|recipe| !recipe.is_empty()) {
        update.check_room(&before, held(connection, before.tenant_no).await?)?;
    }
    let sql = "UPDATE sources SET preset = coalesce(?, preset), recipe = coalesce(?, recipe), \
               public_urls = coalesce(?, public_urls), settings = coalesce(?, settings), \
               secret_expected_until = CASE WHEN ? THEN ? ELSE secret_expected_until END, \
               limit_events = CASE WHEN ? THEN ? ELSE limit_events END, \
               limit_burst = CASE WHEN ? THEN ? ELSE limit_burst END, \
               limit_bytes = CASE WHEN ? THEN ? ELSE limit_bytes END, \
               sealed_settings = coalesce(?, sealed_settings) WHERE source_no = ?";
    let sealed = update.sealed_after(&before)?;
    let (limited, [events, burst, bytes]) =
        (update.limits.is_some(), update.limits.unwrap_or_default().columns());
    sqlx::query(sql)
        .bind(update.preset)
        .bind(update.recipe)
        .bind(update.public_urls.as_ref().map(json))
        .bind(update.settings.as_ref().map(json))
        .bind(update.secret_expected_until.is_some())
        .bind(update.secret_expected_until.flatten().map(Timestamp::as_micros))
        .bind(limited)
        .bind(events)
        .bind(limited)
        .bind(burst)
        .bind(limited)
        .bind(bytes)
        .bind(sealed.as_ref().map(SealedSettings::to_text))
        .bind(no.0)
        .execute(&mut *connection)
        .await
        .map_err(statement)?;
    let sql = live_sources!("AND sources.source_no = ?");
    let row = sqlx::query(sql).bind(no.0).fetch_one(&mut *connection).await.map_err(statement)?;
    let after = source(&row)?;
    append_in(connection, NewAuditEntry::source(&change, "UpdateSource", Some(&before), Some(&after)))
        .await?;
    Ok(after)
}

/// Ends the wait for a secret. Whether the source waited at `now`.
pub(super) async fn end_wait(
    connection: &mut SqliteConnection,
    no: SourceNo,
    now: Timestamp,
) -> Result<bool> {
    let sql = "UPDATE sources SET secret_expected_until = NULL \
               WHERE source_no = ? AND deleted_at IS NULL AND secret_expected_until > ?";
    let query = sqlx::query(sql).bind(no.0).bind(now.as_micros());
    Ok(query.execute(connection).await.map_err(statement)?.rows_affected() > 0)
}

/// Whether a live source waits for a secret at `now`.
pub(super) async fn waits(pool: &SqlitePool, no: SourceNo, now: Timestamp) -> Result<bool> {
    let sql =
        "SELECT 1 FROM sources WHERE source_no = ? AND deleted_at IS NULL AND secret_expected_until > ?";
    let query = sqlx::query(sql).bind(no.0).bind(now.as_micros());
    Ok(query.fetch_optional(pool).await.map_err(statement)?.is_some())
}

pub(super) async fn get_one(pool: &SqlitePool, tenant: &TenantId, id: &SourceId) -> Result<Option<Source>> {
    let sql = live_sources!("AND tenants.tenant_id = ? AND sources.source_id = ?");
    let row = sqlx::query(sql)
        .bind(tenant.as_str())
        .bind(id.as_str())
        .fetch_optional(pool)
        .await
        .map_err(statement)?;
    row.map(|row| source(&row)).transpose()
}

pub(super) async fn list(
    pool: &SqlitePool,
    tenant: &TenantId,
    after: Option<&SourceId>,
    limit: u32,
) -> Result<Page<Source>> {
    let sql = live_sources!(
        "AND tenants.tenant_id = ? AND sources.source_id > ? ORDER BY sources.source_id LIMIT ?"
    );
    let rows = sqlx::query(sql)
        .bind(tenant.as_str())
        .bind(after.map_or("", SourceId::as_str))
        .bind(one_more(limit))
        .fetch_all(pool)
        .await
        .map_err(statement)?;
    page(&rows, limit, source)
}

/// Every live source. Spans tenants.
pub(super) async fn all(connection: &mut SqliteConnection) -> Result<Vec<Source>> {
    let sql = live_sources!("ORDER BY tenants.tenant_id, sources.source_id");
    let rows = sqlx::query(sql).fetch_all(connection).await.map_err(statement)?;
    rows.iter().map(source).collect()
}

/// Those whose last change is later than a revision.
pub(super) async fn changed(connection: &mut SqliteConnection, since: Revision) -> Result<Vec<Source>> {
    let sql = live_sources!("AND sources.revision > ?");
    let rows = sqlx::query(sql).bind(since.0).fetch_all(connection).await.map_err(statement)?;
    rows.iter().map(source).collect()
}

pub(super) async fn delete(
    connection: &mut SqliteConnection,
    tenant: TenantId,
    id: SourceId,
    change: Change,
) -> Result<()> {
    let before = find_whole(connection, &tenant, &id).await?;
    let no = before.no;
    for sql in ["DELETE FROM secrets WHERE source_no = ?", "DELETE FROM rejections WHERE source_no = ?"] {
        sqlx::query(sql).bind(no.0).execute(&mut *connection).await.map_err(statement)?;
    }
    let sql = concat!(
        "UPDATE sources SET sealed_settings = '{}', deleted_at = ",
        database_now!(),
        " WHERE source_no = ?"
    );
    sqlx::query(sql).bind(no.0).execute(&mut *connection).await.map_err(statement)?;
    append_in(connection, NewAuditEntry::source(&change, "DeleteSource", Some(&before), None)).await
}

/// The secret settings of a source.
pub(super) fn sealed(row: &SqliteRow) -> Result<SealedSettings> {
    SealedSettings::from_text(get(row, "sealed_settings")?).ok_or_else(|| corrupt("sealed_settings"))
}

fn source(row: &SqliteRow) -> Result<Source> {
    Ok(Source {
        no: SourceNo(get(row, "source_no")?),
        tenant_no: TenantNo(get(row, "tenant_no")?),
        tenant: parse(row, "tenant_id")?,
        id: parse(row, "source_id")?,
        provider: parse(row, "provider")?,
        preset: get(row, "preset")?,
        recipe: get(row, "recipe")?,
        ingest_key: IngestKey::from_bytes(bytes(row, "ingest_key")?),
        public_urls: from_json(row, "public_urls")?,
        settings: from_json(row, "settings")?,
        sealed_settings: sealed(row)?,
        secret_expected_until: get::<Option<i64>>(row, "secret_expected_until")?.map(Timestamp::from_micros),
        limits: tenant::limits(row)?,
        created_at: timestamp(row, "created_at")?,
    })
}
