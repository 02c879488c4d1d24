//! Secrets.

use portero_store::overlap::most_at_once;
use portero_store::{Change, NewAuditEntry, NewSecret, Page, Result, Revision, Sealed, Secret};
use portero_types::limits::{ACTIVE_SECRETS_MAX, SECRETS_PER_SOURCE_MAX};
use portero_types::{SecretId, SecretNo, SourceId, SourceNo, TenantId, Timestamp};
use sqlx::sqlite::SqliteRow;
use sqlx::{SqliteConnection, SqlitePool};

use super::{database_now, failed_precondition, insert_error, one_more, page, raise_revision, source};
use crate::audit::append_in;
use crate::error::{not_found, statement};
use crate::row::{get, parse, timestamp, unsigned};

/// Secrets of a live source, by tenant and source; a condition follows.
macro_rules! secrets_of {
    ($rest:literal) => {
        concat!(
            "SELECT secrets.* FROM secrets JOIN sources ON sources.source_no = secrets.source_no ",
            "JOIN tenants ON tenants.tenant_no = sources.tenant_no ",
            "WHERE sources.deleted_at IS NULL AND tenants.deleted_at IS NULL ",
            "AND tenants.tenant_id = ? AND sources.source_id = ? ",
            $rest
        )
    };
}

pub(super) async fn add(connection: &mut SqliteConnection, new: NewSecret, change: Change) -> Result<Secret> {
    insert(connection, new, false, &change).await
}

async fn insert(
    connection: &mut SqliteConnection,
    new: NewSecret,
    unseen: bool,
    change: &Change,
) -> Result<Secret> {
    let source_no = source::find(connection, &new.tenant, &new.source).await?;
    if let Some(end) = new.retire_others_at {
        let sql = "UPDATE secrets SET not_after = ? WHERE source_no = ? AND not_after IS NULL \
                   AND revoked_at IS NULL AND not_before <= ? RETURNING *";
        let ended = sqlx::query(sql)
            .bind(end.as_micros())
            .bind(source_no.0)
            .bind(new.not_before.max(new.created_at).as_micros())
            .fetch_all(&mut *connection)
            .await
            .map_err(statement)?;
        for after in ended.iter().map(read) {
            let after = after?;
            let (before, of) = (Secret { not_after: None, ..after.clone() }, (&new.tenant, &new.source));
            let entry = NewAuditEntry::secret(change, "RetireSecret", of, Some(&before), Some(&after));
            append_in(connection, entry).await?;
        }
    }
    let sql = "INSERT INTO secrets (source_no, secret_id, sealed, not_before, created_at, unseen) \
               VALUES (?, ?, ?, ?, ?, ?) RETURNING *";
    let row = sqlx::query(sql)
        .bind(source_no.0)
        .bind(new.id.as_str())
        .bind(new.sealed.0.as_slice())
        .bind(new.not_before.as_micros())
        .bind(new.created_at.as_micros())
        .bind(unseen)
        .fetch_one(&mut *connection)
        .await
        .map_err(insert_error)?;
    sqlx::query("UPDATE sources SET secret_expected_until = NULL WHERE source_no = ?")
        .bind(source_no.0)
        .execute(&mut *connection)
        .await
        .map_err(statement)?;
    few_in_all(connection, source_no).await?;
    few_at_once(connection, source_no, change.at).await?;
    let (added, of) = (read(&row)?, (&new.tenant, &new.source));
    append_in(connection, NewAuditEntry::secret(change, "CreateSecret", of, None, Some(&added))).await?;
    Ok(added)
}

/// The gateway holds those that have not ended, and every change looks at them while it holds up all others.
async fn few_in_all(connection: &mut SqliteConnection, source_no: SourceNo) -> Result<()> {
    let sql = "SELECT count(*) AS kept FROM secrets WHERE source_no = ?";
    let row = sqlx::query(sql).bind(source_no.0).fetch_one(connection).await.map_err(statement)?;
    if unsigned::<usize>(&row, "kept")? <= SECRETS_PER_SOURCE_MAX {
        return Ok(());
    }
    Err(failed_precondition(format!(
        "the source keeps {SECRETS_PER_SOURCE_MAX} secrets, the most that it can: delete ended or revoked ones"
    )))
}

/// Refuses more of them at one moment than the edge is ready to try. Those that have ended are over.
pub(super) async fn few_at_once(
    connection: &mut SqliteConnection,
    source_no: SourceNo,
    now: Timestamp,
) -> Result<()> {
    if most_at_once(&spans(connection, source_no, now).await?) <= ACTIVE_SECRETS_MAX {
        return Ok(());
    }
    Err(failed_precondition(format!(
        "more than {ACTIVE_SECRETS_MAX} secrets of the source would verify at one moment: retire or revoke one first"
    )))
}

/// Whether the source waited for it. When it did not, nothing is written.
pub(super) async fn add_by_handshake(
    connection: &mut SqliteConnection,
    source_no: SourceNo,
    new: NewSecret,
    now: Timestamp,
    change: Change,
) -> Result<bool> {
    if !source::end_wait(connection, source_no, now).await? {
        return Ok(false);
    }
    raise_revision(connection).await?;
    if insert(connection, new, true, &change).await?.source_no == source_no {
        Ok(true)
    } else {
        Err(not_found("source"))
    }
}

