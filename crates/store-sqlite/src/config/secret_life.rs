//! The end of secrets: retired, revoked, deleted.

use portero_store::{Change, NewAuditEntry, Result, Secret};
use portero_types::{SecretId, SecretNo, SourceId, TenantId, Timestamp};
use sqlx::SqliteConnection;

use super::secret::{few_at_once, read};
use super::{failed_precondition, source};
use crate::audit::append_in;
use crate::error::{not_found, statement};

/// The full name of a secret.
pub(super) struct Name {
    tenant: TenantId,
    source: SourceId,
    id: SecretId,
}

impl Name {
    pub(super) fn new(tenant: &TenantId, source: &SourceId, id: &SecretId) -> Self {
        Self { tenant: tenant.clone(), source: source.clone(), id: id.clone() }
    }
}

/// Sets when it ceases to verify.
pub(super) async fn retire(
    connection: &mut SqliteConnection,
    name: Name,
    at: Timestamp,
    change: Change,
) -> Result<Secret> {
    let now = change.at;
    let secret = find(connection, &name).await?;
    if secret.revoked_at.is_some() {
        return Err(failed_precondition("the secret is revoked: it verifies nothing already"));
    }
    if secret.not_after.is_some_and(|end| end <= now) {
        return Err(failed_precondition(
            "the secret has ended: what has ended does not begin again, so add another one",
        ));
    }
    let row = sqlx::query("UPDATE secrets SET not_after = ? WHERE secret_no = ? RETURNING *")
        .bind(at.as_micros())
        .bind(secret.no.0)
        .fetch_one(&mut *connection)
        .await
        .map_err(statement)?;
    few_at_once(connection, secret.source_no, change.at).await?;
    let retired = read(&row)?;
    record(connection, &change, "RetireSecret", &name, (&secret, Some(&retired))).await?;
    Ok(retired)
}

/// Revokes it; the first time stays.
pub(super) async fn revoke(connection: &mut SqliteConnection, name: Name, change: Change) -> Result<Secret> {
    let now = change.at;
    let secret = find(connection, &name).await?;
    refuse_from_now_on(connection, secret.no, now).await?;
    let sql =
        "UPDATE secrets SET revoked_at = coalesce(revoked_at, ?), unseen = 0 WHERE secret_no = ? RETURNING *";
    let row = sqlx::query(sql)
        .bind(now.as_micros())
        .bind(secret.no.0)
        .fetch_one(&mut *connection)
        .await
        .map_err(statement)?;
    let revoked = read(&row)?;
    // Revoked again, it stays as it is.
    if secret.revoked_at.is_none() {
        record(connection, &change, "RevokeSecret", &name, (&secret, Some(&revoked))).await?;
    }
    Ok(revoked)
}

/// Deletes it, unless it verifies.
pub(super) async fn delete(connection: &mut SqliteConnection, name: Name, change: Change) -> Result<()> {
    let now = change.at;
    let secret = find(connection, &name).await?;
    if secret.is_active(now) {
        return Err(failed_precondition(
            "the secret verifies requests: retire it, or revoke it, before it is deleted",
        ));
    }
    // An edge with an old configuration may still take it for a good one.
    refuse_from_now_on(connection, secret.no, now).await?;
    let delete = sqlx::query("DELETE FROM secrets WHERE secret_no = ?").bind(secret.no.0);
    delete.execute(&mut *connection).await.map_err(statement)?;
    record(connection, &change, "DeleteSecret", &name, (&secret, None)).await
}

/// Tells the audit log what a secret was and is.
async fn record(
    connection: &mut SqliteConnection,
    change: &Change,
    action: &str,
    name: &Name,
    (before, after): (&Secret, Option<&Secret>),
) -> Result<()> {
    let of = (&name.tenant, &name.source);
    append_in(connection, NewAuditEntry::secret(change, action, of, Some(before), after)).await
}

/// What accepting looks at.
async fn refuse_from_now_on(connection: &mut SqliteConnection, no: SecretNo, now: Timestamp) -> Result<()> {
    let sql = "INSERT INTO revoked_secrets (secret_no, revoked_at) VALUES (?, ?) ON CONFLICT (secret_no) DO NOTHING";
    let insert = sqlx::query(sql).bind(no.0).bind(now.as_micros());
    insert.execute(connection).await.map(drop).map_err(statement)
}

async fn find(connection: &mut SqliteConnection, name: &Name) -> Result<Secret> {
    let source_no = source::find(connection, &name.tenant, &name.source).await?;
    let row = sqlx::query("SELECT * FROM secrets WHERE source_no = ? AND secret_id = ?")
        .bind(source_no.0)
        .bind(name.id.as_str())
        .fetch_optional(connection)
        .await
        .map_err(statement)?;
    row.map(|row| read(&row)).transpose()?.ok_or_else(|| not_found("secret"))
}
