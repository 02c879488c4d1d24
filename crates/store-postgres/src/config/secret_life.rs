//! The end of secrets: retired, revoked, deleted. Changes are serial, so what is read here stays until the commit.

use portero_store::{Change, Error, ErrorKind, NewAuditEntry, Result, Secret};
use portero_types::{SecretId, SecretNo, SourceId, TenantId, Timestamp};

use super::{Changing, not_found, one, secrets};
use crate::pools::Pool;

/// Sets when it ceases to verify.
pub(super) async fn retire(
    pool: &Pool,
    tenant: &TenantId,
    source: &SourceId,
    id: &SecretId,
    at: Timestamp,
    change: &Change,
) -> Result<Secret> {
    let mut changing = Changing::begin(pool, change).await?;
    let outcome = retire_in(&mut changing, tenant, source, id, at, change.at).await;
    changing.end(outcome).await
}

async fn retire_in(
    changing: &mut Changing,
    tenant: &TenantId,
    source: &SourceId,
    id: &SecretId,
    at: Timestamp,
    now: Timestamp,
) -> Result<Secret> {
    let secret = find(changing, tenant, source, id).await?;
    if secret.revoked_at.is_some() {
        return Err(refused("the secret is revoked: it verifies nothing already"));
    }
    if secret.not_after.is_some_and(|end| end <= now) {
        return Err(refused("the secret has ended: what has ended does not begin again, so add another one"));
    }
    let end = sqlx::query("UPDATE secrets SET not_after = $2 WHERE secret_no = $1 RETURNING *")
        .bind(secret.no.0)
        .bind(at.as_micros());
    let retired = one(&changing.rows(end).await?, secrets::read)?.ok_or_else(|| not_found("secret"))?;
    secrets::few_at_once(changing, retired.source_no).await?;
    record(changing, "RetireSecret", (tenant, source), (&secret, Some(&retired))).await?;
    Ok(retired)
}

/// Revokes it, unless it is revoked.
pub(super) async fn revoke(
    pool: &Pool,
    tenant: &TenantId,
    source: &SourceId,
    id: &SecretId,
    change: &Change,
) -> Result<Secret> {
    let mut changing = Changing::begin(pool, change).await?;
    match revoke_in(&mut changing, tenant, source, id, change.at).await {
        // Nothing changed, and the revision stays.
        Ok((secret, false)) => {
            changing.tx.roll_back().await;
            Ok(secret)
        }
        outcome => changing.end(outcome.map(|(secret, _)| secret)).await,
    }
}

async fn revoke_in(
    changing: &mut Changing,
    tenant: &TenantId,
    source: &SourceId,
    id: &SecretId,
    now: Timestamp,
) -> Result<(Secret, bool)> {
    let secret = find(changing, tenant, source, id).await?;
    if secret.revoked_at.is_some() {
        return Ok((secret, false));
    }
    refuse_from_now_on(changing, secret.no, now).await?;
    let mark =
        sqlx::query("UPDATE secrets SET revoked_at = $2, unseen = false WHERE secret_no = $1 RETURNING *")
            .bind(secret.no.0)
            .bind(now.as_micros());
    let revoked = one(&changing.rows(mark).await?, secrets::read)?.ok_or_else(|| not_found("secret"))?;
    record(changing, "RevokeSecret", (tenant, source), (&secret, Some(&revoked))).await?;
    Ok((revoked, true))
}

/// Deletes it, unless it verifies.
pub(super) async fn delete(
    pool: &Pool,
    tenant: &TenantId,
    source: &SourceId,
    id: &SecretId,
    change: &Change,
) -> Result<()> {
    let mut changing = Changing::begin(pool, change).await?;
    let outcome = delete_in(&mut changing, tenant, source, id, change.at).await;
    changing.end(outcome).await
}

async fn delete_in(
    changing: &mut Changing,
    tenant: &TenantId,
    source: &SourceId,
    id: &SecretId,
    now: Timestamp,
) -> Result<()> {
    let secret = find(changing, tenant, source, id).await?;
    if secret.is_active(now) {
        return Err(refused("the secret verifies requests: retire it, or revoke it, before it is deleted"));
    }
    // A gateway with an old configuration may still take it for a good one.
    refuse_from_now_on(changing, secret.no, now).await?;
    let delete = sqlx::query("DELETE FROM secrets WHERE secret_no = $1").bind(secret.no.0);
    changing.rows(delete).await?;
    record(changing, "DeleteSecret", (tenant, source), (&secret, None)).await
}

/// Tells the audit log what a secret was and is.
async fn record(
    changing: &mut Changing,
    action: &str,
    of: (&TenantId, &SourceId),
    (before, after): (&Secret, Option<&Secret>),
) -> Result<()> {
    changing.record(NewAuditEntry::secret(&changing.change, action, of, Some(before), after)).await
}

/// What the accept statement looks at.
async fn refuse_from_now_on(changing: &mut Changing, no: SecretNo, now: Timestamp) -> Result<()> {
    let insert = sqlx::query(
        "INSERT INTO revoked_secrets (secret_no, revoked_at) VALUES ($1, $2) ON CONFLICT (secret_no) DO NOTHING",
    );
    changing.rows(insert.bind(no.0).bind(now.as_micros())).await.map(drop)
}

async fn find(
    changing: &mut Changing,
    tenant: &TenantId,
    source: &SourceId,
    id: &SecretId,
) -> Result<Secret> {
    let query = secrets::by_name(tenant, source, id);
    one(&changing.rows(query).await?, secrets::read)?.ok_or_else(|| not_found("secret"))
}

fn refused(message: &'static str) -> Error {
    Error::new(ErrorKind::FailedPrecondition, message)
}
