//! Secrets, sealed. A source's secrets overlap as planned, and never more of them than the edge is ready to try.

use portero_store::{
    Change, Error, ErrorKind, NewAuditEntry, NewSecret, Page, Result, Revision, Sealed, Secret,
};
use portero_types::limits::{ACTIVE_SECRETS_MAX, SECRETS_PER_SOURCE_MAX};
use portero_types::{SecretId, SecretNo, SourceId, SourceNo, TenantId, Timestamp};
use sqlx::postgres::PgRow;

use super::{Changing, not_found, one, one_more, page};
use crate::audit::{append_in, lock};
use crate::error::Effect;
use crate::lease::{PgQuery, Tx, rows};
use crate::pools::Pool;
use crate::row::{get, parse};

/// Joins a secret to the names that lead to it.
macro_rules! named {
    ($rest:literal) => {
        concat!(
            "SELECT k.* FROM secrets k JOIN sources s USING (source_no) JOIN tenants t USING (tenant_no)
             WHERE s.deleted_at IS NULL AND t.deleted_at IS NULL ",
            $rest
        )
    };
}

pub(super) fn read(row: &PgRow) -> Result<Secret> {
    Ok(Secret {
        no: SecretNo(get(row, "secret_no")?),
        source_no: SourceNo(get(row, "source_no")?),
        id: parse(row, "secret_id")?,
        sealed: Sealed(get(row, "sealed")?),
        not_before: Timestamp::from_micros(get(row, "not_before")?),
        not_after: get::<Option<i64>>(row, "not_after")?.map(Timestamp::from_micros),
        revoked_at: get::<Option<i64>>(row, "revoked_at")?.map(Timestamp::from_micros),
        unseen: get(row, "unseen")?,
        created_at: Timestamp::from_micros(get(row, "created_at")?),
    })
}

/// Every secret that is not past its end or its revocation by more than a day, by the database's clock.
pub(super) fn all_recent() -> PgQuery<'static> {
    sqlx::query(named!(
        "AND (least(k.not_after, k.revoked_at) IS NULL
              OR least(k.not_after, k.revoked_at)
                 > (extract(epoch FROM clock_timestamp() - interval '1 day') * 1000000)::bigint)
         ORDER BY k.source_no, k.secret_id"
    ))
}

/// Those whose last change is later than a revision.
pub(super) fn changed(since: Revision) -> PgQuery<'static> {
    sqlx::query(named!("AND k.revision > $1")).bind(since.0)
}

pub(super) async fn add(pool: &Pool, secret: NewSecret, change: &Change) -> Result<Secret> {
    let mut changing = Changing::begin(pool, change).await?;
    let outcome = add_in(&mut changing, &secret, false).await;
    changing.end(outcome).await
}

/// The wait is looked at before anything is locked: who calls here is not known, and must not hold up changes.
pub(super) async fn add_by_handshake(
    pool: &Pool,
    source_no: SourceNo,
    secret: &NewSecret,
    now: Timestamp,
    change: &Change,
) -> Result<bool> {
    let waits = sqlx::query(
        "SELECT 1 FROM sources WHERE source_no = $1 AND deleted_at IS NULL AND secret_expected_until > $2",
    )
    .bind(source_no.0)
    .bind(now.as_micros());
    if rows(pool, waits, Effect::None).await?.is_empty() {
        return Ok(false);
    }
    let mut changing = Changing::begin(pool, change).await?;
    match add_once_in(&mut changing, source_no, secret, now).await {
        // Somebody else was first: nothing changed, and the revision stays.
        Ok(false) => {
            changing.tx.roll_back().await;
            Ok(false)
        }
        outcome => changing.end(outcome).await,
    }
}