async fn spans(
    connection: &mut SqliteConnection,
    source_no: SourceNo,
    now: Timestamp,
) -> Result<Vec<(Timestamp, Option<Timestamp>)>> {
    let sql = "SELECT not_before, not_after FROM secrets WHERE source_no = ? AND revoked_at IS NULL \
               AND (not_after IS NULL OR not_after > ?)";
    let query = sqlx::query(sql).bind(source_no.0).bind(now.as_micros());
    let rows = query.fetch_all(connection).await.map_err(statement)?;
    rows.iter().map(|row| Ok((timestamp(row, "not_before")?, not_after(row)?))).collect()
}

pub(super) async fn get_one(
    pool: &SqlitePool,
    tenant: &TenantId,
    source: &SourceId,
    id: &SecretId,
) -> Result<Option<Secret>> {
    let row = sqlx::query(secrets_of!("AND secrets.secret_id = ?"))
        .bind(tenant.as_str())
        .bind(source.as_str())
        .bind(id.as_str())
        .fetch_optional(pool)
        .await
        .map_err(statement)?;
    row.map(|row| read(&row)).transpose()
}

pub(super) async fn list(
    pool: &SqlitePool,
    tenant: &TenantId,
    source: &SourceId,
    after: Option<&SecretId>,
    limit: u32,
) -> Result<Page<Secret>> {
    let rows = sqlx::query(secrets_of!("AND secrets.secret_id > ? ORDER BY secrets.secret_id LIMIT ?"))
        .bind(tenant.as_str())
        .bind(source.as_str())
        .bind(after.map_or("", SecretId::as_str))
        .bind(one_more(limit))
        .fetch_all(pool)
        .await
        .map_err(statement)?;
    page(&rows, limit, read)
}

/// Every secret that is not past its end or its revocation by more than a day, by the database's clock. Spans tenants.
pub(super) async fn all_recent(connection: &mut SqliteConnection) -> Result<Vec<Secret>> {
    let sql = concat!(
        "SELECT * FROM secrets WHERE min(coalesce(not_after, revoked_at), coalesce(revoked_at, not_after)) IS NULL OR ",
        "min(coalesce(not_after, revoked_at), coalesce(revoked_at, not_after)) > ",
        database_now!(),
        " - 86400000000 ORDER BY source_no, secret_id"
    );
    let rows = sqlx::query(sql).fetch_all(connection).await.map_err(statement)?;
    rows.iter().map(read).collect()
}

/// Those whose last change is later than a revision.
pub(super) async fn changed(connection: &mut SqliteConnection, since: Revision) -> Result<Vec<Secret>> {
    let sql = "SELECT * FROM secrets WHERE revision > ?";
    let rows = sqlx::query(sql).bind(since.0).fetch_all(connection).await.map_err(statement)?;
    rows.iter().map(read).collect()
}

/// There is one writer, so nobody comes between.
pub(super) async fn take_unseen(
    connection: &mut SqliteConnection,
    (tenant, source, id): (TenantId, SourceId, SecretId),
    change: Change,
) -> Result<Option<Sealed>> {
    let sql = "UPDATE secrets SET unseen = 0 FROM sources JOIN tenants ON tenants.tenant_no = sources.tenant_no \
               WHERE sources.source_no = secrets.source_no AND sources.deleted_at IS NULL \
               AND tenants.deleted_at IS NULL AND tenants.tenant_id = ? AND sources.source_id = ? \
               AND secrets.secret_id = ? AND secrets.unseen RETURNING sealed";
    let row = sqlx::query(sql)
        .bind(tenant.as_str())
        .bind(source.as_str())
        .bind(id.as_str())
        .fetch_optional(&mut *connection)
        .await
        .map_err(statement)?;
    let Some(row) = row else { return Ok(None) };
    let name = format!("tenants/{tenant}/sources/{source}/secrets/{id}");
    append_in(connection, NewAuditEntry::deed(&change, "RevealSecret", name, Some(&tenant))).await?;
    Ok(Some(Sealed(get(&row, "sealed")?)))
}

fn not_after(row: &SqliteRow) -> Result<Option<Timestamp>> {
    Ok(get::<Option<i64>>(row, "not_after")?.map(Timestamp::from_micros))
}

pub(super) fn read(row: &SqliteRow) -> Result<Secret> {
    Ok(Secret {
        no: SecretNo(get(row, "secret_no")?),
        source_no: SourceNo(get(row, "source_no")?),
        id: parse(row, "secret_id")?,
        sealed: Sealed(get(row, "sealed")?),
        not_before: timestamp(row, "not_before")?,
        not_after: not_after(row)?,
        revoked_at: get::<Option<i64>>(row, "revoked_at")?.map(Timestamp::from_micros),
        unseen: get(row, "unseen")?,
        created_at: timestamp(row, "created_at")?,
    })
}
