//! Repeats: what was there before, and how often it came again. Outside of the shards' locks.

use portero_store::Result;
use portero_types::{ReceiptId, SecretNo, SourceNo};
use sqlx::postgres::{PgBindIterExt, PgRow};
use uuid::Uuid;

use super::batch::{Batch, Count, Found, Known};
use super::digest;
use crate::error::{Effect, corrupt};
use crate::lease::rows;
use crate::pools::Pool;
use crate::row::get;

/// The receipts that hold the keys of these events, and which of the batch's secrets are revoked and sources deleted. They are
/// committed and durable, or they would not be visible.
pub(super) async fn find(pool: &Pool, batch: &Batch<'_>, repeated: &[usize]) -> Result<Found> {
    let events = || repeated.iter().map(|index| batch.event(*index));
    let query = sqlx::query(
        "SELECT g.ordinal, r.receipt_id, r.body_digest, NULL::bigint AS revoked, NULL::bigint AS deleted
         FROM unnest($1::bigint[], $2::text[], $3::text[]) WITH ORDINALITY AS g (tenant_no, provider, event_id, ordinal)
         JOIN receipts r ON (r.tenant_no, r.provider, r.event_id) = (g.tenant_no, g.provider, g.event_id)
         UNION ALL
         SELECT NULL, NULL, NULL, x.secret_no, NULL FROM revoked_secrets x WHERE x.secret_no = ANY ($4)
         UNION ALL
         SELECT NULL, NULL, NULL, NULL, d.source_no FROM sources d
         WHERE d.source_no = ANY ($5) AND d.deleted_at IS NOT NULL",
    )
    .bind(events().map(|event| event.tenant_no.0).bind_iter())
    .bind(events().map(|event| event.provider.as_str()).bind_iter())
    .bind(events().map(|event| event.event_id.as_str()).bind_iter())
    .bind(batch.secrets())
    .bind(batch.sources());
    let mut found = Found::default();
    for row in rows(pool, query, Effect::None).await? {
        match (get::<Option<i64>>(&row, "revoked")?, get::<Option<i64>>(&row, "deleted")?) {
            (Some(no), _) => {
                found.revoked.insert(SecretNo(no));
            }
            (None, Some(no)) => {
                found.deleted.insert(SourceNo(no));
            }
            (None, None) => found.known.push(known(&row, repeated)?),
        }
    }
    Ok(found)
}

fn known(row: &PgRow, repeated: &[usize]) -> Result<Known> {
    let ordinal = usize::try_from(get::<i64>(row, "ordinal")?).map_err(|_| corrupt("an ordinal"))?;
    let leader =
        ordinal.checked_sub(1).and_then(|place| repeated.get(place)).ok_or_else(|| corrupt("an ordinal"))?;
    let receipt_id = ReceiptId(get::<Uuid>(row, "receipt_id")?);
    Ok(Known { leader: *leader, receipt_id, body_digest: digest(row)? })
}

/// Counts repeats on their receipts. Counts may be lost, verdicts may not: a failure is told and passed over.
pub(super) async fn count(pool: &Pool, counts: &[(ReceiptId, Count)]) {
    if let Err(error) = add(pool, counts, Effect::None).await {
        tracing::warn!(receipts = counts.len(), cause = %error, "repeats could not be counted");
    }
}

/// Counts repeats on those of the receipts that are there. Rows are locked in the order of keys, like everywhere.
pub(super) async fn add(pool: &Pool, counts: &[(ReceiptId, Count)], effect: Effect) -> Result<()> {
    let query = sqlx::query(
        "WITH held AS MATERIALIZED (
             SELECT r.receipt_id, g.duplicates, g.conflicts
             FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS g (receipt_id, duplicates, conflicts)
             JOIN receipts r USING (receipt_id)
             ORDER BY r.tenant_no, r.provider, r.event_id
             FOR NO KEY UPDATE OF r
         )
         UPDATE receipts r
         SET duplicates = r.duplicates + h.duplicates, conflicts = r.conflicts + h.conflicts
         FROM held h WHERE r.receipt_id = h.receipt_id",
    )
    .bind(counts.iter().map(|(id, _)| id.0).bind_iter())
    .bind(counts.iter().map(|(_, count)| count.duplicates).bind_iter())
    .bind(counts.iter().map(|(_, count)| count.conflicts).bind_iter());
    rows(pool, query, effect).await.map(drop)
}