async fn add_once_in(
    changing: &mut Changing,
    source_no: SourceNo,
    secret: &NewSecret,
    now: Timestamp,
) -> Result<bool> {
    let end_wait = sqlx::query(
        "UPDATE sources SET secret_expected_until = NULL
         WHERE source_no = $1 AND deleted_at IS NULL AND secret_expected_until > $2 RETURNING source_no",
    )
    .bind(source_no.0)
    .bind(now.as_micros());
    if changing.rows(end_wait).await?.is_empty() {
        return Ok(false);
    }
    if add_in(changing, secret, true).await?.source_no == source_no {
        Ok(true)
    } else {
        Err(not_found("source"))
    }
}

async fn add_in(changing: &mut Changing, secret: &NewSecret, unseen: bool) -> Result<Secret> {
    if let Some(at) = secret.retire_others_at {
        let retire = sqlx::query(
            "UPDATE secrets k SET not_after = $3 FROM sources s JOIN tenants t USING (tenant_no)
             WHERE s.source_no = k.source_no AND t.tenant_id = $1 AND s.source_id = $2 AND k.not_after IS NULL
               AND k.revoked_at IS NULL AND k.not_before <= $4 AND s.deleted_at IS NULL AND t.deleted_at IS NULL
             RETURNING k.*",
        )
        .bind(secret.tenant.as_str())
        .bind(secret.source.as_str())
        .bind(at.as_micros())
        .bind(secret.not_before.max(secret.created_at).as_micros());
        for after in changing.rows(retire).await?.iter().map(read) {
            let after = after?;
            let before = Secret { not_after: None, ..after.clone() };
            let of = (&secret.tenant, &secret.source);
            let entry =
                NewAuditEntry::secret(&changing.change, "RetireSecret", of, Some(&before), Some(&after));
            changing.record(entry).await?;
        }
    }
    let insert = sqlx::query(
        "INSERT INTO secrets (source_no, secret_id, sealed, not_before, created_at, unseen)
         SELECT s.source_no, $3, $4, $5, $6, $7 FROM sources s JOIN tenants t USING (tenant_no)
         WHERE t.tenant_id = $1 AND s.source_id = $2 AND s.deleted_at IS NULL AND t.deleted_at IS NULL
         RETURNING *",
    )
    .bind(secret.tenant.as_str())
    .bind(secret.source.as_str())
    .bind(secret.id.as_str())
    .bind(secret.sealed.0.as_slice())
    .bind(secret.not_before.as_micros())
    .bind(secret.created_at.as_micros())
    .bind(unseen);
    let added = read(&changing.create(insert, "secret", "source").await?)?;
    let end_wait = sqlx::query(
        "UPDATE sources SET secret_expected_until = NULL
         WHERE source_no = $1 AND secret_expected_until IS NOT NULL",
    )
    .bind(added.source_no.0);
    changing.rows(end_wait).await?;

    few_in_all(changing, added.source_no).await?;
    few_at_once(changing, added.source_no).await?;
    let of = (&secret.tenant, &secret.source);
    let entry = NewAuditEntry::secret(&changing.change, "CreateSecret", of, None, Some(&added));
    changing.record(entry).await?;
    Ok(added)
}

/// Every gateway holds those that have not ended, and every change looks at them while it holds up all others.
async fn few_in_all(changing: &mut Changing, source_no: SourceNo) -> Result<()> {
    let kept = sqlx::query("SELECT count(*) AS kept FROM secrets WHERE source_no = $1").bind(source_no.0);
    let kept = one(&changing.rows(kept).await?, |row| get::<i64>(row, "kept"))?.unwrap_or(0);
    if usize::try_from(kept).is_ok_and(|kept| kept <= SECRETS_PER_SOURCE_MAX) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::FailedPrecondition,
        format!(
            "the source keeps {SECRETS_PER_SOURCE_MAX} secrets, the most that it can: delete ended or revoked ones"
        ),
    ))
}

