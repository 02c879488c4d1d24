//! Sources. A deleted source's row stays behind its receipts, marked with the time of its deletion; its secrets, secret
//! settings and rejections go.

use std::collections::BTreeMap;

use portero_store::{
    Change, NewAuditEntry, NewSource, Page, Result, Revision, SealedSettings, Source, SourceUpdate,
    SourcesHeld,
};
use portero_types::{IngestKey, SourceId, SourceNo, TenantId, TenantNo, Timestamp};
use sqlx::postgres::PgRow;

use super::{Changing, not_found, one, one_more, page, tenants};
use crate::error::{Effect, corrupt};
use crate::lease::{PgQuery, rows};
use crate::pools::Pool;
use crate::row::{get, parse, unsigned};

/// A live source by its name.
macro_rules! named {
    () => {
        "SELECT s.*, t.tenant_id FROM sources s JOIN tenants t USING (tenant_no)
         WHERE t.tenant_id = $1 AND s.source_id = $2 AND s.deleted_at IS NULL AND t.deleted_at IS NULL"
    };
}

pub(super) fn read(row: &PgRow) -> Result<Source> {
    let key = <[u8; 16]>::try_from(get::<&[u8]>(row, "ingest_key")?);
    Ok(Source {
        no: SourceNo(get(row, "source_no")?),
        tenant_no: TenantNo(get(row, "tenant_no")?),
        tenant: parse(row, "tenant_id")?,
        id: parse(row, "source_id")?,
        provider: parse(row, "provider")?,
        preset: get(row, "preset")?,
        recipe: get(row, "recipe")?,
        ingest_key: IngestKey::from_bytes(key.map_err(|_| corrupt("sources.ingest_key"))?),
        public_urls: get(row, "public_urls")?,
        settings: serde_json::from_str(get(row, "settings")?).map_err(|_| corrupt("sources.settings"))?,
        sealed_settings: sealed(row)?,
        secret_expected_until: get::<Option<i64>>(row, "secret_expected_until")?.map(Timestamp::from_micros),
        limits: tenants::limits(row)?,
        created_at: Timestamp::from_micros(get(row, "created_at")?),
    })
}

/// The secret settings of a source.
pub(super) fn sealed(row: &PgRow) -> Result<SealedSettings> {
    SealedSettings::from_text(get(row, "sealed_settings")?).ok_or_else(|| corrupt("sources.sealed_settings"))
}

pub(super) fn all() -> PgQuery<'static> {
    sqlx::query(
        "SELECT s.*, t.tenant_id FROM sources s JOIN tenants t USING (tenant_no)
         WHERE s.deleted_at IS NULL AND t.deleted_at IS NULL ORDER BY t.tenant_id, s.source_id",
    )
}

/// Those whose last change is later than a revision.
pub(super) fn changed(since: Revision) -> PgQuery<'static> {
    sqlx::query(
        "SELECT s.*, t.tenant_id FROM sources s JOIN tenants t USING (tenant_no)
         WHERE s.deleted_at IS NULL AND t.deleted_at IS NULL AND s.revision > $1",
    )
    .bind(since.0)
}

pub(super) async fn create(pool: &Pool, source: NewSource, change: &Change) -> Result<Source> {
    source.check()?;
    let [events, burst, bytes] = source.limits.columns();
    let query = sqlx::query(
        "INSERT INTO sources (tenant_no, source_id, provider, preset, recipe, ingest_key, public_urls, settings,
                              secret_expected_until, created_at, limit_events, limit_burst, limit_bytes,
                              sealed_settings)
         SELECT tenant_no, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14
         FROM tenants WHERE tenant_id = $1 AND deleted_at IS NULL
         RETURNING *, $1 AS tenant_id",
    )
    .bind(source.tenant.as_str())
    .bind(source.id.as_str())
    .bind(source.provider.as_str())
    .bind(source.preset.as_str())
    .bind(source.recipe.as_str())
    .bind(source.ingest_key.as_bytes().as_slice())
    .bind(&source.public_urls)
    .bind(settings_text(&source.settings))
    .bind(source.secret_expected_until.map(Timestamp::as_micros))
    .bind(source.created_at.as_micros())
    .bind(events)
    .bind(burst)
    .bind(bytes)
    .bind(source.sealed_settings.to_text());
    let mut changing = Changing::begin(pool, change).await?;
    let room = held(&mut changing, &source.tenant).await.and_then(|held| source.check_room(held));
    let created = match room {
        Ok(()) => changing.create(query, "source or its ingest key", "tenant").await,
        Err(full) => Err(full),
    };
    let created = created.and_then(|row| read(&row));
    let outcome = recorded(&mut changing, "CreateSource", None, created).await;
    changing.end(outcome).await
}

pub(super) async fn update(pool: &Pool, update: SourceUpdate, change: &Change) -> Result<Source> {
    update.check()?;
    let mut changing = Changing::begin(pool, change).await?;
    let outcome = match find_in(&mut changing, &update.tenant, &update.id).await {
        Ok(before) => {
            let after = update_in(&mut changing, &update, &before).await;
            recorded(&mut changing, "UpdateSource", Some(&before), after).await
        }
        Err(error) => Err(error),
    };
    changing.end(outcome).await
}

/// What a tenant has of sources. Changes are serial, so nobody adds to it in between.
async fn held(changing: &mut Changing, tenant: &TenantId) -> Result<SourcesHeld> {
    let query = sqlx::query(
        "SELECT count(*) AS sources, coalesce(sum(octet_length(recipe)), 0)::bigint AS recipe_bytes
         FROM sources s JOIN tenants t USING (tenant_no)
         WHERE t.tenant_id = $1 AND t.deleted_at IS NULL AND s.deleted_at IS NULL",
    );
    let found = changing.rows(query.bind(tenant.as_str().to_owned())).await?;
    let row = found.first().ok_or_else(|| corrupt("sources"))?;
    Ok(SourcesHeld { count: unsigned(row, "sources")?, recipe_bytes: unsigned(row, "recipe_bytes")? })
}

async fn update_in(changing: &mut Changing, update: &SourceUpdate, before: &Source) -> Result<Source> {
    let sealed = update.sealed_after(before)?;
    if update.recipe.as_ref().is_some_and(|recipe| !recipe.is_empty()) {
        update.check_room(before, held(changing, &update.tenant).await?)?;
    }
    let [events, burst, bytes] = update.limits.unwrap_or_default().columns();
    let query = sqlx::query(
        "UPDATE sources s
         SET preset = coalesce($3, s.preset), recipe = coalesce($4, s.recipe),
             public_urls = coalesce($5, s.public_urls), settings = coalesce($6, s.settings),
             secret_expected_until = CASE WHEN $7 THEN $8 ELSE s.secret_expected_until END,
             limit_events = CASE WHEN $9 THEN $10 ELSE s.limit_events END,
             limit_burst = CASE WHEN $9 THEN $11 ELSE s.limit_burst END,
             limit_bytes = CASE WHEN $9 THEN $12 ELSE s.limit_bytes END,
             sealed_settings = coalesce($13, s.sealed_settings)
         FROM tenants t
         WHERE t.tenant_no = s.tenant_no AND t.tenant_id = $1 AND t.deleted_at IS NULL
           AND s.source_id = $2 AND s.deleted_at IS NULL
         RETURNING s.*, t.tenant_id",
    )
    .bind(update.tenant.as_str())
    .bind(update.id.as_str())
    .bind(update.preset.as_deref())
    .bind(update.recipe.as_deref())
    .bind(update.public_urls.as_deref())
    .bind(update.settings.as_ref().map(settings_text))
    .bind(update.secret_expected_until.is_some())
    .bind(update.secret_expected_until.flatten().map(Timestamp::as_micros))
    .bind(update.limits.is_some())
    .bind(events)
    .bind(burst)
    .bind(bytes)
    .bind(sealed.as_ref().map(SealedSettings::to_text));
    one(&changing.rows(query).await?, read)?.ok_or_else(|| not_found("source"))
}

pub(super) async fn get_one(pool: &Pool, tenant: &TenantId, id: &SourceId) -> Result<Option<Source>> {
    let query = sqlx::query(named!()).bind(tenant.as_str()).bind(id.as_str());
    one(&rows(pool, query, Effect::None).await?, read)
}

pub(super) async fn list(
    pool: &Pool,
    tenant: &TenantId,
    after: Option<&SourceId>,
    limit: u32,
) -> Result<Page<Source>> {
    let query = sqlx::query(
        "SELECT s.*, t.tenant_id FROM sources s JOIN tenants t USING (tenant_no)
         WHERE t.tenant_id = $1 AND s.source_id > $2 AND s.deleted_at IS NULL AND t.deleted_at IS NULL
         ORDER BY s.source_id LIMIT $3",
    )
    .bind(tenant.as_str())
    .bind(after.map_or("", SourceId::as_str))
    .bind(one_more(limit));
    page(&rows(pool, query, Effect::None).await?, limit, read)
}

pub(super) async fn delete(pool: &Pool, tenant: &TenantId, id: &SourceId, change: &Change) -> Result<()> {
    let query = sqlx::query(
        "WITH gone AS (
             UPDATE sources s SET deleted_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
                                  sealed_settings = '{}'
             FROM tenants t
             WHERE t.tenant_no = s.tenant_no AND t.tenant_id = $1 AND t.deleted_at IS NULL
               AND s.source_id = $2 AND s.deleted_at IS NULL
             RETURNING s.source_no
         ), secrets_gone AS (
             DELETE FROM secrets WHERE source_no IN (SELECT source_no FROM gone)
         ), rejections_gone AS (
             DELETE FROM rejections WHERE source_no IN (SELECT source_no FROM gone)
         )
         SELECT source_no FROM gone",
    )
    .bind(tenant.as_str())
    .bind(id.as_str());
    let mut changing = Changing::begin(pool, change).await?;
    let outcome = match find_in(&mut changing, tenant, id).await {
        Ok(before) => match changing.rows(query).await {
            Ok(_) => {
                let entry = NewAuditEntry::source(&changing.change, "DeleteSource", Some(&before), None);
                changing.record(entry).await
            }
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    changing.end(outcome).await
}

/// The live source, as the change finds it. Nobody seals its settings again until the change is over.
async fn find_in(changing: &mut Changing, tenant: &TenantId, id: &SourceId) -> Result<Source> {
    let query =
        sqlx::query(concat!(named!(), " FOR NO KEY UPDATE OF s")).bind(tenant.as_str()).bind(id.as_str());
    one(&changing.rows(query).await?, read)?.ok_or_else(|| not_found("source"))
}

/// Tells the audit log what became of a source.
async fn recorded(
    changing: &mut Changing,
    action: &str,
    before: Option<&Source>,
    after: Result<Source>,
) -> Result<Source> {
    let after = after?;
    changing.record(NewAuditEntry::source(&changing.change, action, before, Some(&after))).await?;
    Ok(after)
}

fn settings_text(settings: &BTreeMap<String, String>) -> String {
    serde_json::to_string(settings).expect("texts can be written as JSON")
}