/// The number of active secrets can only reach its peak at the moment when one of them begins. Those that have ended are over.
pub(super) async fn few_at_once(changing: &mut Changing, source_no: SourceNo) -> Result<()> {
    let peak = sqlx::query(
        "SELECT coalesce(max(active), 0) AS peak FROM (
             SELECT (SELECT count(*) FROM secrets o WHERE o.source_no = k.source_no AND o.revoked_at IS NULL
                     AND o.not_before <= k.not_before AND (o.not_after IS NULL OR o.not_after > k.not_before)
                     AND (o.not_after IS NULL OR o.not_after > $2)) AS active
             FROM secrets k WHERE k.source_no = $1 AND k.revoked_at IS NULL AND (k.not_after IS NULL OR k.not_after > $2)
         ) moments",
    )
    .bind(source_no.0)
    .bind(changing.change.at.as_micros());
    let peak = one(&changing.rows(peak).await?, |row| get::<i64>(row, "peak"))?.unwrap_or(0);
    if usize::try_from(peak).is_ok_and(|peak| peak <= ACTIVE_SECRETS_MAX) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::FailedPrecondition,
        format!(
            "more than {ACTIVE_SECRETS_MAX} secrets of the source would verify at one moment: \
             retire or revoke one first"
        ),
    ))
}

pub(super) async fn get_one(
    pool: &Pool,
    tenant: &TenantId,
    source: &SourceId,
    id: &SecretId,
) -> Result<Option<Secret>> {
    one(&rows(pool, by_name(tenant, source, id), Effect::None).await?, read)
}

pub(super) fn by_name<'q>(tenant: &'q TenantId, source: &'q SourceId, id: &'q SecretId) -> PgQuery<'q> {
    sqlx::query(named!("AND t.tenant_id = $1 AND s.source_id = $2 AND k.secret_id = $3"))
        .bind(tenant.as_str())
        .bind(source.as_str())
        .bind(id.as_str())
}

pub(super) async fn list(
    pool: &Pool,
    tenant: &TenantId,
    source: &SourceId,
    after: Option<&SecretId>,
    limit: u32,
) -> Result<Page<Secret>> {
    let query = sqlx::query(named!(
        "AND t.tenant_id = $1 AND s.source_id = $2 AND k.secret_id > $3 ORDER BY k.secret_id LIMIT $4"
    ))
    .bind(tenant.as_str())
    .bind(source.as_str())
    .bind(after.map_or("", SecretId::as_str))
    .bind(one_more(limit));
    page(&rows(pool, query, Effect::None).await?, limit, read)
}

/// Whoever comes second waits for the row, and finds it seen. The revision stays; its row is locked for the audit log.
pub(super) async fn take_unseen(
    pool: &Pool,
    tenant: &TenantId,
    source: &SourceId,
    id: &SecretId,
    change: &Change,
) -> Result<Option<Sealed>> {
    let mut tx = Tx::begin(pool).await?;
    match take_unseen_in(&mut tx, tenant, source, id, change).await {
        Ok(Some(sealed)) => tx.commit().await.map(|()| Some(sealed)),
        outcome @ (Ok(None) | Err(_)) => {
            tx.roll_back().await;
            outcome
        }
    }
}

async fn take_unseen_in(
    tx: &mut Tx,
    tenant: &TenantId,
    source: &SourceId,
    id: &SecretId,
    change: &Change,
) -> Result<Option<Sealed>> {
    lock(tx).await?;
    let query = sqlx::query(
        "UPDATE secrets k SET unseen = false FROM sources s JOIN tenants t USING (tenant_no)
         WHERE s.source_no = k.source_no AND s.deleted_at IS NULL AND t.deleted_at IS NULL
           AND t.tenant_id = $1 AND s.source_id = $2 AND k.secret_id = $3 AND k.unseen
         RETURNING k.sealed",
    )
    .bind(tenant.as_str())
    .bind(source.as_str())
    .bind(id.as_str());
    let taken = one(&tx.rows(query).await?, |row| Ok(Sealed(get(row, "sealed")?)))?;
    if taken.is_some() {
        let name = format!("tenants/{tenant}/sources/{source}/secrets/{id}");
        append_in(tx, NewAuditEntry::deed(change, "RevealSecret", name, Some(tenant))).await?;
    }
    Ok(taken)
}
